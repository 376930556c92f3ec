"""The main effect of a knob: the mean value along its axis, with a 95 % band.

Means of groups of neighbouring trials rather than a fitted curve: nothing is drawn where no trial
was, and each band is that of a mean of trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .explained import Column
from .statistics import Interval, interval, mean

__all__ = ["EffectPoint", "main_effect"]

_GROUP = 8
_MOST_GROUPS = 8
_FEWEST = 5


@dataclass(frozen=True)
class EffectPoint:
    """One group of trials.

    Attributes:
        place: where they lie on the axis on average, from 0 to 1; of choices their number.
        trials: how many.
        mean: of their values.
        interval: its 95 % interval.
    """

    place: float
    trials: int
    mean: float
    interval: Interval


def main_effect(column: Column, values: Sequence[float]) -> tuple[EffectPoint, ...]:
    """Return the main effect of a knob over the trials in which it was active.

    Choices, and axes of a few values, have a group a value, those of fewer than 5 trials left out;
    others have up to 8 groups of equally many trials, at least 8. Empty where two groups are not
    to be had.

    Args:
        column: the knob.
        values: one finite value a trial.
    """
    known = sorted(
        (place, value)
        for place, value in zip(column.places, values, strict=True)
        if place is not None
    )
    distinct = {place for place, _ in known}
    if column.choices or len(distinct) <= _MOST_GROUPS:
        groups = [[pair for pair in known if pair[0] == place] for place in sorted(distinct)]
    else:
        count = min(_MOST_GROUPS, len(known) // _GROUP)
        ends = [round(index * len(known) / count) for index in range(count + 1)] if count else []
        groups = [known[low:high] for low, high in pairwise(ends)]
    points = tuple(_point(group) for group in groups if len(group) >= _FEWEST)
    return points if len(points) > 1 else ()


def _point(group: Sequence[tuple[float, float]]) -> EffectPoint:
    values = [value for _, value in group]
    return EffectPoint(
        mean([place for place, _ in group]), len(group), mean(values), interval(values)
    )
