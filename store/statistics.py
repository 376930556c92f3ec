"""What a few seeds say: mean, median, IQM, and honest 95 % intervals around them.

Below 5 seeds there is no interval; 5 to 10 seeds give a t-interval of the mean; more give a
percentile bootstrap, its levels widened for small samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from ..errors import ConfigError

if TYPE_CHECKING:  # numpy is loaded on use: reading verbs that need no interval start faster
    import numpy as np

Aggregate = Literal["mean", "median", "min", "max", "iqm"]
IntervalKind = Literal["none", "t", "bootstrap", "hall", "exact", "score"]
AGGREGATES: tuple[Aggregate, ...] = ("mean", "median", "min", "max", "iqm")
IQM_MIN_SEEDS = 8
LEVEL = 0.95
RESAMPLES = 2_000
_T_MIN_SEEDS, _T_MAX_SEEDS = 5, 10


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval, or none.

    Attributes:
        low, high: its ends, None when there are too few seeds to say.
        kind: `none`, or how it was computed.
    """

    low: float | None
    high: float | None
    kind: IntervalKind


NO_INTERVAL = Interval(None, None, "none")


def mean(values: Sequence[float]) -> float:
    """The mean, correctly rounded, so that the order of seeds never matters.

    >>> mean([1.0, 2.0, 6.0])
    3.0
    """
    _some(values, "mean")
    try:
        return math.fsum(values) / len(values)
    except (ValueError, OverflowError):  # inf - inf, or beyond the largest number
        return sum(values) / len(values)


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle; NaN if any value is NaN.

    >>> median([5.0, 1.0, 2.0, 4.0])
    3.0
    """
    _some(values, "median")
    if any(map(math.isnan, values)):
        return math.nan
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else mean(ordered[half - 1 : half + 1])


def iqm(values: Sequence[float]) -> float:
    """The interquartile mean: the mean after floor(n/4) values are cut at either end.

    Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
    section 4.3, here over the seeds of one configuration.

    Raises:
        ConfigError: fewer than 8 values, of which too little would be left.

    >>> iqm([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0])
    3.5
    """
    if len(values) < IQM_MIN_SEEDS:
        raise ConfigError(
            f"the IQM of {len(values)} seeds was asked for; it needs at least {IQM_MIN_SEEDS}: "
            "use more seeds, or aggregate: mean or median"
        )
    if any(map(math.isnan, values)):
        return math.nan
    cut = len(values) // 4
    return mean(sorted(values)[cut : len(values) - cut])


def aggregate(values: Sequence[float], kind: str = "mean") -> float:
    """One number for the replicates of a trial; NaN if any of them is NaN.

    Raises:
        ConfigError: an unknown kind, no values, or an IQM of fewer than 8.

    >>> aggregate([1.0, 5.0, 3.0], "min")
    1.0
    """
    if kind in ("min", "max"):
        _some(values, kind)
        if any(map(math.isnan, values)):
            return math.nan
        return min(values) if kind == "min" else max(values)
    functions = {"mean": mean, "median": median, "iqm": iqm}
    if kind not in functions:
        raise ConfigError(f"unknown aggregate {kind!r}; known: {', '.join(AGGREGATES)}")
    return functions[kind](values)


def _some(values: Sequence[float], kind: str) -> None:
    if not values:
        raise ConfigError(f"the {kind} of no values was asked for")


def interval(values: Sequence[float], kind: str = "mean") -> Interval:
    """The 95 % interval of the mean (or median, or IQM) that the seeds were drawn around.

    There is none below 5 seeds, none for `min` and `max` (no resampling of a sample says how far
    its extremes are from the distribution's), none for median and IQM below 11 seeds, and none
    when a value is not finite.
    """
    count = len(values)
    if count < _T_MIN_SEEDS or kind in ("min", "max") or not all(map(math.isfinite, values)):
        return NO_INTERVAL
    if count > _T_MAX_SEEDS:
        return _bootstrap(tuple(map(float, values)), kind)
    return _t_interval(values) if kind == "mean" else NO_INTERVAL


def _t_interval(values: Sequence[float]) -> Interval:
    """Student's interval: mean ± t(n-1) s / sqrt(n), s with n-1 in the denominator."""
    count, centre = len(values), mean(values)
    variance = math.fsum((value - centre) ** 2 for value in values) / (count - 1)
    reach = t_quantile(1 - (1 - LEVEL) / 2, count - 1) * math.sqrt(variance / count)
    return Interval(centre - reach, centre + reach, "t")


@lru_cache(maxsize=65_536)
def _bootstrap(values: tuple[float, ...], kind: str) -> Interval:
    """Percentiles of the statistic over 2,000 resamples drawn with a fixed seed.

    The levels are expanded: the plain percentile interval has no n-1 and no t and holds the mean
    of 16 normal seeds 91 times in 100, not 95.
    """
    import numpy as np

    sample = np.asarray(values, np.float64)[_resamples(len(values))]
    if kind == "mean":
        statistics = sample.mean(axis=1)
    elif kind == "median":
        statistics = np.median(sample, axis=1)
    else:
        cut = len(values) // 4
        statistics = np.sort(sample, axis=1)[:, cut : len(values) - cut].mean(axis=1)
    tail = expanded_tail(len(values), len(values) - 1)
    low, high = np.quantile(statistics, [tail, 1 - tail])
    return Interval(float(low), float(high), "bootstrap")


def expanded_tail(count: int, degrees: int, level: float = 1 - LEVEL) -> float:
    """Return the share of resamples beyond either end of an expanded percentile interval.

    Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 5.3:
    Phi(-sqrt(n/(n-1)) t) in place of half the level, t with so many degrees of freedom.

    Args:
        count: n, of the values that are drawn anew together, at least 2.
        degrees: of freedom of their spread.
        level: how often the interval may miss, 5 % if nothing is said.

    >>> round(expanded_tail(16, 15), 4)
    0.0139
    """
    widened = math.sqrt(count / (count - 1)) * t_quantile(1 - level / 2, degrees)
    return math.erfc(widened / math.sqrt(2)) / 2  # Phi(-widened)


def welch_degrees(shares: Sequence[float], counts: Sequence[int]) -> int:
    """Return the degrees of freedom of a sum of means of unlike spreads (Welch 1947).

    Rounded down, which widens an interval, and at least 1.

    Args:
        shares: of each mean its squared standard error, not all 0.
        counts: of each the number of values, at least 2.

    >>> welch_degrees([1.0, 1.0], [5, 5]), welch_degrees([1.0, 0.0], [5, 5])
    (8, 4)
    """
    below = sum(share**2 / (count - 1) for share, count in zip(shares, counts, strict=True))
    return max(1, int(sum(shares) ** 2 / below))


@lru_cache(maxsize=64)
def _resamples(count: int) -> np.ndarray:
    """Indices [2000, count]; the same for every call, so that equal seeds get equal intervals."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(0)).integers(0, count, (RESAMPLES, count))


def binomial_interval(hits: float, count: float, level: float = 1 - LEVEL) -> tuple[float, float]:
    """The exact 95 % interval of a chance that `count` draws met `hits` times.

    Clopper and Pearson 1934: the chances that make so many hits, or so few, rarer than half of
    `level`. Hits need not be whole: a tie counts one half.

    Raises:
        ConfigError: no draws, or hits that are none of them.

    >>> [round(end, 4) for end in binomial_interval(3, 11)]
    [0.0602, 0.6097]
    """
    from scipy.special import betaincinv  # pyright: ignore[reportMissingTypeStubs]

    if not 0 <= hits <= count or count < 1:
        raise ConfigError(f"no interval of a chance from {hits} hits in {count} draws")
    tail, missed = level / 2, count - hits
    low = float(betaincinv(hits, missed + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, missed, 1 - tail)) if missed > 0 else 1.0
    return low, high


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: int) -> float:
    """The value below which Student's t with `degrees` of freedom falls so often.

    >>> round(t_quantile(0.975, 4), 4)
    2.7764
    """
    from scipy.special import stdtrit  # pyright: ignore[reportMissingTypeStubs]

    if not 0.0 < probability < 1.0 or degrees < 1:
        raise ConfigError(f"no t quantile at probability {probability}, {degrees} degrees")
    return float(stdtrit(degrees, probability))
