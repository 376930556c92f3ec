"""The search over time: the value of each trial, and the best value so far."""

from __future__ import annotations

import math

from ...store.rows import Stream, TrialState
from ..formatting import number
from .baseline_lines import baseline_lines
from .model import XY, Dot, Key, Line, Picture, Scale
from .scales import leaders_scale
from .snapshot import Snapshot, finite

__all__ = ["history"]

_LOST = (TrialState.DIVERGED, TrialState.FAILED)
_MOST = 1_500
_SHORT = Key("not finished: value at its last rung", "muted")


def history(snapshot: Snapshot) -> Picture:
    """Draw the value of every trial, or its last value at a rung, over its number."""
    rows = [snapshot.rows[trial] for trial in sorted(snapshot.thinned(snapshot.searched, _MOST))]
    ended = {row.trial: row.value for row in rows if row.value is not None and finite(row.value)}
    stopped = {
        row.trial: row.rung_value
        for row in rows
        if row.trial not in ended and row.rung_value is not None and finite(row.rung_value)
    }
    if not ended and not stopped:
        return Picture("history", "History", "No trial has a value yet.")
    first = snapshot.winner
    known = [row.value for row in rows if row.trial in (0, first.trial if first else 0)]
    lines, lines_keys = baseline_lines(snapshot, Stream.SEARCH, snapshot.numbers_scale())
    kept = [*filter(finite, known), *(line.points[0][1] for line in lines)]
    every = [*ended.values(), *stopped.values()]
    y = leaders_scale(every, snapshot.meta.metric, snapshot.sign, kept)
    x = snapshot.numbers_scale()
    marks: list[Line | Dot] = [*lines]
    keys: list[Key] = []
    lost = [row.trial for row in rows if row.state in _LOST]
    for trial, value in stopped.items():
        if trial not in lost:
            tip = f"trial {trial}: {number(value)} at rung {snapshot.rows[trial].rung}, "
            marks.append(_dot(y, trial, value, "muted", tip + snapshot.state(trial)))
    best = _best_so_far(snapshot)
    if best:
        marks.append(Line((*best, (x.high, best[-1][1])), "c1", step=True))
        keys += [Key("finished", "c0"), Key("best so far", "c1", "line")]
    for trial, value in ended.items():
        marks.append(_dot(y, trial, value, "c0", f"trial {trial}: {number(value)}"))
    for trial in lost:
        tip = f"trial {trial}: {snapshot.rows[trial].state}"
        marks.append(Dot(trial, y.low, "bad", trial, tip, "cross"))
    if first is not None and first.search_value is not None and finite(first.search_value):
        marks.append(Dot(first.trial, first.search_value, "c1", shape="ring"))
        keys.append(Key("first on the leaderboard", "c1", "ring"))
    keys += [_SHORT] if any(trial not in lost for trial in stopped) else []
    outside = sum(not y.holds(value) for value in every)
    keys += [Key(f"outside the scale ({outside})", "muted", "out")] if outside else []
    keys += [Key("diverged or failed", "bad", "cross")] if lost else []
    keys += lines_keys
    caption = (
        f"Every trial in the order it was proposed{snapshot.kept_words(_MOST)}, by its value in "
        "the search. The leaderboard also has the values of confirmed trials on new seeds."
    )
    panel = XY("Values in the search", x, y, tuple(marks), tuple(keys), wide=True)
    return Picture("history", "History", caption, (panel,))


def _dot(y: Scale, trial: int, value: float, style: str, tip: str) -> Dot:
    """Return a trial's dot; on the edge and pointing outwards where the scale has no room."""
    shape = "dot" if y.holds(value) else "out"
    return Dot(trial, min(max(value, y.low), y.high), style, trial, tip, shape)


def _best_so_far(snapshot: Snapshot) -> list[tuple[float, float]]:
    """Return (trial, value) wherever the best value of a finished run improved."""
    best = -math.inf
    found: list[tuple[float, float]] = []
    for trial, row in sorted(snapshot.rows.items()):
        if row.value is not None and finite(row.value) and snapshot.sign * row.value > best:
            best = snapshot.sign * row.value
            found.append((trial, row.value))
    return found
