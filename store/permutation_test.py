"""Exact permutation tests of the means of two samples of seeds.

Values of both sides are permuted (Fisher's randomisation test; Good 2005, section 3.2), which is
exact for any distribution, with ties and ceilings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..errors import ConfigError
from .libraries import np

Scores = Sequence[Sequence[float]]  # [environments][seeds]
LEVEL = 0.99
DEALS = 9_999  # permutations


@dataclass(frozen=True)
class Agreement:
    """A fresh sample of seeds compared with a recorded one."""

    difference: float  # fresh mean less recorded mean
    low: float  # 99 % permutation interval
    high: float
    within: bool  # the difference is in the interval


def agreement(
    recorded: Sequence[float], fresh: Sequence[float], deals: int = DEALS, seed: int = 0
) -> Agreement:
    """Return the difference of two means of at least 5 seeds, and its permutation interval.

    >>> agreement([1.0] * 8, [1.0] * 8).within
    True
    """
    count, other = len(recorded), len(fresh)
    if min(count, other) < 5:
        raise ConfigError(f"samples of {count} and {other} values; at least 5 are needed")
    pooled = np.asarray([*recorded, *fresh], np.float64)
    if not np.isfinite(pooled).all():
        raise ConfigError("a value is not finite")
    centred = pooled - pooled.mean()  # rounding errors of large means would split ties
    second = centred[_orders(count + other, deals, seed)[:, count:]].sum(axis=1)
    dealt = second / other - (centred.sum() - second) / count
    seen = centred[count:].sum()
    difference = float(seen / other - (centred.sum() - seen) / count)
    tail = (1.0 - LEVEL) / 2.0
    # With the observed one, at most `level` of n + 1 are outside.
    skipped = int(tail * (deals + 1))
    ordered = np.sort(dealt)
    low, high = float(ordered[max(0, skipped - 1)]), float(ordered[deals - max(1, skipped)])
    slack = 1e-12 * max(1.0, float(np.abs(centred).max()))
    within = low - slack <= difference <= high + slack
    return Agreement(difference, low, high, within)


def deal_p(ours: Scores, theirs: Scores) -> float:
    """Return the exact two-sided p-value of equal distributions in every environment.

    The share of 9,999 permutations within environments, and the observed one, with a difference of
    means at least as far from 0.

    >>> deal_p([[1.0] * 6], [[0.0] * 6]) < 0.01, deal_p([[1.0] * 6], [[1.0] * 6])
    (True, 1.0)
    """
    dealt, seen, size = np.zeros(DEALS), 0.0, 0.0
    for stream, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        pooled = np.asarray([*a, *b], np.float64)
        # Centred values sum to 0, so the sum of one side gives the difference of means.
        centred = (pooled - pooled.mean()) / len(a) / len(b)
        dealt += centred[_orders(len(pooled), DEALS, stream)[:, len(a) :]].sum(axis=1)
        seen += float(centred[len(a) :].sum())
        size += float(np.abs(centred).sum())
    far = int(np.count_nonzero(np.abs(dealt) >= abs(seen) - 1e-9 * size))
    return (1 + far) / (DEALS + 1)


@lru_cache(maxsize=16)
def _orders(count: int, deals: int, seed: int) -> np.ndarray:
    """Return permutations [deals, count], the same for every call."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.permuted(np.broadcast_to(np.arange(count), (deals, count)), axis=1)
