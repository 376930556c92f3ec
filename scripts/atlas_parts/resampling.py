"""Halves of the seeds, and 95 % intervals by drawing the configurations anew.

What chooses and what judges never share a seed: seeds are split at random, again and again, into
some that choose and some that judge. The interval of every number is over configurations, drawn
with replacement; the seeds are those that ran.
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
    """Return the source of every draw; the same tables always get the same page."""
    return np.random.Generator(np.random.PCG64(seed))


def judges_of(seeds: int) -> int:
    """Return how many of so many seeds judge: half of them, rounded down."""
    return seeds // 2


def halves(
    draws: np.random.Generator, seeds: int, count: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield seeds that may choose, in the order in which they are added, and seeds that judge."""
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
    """Return numbers with their percentile intervals by bootstrap over configurations.

    Args:
        whole: the numbers, [k].
        statistic: rows of configurations and a source of draws -> the same numbers of these.
        configurations: c.
        resamples: drawn with replacement.
        draws: the source.
    """
    again = [
        statistic(draws.integers(0, configurations, configurations), draws)
        for _ in range(resamples)
    ]
    return around(whole, np.stack(again))


def around(whole: np.ndarray, again: np.ndarray, tests: int = 1) -> list[Estimate]:
    """Return the numbers [k] with the percentiles of their resamples [b, k].

    Args:
        whole: numbers of the configurations as they are.
        again: the same of every resample.
        tests: intervals that are to hold all at once (Bonferroni).
    """
    tail = (1.0 - LEVEL) / 2 / tests
    low, high = np.nanquantile(again, [tail, 1.0 - tail], axis=0)
    return [
        Estimate(float(value), float(a), float(b))
        for value, a, b in zip(whole, low, high, strict=True)
    ]
