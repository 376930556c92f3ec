"""Comparison of two configurations: difference of means and probability of improvement.

Values on the same seeds are compared pair by pair. The test of a mean difference is exact: under
equal distributions each difference has a random sign, for any distribution and with ties. The
interval is Student's, or Hall's if one side is constant (differences are then as skewed as the
other side). It includes 0 wherever the exact test does not exclude it, and ends at the bounds of
the difference.

If one side is constant, signs are not random: where the other side fails on one seed in ten, 8
seeds often show no failure, and all of them are better than the mean. Then the interval also
includes 0 unless unobserved seeds could not change the sign of the mean (`unseen_p`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ..errors import ConfigError
from .importance import midranks
from .interim_analyses import fewest_pairs, level_of, levels, next_level
from .libraries import np, special
from .statistics import (
    IQM_MIN_SEEDS,
    NO_INTERVAL,
    Interval,
    Scores,
    binomial_interval,
    deal_p,
    iqm,
    mean,
    t_quantile,
    variance,
    welch_degrees,
)

POWER = 0.8
_MOST = 2**19  # pairs worth asking for
_ALL_SIGNS, _FLIPS, _MANY = 14, 20_000, 100
_ROUNDING = 1e-9
# An unknown bound is assumed beyond all values by this share of their range: skewed (log-normal)
# returns then differ from a constant at their mean in at most 5 %.
_BEYOND = 0.8

FEWEST_PAIRS = fewest_pairs(level_of(1))  # 6; below, no verdict and no interval


@dataclass(frozen=True)
class Bounds:
    """The range of possible means; infinite where it is unknown."""

    low: float = -math.inf
    high: float = math.inf

    def signed(self, sign: float) -> Bounds:
        return self if sign > 0.0 else Bounds(-self.high, -self.low)

    def around(self, found: Interval) -> Interval:
        if found.low is None or found.high is None:
            return found
        low, high = (min(max(end, self.low), self.high) for end in (found.low, found.high))
        return Interval(low, high, found.kind)

    def of_difference(self, ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
        """Return the range of the difference of two means; a constant side has that mean."""
        a, b = ours[0], theirs[0]
        if constant(ours) and constant(theirs):
            return min(a - self.high, self.low - b), max(a - self.low, self.high - b)
        if constant(ours):
            return a - self.high, a - self.low
        if constant(theirs):
            return self.low - b, self.high - b
        return self.low - self.high, self.high - self.low


UNBOUNDED = Bounds()


def unseen_between(
    ours: Sequence[float], theirs: Sequence[float], bounds: Bounds = UNBOUNDED
) -> tuple[float, float] | None:
    """Return the range of an unobserved seed's difference if a side is constant, else None.

    An unknown bound is 0 or, if further out, 0.8 times the range of all values beyond them.
    """
    if not constant(ours) and not constant(theirs):
        return None
    low, high = min(*ours, *theirs), max(*ours, *theirs)
    beyond = _BEYOND * (high - low)
    return Bounds(
        bounds.low if math.isfinite(bounds.low) else min(0.0, low - beyond),
        bounds.high if math.isfinite(bounds.high) else max(0.0, high + beyond),
    ).of_difference(ours, theirs)


def paired_interval(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    level: float = level_of(1),
    bounds: Bounds = UNBOUNDED,
) -> Interval:
    """Return the interval of the mean of `ours` less `theirs`, seed by seed.

    It excludes 0 only where the exact test does (`sign_flip_p`), and next to a constant only where
    unobserved seeds allow it (`unseen_p`). For two constants it is exact for the share of seeds
    with a different difference. There is none below 6 pairs, where the exact test excludes
    nothing, nor if both sides vary with the same difference on every seed. `level`: the error
    rate, by default that of a first look; `bounds`: of both means, of equal numbers of seeds.

    >>> found = paired_interval([3.0, 4, 6, 4, 5, 4], [1.0, 3, 3, 3, 2, 3])
    >>> round(found.low, 3), round(found.high, 3), found.kind
    (0.727, 2.94, 't')
    """
    if len(ours) != len(theirs):
        raise ConfigError(f"paired samples of {len(ours)} and {len(theirs)} values")
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    if len(differences) < FEWEST_PAIRS or not all(map(math.isfinite, differences)):
        return NO_INTERVAL
    centre, unseen = mean(differences), unseen_between(ours, theirs, bounds)
    alike = is_rounding(max(differences) - min(differences), ours, theirs)
    if alike and (unseen is None or is_rounding(centre, ours, theirs)):
        return NO_INTERVAL
    if alike and unseen is not None:
        (low, high), kind = alike_ends(centre, len(differences), level, unseen), "exact"
    elif unseen is not None:
        (low, high), kind = _constant_interval(differences, level), "hall"
    else:
        (low, high), kind = _student(differences, 1.0 - level / 2.0), "t"
    if low * high > 0.0 and (
        sign_flip_p(differences) > level
        or (unseen is not None and unseen_p(differences, *unseen) > level)
    ):
        low, high = min(low, 0.0), max(high, 0.0)
    least, most = bounds.of_difference(ours, theirs)
    return Interval(min(max(low, least), centre), max(min(high, most), centre), kind)


def _constant_interval(differences: Sequence[float], level: float) -> tuple[float, float]:
    """Return Hall's interval; if all signs are the same, no further beyond 0 than Student's."""
    low, high = _hall(differences, 1.0 - level / 2.0)
    if min(differences) * max(differences) < 0.0:
        return low, high
    plain = _student(differences, 1.0 - level / 2.0)
    return (max(low, plain[0]), high) if max(differences) > 0.0 else (low, min(high, plain[1]))


def alike_ends(
    gap: float, count: int, level: float, unseen: tuple[float, float]
) -> tuple[float, float]:
    """Return the exact interval of the mean difference of two constants.

    At most 1 - (level / 2)^(1 / n) of all seeds have a different difference (Clopper and Pearson
    1934, no hit in n).
    """
    share = 1.0 - (level / 2.0) ** (1.0 / count)
    low, high = ((1.0 - share) * gap + share * end for end in unseen)
    return low, high


def paired_over_looks(
    ours: Sequence[float],
    theirs: Sequence[float],
    earlier: Sequence[int] = (),
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
) -> Interval:
    """Return the 95 % interval of the mean difference over all looks together.

    The intersection of the intervals of all looks, each at its level; this look's if it is empty.
    `earlier`: pairs at each earlier look, the first ones of these; 0 for different values;
    `interim`: see `interim_analyses.level_of`.
    """
    before, level = levels(earlier, interim)
    now = paired_interval(ours, theirs, level=level, bounds=bounds)
    if now.low is None or now.high is None:
        return now
    low, high = now.low, now.high
    for pairs, its in before:
        then = paired_interval(ours[:pairs], theirs[:pairs], level=its, bounds=bounds)
        if then.low is not None and then.high is not None:
            low, high = max(low, then.low), min(high, then.high)
    return Interval(low, high, now.kind) if low <= high else now


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p-value of symmetric differences around 0.

    The share of sign flips with a sum at least as far from 0 (Fisher 1935, "The Design of
    Experiments", section 21); zeros change nothing. For more than 14 differences 20,000 fixed
    flips, with the observed one, are exact, too; for more than 100 it is Student's.

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
        sums = _signs(len(sizes)) @ sizes
        return (1.0 + float(np.count_nonzero(np.abs(sums) >= seen))) / _FLIPS
    sums = sizes[:1]  # the other half has all signs flipped
    for size in sizes[1:]:
        sums = np.concatenate([sums - size, sums + size])
    return float(np.mean(np.abs(sums) >= seen))


def unseen_p(differences: Sequence[float], least: float, most: float) -> float:
    """Return the two-sided p-value of a mean of 0 for any distribution between two ends.

    How often randomly weighted seeds, with one more at the far end, have a mean of the other sign
    (Gaffke 2005; Learned-Miller and Thomas 2020, "A New Confidence Interval for the Mean of a
    Bounded Random Variable"). If all signs are equal that is a product; else 20,000 fixed weights
    are used, and 0 is returned for more than 100 differences.

    >>> round(unseen_p([1.0] * 8, -1.0, 1.0), 6), unseen_p([1.0] * 8, 0.0, 1.0)
    (0.007813, 0.0)
    """
    sign = 1.0 if math.fsum(differences) >= 0.0 else -1.0
    values, far = [sign * value for value in differences], min(sign * least, sign * most)
    if far >= 0.0:
        return 0.0
    if min(values) >= 0.0:
        return min(1.0, 2.0 * math.exp(-math.fsum(math.log1p(value / -far) for value in values)))
    if len(values) > _MANY:
        return 0.0
    sums = _weights(len(values) + 1) @ np.asarray([*values, far])
    return min(1.0, 2.0 * float(np.mean(sums <= 0.0)))


@lru_cache(maxsize=8)
def _weights(count: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(0)).exponential(1.0, (_FLIPS, count))


@lru_cache(maxsize=8)
def _signs(count: int) -> np.ndarray:
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
    """Return the standard deviation with n - 1; at least two values."""
    return math.sqrt(variance(values))


def _hall(values: Sequence[float], tail: float) -> tuple[float, float]:
    """Return Hall's skewness-corrected interval, with Student's quantiles.

    Hall 1992, "On the removal of skewness by transformation", equation 2.3.
    """
    count, centre, spread = len(values), mean(values), deviation(values)
    plain = math.sqrt(math.fsum((v - centre) ** 2 for v in values) / count)
    skewness = math.fsum((v - centre) ** 3 for v in values) / count / plain**3
    if abs(skewness) < 1e-6:
        return _student(values, tail)
    reach = t_quantile(tail, count - 1) / math.sqrt(count)
    low, high = (  # x with x + s x^2 / 3 + s^2 x^3 / 27 + s / (6 n) = end
        3.0 / skewness * (math.cbrt(1.0 + skewness * (end - skewness / (6.0 * count))) - 1.0)
        for end in (reach, -reach)
    )
    return centre - spread * low, centre - spread * high


def chance_of_better(
    ours: Sequence[float], theirs: Sequence[float], *, paired: bool = True
) -> tuple[float, Interval]:
    """Return the probability of improvement P(ours > theirs) + P(tie) / 2, with its interval.

    Paired: on the same new seed, with Clopper and Pearson's interval, a tie half a hit. Else for
    any two seeds (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice", section 4.3), see `placement_interval`. A non-finite value loses to a finite one.
    Below 5 seeds it has no interval.

    >>> chance_of_better([2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 2.0, 3.0])[0]
    0.625
    >>> chance_of_better([2.0, 3.0], [1.0, 2.0], paired=False)[0]
    0.875
    """
    if not len(ours) or not len(theirs) or (paired and len(ours) != len(theirs)):
        raise ConfigError(f"samples of {len(ours)} and {len(theirs)} values")
    if not paired:
        return placement_interval([ours], [theirs])
    sides = [[value if math.isfinite(value) else -math.inf for value in s] for s in (ours, theirs)]
    chance = mean([(a > b) + 0.5 * (a == b) for a, b in zip(*sides, strict=True)])
    count = len(ours)
    if count < 5:
        return chance, NO_INTERVAL
    return chance, Interval(*binomial_interval(chance * count, count), "exact")


def _wins(ours: Sequence[float], theirs: Sequence[float]) -> np.ndarray:
    """Return [ours, theirs]: 1 where ours is greater, 1/2 for a tie; NaN loses."""
    a, b = (np.asarray(side, np.float64) for side in (ours, theirs))
    a, b = (np.where(np.isfinite(side), side, -np.inf) for side in (a, b))
    return (a[:, None] > b) + 0.5 * (a[:, None] == b)


def placement_interval(ours: Scores, theirs: Scores) -> tuple[float, Interval]:
    """Return the mean over environments of P(ours > theirs) + P(tie) / 2, with its 95 % interval.

    Wilson's score interval (1927), for the number of independent pairs with the variance of the
    placements of seeds (Brunner and Munzel 2000), with Student's t at Welch's degrees of freedom.
    Half a pair of the largest possible variance, p (1 - p) / n, is added: 32 wins of 32 give at
    least 0.88. It includes 1/2 wherever the exact test of equal distributions does not exclude it
    (`deal_p`, of ranks). There is none below 5 seeds.
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
    degrees = welch_degrees(shares, counts) if spread > 0.0 else fewest - 1
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
        ranks = midranks(
            np.where(known, both, both[known].min() - 1.0 if known.any() else 0.0).tolist()
        )
        sides[0].append(ranks[: len(a)].tolist())
        sides[1].append(ranks[len(a) :].tolist())
    return deal_p(*sides)


def seeds_to_tell(gap: float, deviation: float, level: float = level_of(1)) -> int | None:
    """Return the number of pairs with a power of 0.8 to find a mean difference of `gap`.

    (t(1 - level / 2) + t(0.8)) s / sqrt(n) is at most the mean. None if the mean is 0.

    >>> seeds_to_tell(0.8, 1.4832, level=0.05)
    29
    """
    if gap == 0.0:
        return None
    ratio = deviation / abs(gap)
    known = range(2, _MOST + 1)
    found = bisect_left(known, True, key=lambda count: _suffice(count, ratio, level))
    return known[found] if found < len(known) else None


def seeds_to_trust(gap: float, unseen: tuple[float, float], level: float) -> int:
    """Return the number of seeds that exclude 0 for any unobserved differences in a range.

    >>> seeds_to_trust(1.0, (-1.0, 1.0), 0.04)
    6
    """
    far = max(0.0, -unseen[0] if gap > 0.0 else unseen[1])
    return math.ceil(math.log(level / 2.0) / -math.log1p(abs(gap) / far)) if far else 1


def _suffice(count: int, ratio: float, level: float) -> bool:
    degrees = min(count - 1, 1_000)  # beyond, quantiles are the normal's to three digits
    reach = t_quantile(1.0 - level / 2.0, degrees) + t_quantile(POWER, degrees)
    return reach * ratio <= math.sqrt(count)


Verdict = Literal["better", "worse", "no_difference", "undecided"]
WORDS: Mapping[str, str] = {
    "better": "better",
    "worse": "worse",
    "no_difference": "no significant difference",
    "undecided": "undecided",
}
AFFORDED = 4  # at most this many times the present seeds are worth asking for


@dataclass(frozen=True)
class Decision:
    verdict: Verdict  # about the first side
    interval: Interval  # of the first side less the second
    more_seeds: int | None = None  # that would decide, if it is undecided


def decided_pairs(
    ours: Sequence[float],
    theirs: Sequence[float],
    earlier: Sequence[int] = (),
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
) -> Decision:
    """Decide between finite values on the same seeds, in the order they ran; greater is better.

    >>> decided_pairs([2.0] * 8, [1.0] * 8).verdict, decided_pairs([2.0] * 4, [1.0] * 4).more_seeds
    ('better', 2)
    """
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    gap, count = mean(differences), len(differences)
    found = paired_over_looks(ours, theirs, earlier, bounds, interim)
    fewest = fewest_pairs(next_level(earlier, interim))
    if count < fewest:
        return Decision("undecided", found, fewest - count)
    if found.low is None:  # the same difference on every seed: only the exact test decides
        if is_rounding(gap, ours, theirs):
            return Decision("no_difference", found)
        return Decision("better" if gap > 0 else "worse", found)
    level = next_level([*earlier, count], interim)
    needed = seeds_to_tell(gap, deviation(differences), level)
    if needed is not None:  # as many have to differ as the exact test needs
        unequal = sum(value != 0.0 for value in differences) / count
        needed = max(needed, math.ceil(fewest_pairs(level) / unequal))
    unseen = unseen_between(ours, theirs, bounds)
    if needed is not None and unseen is not None:
        needed = max(needed, seeds_to_trust(gap, unseen, level))
    return _decided(found, count, needed)


def _decided(interval: Interval, count: int, needed: int | None) -> Decision:
    """Decide by an interval; if it includes 0, by the seeds needed in all (None: any number)."""
    low, high = interval.low, interval.high
    if low is not None and low > 0.0:
        return Decision("better", interval)
    if high is not None and high < 0.0:
        return Decision("worse", interval)
    if needed is None or needed > AFFORDED * count:
        return Decision("no_difference", interval)
    return Decision("undecided", interval, max(1, needed - count))


FEWEST_EACH = 5  # seeds of each side for a verdict, if they are not paired


@dataclass(frozen=True)
class Comparison:
    means: tuple[float, float]
    iqms: tuple[float | None, float | None]  # None below 8 seeds
    seeds: tuple[int, int]
    paired: bool
    difference: float  # positive if A is better
    difference_interval: Interval  # 95 % over all looks together
    probability: float  # that a run of A is better than a run of B, see `chance_of_better`
    probability_interval: Interval
    verdict: Verdict = "undecided"
    more_seeds: int | None = None  # of each that would decide, if it is undecided
    equal: bool = False  # paired, and the same value on every seed

    def sentence(self, a: str = "A", b: str = "B") -> str:
        if self.verdict in ("better", "worse"):
            return f"{a if self.verdict == 'better' else b} is better"
        if self.verdict == "no_difference" and self.difference == 0.0 and self.equal:
            return "no difference: both have the same value on every seed"
        if self.verdict == "undecided" and self.more_seeds is not None:
            more = f"{self.more_seeds} more seed{'' if self.more_seeds == 1 else 's'}"
            return f"{WORDS[self.verdict]}: {more} of each would decide"
        return WORDS[self.verdict]


def compare(
    a: Sequence[float],
    b: Sequence[float],
    goal: str = "maximize",
    paired: bool = False,
    earlier: Sequence[int] = (),
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
) -> Comparison:
    """Compare values of A and B, one per seed."""
    if not a or not b:
        raise ConfigError("there is nothing to compare: one side has no values")
    if paired and len(a) != len(b):
        raise ConfigError(f"paired samples of {len(a)} and {len(b)} values")
    sign = 1.0 if goal == "maximize" else -1.0
    ours, theirs = [sign * value for value in a], [sign * value for value in b]
    if not all(map(math.isfinite, [*ours, *theirs])):
        found = Decision("undecided", NO_INTERVAL)
    else:
        ends = bounds.signed(sign)
        found = (
            decided_pairs(ours, theirs, earlier, ends, interim)
            if paired
            else _decided_unpaired(ours, theirs, ends)
        )
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
        equal=paired and list(a) == list(b),
    )


def _iqm(values: Sequence[float]) -> float | None:
    return iqm(values) if len(values) >= IQM_MIN_SEEDS else None


def _decided_unpaired(ours: Sequence[float], theirs: Sequence[float], bounds: Bounds) -> Decision:
    count, found = min(len(ours), len(theirs)), unpaired_interval(ours, theirs, bounds)
    if count < FEWEST_EACH:
        return Decision("undecided", found, FEWEST_EACH - count)
    spread = math.sqrt(variance(ours) + variance(theirs))
    gap = mean(ours) - mean(theirs)
    needed = seeds_to_tell(gap, spread)
    unseen = unseen_between(ours, theirs, bounds)
    if needed is not None and unseen is not None:
        needed = max(needed, seeds_to_trust(gap, unseen, level_of(1)))
    return _decided(found, count, needed)


def unpaired_interval(
    a: Sequence[float], b: Sequence[float], bounds: Bounds = UNBOUNDED
) -> Interval:
    """Return the interval of a difference of means with different variances (Welch 1947).

    At the level of a first look, degrees of freedom rounded down. It includes 0 wherever the exact
    test of equal distributions does not exclude it (`deal_p`), and next to a constant unless
    unobserved seeds allow it (`unseen_p`). For two constants it is exact. There is none below 5
    values of either side, or with a non-finite value.
    """
    count = min(len(a), len(b))
    if count < FEWEST_EACH or not all(map(math.isfinite, [*a, *b])):
        return NO_INTERVAL
    shares = [variance(values) / len(values) for values in (a, b)]
    centre, total, level = mean(a) - mean(b), sum(shares), level_of(1)
    unseen = unseen_between(a, b, bounds)
    if unseen is not None and constant(a) and constant(b):
        low, high = alike_ends(centre, count, level, unseen) if centre != 0.0 else (0.0, 0.0)
    else:
        degrees = welch_degrees(shares, (len(a), len(b)))
        reach = t_quantile(1.0 - level / 2.0, degrees) * math.sqrt(total)
        low, high = centre - reach, centre + reach
    if low * high > 0.0 and (
        deal_p([a], [b]) > level
        or (unseen is not None and unseen_p(_differences(a, b), *unseen) > level)
    ):
        low, high = min(low, 0.0), max(high, 0.0)
    least, most = bounds.of_difference(a, b)
    return Interval(min(max(low, least), centre), max(min(high, most), centre), "t")


def _differences(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Return the differences of two samples of which one is constant."""
    if constant(a) and constant(b):
        return [a[0] - b[0]] * min(len(a), len(b))
    return [a[0] - value for value in b] if constant(a) else [value - b[0] for value in a]
