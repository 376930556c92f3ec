"""Halves of the seeds, and 95 % intervals from resampled configurations.

Selection and judging never share a seed: seeds are repeatedly split at random into some that
select and some that judge. The intervals of all numbers are over configurations, drawn with
replacement; the seeds are those that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval over configurations."""

    value: float
    low: float
    high: float

    def as_json(self) -> list[float]:
        """Return value, low, high."""
        return [self.value, self.low, self.high]


def generator(seed: int = 0) -> np.random.Generator:
    """Return the source of all draws, so that equal tables give equal pages."""
    return np.random.Generator(np.random.PCG64(seed))


def judges_of(seeds: int) -> int:
    """Return how many of this many seeds judge: half of them, rounded down."""
    return seeds // 2


def halves(
    draws: np.random.Generator, seeds: int, count: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield seeds that may select, in the order in which they are added, and seeds that judge."""
    judges = judges_of(seeds)
    for _ in range(count):
        order = draws.permutation(seeds)
        yield order[judges:], order[:judges]


def estimates(
    whole: np.ndarray,
    statistic: Callable[[np.ndarray, np.random.Generator], np.ndarray],
    configurations: int,
    resamples: int,
    draws: np.random.Generator,
) -> list[Estimate]:
    """Return numbers with their percentile intervals, by bootstrap over configurations.

    Args:
        whole: the numbers, [k].
        statistic: (rows of configurations, source of draws) -> the same numbers for these rows.
        configurations: c.
        resamples: number of resamples, drawn with replacement.
        draws: the source of draws.
    """
    again = [
        statistic(draws.integers(0, configurations, configurations), draws)
        for _ in range(resamples)
    ]
    return around(whole, np.stack(again))


def around(whole: np.ndarray, again: np.ndarray, tests: int = 1) -> list[Estimate]:
    """Return the numbers [k] with percentiles of their resamples [b, k].

    Args:
        whole: numbers for the actual configurations.
        again: the same for every resample.
        tests: number of intervals that should hold simultaneously (Bonferroni).
    """
    tail = (1.0 - LEVEL) / 2 / tests
    low, high = np.nanquantile(again, [tail, 1.0 - tail], axis=0)
    return [
        Estimate(float(value), float(a), float(b))
        for value, a, b in zip(whole, low, high, strict=True)
    ]
