"""Which interactions are real?

For every pair of hyperparameters, this computes the share of the final values' variance that the
products of the pair's parabolas explain, after all single hyperparameters have explained theirs
(polynomials of degree 4; choices by their means). Values are normal scores of their ranks: whether
effects are additive depends on the scale, and an interaction on this scale may not exist on
another. The shares are compared with those of residuals with random signs, fitted again. Every
configuration keeps the size of its own residual, because the noise of seeds and evaluations also
depends on hyperparameters (the wild bootstrap of Wu 1986, signs after Liu 1988); a permutation
among configurations would take such noise for an interaction. Each pair gets the p-value that
independent normal residuals would give; the pair is real if its own p-value is below the smallest
one of all pairs in 95 % of the draws (min-P, Westfall and Young 1993). So without any interaction,
one is named in 5 % of such analyses, for any number of pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta

from hpo.errors import ConfigError
from hpo.store.importance import ImportanceColumn, Regressors, explained, midranks, removed

from .resampling import Estimate, generator
from .shapes import product_shape, resampled_shape

LEVEL = 0.05
_DEALS, _RESAMPLES = 999, 500


@dataclass(frozen=True)
class Interaction:
    """The effect of two hyperparameters together, beyond their separate effects.

    Attributes:
        names: names of the two.
        share: share of the variance, above chance, with its interval by bootstrap over
            configurations.
        floor: significance threshold, in the same unit.
        real: whether the share is above it.
    """

    names: tuple[str, str]
    share: Estimate
    floor: float
    real: bool


@dataclass(frozen=True)
class Interactions:
    """All pairs, the largest first.

    Attributes:
        alone: the share of the variance that single hyperparameters explain, above what as many
            columns of noise would.
        pairs: the share of each pair of the rest.
    """

    alone: float
    pairs: tuple[Interaction, ...]


def interactions(
    columns: Sequence[ImportanceColumn], values: Sequence[float], seed: int = 8
) -> Interactions:
    """Return the shares that pairs of hyperparameters explain.

    Args:
        columns: one per hyperparameter.
        values: one finite value per configuration.
        seed: seed for the random signs and the resamples.

    Raises:
        ConfigError: the main effects have at least half as many columns as there are
            configurations, so that residuals would not be informative.
    """
    count = len(values)
    scores = ndtri((midranks(values) + (count + 1) / 2) / (count + 1))
    scores -= scores.mean()
    before = removed(columns, count)
    if 2 * before.shape[1] >= count:
        raise ConfigError(
            f"{count} configurations are too few for interactions of {len(columns)} knobs; "
            f"{2 * before.shape[1] + 1} are needed"
        )
    left = _residual(before, scores)
    remaining = float(left @ left) / float(scores @ scores or 1.0)
    known = 1 + int(np.linalg.matrix_rank(before - before.mean(axis=0)))
    pairs = [
        (one.name, other.name, form)
        for one, other in itertools.combinations(columns, 2)
        if (form := product_shape(one, other, before)).basis.shape[1]
    ]
    draws = generator(seed)
    least = least_chance([form for *_, form in pairs], left, before, known, draws)
    weights = draws.multinomial(count, np.full(count, 1 / count), _RESAMPLES).astype(np.float64)
    found = [
        _pair((one, other), form, (left, weights), remaining, known, least)
        for one, other, form in pairs
    ]
    found.sort(key=lambda one: -one.share.value)
    return Interactions(1.0 - remaining * (count - 1) / (count - known), tuple(found))


def least_chance(
    forms: Sequence[Regressors],
    left: np.ndarray,
    before: np.ndarray,
    known: int,
    draws: np.random.Generator,
) -> float:
    """Return the 5 % quantile of the smallest p-value of all pairs, over random signs.

    Args:
        forms: shapes of the pairs.
        left: residuals of the main effects, [n].
        before: columns of the main effects, [n, q].
        known: their rank, including the constant.
        draws: the source of the signs.
    """
    signs = 2.0 * draws.integers(0, 2, (_DEALS, len(left))) - 1.0
    dealt = _residual(before, (signs * left).T).T
    least = np.ones(_DEALS)
    for form in forms:
        least = np.minimum(least, _chance(form, known).sf(explained(form, dealt)))
    return float(np.sort(least)[int(LEVEL * (_DEALS + 1)) - 1])


def _chance(form: Regressors, known: int) -> Any:
    """Return the distribution of the share that a shape explains of normal residuals."""
    width = form.basis.shape[1]
    return beta(width / 2, (len(form.rows) - known - width) / 2)


def _residual(before: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the part of values [n], or of columns, not explained by a constant and `before`."""
    known = np.hstack([np.ones((len(values), 1)), before])
    return values - known @ np.linalg.lstsq(known, values, rcond=None)[0]


def _pair(
    names: tuple[str, str],
    form: Regressors,
    data: tuple[np.ndarray, np.ndarray],
    remaining: float,
    known: int,
    least: float,
) -> Interaction:
    """Return a pair's share of the whole, minus the mean by chance."""
    left, weights = data
    chance, seen = _chance(form, known), float(explained(form, left[None])[0])
    mean, floor = float(chance.mean()), float(chance.isf(least))

    def beyond(share: Any) -> Any:
        return (share - mean) / (1.0 - mean)

    # Chance is subtracted twice: a resample contains duplicates, which explain that much once
    # more.
    again = beyond(beyond(resampled_shape(form, left, weights)))
    low, high = np.clip(np.quantile(again, [0.025, 0.975]) * remaining, 0.0, 1.0)
    share = max(0.0, beyond(seen)) * remaining
    return Interaction(
        names,
        Estimate(share, float(low), float(high)),
        max(0.0, beyond(floor)) * remaining,
        seen > floor,
    )
