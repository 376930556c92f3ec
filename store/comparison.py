"""Is A better than B: difference of means and probability of improvement, both with intervals.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
section 4.3, over the seeds of two configurations. Where both ran on the same seeds, differences
are taken seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ConfigError
from .statistics import IQM_MIN_SEEDS, NO_INTERVAL, Interval, interval, iqm, mean, t_quantile

__all__ = ["FEWEST_SEEDS", "Comparison", "compare", "probability_of_improvement"]

_RESAMPLES = 2_000
FEWEST_SEEDS = 5
"""Below so many there is no interval."""


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
        probability: that a run of A beats a run of B, ties counting half.
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
            return "too few seeds to say; run both on at least 5"
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
    found = (
        interval([x - y for x, y in zip(ours, theirs, strict=True)])
        if paired
        else _welch(ours, theirs)
    )
    probability, spread = probability_of_improvement(ours, theirs)
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


def _welch(a: Sequence[float], b: Sequence[float]) -> Interval:
    """The interval of a difference of means with unlike variances (Welch 1947).

    The degrees of freedom are rounded down, which widens the interval.
    """
    if min(len(a), len(b)) < FEWEST_SEEDS or not all(map(math.isfinite, [*a, *b])):
        return NO_INTERVAL
    shares = [_variance(values) / len(values) for values in (a, b)]
    centre, total = mean(a) - mean(b), sum(shares)
    if total == 0.0:
        return Interval(centre, centre, "t")
    below = sum(share**2 / (len(values) - 1) for share, values in zip(shares, (a, b), strict=True))
    reach = t_quantile(0.975, max(1, int(total**2 / below))) * math.sqrt(total)
    return Interval(centre - reach, centre + reach, "t")


def _variance(values: Sequence[float]) -> float:
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def probability_of_improvement(a: Sequence[float], b: Sequence[float]) -> tuple[float, Interval]:
    """Return P(A > B) + P(A = B) / 2 over all pairs of seeds, and its bootstrap interval.

    The seeds of either side are resampled on their own, 2,000 times, always the same draws.

    >>> probability_of_improvement([2.0, 3.0], [1.0, 2.0])[0]
    0.875
    """
    import numpy as np

    one, other = np.asarray(a, np.float64), np.asarray(b, np.float64)
    wins: np.ndarray = (one[:, None] > other[None, :]) + 0.5 * (one[:, None] == other[None, :])
    probability = float(np.mean(wins))
    if min(len(a), len(b)) < FEWEST_SEEDS:
        return probability, NO_INTERVAL
    draws = np.random.Generator(np.random.PCG64(0))
    rows = draws.integers(0, len(a), (_RESAMPLES, len(a)))
    columns = draws.integers(0, len(b), (_RESAMPLES, len(b)))
    # Weights of each seed in a resample turn the double mean into two small products.
    left = np.stack([np.bincount(row, minlength=len(a)) for row in rows]) / len(a)
    right = np.stack([np.bincount(column, minlength=len(b)) for column in columns]) / len(b)
    sampled = np.einsum("ri,ij,rj->r", left, wins, right, optimize=True)
    low, high = np.quantile(sampled, [0.025, 0.975])
    return probability, Interval(float(low), float(high), "bootstrap")
