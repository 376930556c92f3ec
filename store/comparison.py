"""Is A better than B: difference of means and probability of improvement, both with intervals.

Over the seeds of two configurations; what both ran on is compared seed by seed, by the very
numbers that a study's conclusion goes by (`paired.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ConfigError
from .paired import FEWEST_PAIRS, chance_of_better, paired_interval
from .statistics import IQM_MIN_SEEDS, NO_INTERVAL, Interval, iqm, mean, t_quantile, welch_degrees

__all__ = ["Comparison", "compare", "unpaired_interval"]


@dataclass(frozen=True)
class Comparison:
    """What two samples say about each other.

    Attributes:
        means: of A and of B.
        iqms: interquartile means; None below 8 seeds.
        seeds: of A and of B.
        paired: the differences are between equal seeds.
        difference: mean of A minus mean of B; positive is better when A is.
        difference_interval: its 95 % interval.
        probability: that a run of A beats a run of B, see `chance_of_better`.
        probability_interval: its 95 % interval.
    """

    means: tuple[float, float]
    iqms: tuple[float | None, float | None]
    seeds: tuple[int, int]
    paired: bool
    difference: float
    difference_interval: Interval
    probability: float
    probability_interval: Interval

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @property
    def verdict(self) -> str:
        """Return in words whether the interval of the difference leaves 0 out."""
        low, high = self.difference_interval.low, self.difference_interval.high
        if low is None or high is None:
            alike = self.paired and self.seeds[0] >= FEWEST_PAIRS
            if not alike or not math.isfinite(self.difference):
                return "too few seeds to say; run both on at least 5"
            if self.difference == 0.0:
                return "no difference: both have the same value on every seed"
            low = high = self.difference  # on every seed
        if low > 0.0:
            return "A is better"
        return "B is better" if high < 0.0 else "these seeds do not tell them apart"


def compare(
    a: Sequence[float], b: Sequence[float], goal: str = "maximize", paired: bool = False
) -> Comparison:
    """Compare values of A and B, one a seed.

    Args:
        a: at least one value.
        b: likewise.
        goal: `maximize`, or `minimize` where smaller values are better.
        paired: value i of both comes from the same seed.

    Raises:
        ConfigError: no values, or paired samples of unlike length.
    """
    if not a or not b:
        raise ConfigError("there is nothing to compare: one side has no values")
    if paired and len(a) != len(b):
        raise ConfigError(f"paired samples of {len(a)} and {len(b)} values")
    sign = 1.0 if goal == "maximize" else -1.0
    ours, theirs = [sign * value for value in a], [sign * value for value in b]
    found = paired_interval(ours, theirs) if paired else unpaired_interval(ours, theirs)
    probability, spread = chance_of_better(ours, theirs, paired=paired)
    return Comparison(
        means=(mean(a), mean(b)),
        iqms=(_iqm(a), _iqm(b)),
        seeds=(len(a), len(b)),
        paired=paired,
        difference=mean(ours) - mean(theirs),
        difference_interval=found,
        probability=probability,
        probability_interval=spread,
    )


def _iqm(values: Sequence[float]) -> float | None:
    return iqm(values) if len(values) >= IQM_MIN_SEEDS else None


def unpaired_interval(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the 95 % interval of a difference of means with unlike variances (Welch 1947).

    The degrees of freedom are rounded down, which widens the interval. There is none below 5
    values of either, or where one is not finite.
    """
    if min(len(a), len(b)) < FEWEST_PAIRS or not all(map(math.isfinite, [*a, *b])):
        return NO_INTERVAL
    shares = [_variance(values) / len(values) for values in (a, b)]
    centre, total = mean(a) - mean(b), sum(shares)
    if total == 0.0:
        return Interval(centre, centre, "t")
    reach = t_quantile(0.975, welch_degrees(shares, (len(a), len(b)))) * math.sqrt(total)
    return Interval(centre - reach, centre + reach, "t")


def _variance(values: Sequence[float]) -> float:
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)
