"""Several objectives at once: every pair of them, and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

from ...store.leaderboard import Entry
from ..formatting import counted, number
from .model import XY, Dot, Key, Line, Picture
from .scales import value_scale
from .snapshot import Snapshot, finite

__all__ = ["pareto"]

_MOST_PANELS = 6
_DOTS = 1_000


def pareto(snapshot: Snapshot) -> Picture:
    """Draw finished trials by every pair of objectives; of two, join the front."""
    title = "Pareto front"
    objectives = snapshot.meta.objectives
    if len(objectives) < 2:
        return Picture("pareto", title, "The study has one objective.")
    placed = [e for e in snapshot.entries if len(e.objectives) == len(objectives)]
    placed = [entry for entry in placed if all(map(finite, entry.objectives))]
    if not placed:
        return Picture("pareto", title, "No trial has finished its run yet.")
    kept = set(snapshot.thinned([entry.trial for entry in placed], _DOTS))
    shown = [entry for entry in placed if entry.trial in kept]
    group = [e for e in shown if e.confirmed and e.front is not None]
    group = group or [entry for entry in shown if entry.front is not None]
    front = [entry for entry in group if entry.front == 1]
    pairs = list(combinations(range(len(objectives)), 2))[:_MOST_PANELS]
    panels = [_panel(snapshot, shown, front, pair, len(pairs) == 1) for pair in pairs]
    confirmed = bool(group) and group[0].confirmed
    kind = "confirmed" if confirmed else "finished"
    verb = "is" if len(front) == 1 else "are"
    caption = (
        f"{len(front)} of {counted(len(group), f'{kind} trial')} {verb} on the front: no other is "
        "better in one objective and no worse in the others."
    )
    if not group:
        caption = "No trial keeps the constraints, so that there is no front."
    if confirmed:
        caption += " Their values are from selection seeds, the others' from the search."
    if snapshot.volume is not None:
        caption += f" Hypervolume: {snapshot.volume:.3f} of the box between best and worst values."
    return Picture("pareto", title, caption, panels)


def _panel(
    snapshot: Snapshot,
    shown: Sequence[Entry],
    front: Sequence[Entry],
    pair: tuple[int, int],
    alone: bool,
) -> XY:
    names = [str(snapshot.meta.objectives[index]["name"]) for index in pair]
    goals = [str(snapshot.meta.objectives[index]["goal"]) for index in pair]
    labels = [f"{name}, {goal}" for name, goal in zip(names, goals, strict=True)]
    x = value_scale([entry.objectives[pair[0]] for entry in shown], labels[0])
    y = value_scale([entry.objectives[pair[1]] for entry in shown], labels[1])
    best = {entry.trial for entry in front}
    marks: list[Line | Dot] = []
    keys = [Key("on the front", "c1", "dot"), Key("dominated", "muted", "dot")]
    if alone and len(front) > 1:
        marks.append(Line(_stairs(front, pair, goals), "c1"))
    for entry in sorted(shown, key=lambda entry: entry.trial in best):
        at, height = (entry.objectives[index] for index in pair)
        tip = f"trial {entry.trial}: {names[0]} {number(at)}, {names[1]} {number(height)}"
        style, shape = ("c1", "dot") if entry.trial in best else ("muted", "dot")
        if entry.feasible is False:
            style, shape, tip = "bad", "cross", f"{tip}; violates a constraint"
        marks.append(Dot(at, height, style, entry.trial, tip, shape))
    if any(entry.feasible is False for entry in shown):
        keys.append(Key("violates a constraint", "bad", "cross"))
    title = " and ".join(name.removeprefix("eval/") for name in names)
    return XY(title, x, y, tuple(marks), tuple(keys), wide=alone)


def _stairs(
    front: Sequence[Entry], pair: tuple[int, int], goals: Sequence[str]
) -> tuple[tuple[float, float], ...]:
    """Return the corners of the line around what the front dominates.

    A corner between two neighbours has the worse of their values in each objective.
    """
    worse = [min if goal == "maximize" else max for goal in goals]
    points = sorted((entry.objectives[pair[0]], entry.objectives[pair[1]]) for entry in front)
    corners = points[:1]
    for before, now in pairwise(points):
        x, y = (choose(one, other) for choose, one, other in zip(worse, before, now, strict=True))
        corners += [(x, y), now]
    return tuple(corners)
