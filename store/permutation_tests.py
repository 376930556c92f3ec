"""Exact permutation tests of the hypothesis that two distributions are equal.

`sign_flip_p` is for paired differences, `split_p` for a few values per side, and `deal_p` for more
values, in one or several environments. `agreement` is the permutation interval of a difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..errors import ConfigError
from .libraries import np, special
from .statistics import Scores, deviation, mean

_ALL_SIGNS, _FLIPS, _MANY = 14, 20_000, 100
_ROUNDING = 1e-9
AGREEMENT_LEVEL = 0.99
DEALS = 9_999  # permutations


def split_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the exact two-sided p-value for equal distributions, from few values.

    This is the share of all splits into two sides of these sizes whose means differ at least as
    much (Pitman 1937, "Significance tests which may be applied to samples from any populations").

    >>> split_p([4.0, 5.0, 6.0, 7.0], [0.0, 1.0, 2.0, 3.0])  # 2 of 70
    0.02857142857142857
    """
    both = [*a, *b]
    centre, size = mean(both), math.fsum(map(abs, both))

    def distance(side: Sequence[float]) -> float:
        return abs(math.fsum(value - centre for value in side))

    observed = distance(a) - _ROUNDING * size
    distances = [*map(distance, itertools.combinations(both, len(a)))]
    return sum(one >= observed for one in distances) / len(distances)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p-value for differences that are symmetric around 0.

    This is the share of sign flips with a sum at least as far from 0 (Fisher 1935, "The Design of
    Experiments", section 21); zeros have no effect. For more than 14 differences it uses 20,000
    fixed flips and the observed one, which is also exact; for more than 100 it uses Student's
    test.

    >>> sign_flip_p([1.0, 2.0, 3.0, 4.0, 0.0]), sign_flip_p([1.0, -1.0])
    (0.125, 1.0)
    """
    sizes = np.abs([value for value in differences if value != 0.0])
    if not len(sizes):
        return 1.0
    observed = abs(math.fsum(differences)) - _ROUNDING * float(sizes.sum())
    if len(sizes) > _MANY:
        error = deviation(differences) * math.sqrt(len(differences))
        if error == 0.0:  # all differences are equal
            return 0.0
        reach = abs(math.fsum(differences)) / error
        return 2.0 * float(special.stdtr(len(differences) - 1, -reach))
    if len(sizes) > _ALL_SIGNS:
        sums = _random_signs(len(sizes)) @ sizes
        return (1.0 + float(np.count_nonzero(np.abs(sums) >= observed))) / _FLIPS
    sums = sizes[:1]  # the other half has all signs flipped
    for size in sizes[1:]:
        sums = np.concatenate([sums - size, sums + size])
    return float(np.mean(np.abs(sums) >= observed))


@lru_cache(maxsize=8)
def _random_signs(count: int) -> np.ndarray:
    coins = np.random.Generator(np.random.PCG64(0)).integers(0, 2, (_FLIPS - 1, count))
    return 2.0 * coins - 1.0


def deal_p(scores_a: Scores, scores_b: Scores) -> float:
    """Return the exact two-sided p-value for equal distributions in every environment.

    This is the share of 9,999 permutations within environments, plus the observed one, whose
    difference of means is at least as far from 0.

    >>> deal_p([[1.0] * 6], [[0.0] * 6]) < 0.01, deal_p([[1.0] * 6], [[1.0] * 6])
    (True, 1.0)
    """
    dealt, observed, size = np.zeros(DEALS), 0.0, 0.0
    for stream, (a, b) in enumerate(zip(scores_a, scores_b, strict=True)):
        pooled = np.asarray([*a, *b], np.float64)
        # Centred values sum to 0, so one side's sum gives the difference of means.
        centred = (pooled - pooled.mean()) / len(a) / len(b)
        dealt += centred[_random_orders(len(pooled), DEALS, stream)[:, len(a) :]].sum(axis=1)
        observed += float(centred[len(a) :].sum())
        size += float(np.abs(centred).sum())
    far = int(np.count_nonzero(np.abs(dealt) >= abs(observed) - 1e-9 * size))
    return (1 + far) / (DEALS + 1)


@dataclass(frozen=True)
class Agreement:
    difference: float  # mean of new values minus mean of recorded values
    low: float  # 99 % permutation interval
    high: float
    within: bool  # whether the difference is in the interval


def agreement(
    recorded: Sequence[float], fresh: Sequence[float], deals: int = DEALS, seed: int = 0
) -> Agreement:
    """Return the difference of two means of at least 5 seeds, with its permutation interval.

    >>> agreement([1.0] * 8, [1.0] * 8).within
    True
    """
    count, other = len(recorded), len(fresh)
    if min(count, other) < 5:
        raise ConfigError(f"each sample needs at least 5 values (here: {count} and {other})")
    pooled = np.asarray([*recorded, *fresh], np.float64)
    if not np.isfinite(pooled).all():
        raise ConfigError("a value is not finite")
    centred = pooled - pooled.mean()  # otherwise rounding errors of large means would split ties
    second = centred[_random_orders(count + other, deals, seed)[:, count:]].sum(axis=1)
    dealt = second / other - (centred.sum() - second) / count
    observed = centred[count:].sum()
    difference = float(observed / other - (centred.sum() - observed) / count)
    tail = (1.0 - AGREEMENT_LEVEL) / 2.0
    # Including the observed one, at most a share of `level` of n + 1 is outside.
    skipped = int(tail * (deals + 1))
    ordered = np.sort(dealt)
    low, high = float(ordered[max(0, skipped - 1)]), float(ordered[deals - max(1, skipped)])
    slack = 1e-12 * max(1.0, float(np.abs(centred).max()))
    within = low - slack <= difference <= high + slack
    return Agreement(difference, low, high, within)


@lru_cache(maxsize=16)
def _random_orders(count: int, deals: int, seed: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.permuted(np.broadcast_to(np.arange(count), (deals, count)), axis=1)
