"""Baselines as level lines: what rules that learn nothing get, beside what trials get."""

from __future__ import annotations

from ...store.rows import Stream
from ...store.statistics import mean
from ..formatting import counted, number
from .model import Key, Line, Scale
from .snapshot import Snapshot, finite

__all__ = ["baseline_lines"]


def baseline_lines(snapshot: Snapshot, stream: Stream, x: Scale) -> tuple[list[Line], list[Key]]:
    """Return a line for each baseline, the best one thicker, and their legend.

    Args:
        snapshot: the study; with several objectives no baseline has one value, so none is drawn.
        stream: whose seeds they are measured on.
        x: from where to where they go.
    """
    if snapshot.meta.objectives:
        return [], []
    found = {row.baseline: row.values.get(str(stream), ()) for row in snapshot.baseline_rows}
    values = {name: mean(given) for name, given in found.items() if given and finite(mean(given))}
    ordered = sorted(values, key=lambda name: -snapshot.sign * values[name])
    lines = [
        Line(
            ((x.low, values[name]), (x.high, values[name])),
            "base",
            tip=f"baseline {name}: {number(values[name])} ({counted(len(found[name]), 'seed')})",
            thin=place > 0,
            dashed=True,
        )
        for place, name in enumerate(ordered)
    ]
    keys = [Key(f"baseline {name}", "base", "dashed") for name in ordered[:1]]
    if len(ordered) > 1:
        keys[0] = Key(f"baselines, the best {ordered[0]}", "base", "dashed")
    return lines, keys
