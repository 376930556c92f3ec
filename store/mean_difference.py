"""Confidence intervals for the difference of two means, with paired or unpaired seeds.

Values on the same seeds are compared pair by pair. The test of a mean difference is exact: if both
sides have the same distribution, whatever it is, each difference is equally likely to be positive
or negative. The interval blends Student's and Hall's intervals. The more the sides' variances
differ, the closer it is to Hall's, because the differences are then about as skewed as the more
variable side. The interval includes 0 unless the exact test excludes 0, and is clipped to the
bounds of the difference.

With 4 or 5 seeds per side, too few for a test of signs, all splits of both sides' values are
compared instead. That is exact for equal distributions, whether or not seeds are paired.

No test can detect outcomes that no seed has shown. So the interval's end that is nearer to 0
allows for such outcomes on either side; the less a side varies, the larger this allowance
(`unobserved`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import ConfigError
from .interim_analyses import fewest_pairs, is_few, level_of, levels
from .permutation_tests import deal_p, sign_flip_p, split_p
from .statistics import (
    NO_INTERVAL,
    Interval,
    IntervalKind,
    deviation,
    mean,
    sum_of_squares,
    t_quantile,
    variance,
    welch_degrees,
)
from .unobserved import UNBOUNDED, Bounds, End, paired_ends, unpaired_ends

FEWEST_PAIRS = fewest_pairs(level_of(1))  # 6; with fewer, there is no verdict and no interval
FEWEST_EACH = 5  # seeds per side that a verdict needs if they are not paired


@dataclass(frozen=True)
class Unless:
    """A difference that unobserved outcomes could reverse."""

    interval: Interval  # of the mean difference without such outcomes
    one_in: int  # the verdict holds unless at least one seed in so many has such an outcome


@dataclass(frozen=True)
class DifferenceInterval:
    """The interval of a mean difference, without and with unseen outcomes."""

    observed: Interval  # without unseen kinds of outcomes
    whole: Interval  # including unseen outcomes
    worst: float  # difference of an unseen pair that could reverse the sign; 0 if none could

    def unless(self) -> Unless | None:
        observed, whole = self.observed, self.whole
        if (
            observed.low is None
            or observed.high is None
            or whole.low is None
            or whole.high is None
        ):
            return None
        if (
            observed.low <= 0.0 <= observed.high
            or not whole.low <= 0.0 <= whole.high
            or not self.worst
        ):
            return None
        nearest = min(abs(observed.low), abs(observed.high))
        return Unless(observed, math.ceil(1.0 + abs(self.worst) / nearest))


_NOTHING = DifferenceInterval(NO_INTERVAL, NO_INTERVAL, 0.0)


def paired_interval(
    a: Sequence[float],
    b: Sequence[float],
    *,
    level: float = level_of(1),
    bounds: Bounds = UNBOUNDED,
) -> Interval:
    """Return the interval of the mean of `a` minus `b`, seed by seed.

    It excludes 0 only if the exact test does (`sign_flip_p`) and unseen outcomes could not change
    its sign (`unobserved`). No interval is returned for fewer than 6 pairs, because the exact test
    cannot exclude 0 there. There is also none if both sides vary but differ by the same amount on
    every seed. `level` is the error rate, by default that of a first look; `bounds` is the range
    of possible values on both sides.

    >>> found = paired_interval([3.0, 4, 6, 4, 5, 4], [1.0, 3, 3, 3, 2, 3])
    >>> round(found.low, 3), round(found.high, 3), found.kind
    (0.727, 2.94, 't')
    """
    return _compare_pairs(a, b, level, bounds).whole


def paired_unless(
    a: Sequence[float],
    b: Sequence[float],
    *,
    level: float = level_of(1),
    bounds: Bounds = UNBOUNDED,
) -> Unless | None:
    """Return the condition under which `paired_interval` excludes 0, or None if there is none."""
    return _compare_pairs(a, b, level, bounds).unless()


def unpaired_interval(
    a: Sequence[float], b: Sequence[float], bounds: Bounds = UNBOUNDED
) -> Interval:
    """Return Welch's interval for a difference of means (unequal variances; Welch 1947).

    It uses the level of a first look, with degrees of freedom rounded down. It includes 0 unless
    the exact test of equal distributions excludes 0 (`deal_p`) and unseen outcomes could not
    change its sign (`unobserved`). No interval is returned for fewer than 5 values per side, or if
    any value is not finite.
    """
    return compare_unpaired(a, b, bounds).whole


def paired_over_looks(
    a: Sequence[float],
    b: Sequence[float],
    earlier: Sequence[int] = (),
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
    *,
    among: int = 1,
) -> Interval:
    """Return the 95 % interval of the mean difference, over all looks together.

    This is the intersection of the intervals at all looks, each at its level; if the intersection
    is empty, the current look's interval is returned. `earlier` is the number of leading pairs at
    each earlier look; 0 if that look had different values. For `interim` see
    `interim_analyses.level_of`. `among` is the number of comparisons that share the error rate.
    """
    own = len(a)
    if among > 1:
        own = 0  # few seeds decide alone, not several at once
    before, level = levels(earlier, interim, own)
    now = compare_sides(a, b, level / among, bounds).whole
    if now.low is None or now.high is None:
        return now
    low, high = now.low, now.high
    for pairs, its in before:
        then = compare_sides(a[:pairs], b[:pairs], its / among, bounds).whole
        if then.low is not None and then.high is not None:
            low, high = max(low, then.low), min(high, then.high)
    if low <= high:
        return Interval(low, high, now.kind)
    return now


def compare_sides(
    a: Sequence[float], b: Sequence[float], level: float, bounds: Bounds
) -> DifferenceInterval:
    """Return the interval from pairs, or from all splits if there are few values."""
    if is_few(len(a)) and len(a) == len(b):
        return _compare_few(a, b, level, bounds)
    return _compare_pairs(a, b, level, bounds)


def require_pairs(a: Sequence[float], b: Sequence[float]) -> None:
    if len(a) != len(b):
        raise ConfigError(f"paired samples need equal lengths (here: {len(a)} and {len(b)})")


def _compare_pairs(
    a: Sequence[float], b: Sequence[float], level: float, bounds: Bounds
) -> DifferenceInterval:
    require_pairs(a, b)
    differences = [one - other for one, other in zip(a, b, strict=True)]
    if len(differences) < FEWEST_PAIRS or not all(map(math.isfinite, differences)):
        return _NOTHING
    alike = is_rounding(max(differences) - min(differences), a, b)
    if alike and is_rounding(mean(differences), a, b):
        return _NOTHING
    observed = _seen_interval(differences, a, b, level)
    if sign_flip_p(differences) > level:
        observed = with_zero(observed)
    found = _with_unseen(observed, a, b, paired_ends(a, b, level, bounds), bounds)
    if alike and found.whole == observed:
        return _NOTHING  # only the exact test can decide
    return found


def _compare_few(
    a: Sequence[float], b: Sequence[float], level: float, bounds: Bounds
) -> DifferenceInterval:
    """Return the mean difference of 4 or 5 values per side, with an interval.

    The interval is Welch's; it includes 0 unless the test over all splits excludes 0.
    """
    return _compare_by_welch(a, b, level, bounds, split_p)


def compare_unpaired(a: Sequence[float], b: Sequence[float], bounds: Bounds) -> DifferenceInterval:
    if min(len(a), len(b)) < FEWEST_EACH:
        return _NOTHING
    return _compare_by_welch(a, b, level_of(1), bounds, _deal_one_p)


def _deal_one_p(a: Sequence[float], b: Sequence[float]) -> float:
    return deal_p([a], [b])


def _compare_by_welch(
    a: Sequence[float],
    b: Sequence[float],
    level: float,
    bounds: Bounds,
    p_of: Callable[[Sequence[float], Sequence[float]], float],
) -> DifferenceInterval:
    """Return Welch's interval, which includes 0 unless the exact test excludes 0."""
    if not all(map(math.isfinite, [*a, *b])):
        return _NOTHING
    observed = _welch_interval(a, b, level)
    if p_of(a, b) > level or is_rounding(mean(a) - mean(b), a, b):
        observed = with_zero(observed)
    return _with_unseen(observed, a, b, unpaired_ends(a, b, level, bounds), bounds)


def _with_unseen(
    observed: Interval,
    a: Sequence[float],
    b: Sequence[float],
    unseen: Sequence[End],
    bounds: Bounds,
) -> DifferenceInterval:
    """Move the interval's end that is nearer to 0, to allow for unseen outcomes, but not beyond 0.

    Unseen outcomes can prevent a verdict, but a few seeds cannot show how far beyond 0 such
    outcomes reach.
    """
    if observed.low is None or observed.high is None:
        return _NOTHING
    falls = min((end.at for end in unseen if end.cause.sign < 0.0), default=math.inf)
    rises = max((end.at for end in unseen if end.cause.sign > 0.0), default=-math.inf)
    low, high = min(observed.low, max(falls, 0.0)), max(observed.high, min(rises, 0.0))
    kind = observed.kind
    if (low, high) != (observed.low, observed.high):
        kind = "unseen"
    centre = mean(a) - mean(b)
    turning = [end.cause.difference for end in unseen if end.at * centre <= 0.0]
    ends = bounds.of_difference()

    def within(low: float, high: float, kind: IntervalKind) -> Interval:
        return Interval(min(ends.clipped(low), centre), max(ends.clipped(high), centre), kind)

    whole = within(low, high, kind)
    worst = max(turning, key=abs, default=0.0)
    return DifferenceInterval(within(observed.low, observed.high, observed.kind), whole, worst)


def with_zero(found: Interval) -> Interval:
    """Extend an interval to 0."""
    if found.low is None or found.high is None:
        return found
    return Interval(min(found.low, 0.0), max(found.high, 0.0), found.kind)


def is_rounding(difference: float, a: Sequence[float], b: Sequence[float]) -> bool:
    return abs(difference) <= 1e-12 * max(map(abs, [*a, *b]))


def _seen_interval(
    differences: Sequence[float], a: Sequence[float], b: Sequence[float], level: float
) -> Interval:
    """Return an interval between Student's and Hall's, closer to Hall's for unequal spreads.

    Differences between equal distributions are symmetric; if one side is constant, they are as
    skewed as the other side. If all differences have the same sign, Hall's interval does not
    extend beyond 0 further than Student's.
    """
    tail, unlike = 1.0 - level / 2.0, _unlike_spreads(a, b)
    low, high = _hall_interval(differences, tail, unlike)
    if min(differences) * max(differences) >= 0.0:
        plain = _student_interval(differences, tail)
        if max(differences) > 0.0:
            low = max(low, plain[0])
        else:
            high = min(high, plain[1])
    return Interval(low, high, "hall" if unlike > 0.5 else "t")


def _unlike_spreads(a: Sequence[float], b: Sequence[float]) -> float:
    """Return how unequal the variances are, from 0 (equal) to 1 (one of them is 0)."""
    spread_a, spread_b = variance(a), variance(b)
    if spread_a + spread_b > 0.0:
        return ((spread_a - spread_b) / (spread_a + spread_b)) ** 4
    return 1.0


def _student_interval(values: Sequence[float], tail: float) -> tuple[float, float]:
    centre, error = mean(values), deviation(values) / math.sqrt(len(values))
    reach = t_quantile(tail, len(values) - 1) * error
    return centre - reach, centre + reach


def _hall_interval(values: Sequence[float], tail: float, weight: float) -> tuple[float, float]:
    """Return Hall's interval with `weight` times the observed skewness and Student's quantiles.

    Hall 1992, "On the removal of skewness by transformation", equation 2.3.
    """
    count, centre, spread = len(values), mean(values), deviation(values)
    plain = math.sqrt(sum_of_squares(values) / count)
    third = weight * math.fsum((v - centre) ** 3 for v in values) / count
    skewness = 0.0
    if plain**3 > 0.0:
        skewness = third / plain**3
    if abs(skewness) < 1e-6:
        return _student_interval(values, tail)
    reach = t_quantile(tail, count - 1) / math.sqrt(count)
    low, high = (  # x where x + s x^2 / 3 + s^2 x^3 / 27 + s / (6 n) = end
        3.0 / skewness * (math.cbrt(1.0 + skewness * (end - skewness / (6.0 * count))) - 1.0)
        for end in (reach, -reach)
    )
    return centre - spread * low, centre - spread * high


def _welch_interval(a: Sequence[float], b: Sequence[float], level: float) -> Interval:
    shares = [variance(values) / len(values) for values in (a, b)]
    centre, total = mean(a) - mean(b), sum(shares)
    if total == 0.0:
        return Interval(centre, centre, "t")
    degrees = welch_degrees(shares, (len(a), len(b)))
    reach = t_quantile(1.0 - level / 2.0, degrees) * math.sqrt(total)
    return Interval(centre - reach, centre + reach, "t")
