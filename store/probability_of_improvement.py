"""The probability that a run of one configuration is better than a run of another."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import ConfigError
from .importance import midranks
from .libraries import np
from .permutation_tests import deal_p
from .statistics import (
    NO_INTERVAL,
    Interval,
    Scores,
    binomial_interval,
    mean,
    t_quantile,
    welch_degrees,
)


def chance_of_better(
    a: Sequence[float], b: Sequence[float], *, paired: bool = True
) -> tuple[float, Interval]:
    """Return the probability of improvement P(a > b) + P(tie) / 2, with its interval.

    Paired values are compared on the same new seed, with Clopper and Pearson's interval, where a
    tie counts as half a hit. Unpaired values are compared for all pairs of seeds (Agarwal et al.
    2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", section 4.3); see
    `placement_interval`. A non-finite value is worse than a finite one. There is no interval for
    fewer than 5 seeds.

    >>> chance_of_better([2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 2.0, 3.0])[0]
    0.625
    >>> chance_of_better([2.0, 3.0], [1.0, 2.0], paired=False)[0]
    0.875
    """
    if not len(a) or not len(b) or (paired and len(a) != len(b)):
        need = "values, and equal lengths if they are paired"
        raise ConfigError(f"samples need {need} (here: {len(a)} and {len(b)})")
    if not paired:
        return placement_interval([a], [b])
    pairs = zip(_lowest_if_lost(a), _lowest_if_lost(b), strict=True)
    chance = mean([(x > y) + 0.5 * (x == y) for x, y in pairs])
    count = len(a)
    if count < 5:
        return chance, NO_INTERVAL
    return chance, Interval(*binomial_interval(chance * count, count), "exact")


def _lowest_if_lost(values: Sequence[float]) -> list[float]:
    return [value if math.isfinite(value) else -math.inf for value in values]


def placement_interval(scores_a: Scores, scores_b: Scores) -> tuple[float, Interval]:
    """Return the mean over environments of P(a > b) + P(tie) / 2, with its 95 % interval.

    This is Wilson's score interval (1927). Its sample size is the number of independent pairs that
    matches the variance of the seeds' placements (Brunner and Munzel 2000), and its quantile is
    Student's t at Welch's degrees of freedom. Half a pair with the largest possible variance,
    p (1 - p) / n, is added, so that 32 wins of 32 give at least 0.88. The interval includes 1/2
    unless an exact test on ranks (`deal_p`) rejects equal distributions. No interval is returned
    for fewer than 5 seeds.
    """
    tables = [_win_matrix(a, b) for a, b in zip(scores_a, scores_b, strict=True)]
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
    if (low > 0.5 or high < 0.5) and _ranked_p(scores_a, scores_b) > 0.05:
        low, high = min(low, 0.5), max(high, 0.5)
    return chance, Interval(low, high, "score")


def _win_matrix(values_a: Sequence[float], values_b: Sequence[float]) -> np.ndarray:
    """Return [a, b]: 1 where the value of a is greater, 1/2 for a tie; NaN counts as worse."""
    a, b = (np.asarray(side, np.float64) for side in (values_a, values_b))
    a, b = (np.where(np.isfinite(side), side, -np.inf) for side in (a, b))
    return (a[:, None] > b) + 0.5 * (a[:, None] == b)


def _ranked_p(scores_a: Scores, scores_b: Scores) -> float:
    sides: list[list[list[float]]] = [[], []]
    for a, b in zip(scores_a, scores_b, strict=True):
        both = np.asarray([*a, *b], np.float64)
        known = np.isfinite(both)
        lowest = 0.0
        if known.any():
            lowest = both[known].min() - 1.0
        ranks = midranks(np.where(known, both, lowest).tolist())
        sides[0].append(ranks[: len(a)].tolist())
        sides[1].append(ranks[len(a) :].tolist())
    return deal_p(*sides)
