"""What population based training did: knobs of every member over its run, and who copied whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...spaces.space import Parameter
from ...store.rows import DecisionRow
from ..formatting import counted, param, steps
from .model import XY, Dot, Key, Line, Picture, Scale
from .scales import knob_share, knob_ticks, steps_scale
from .snapshot import Snapshot

__all__ = ["schedule"]

_MEMBERS = 40
_KNOBS = 12
_FIFTHS = 5


def schedule(snapshot: Snapshot) -> Picture:
    """Draw the value of every knob over env steps, a line a member; copies join two of them."""
    title = "Schedules"
    copies = [row for row in snapshot.decisions if row.source is not None]
    if not copies:
        return Picture("schedule", title, "No trial has copied another one.")
    place = {entry.trial: entry.rank for entry in snapshot.entries}
    members = sorted(snapshot.thinned(snapshot.searched, _MEMBERS), key=lambda n: -place[n])
    ways = {trial: _way(snapshot, trial) for trial in members}
    last = max((way[-1][0] for way in ways.values()), default=0)
    named = dict(snapshot.study.space.keyed)
    moved = [key for key in named if _moves(named[key], ways)]
    panels = [
        _panel(snapshot, key, named[key], members, ways, copies, float(last))
        for key in moved[:_KNOBS]
    ]
    caption = (
        f"Each line is a member{snapshot.kept_words(_MEMBERS)}; {counted(len(copies), 'copy')}, "
        "each an upright line from the value of the member that was copied to a dot, the value "
        "that the copy went on with."
    ).replace("copys", "copies")
    if len(moved) > _KNOBS:
        caption += f" Left out: {counted(len(moved) - _KNOBS, 'knob')}."
    keys = (Key("first on the leaderboard", "c1", "line"), Key("best fifth", "s4", "line"),
            Key("worst fifth", "s0", "line"), Key("copy", "muted"))  # fmt: skip
    return Picture("schedule", title, caption, panels, keys)


Way = Sequence[tuple[int, Mapping[str, Any]]]
"""(env steps, the knobs from there on), from 0 to the end of the run."""


def _way(snapshot: Snapshot, trial: int) -> Way:
    changes = snapshot.points.changes.get(trial, ())
    starts = [0, *(at for at, _ in changes)]
    knobs = [*(old for _, old in changes), snapshot.rows[trial].params]
    reached = [at for at, found in snapshot.points.values.items() if trial in found]
    end = max([*reached, starts[-1]])
    return [*zip(starts, knobs, strict=True), (end, knobs[-1])]


def _moves(parameter: Parameter, ways: Mapping[int, Way]) -> bool:
    """Return whether some member's value of a knob changes on the way."""
    name = parameter.name
    return any(len({repr(knobs.get(name)) for _, knobs in way}) > 1 for way in ways.values())


def _height(parameter: Parameter, knobs: Mapping[str, Any]) -> float | None:
    """Return where a configuration lies on the axis of a knob; None where it has no such value."""
    if parameter.name not in knobs or not parameter.active(knobs):
        return None
    value = knobs[parameter.name]
    inside = parameter.distribution.why_not(value) is None
    return knob_share(parameter.distribution, value) if inside else None


def _panel(
    snapshot: Snapshot,
    key: str,
    parameter: Parameter,
    members: Sequence[int],
    ways: Mapping[int, Way],
    copies: Sequence[DecisionRow],
    last: float,
) -> XY:
    marks: list[Line | Dot] = []
    ends: list[Dot] = []
    for row in copies:
        joined = _joined(parameter, row, ways)
        if joined is not None:
            said = f"trial {row.trial} copied trial {row.source} at {steps(row.env_steps)}"
            marks.append(Line(joined, "muted", row.trial, said, thin=True))
            ends.append(Dot(*joined[1], "muted", row.trial, said))
    for at, trial in enumerate(members):
        heights = [(float(x), _height(parameter, knobs)) for x, knobs in ways[trial]]
        points = tuple((x, y) for x, y in heights if y is not None)
        if len(points) < 2:
            continue
        first = snapshot.winner is not None and trial == snapshot.winner.trial
        style = "c1" if first else f"s{at * _FIFTHS // len(members)}"
        told = ", ".join(
            f"{param(knobs.get(parameter.name))} from {steps(x)}" for x, knobs in ways[trial][:-1]
        )
        said = f"trial {trial}: {parameter.name} {told}"
        marks.append(Line(points, style, trial, said, step=True, thin=not first))
    y = Scale(-0.03, 1.03, knob_ticks(parameter.distribution))
    return XY(key, steps_scale(last, ""), y, (*marks, *ends))


def _joined(
    parameter: Parameter, row: DecisionRow, ways: Mapping[int, Way]
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return the line from the copied member's value to that of the copy."""
    if row.source is None or row.params is None or not {row.source, row.trial} <= ways.keys():
        return None
    source = next(knobs for x, knobs in reversed(ways[row.source]) if x < row.env_steps or x == 0)
    before, after = _height(parameter, source), _height(parameter, row.params)
    if before is None or after is None:
        return None
    return (float(row.env_steps), before), (float(row.env_steps), after)
