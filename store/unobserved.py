"""Outcomes that a small number of seeds may have missed, and their possible effect on a mean.

For a configuration that fails on one seed in ten, eight seeds show no failure in 43 % of cases,
and no test of observed values can detect this risk. The same rule applies to both sides of a
comparison, constant or noisy:

- *Location.* The worst unseen outcome is the known bound of the values. Without a bound, it is
  beyond all values of both sides, by 1.5 times their distance from 0 or, if that is more, by 1.2
  times their range times this side's excess tail: how far its tail variance exceeds the other
  side's, divided by their sum.
- *Number.* The number of unseen outcomes is the largest that the seeds allow. The lower end of a
  mean is a quantile of randomly weighted seeds, to which a seed with the worst outcome is added
  (Gaffke 2005; Learned-Miller and Thomas 2020, "A New Confidence Interval for the Mean of a
  Bounded Random Variable").
- *Strictness.* The quantile is `level / weight`. The weight is 1 for a side that hardly varies.
  The weight falls with the fourth power of r, the deviation divided by the distance to the worst
  outcome (or by 2.5 times the distance to 0, if that is smaller). It is 1/2 at r = 0.1 and 1/17 at
  r = 0.2. The weight is also at least the eighth power of this side's excess tail.

The numbers were chosen by simulation on the pairs in results/tuned, and tested on pairs from other
tables, which were not used to choose them (docs/results.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .libraries import np, special
from .statistics import LEVEL, Interval, has_interval, interval, mean, sum_of_squares, variance

_FROM_ZERO, _BEYOND = 1.5, 1.2
_SETTLED, _POWER = 0.1, 4
_TAIL_POWER = 8
_SETTLED_ALONE = 0.02  # for a single mean, there is no second side whose noise matters
_LEAST_SCALE = 1e-3  # share of the distance, for values around 0
_DRAWS, _MANY = 10_000, 100
_MOST_CHANCE = 0.5  # above this, the quantile is not informative about an end


@dataclass(frozen=True)
class Bounds:
    """The range of possible means; infinite if unknown."""

    low: float = -math.inf
    high: float = math.inf

    def signed(self, sign: float) -> Bounds:
        if sign > 0.0:
            return self
        return Bounds(-self.high, -self.low)

    def around(self, found: Interval) -> Interval:
        if found.low is None or found.high is None:
            return found
        return Interval(self.clipped(found.low), self.clipped(found.high), found.kind)

    def clipped(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def of_difference(self) -> Bounds:
        """Return the range of the difference of two means."""
        return Bounds(self.low - self.high, self.high - self.low)


UNBOUNDED = Bounds()


@dataclass(frozen=True)
class Hidden:
    """Unseen outcomes on one side of a difference, a minus b."""

    of_a: bool
    sign: float  # -1 if they lower the difference, 1 if they raise it
    value: float  # the worst outcome of that side
    difference: float  # the difference with this outcome, if the other side is at its mean
    weight: float  # from 0 to 1: how strictly an interval end allows for them


def hidden(a: Sequence[float], b: Sequence[float], bounds: Bounds = UNBOUNDED) -> list[Hidden]:
    """Return the unseen failures and successes of both sides.

    >>> found = hidden([500.0] * 8, [460.0] * 8, Bounds(0.0, 500.0))
    >>> [one.difference for one in found if one.sign < 0.0 and one.weight > 0.0]
    [-460.0, 0.0]
    """
    found = list[Hidden]()
    for sign in (-1.0, 1.0):
        value, weight = _worst_unseen(a, b, bounds, sign)
        found.append(Hidden(True, sign, value, value - mean(b), weight))
        value, weight = _worst_unseen(b, a, bounds, -sign)
        found.append(Hidden(False, sign, value, mean(a) - value, weight))
    return found


def _worst_unseen(
    own: Sequence[float], other: Sequence[float], bounds: Bounds, sign: float
) -> tuple[float, float]:
    """Return the worst unseen outcome of `own` in the direction of `sign`, and its weight."""
    longer = _longer_tail(own, other, sign)
    end = bounds.low
    if sign > 0.0:
        end = bounds.high
    if not math.isfinite(end):
        end = _assumed_end(own, other, sign, longer)
    distance = sign * (end - mean(own))
    if distance <= 0.0:
        return end, 0.0
    settled = 1.0 / (1.0 + (_relative_noise(own, distance) / _SETTLED) ** _POWER)
    return end, max(settled, longer**_TAIL_POWER)


def _relative_noise(values: Sequence[float], distance: float) -> float:
    """Return the deviation divided by the distance to the worst outcome, or to 0 if nearer.

    Returns around 22 with a deviation of 5 vary a lot, even if 500 is possible.
    """
    from_zero = (1.0 + _FROM_ZERO) * abs(mean(values)) + _LEAST_SCALE * distance
    return math.sqrt(variance(values)) / min(distance, from_zero)


def _assumed_end(
    own: Sequence[float], other: Sequence[float], sign: float, longer: float
) -> float:
    low, high = min(*own, *other), max(*own, *other)
    from_zero = max(0.0, low, -high)
    beyond = max(_FROM_ZERO * from_zero, _BEYOND * longer * (high - low))
    if sign > 0.0:
        return high + beyond
    return low - beyond


def _longer_tail(own: Sequence[float], other: Sequence[float], sign: float) -> float:
    """Return the excess of `own`'s squared deviations towards `sign` over `other`'s, 0 to 1."""
    own_variance, other_variance = _tail_variance(own, sign), _tail_variance(other, sign)
    if own_variance > other_variance:
        return (own_variance - other_variance) / (own_variance + other_variance)
    return 0.0


def _tail_variance(values: Sequence[float], sign: float) -> float:
    centre = mean(values)
    return math.fsum(max(0.0, sign * (v - centre)) ** 2 for v in values) / len(values)


@dataclass(frozen=True)
class End:
    """An interval end that allows for unseen outcomes."""

    at: float
    cause: Hidden


def lowest_mean(values: Sequence[float], worst: float, chance: float) -> float:
    """Return the mean's lower confidence limit at error rate `chance`; unseen values are `worst`.

    If n values are equal, at most 1 - chance^(1 / n) of all seeds have a different value, with
    confidence 1 - chance (Clopper and Pearson 1934, for no such seed among n).

    >>> round(lowest_mean([1.0] * 8, 0.0, 0.05), 4), round(0.05 ** (1 / 8), 4)
    (0.6877, 0.6877)
    """
    return _quantile_of_draws(
        _add_worst_seed(_weighted_means(values, 0), worst, len(values)), chance
    )


def paired_ends(
    a: Sequence[float], b: Sequence[float], level: float, bounds: Bounds = UNBOUNDED
) -> list[End]:
    """Return the interval ends that allow for unseen outcomes, for a mean difference of pairs."""
    causes = _that_count(hidden(a, b, bounds), level)
    if not causes:
        return []
    differences = [one - other for one, other in zip(a, b, strict=True)]
    drawn, count = _weighted_means(differences, 0), len(differences)
    return [
        _quantile_end(_add_worst_seed(drawn, one.difference, count), one, level) for one in causes
    ]


def unpaired_ends(
    a: Sequence[float], b: Sequence[float], level: float, bounds: Bounds = UNBOUNDED
) -> list[End]:
    """Return the interval ends that allow for unseen outcomes, for unpaired means."""
    causes = _that_count(hidden(a, b, bounds), level)
    if not causes:
        return []
    drawn_a, drawn_b = _weighted_means(a, 0), _weighted_means(b, 1)
    found = list[End]()
    for one in causes:
        if one.of_a:
            drawn = _add_worst_seed(drawn_a, one.value, len(a)) - drawn_b
        else:
            drawn = drawn_a - _add_worst_seed(drawn_b, one.value, len(b))
        found.append(_quantile_end(drawn, one, level))
    return found


def seeds_to_trust(gap: float, causes: Sequence[Hidden], level: float) -> int:
    """Return how many seeds, all with the difference `gap`, are needed to exclude 0.

    >>> seeds_to_trust(1.0, [Hidden(True, -1.0, -1.0, -1.0, 1.0)], 0.04)
    5
    """
    most = 1
    for one in _that_count(causes, level):
        if one.difference * gap < 0.0:
            rate = math.log1p(abs(gap / one.difference))
            most = max(most, math.ceil(-math.log(level / one.weight) / rate))
    return most


def _that_count(causes: Sequence[Hidden], level: float) -> list[Hidden]:
    return [one for one in causes if one.weight * _MOST_CHANCE > level]


def _quantile_end(drawn: np.ndarray, cause: Hidden, level: float) -> End:
    """Return the interval end from drawn means, on the side of the unseen outcomes in `cause`."""
    return End(-cause.sign * _quantile_of_draws(-cause.sign * drawn, level / cause.weight), cause)


def _quantile_of_draws(drawn: np.ndarray, chance: float) -> float:
    place = max(0, int(chance * _DRAWS) - 1)
    return float(np.partition(drawn, place)[place])


def _add_worst_seed(drawn: np.ndarray, worst: float, count: int) -> np.ndarray:
    """Add one seed at `worst` to the weighted means of `count` seeds."""
    share = 1.0 - _even_shares() ** (1.0 / count)
    return (1.0 - share) * drawn + share * worst


def _weighted_means(values: Sequence[float], stream: int) -> np.ndarray:
    """Return 10,000 means of randomly weighted values.

    Weights are Dirichlet; above 100 values, the means are normal instead.
    """
    count, centre = len(values), mean(values)
    if count > _MANY:
        error = math.sqrt(sum_of_squares(values) / count / (count + 1))
        return centre + error * _normal_draws(stream)
    return centre + _dirichlet_weights(count, stream) @ (np.asarray(values, np.float64) - centre)


@lru_cache(maxsize=8)
def _dirichlet_weights(count: int, stream: int) -> np.ndarray:
    drawn = np.random.Generator(np.random.PCG64(stream)).exponential(1.0, (_DRAWS, count))
    return drawn / drawn.sum(axis=1, keepdims=True)


@lru_cache(maxsize=2)
def _normal_draws(stream: int) -> np.ndarray:
    shares = np.random.Generator(np.random.PCG64(stream)).permutation(_DRAWS)
    return np.asarray(special.ndtri((shares + 0.5) / _DRAWS), np.float64)


@lru_cache(maxsize=1)
def _even_shares() -> np.ndarray:
    """Return evenly spaced numbers in (0, 1], in a fixed random order, so that ends are exact."""
    order = np.random.Generator(np.random.PCG64(2)).permutation(_DRAWS)
    return (order + 1.0) / _DRAWS


def bounded_interval(
    values: Sequence[float], bounds: Bounds = UNBOUNDED, kind: str = "mean"
) -> Interval:
    """Return the 95 % interval for the mean of values between `bounds`; see `statistics.interval`.

    If a seed reached a bound, the opposite end allows for unseen outcomes at the other bound; the
    less the values vary, the more of these outcomes it allows for. Equal values have no interval
    unless both bounds are known.

    >>> found = bounded_interval([500.0] * 8, Bounds(0.0, 500.0))
    >>> round(found.low, 1), found.high, bounded_interval([500.0] * 8).low
    (343.8, 500.0, None)
    """
    found = interval(values, kind)
    known = math.isfinite(bounds.low) and math.isfinite(bounds.high)
    if kind == "mean" and known and has_interval(values) and min(values) == max(values):
        found = Interval(values[0], values[0], "exact")
    if found.low is None or found.high is None or kind != "mean":
        return bounds.around(found)
    low, high = found.low, found.high
    if max(values) >= bounds.high or found.kind == "exact":
        low = min(low, _lowest_alone(values, bounds.low))
    if min(values) <= bounds.low or found.kind == "exact":
        mirrored = [-value for value in values]
        high = max(high, -_lowest_alone(mirrored, -bounds.high))
    return bounds.around(Interval(low, high, found.kind))


def _lowest_alone(values: Sequence[float], worst: float) -> float:
    distance = mean(values) - worst
    if not math.isfinite(worst) or distance <= 0.0:
        return math.inf
    ratio = _relative_noise(values, distance) / _SETTLED_ALONE
    chance = (1.0 - LEVEL) * (1.0 + ratio**_POWER)
    if chance < _MOST_CHANCE:
        return lowest_mean(values, worst, chance)
    return math.inf
