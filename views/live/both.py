"""Two studies side by side: the best value so far of both in one chart."""

from __future__ import annotations

from collections.abc import Sequence

from ..charts.model import XY, Key, Line, Picture
from ..charts.scales import steps_scale, value_scale
from ..charts.snapshot import Snapshot, finite
from ..formatting import number, steps

__all__ = ["best_of_both"]

_TITLE = "Best so far"


def best_of_both(sides: Sequence[Snapshot]) -> Picture:
    """Draw the best value in the search over the env steps of all trials that had ended by then.

    Args:
        sides: two studies.
    """
    metrics = {(side.meta.metric, side.meta.goal) for side in sides}
    if len(metrics) > 1:
        told = " and ".join(f"{metric} ({goal})" for metric, goal in sorted(metrics))
        return Picture("both", _TITLE, f"They do not optimise the same: {told}.")
    ways = [_way(side) for side in sides]
    if not any(ways):
        return Picture("both", _TITLE, "No trial of either has finished its run yet.")
    y = value_scale((value for way in ways for _, value in way), sides[0].meta.metric)
    end = max(at for way in ways for at, _ in way)
    x = steps_scale(end, "training env steps of ended trials")
    lines: list[Line] = []
    for place, (side, way) in enumerate(zip(sides, ways, strict=True)):
        if way:
            at, value = way[-1]
            tip = f"{side.folder.name}: {number(value)} at {steps(round(at))}"
            lines.append(Line(tuple(way), f"c{place}", tip=tip, step=True))
    keys = [Key(side.folder.name, f"c{place}", "line") for place, side in enumerate(sides)]
    caption = (
        "The best value of the search over the env steps of all trials that had ended. The value "
        "of a best trial is a little high; compare winners on test seeds with hpo compare."
    )
    panel = XY(_TITLE, x, y, tuple(lines), tuple(keys), wide=True)
    return Picture("both", _TITLE, caption, (panel,))


def _way(side: Snapshot) -> list[tuple[float, float]]:
    """Return (env steps, best value) wherever the best value of a finished run improved."""
    ended = [row for row in side.rows.values() if row.ended_at is not None]
    spent, best = 0, None
    found: list[tuple[float, float]] = []
    for row in sorted(ended, key=lambda row: (row.ended_at, row.trial)):
        spent += row.env_steps
        if row.value is None or not finite(row.value):
            continue
        if best is None or side.sign * row.value > side.sign * best:
            best = row.value
            found.append((float(spent), best))
    if best is not None:
        found.append((float(spent), best))
    return found
