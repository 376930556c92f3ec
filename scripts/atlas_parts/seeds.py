"""How many seeds does it take to rank configurations?

With n seeds that select, and half of all seeds as judges:

*better of two*: over all pairs of configurations, how often the one with the higher mean over the
n seeds also has the higher mean over the judges; a tie on either side counts half. If selection is
right more often than not, and errors on both sides are independent, this is at most the
probability of finding the truly better one, because judges err, too.

*top tenth*: of the tenth of the configurations with the highest means over the n seeds, the share
that is among the judges' top tenth; ties are broken at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .resampling import Estimate, around, estimates, generator, halves, judges_of

TOP = 0.1
_SPLITS, _SPLITS_A_RESAMPLE, _RESAMPLES = 40, 6, 200


@dataclass(frozen=True)
class Ranked:
    """The result of ranking by n seeds.

    Attributes:
        seeds: n, the number that select.
        judges: the number that judge.
        pair: better of two.
        top: top tenth.
    """

    seeds: int
    judges: int
    pair: Estimate
    top: Estimate


def ranking(finals: np.ndarray, resamples: int = _RESAMPLES) -> list[Ranked]:
    """Return the results of 1, 2, ... seeds, up to all that do not judge.

    Args:
        finals: larger is better, [c, s], all finite; s at least 2.
        resamples: number for the intervals.
    """
    count, seeds = finals.shape
    most = seeds - judges_of(seeds)
    pairs = _pairs(finals, most, resamples)

    def tops(rows: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        return top_shares(finals[rows], _SPLITS_A_RESAMPLE, draws)

    whole = top_shares(finals, _SPLITS, generator(2))
    top = estimates(whole, tops, count, resamples, generator(1))
    return [
        Ranked(n + 1, judges_of(seeds), pair, share)
        for n, (pair, share) in enumerate(zip(pairs, top, strict=True))
    ]


def _pairs(finals: np.ndarray, most: int, resamples: int) -> list[Estimate]:
    """Return the agreement on pairs for 1 ... `most` seeds."""
    count, seeds = finals.shape
    agreed = np.zeros((most, count, count), np.float32)
    for choosing, judging in halves(generator(3), seeds, _SPLITS):
        judged = _signs(finals[:, judging].mean(axis=1))
        for n in range(most):
            agreed[n] += 0.5 + 0.5 * _signs(finals[:, choosing[: n + 1]].mean(axis=1)) * judged
    agreed /= _SPLITS
    for table in agreed:
        np.fill_diagonal(table, 0.0)
    draws = generator(4)
    weights = np.vstack(
        [np.ones(count), draws.multinomial(count, np.full(count, 1 / count), resamples)]
    ).astype(np.float32)
    pairs = weights.sum(axis=1) ** 2 - (weights**2).sum(axis=1)
    shares = np.stack([((weights @ table) * weights).sum(axis=1) / pairs for table in agreed], 1)
    return around(shares[0], shares[1:])


def _signs(means: np.ndarray) -> np.ndarray:
    """Return 1 if the first of a pair is better, -1 if the second is, 0 if tied."""
    return np.sign(means[:, None] - means[None, :]).astype(np.float32)


def top_shares(finals: np.ndarray, splits: int, draws: np.random.Generator) -> np.ndarray:
    """Return the share of the top tenth found by 1, 2, ... seeds, over random splits."""
    count, seeds = finals.shape
    size, most = max(1, round(TOP * count)), seeds - judges_of(seeds)
    hits = np.zeros(most)
    for choosing, judging in halves(draws, seeds, splits):
        best = np.zeros(count, bool)
        best[_top(finals[:, judging].mean(axis=1), size, draws)] = True
        for n in range(most):
            chosen = _top(finals[:, choosing[: n + 1]].mean(axis=1), size, draws)
            hits[n] += best[chosen].mean()
    return hits / splits


def _top(means: np.ndarray, size: int, draws: np.random.Generator) -> np.ndarray:
    """Return the rows of the largest means, with ties in random order."""
    return np.lexsort((draws.random(len(means)), -means))[:size]
