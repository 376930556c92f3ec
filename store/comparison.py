"""Comparison of two configurations: difference of means, and probability of improvement.

Values on the same seeds are compared pair by pair. The test of a mean difference is exact: under
equal distributions each difference has a random sign, for any distribution and with ties. The
interval is Student's, or Hall's to the extent that the sides' variances differ (differences are
then as skewed as one of the sides). The interval includes 0 unless the exact test excludes 0, and
is clipped to the bounds of the difference.

With 4 or 5 seeds per side, too few for a test of signs, all splits of both sides' values are
compared instead. That is exact for equal distributions, whether or not seeds are paired.

No test can detect outcomes that no seed has shown. So the end of the interval next to 0 allows for
such outcomes on either side, and allows for more of them the less that side varies (`unobserved`).
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar

from ..errors import ConfigError
from .importance import midranks
from .interim_analyses import fewest_now, fewest_pairs, is_few, level_of, levels, next_level
from .libraries import np, special
from .statistics import (
    IQM_MIN_SEEDS,
    NO_INTERVAL,
    Interval,
    IntervalKind,
    Scores,
    binomial_interval,
    deal_p,
    iqm,
    mean,
    sign_of,
    t_quantile,
    variance,
    welch_degrees,
)
from .unobserved import (
    UNBOUNDED,
    Bounds,
    End,
    hidden,
    paired_ends,
    seeds_to_trust,
    unpaired_ends,
)

POWER = 0.8
_MOST = 2**19  # largest number of pairs worth requesting
_ALL_SIGNS, _FLIPS, _MANY = 14, 20_000, 100
_ROUNDING = 1e-9

FEWEST_PAIRS = fewest_pairs(level_of(1))  # 6; with fewer, there is no verdict and no interval


@dataclass(frozen=True)
class Unless:
    """A difference that unobserved outcomes could reverse."""

    interval: Interval  # of the mean difference without such outcomes
    one_in: int  # the verdict holds unless at least one seed in so many has such an outcome


@dataclass(frozen=True)
class _Found:
    seen: Interval  # of the mean difference, without unseen kinds of outcomes
    whole: Interval  # including unseen outcomes
    worst: float  # difference of an unseen pair that could reverse the sign; 0 if none could

    def unless(self) -> Unless | None:
        seen, whole = self.seen, self.whole
        if seen.low is None or seen.high is None or whole.low is None or whole.high is None:
            return None
        if seen.low <= 0.0 <= seen.high or not whole.low <= 0.0 <= whole.high or not self.worst:
            return None
        nearest = min(abs(seen.low), abs(seen.high))
        return Unless(seen, math.ceil(1.0 + abs(self.worst) / nearest))


def paired_interval(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    level: float = level_of(1),
    bounds: Bounds = UNBOUNDED,
) -> Interval:
    """Return the interval of the mean of `ours` minus `theirs`, seed by seed.

    It excludes 0 only if the exact test does (`sign_flip_p`) and unseen outcomes could not change
    its sign (`unobserved`). There is none below 6 pairs, where the exact test cannot exclude 0, or
    if both sides vary with the same difference on every seed. `level` is the error rate, by
    default that of a first look; `bounds` are those of both sides' values.

    >>> found = paired_interval([3.0, 4, 6, 4, 5, 4], [1.0, 3, 3, 3, 2, 3])
    >>> round(found.low, 3), round(found.high, 3), found.kind
    (0.727, 2.94, 't')
    """
    return _compare_pairs(ours, theirs, level, bounds).whole


def paired_unless(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    level: float = level_of(1),
    bounds: Bounds = UNBOUNDED,
) -> Unless | None:
    """Return the condition under which `paired_interval` would exclude 0; None without one."""
    return _compare_pairs(ours, theirs, level, bounds).unless()


_NOTHING = _Found(NO_INTERVAL, NO_INTERVAL, 0.0)


def _compare_pairs(
    ours: Sequence[float], theirs: Sequence[float], level: float, bounds: Bounds
) -> _Found:
    if len(ours) != len(theirs):
        raise ConfigError(f"paired samples of {len(ours)} and {len(theirs)} values")
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    if len(differences) < FEWEST_PAIRS or not all(map(math.isfinite, differences)):
        return _NOTHING
    alike = is_rounding(max(differences) - min(differences), ours, theirs)
    if alike and is_rounding(mean(differences), ours, theirs):
        return _NOTHING
    seen = _seen_interval(differences, ours, theirs, level)
    if sign_flip_p(differences) > level:
        seen = _with_zero(seen)
    found = _with_unseen(seen, ours, theirs, paired_ends(ours, theirs, level, bounds), bounds)
    if alike and found.whole == seen:
        return _NOTHING  # only the exact test can decide
    return found


def _with_unseen(
    seen: Interval,
    ours: Sequence[float],
    theirs: Sequence[float],
    unseen: Sequence[End],
    bounds: Bounds,
) -> _Found:
    """Move the end next to 0 for unseen outcomes, at most to 0, and within the possible range.

    Unseen outcomes can prevent a verdict, but a few seeds cannot show how far beyond 0 they reach.
    """
    if seen.low is None or seen.high is None:
        return _NOTHING
    falls = min((end.at for end in unseen if end.cause.sign < 0.0), default=math.inf)
    rises = max((end.at for end in unseen if end.cause.sign > 0.0), default=-math.inf)
    low, high = min(seen.low, max(falls, 0.0)), max(seen.high, min(rises, 0.0))
    kind = seen.kind
    if (low, high) != (seen.low, seen.high):
        kind = "unseen"
    centre = mean(ours) - mean(theirs)
    turning = [end.cause.difference for end in unseen if end.at * centre <= 0.0]
    ends = Bounds(*bounds.of_difference())

    def within(low: float, high: float, kind: IntervalKind) -> Interval:
        low, high = (min(max(end, ends.low), ends.high) for end in (low, high))
        return Interval(min(low, centre), max(high, centre), kind)

    whole = within(low, high, kind)
    worst = max(turning, key=abs, default=0.0)
    return _Found(within(seen.low, seen.high, seen.kind), whole, worst)


def _with_zero(found: Interval) -> Interval:
    if found.low is None or found.high is None:
        return found
    return Interval(min(found.low, 0.0), max(found.high, 0.0), found.kind)


def _seen_interval(
    differences: Sequence[float], ours: Sequence[float], theirs: Sequence[float], level: float
) -> Interval:
    """Return Student's interval, or Hall's to the extent that both sides' spreads differ.

    Differences between equal distributions are symmetric; next to a constant side they are as
    skewed as the other side. If all signs are equal, Hall's interval does not extend beyond 0
    further than Student's.
    """
    tail, unlike = 1.0 - level / 2.0, _unlike_spreads(ours, theirs)
    low, high = _hall(differences, tail, unlike)
    if min(differences) * max(differences) >= 0.0:
        plain = _student(differences, tail)
        if max(differences) > 0.0:
            low = max(low, plain[0])
        else:
            high = min(high, plain[1])
    return Interval(low, high, "hall" if unlike > 0.5 else "t")


def _unlike_spreads(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return a smooth measure of unequal variances, from 0 (equal) to 1 (one of them is 0)."""
    a, b = variance(ours), variance(theirs)
    if a + b > 0.0:
        return ((a - b) / (a + b)) ** 4
    return 1.0


def paired_over_looks(
    ours: Sequence[float],
    theirs: Sequence[float],
    earlier: Sequence[int] = (),
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
    *,
    among: int = 1,
) -> Interval:
    """Return the 95 % interval of the mean difference, over all looks together.

    This is the intersection of the intervals at all looks, each at its level; if it is empty, it
    is the interval at this look. `earlier` is the number of leading pairs at each earlier look; 0
    if that look had different values. For `interim` see `interim_analyses.level_of`. `among` is
    the number of comparisons that share the error rate.
    """
    own = len(ours)
    if among > 1:
        own = 0  # few seeds decide alone, not several at once
    before, level = levels(earlier, interim, own)
    now = _compare_sides(ours, theirs, level / among, bounds).whole
    if now.low is None or now.high is None:
        return now
    low, high = now.low, now.high
    for pairs, its in before:
        then = _compare_sides(ours[:pairs], theirs[:pairs], its / among, bounds).whole
        if then.low is not None and then.high is not None:
            low, high = max(low, then.low), min(high, then.high)
    if low <= high:
        return Interval(low, high, now.kind)
    return now


def _compare_sides(
    ours: Sequence[float], theirs: Sequence[float], level: float, bounds: Bounds
) -> _Found:
    """Compare pairs, or all splits if there are few values."""
    if is_few(len(ours)) and len(ours) == len(theirs):
        return _compare_few(ours, theirs, level, bounds)
    return _compare_pairs(ours, theirs, level, bounds)


def _compare_few(
    ours: Sequence[float], theirs: Sequence[float], level: float, bounds: Bounds
) -> _Found:
    """Return the mean difference of 4 or 5 values per side, by Welch's interval and all splits."""
    if not all(map(math.isfinite, [*ours, *theirs])):
        return _NOTHING
    seen = _welch(ours, theirs, level)
    if split_p(ours, theirs) > level or is_rounding(mean(ours) - mean(theirs), ours, theirs):
        seen = _with_zero(seen)
    return _with_unseen(seen, ours, theirs, unpaired_ends(ours, theirs, level, bounds), bounds)


def _welch(a: Sequence[float], b: Sequence[float], level: float) -> Interval:
    shares = [variance(values) / len(values) for values in (a, b)]
    centre, total = mean(a) - mean(b), sum(shares)
    if total == 0.0:
        return Interval(centre, centre, "t")
    degrees = welch_degrees(shares, (len(a), len(b)))
    reach = t_quantile(1.0 - level / 2.0, degrees) * math.sqrt(total)
    return Interval(centre - reach, centre + reach, "t")


def split_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the exact two-sided p-value for equal distributions, from few values.

    This is the share of all splits into two sides of these sizes whose means differ at least as
    much (Pitman 1937, "Significance tests which may be applied to samples from any populations").

    >>> split_p([4.0, 5.0, 6.0, 7.0], [0.0, 1.0, 2.0, 3.0])  # 2 of 70
    0.02857142857142857
    """
    both = [*ours, *theirs]
    centre, size = mean(both), math.fsum(map(abs, both))

    def distance(side: Sequence[float]) -> float:
        return abs(math.fsum(value - centre for value in side))

    seen = distance(ours) - _ROUNDING * size
    distances = [*map(distance, itertools.combinations(both, len(ours)))]
    return sum(one >= seen for one in distances) / len(distances)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p-value for differences that are symmetric around 0.

    This is the share of sign flips with a sum at least as far from 0 (Fisher 1935, "The Design of
    Experiments", section 21); zeros have no effect. For more than 14 differences it uses 20,000
    fixed flips and the observed one, which is also exact; for more than 100 it is Student's test.

    >>> sign_flip_p([1.0, 2.0, 3.0, 4.0, 0.0]), sign_flip_p([1.0, -1.0])
    (0.125, 1.0)
    """
    sizes = np.abs([value for value in differences if value != 0.0])
    if not len(sizes):
        return 1.0
    seen = abs(math.fsum(differences)) - _ROUNDING * float(sizes.sum())
    if len(sizes) > _MANY:
        error = deviation(differences) * math.sqrt(len(differences))
        reach = abs(math.fsum(differences)) / error
        return 2.0 * float(special.stdtr(len(differences) - 1, -reach))
    if len(sizes) > _ALL_SIGNS:
        sums = _random_signs(len(sizes)) @ sizes
        return (1.0 + float(np.count_nonzero(np.abs(sums) >= seen))) / _FLIPS
    sums = sizes[:1]  # the other half has all signs flipped
    for size in sizes[1:]:
        sums = np.concatenate([sums - size, sums + size])
    return float(np.mean(np.abs(sums) >= seen))


@lru_cache(maxsize=8)
def _random_signs(count: int) -> np.ndarray:
    coins = np.random.Generator(np.random.PCG64(0)).integers(0, 2, (_FLIPS - 1, count))
    return 2.0 * coins - 1.0


def is_rounding(difference: float, ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return abs(difference) <= 1e-12 * max(map(abs, [*ours, *theirs]))


def constant(values: Sequence[float]) -> bool:
    return min(values) == max(values)


def _student(values: Sequence[float], tail: float) -> tuple[float, float]:
    centre, error = mean(values), deviation(values) / math.sqrt(len(values))
    reach = t_quantile(tail, len(values) - 1) * error
    return centre - reach, centre + reach


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation with n - 1, of at least two values."""
    return math.sqrt(variance(values))


def _hall(values: Sequence[float], tail: float, weight: float) -> tuple[float, float]:
    """Return Hall's interval with `weight` times the observed skewness and Student's quantiles.

    Hall 1992, "On the removal of skewness by transformation", equation 2.3.
    """
    count, centre, spread = len(values), mean(values), deviation(values)
    plain = math.sqrt(math.fsum((v - centre) ** 2 for v in values) / count)
    third = weight * math.fsum((v - centre) ** 3 for v in values) / count
    skewness = 0.0
    if plain**3 > 0.0:
        skewness = third / plain**3
    if abs(skewness) < 1e-6:
        return _student(values, tail)
    reach = t_quantile(tail, count - 1) / math.sqrt(count)
    low, high = (  # x where x + s x^2 / 3 + s^2 x^3 / 27 + s / (6 n) = end
        3.0 / skewness * (math.cbrt(1.0 + skewness * (end - skewness / (6.0 * count))) - 1.0)
        for end in (reach, -reach)
    )
    return centre - spread * low, centre - spread * high


def chance_of_better(
    ours: Sequence[float], theirs: Sequence[float], *, paired: bool = True
) -> tuple[float, Interval]:
    """Return the probability of improvement P(ours > theirs) + P(tie) / 2, with its interval.

    Paired values are compared on the same new seed, with Clopper and Pearson's interval, where a
    tie counts as half a hit. Unpaired values are compared for any two seeds (Agarwal et al. 2021,
    "Deep Reinforcement Learning at the Edge of the Statistical Precipice", section 4.3); see
    `placement_interval`. A non-finite value is worse than a finite one. Below 5 seeds there is no
    interval.

    >>> chance_of_better([2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 2.0, 3.0])[0]
    0.625
    >>> chance_of_better([2.0, 3.0], [1.0, 2.0], paired=False)[0]
    0.875
    """
    if not len(ours) or not len(theirs) or (paired and len(ours) != len(theirs)):
        raise ConfigError(f"samples of {len(ours)} and {len(theirs)} values")
    if not paired:
        return placement_interval([ours], [theirs])
    pairs = zip(_lowest_if_lost(ours), _lowest_if_lost(theirs), strict=True)
    chance = mean([(a > b) + 0.5 * (a == b) for a, b in pairs])
    count = len(ours)
    if count < 5:
        return chance, NO_INTERVAL
    return chance, Interval(*binomial_interval(chance * count, count), "exact")


def _wins(ours: Sequence[float], theirs: Sequence[float]) -> np.ndarray:
    """Return [ours, theirs]: 1 where ours is greater, 1/2 for a tie; NaN counts as worse."""
    a, b = (np.asarray(side, np.float64) for side in (ours, theirs))
    a, b = (np.where(np.isfinite(side), side, -np.inf) for side in (a, b))
    return (a[:, None] > b) + 0.5 * (a[:, None] == b)


def _lowest_if_lost(values: Sequence[float]) -> list[float]:
    return [value if math.isfinite(value) else -math.inf for value in values]


def placement_interval(ours: Scores, theirs: Scores) -> tuple[float, Interval]:
    """Return the mean over environments of P(ours > theirs) + P(tie) / 2, with its 95 % interval.

    This is Wilson's score interval (1927), for the number of independent pairs that corresponds to
    the variance of the seeds' placements (Brunner and Munzel 2000), with Student's t at Welch's
    degrees of freedom. Half a pair with the largest possible variance, p (1 - p) / n, is added, so
    that 32 wins of 32 give at least 0.88. The interval includes 1/2 unless an exact test on ranks
    (`deal_p`) rejects equal distributions. There is none below 5 seeds.
    """
    tables = [_wins(a, b) for a, b in zip(ours, theirs, strict=True)]
    counts = [count for table in tables for count in table.shape]
    chance = float(sum(table.mean() for table in tables)) / len(tables)
    if min(counts) < 5:
        return chance, NO_INTERVAL
    shares = [
        float(table.mean(axis=axis).var(ddof=1)) / table.shape[1 - axis] / len(tables) ** 2
        for table in tables
        for axis in (1, 0)
    ]
    fewest, spread = min(counts) * len(tables), sum(shares)
    degrees = fewest - 1
    if spread > 0.0:
        degrees = welch_degrees(shares, counts)
    pairs = (chance * (1.0 - chance) + 0.5 / fewest) / (spread + 0.5 / fewest**2)
    squared = t_quantile(0.975, degrees) ** 2 / pairs
    centre = (chance + squared / 2.0) / (1.0 + squared)
    reach = math.sqrt(squared * chance * (1.0 - chance) + squared**2 / 4.0) / (1.0 + squared)
    low, high = max(0.0, centre - reach), min(1.0, centre + reach)
    if (low > 0.5 or high < 0.5) and _ranked_p(ours, theirs) > 0.05:
        low, high = min(low, 0.5), max(high, 0.5)
    return chance, Interval(low, high, "score")


def _ranked_p(ours: Scores, theirs: Scores) -> float:
    sides: list[list[list[float]]] = [[], []]
    for a, b in zip(ours, theirs, strict=True):
        both = np.asarray([*a, *b], np.float64)
        known = np.isfinite(both)
        lowest = 0.0
        if known.any():
            lowest = both[known].min() - 1.0
        ranks = midranks(np.where(known, both, lowest).tolist())
        sides[0].append(ranks[: len(a)].tolist())
        sides[1].append(ranks[len(a) :].tolist())
    return deal_p(*sides)


def seeds_to_tell(gap: float, deviation: float, level: float = level_of(1)) -> int | None:
    """Return the number of pairs needed to detect a mean difference of `gap` with a power of 0.8.

    This is the smallest n for which (t(1 - level / 2) + t(0.8)) s / sqrt(n) is at most the mean
    difference; None if that is 0.

    >>> seeds_to_tell(0.8, 1.4832, level=0.05)
    29
    """
    if gap == 0.0:
        return None
    ratio = deviation / abs(gap)
    known = range(2, _MOST + 1)
    found = bisect_left(known, True, key=lambda count: _has_enough_seeds(count, ratio, level))
    if found == len(known):
        return None
    return known[found]


def _has_enough_seeds(count: int, ratio: float, level: float) -> bool:
    degrees = min(count - 1, 1_000)  # above, quantiles equal the normal ones to three digits
    reach = t_quantile(1.0 - level / 2.0, degrees) + t_quantile(POWER, degrees)
    return reach * ratio <= math.sqrt(count)


Verdict = Literal["better", "worse", "no_difference", "undecided"]
WORDS: Mapping[str, str] = {
    "better": "better",
    "worse": "worse",
    "no_difference": "no significant difference",
    "undecided": "undecided",
}
AFFORDED = 4  # at most this many times the current seeds are worth requesting


@dataclass(frozen=True)
class Decision:
    verdict: Verdict  # on the first side
    interval: Interval  # of the first side minus the second
    more_seeds: int | None = None  # number that would decide, if it is undecided
    unless: Unless | None = None  # set if only unseen outcomes prevent a verdict

    @property
    def of_seen(self) -> Verdict:
        """The verdict on the condition that there are no unseen outcomes."""
        if self.unless is None:
            return self.verdict
        low = self.unless.interval.low
        if low is not None and low > 0.0:
            return "better"
        return "worse"


def decided_pairs(
    ours: Sequence[float],
    theirs: Sequence[float],
    earlier: Sequence[int] = (),
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
    *,
    among: int = 1,
) -> Decision:
    """Return the verdict between finite values on the same seeds, in order; greater is better.

    `among` is the number of comparisons that share the error rate.

    >>> decided_pairs([2.0] * 8, [1.0] * 8).verdict, decided_pairs([2.0] * 3, [1.0] * 3).more_seeds
    ('better', 3)
    """
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    gap, count = mean(differences), len(differences)
    found = paired_over_looks(ours, theirs, earlier, bounds, interim, among=among)
    if among == 1:
        now = next_level(earlier, interim, count)
        fewest = fewest_now(earlier, interim, count)
    else:  # few seeds decide alone, not several at once
        now = next_level(earlier, interim, 0) / among
        fewest = fewest_pairs(now)
    if count < fewest:
        return Decision("undecided", found, fewest - count)
    if found.low is None:  # equal differences on all seeds: only the exact test can decide
        if is_rounding(gap, ours, theirs):
            return Decision("no_difference", found)
        return Decision("better" if gap > 0 else "worse", found)
    level = next_level([*earlier, count], interim) / among
    needed = seeds_to_tell(gap, deviation(differences), level)
    if needed is not None:  # the exact test needs this many pairs that differ
        unequal = sum(value != 0.0 for value in differences) / count
        needed = max(needed, math.ceil(fewest_pairs(level) / unequal))
    if needed is not None:
        needed = max(needed, seeds_to_trust(gap, hidden(ours, theirs, bounds), level))
    unless = None
    if found.low <= 0.0 <= (found.high or 0.0):
        unless = _compare_sides(ours, theirs, now, bounds).unless()
    return _decide_by_interval(found, count, needed, unless)


def _decide_by_interval(
    interval: Interval, count: int, needed: int | None, unless: Unless | None
) -> Decision:
    """Return the verdict from an interval or, if it includes 0, from the total seeds needed."""
    low, high = interval.low, interval.high
    if low is not None and low > 0.0:
        return Decision("better", interval)
    if high is not None and high < 0.0:
        return Decision("worse", interval)
    more = None
    if needed is not None and needed <= AFFORDED * count:
        more = max(1, needed - count)
    if more is None and unless is None:
        return Decision("no_difference", interval)
    return Decision("undecided", interval, more, unless)


_T = TypeVar("_T")


def sharing_error(
    names: Collection[str], decide: Callable[[str, int], _T], is_decided: Callable[[_T], bool]
) -> dict[str, _T]:
    """Decide several comparisons with the error rate of a single one for all of them together.

    All comparisons share the error rate; those with a verdict pass on their share to the others,
    which are tested again (Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure").
    `decide(name, among)` uses the level for this many comparisons.

    >>> tried = sharing_error(["a", "b"], lambda name, among: name * among, lambda it: it == "aa")
    >>> tried
    {'a': 'aa', 'b': 'b'}
    """
    found, left = dict[str, _T](), list(names)
    while left:
        found |= {name: decide(name, len(left)) for name in left}
        still = [name for name in left if not is_decided(found[name])]
        if len(still) == len(left):
            break
        left = still
    return found


FEWEST_EACH = 5  # seeds per side that a verdict needs if they are not paired


@dataclass(frozen=True)
class Comparison:
    means: tuple[float, float]
    iqms: tuple[float | None, float | None]  # None below 8 seeds
    seeds: tuple[int, int]
    paired: bool
    difference: float  # positive if A is better
    difference_interval: Interval  # 95 % over all looks together
    probability: float  # of a run of A being better than a run of B, see `chance_of_better`
    probability_interval: Interval
    verdict: Verdict = "undecided"
    more_seeds: int | None = None  # number per side that would decide, if it is undecided
    unless: Unless | None = None  # set if only unseen outcomes prevent a verdict
    equal: bool = False  # paired, with the same value on every seed

    def sentence(self, a: str = "A", b: str = "B") -> str:
        if self.verdict == "better":
            return f"{a} is better"
        if self.verdict == "worse":
            return f"{b} is better"
        if self.verdict == "no_difference" and self.difference == 0.0 and self.equal:
            return "no difference: both have the same value on every seed"
        if self.verdict == "undecided" and self.more_seeds is not None:
            more = f"{self.more_seeds} more seed{'s' * (self.more_seeds != 1)}"
            return f"{WORDS[self.verdict]}: {more} per side would decide"
        return WORDS[self.verdict]


def compare(
    a: Sequence[float],
    b: Sequence[float],
    goal: str = "maximize",
    paired: bool = False,
    earlier: Sequence[int] = (),
    *,
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
) -> Comparison:
    """Compare values of A and B, one per seed."""
    if not a or not b:
        raise ConfigError("there is nothing to compare: one side has no values")
    if paired and len(a) != len(b):
        raise ConfigError(f"paired samples of {len(a)} and {len(b)} values")
    sign = sign_of(goal)
    ours, theirs = [sign * value for value in a], [sign * value for value in b]
    ends = bounds.signed(sign)
    if not all(map(math.isfinite, [*ours, *theirs])):
        found = Decision("undecided", NO_INTERVAL)
    elif paired:
        found = decided_pairs(ours, theirs, earlier, ends, interim)
    else:
        found = _decided_unpaired(ours, theirs, ends)
    probability, spread = chance_of_better(ours, theirs, paired=paired)
    return Comparison(
        means=(mean(a), mean(b)),
        iqms=(_iqm(a), _iqm(b)),
        seeds=(len(a), len(b)),
        paired=paired,
        difference=mean(ours) - mean(theirs),
        difference_interval=found.interval,
        probability=probability,
        probability_interval=spread,
        verdict=found.verdict,
        more_seeds=found.more_seeds,
        unless=found.unless,
        equal=paired and list(a) == list(b),
    )


def _iqm(values: Sequence[float]) -> float | None:
    if len(values) < IQM_MIN_SEEDS:
        return None
    return iqm(values)


def _decided_unpaired(ours: Sequence[float], theirs: Sequence[float], bounds: Bounds) -> Decision:
    count, found = min(len(ours), len(theirs)), _compare_unpaired(ours, theirs, bounds)
    if count < FEWEST_EACH:
        return Decision("undecided", found.whole, FEWEST_EACH - count)
    spread = math.sqrt(variance(ours) + variance(theirs))
    gap = mean(ours) - mean(theirs)
    needed = seeds_to_tell(gap, spread)
    if needed is not None:
        needed = max(needed, seeds_to_trust(gap, hidden(ours, theirs, bounds), level_of(1)))
    return _decide_by_interval(found.whole, count, needed, found.unless())


def unpaired_interval(
    a: Sequence[float], b: Sequence[float], bounds: Bounds = UNBOUNDED
) -> Interval:
    """Return the interval of a difference of means with unequal variances (Welch 1947).

    It uses the level of a first look, with degrees of freedom rounded down. It includes 0 unless
    the exact test of equal distributions excludes 0 (`deal_p`) and unseen outcomes could not
    change its sign (`unobserved`). There is none below 5 values per side, or with a non-finite
    value.
    """
    return _compare_unpaired(a, b, bounds).whole


def _compare_unpaired(a: Sequence[float], b: Sequence[float], bounds: Bounds) -> _Found:
    if min(len(a), len(b)) < FEWEST_EACH or not all(map(math.isfinite, [*a, *b])):
        return _NOTHING
    level = level_of(1)
    seen = _welch(a, b, level)
    if deal_p([a], [b]) > level or is_rounding(mean(a) - mean(b), a, b):
        seen = _with_zero(seen)
    return _with_unseen(seen, a, b, unpaired_ends(a, b, level, bounds), bounds)
