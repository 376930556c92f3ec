"""Which interactions are real?

What every pair of knobs explains of the final values once all knobs alone have explained theirs
(polynomials of degree 4, choices by their means): by the products of the pair's parabolas. Values
are normal scores of their ranks: whether effects add up depends on the scale, and an interaction
on this one may be none on another. Held against the same of residuals whose signs are drawn anew
and which are fitted again: every configuration keeps the size of its own, because how much seeds
and evaluations differ depends on knobs, too (the wild bootstrap of Wu 1986, signs after Liu 1988;
dealt out among configurations, they would call such noise an interaction). With the p-value that
independent normal residuals would give each pair, a pair is real if its own is below the smallest
one of all pairs in 95 % of the draws (min-P, Westfall and Young 1993), so that where no
interaction exists one is named in 5 % of such analyses, however many pairs there are.
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
    """What two knobs explain together beyond what they do alone.

    Attributes:
        names: of the knobs.
        share: of the variance, beyond chance, with its interval by bootstrap over
            configurations.
        floor: to be above; the same unit.
        real: it is.
    """

    names: tuple[str, str]
    share: Estimate
    floor: float
    real: bool


@dataclass(frozen=True)
class Interactions:
    """All pairs, the largest first.

    Attributes:
        alone: the share of the variance that knobs explain each for itself, beyond what
            as many columns of noise would.
        pairs: what is left.
    """

    alone: float
    pairs: tuple[Interaction, ...]


def interactions(
    columns: Sequence[ImportanceColumn], values: Sequence[float], seed: int = 8
) -> Interactions:
    """Return what pairs of knobs explain.

    Args:
        columns: one a knob.
        values: one finite value a configuration.
        seed: of the draws of signs and of the resamples.

    Raises:
        ConfigError: as many columns of main effects as half of the configurations, or more, which
            would leave residuals that say nothing.
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
    """Return the p-value that the smallest of all pairs is below in 5 % of the draws of signs.

    Args:
        forms: of the pairs.
        left: residuals of the main effects, [n].
        before: columns of the main effects, [n, q].
        known: their rank, with the constant.
        draws: the source of the signs.
    """
    signs = 2.0 * draws.integers(0, 2, (_DEALS, len(left))) - 1.0
    dealt = _residual(before, (signs * left).T).T
    least = np.ones(_DEALS)
    for form in forms:
        least = np.minimum(least, _chance(form, known).sf(explained(form, dealt)))
    return float(np.sort(least)[int(LEVEL * (_DEALS + 1)) - 1])


def _chance(form: Regressors, known: int) -> Any:
    """Return how the share is distributed that a shape explains of normal residuals."""
    width = form.basis.shape[1]
    return beta(width / 2, (len(form.rows) - known - width) / 2)


def _residual(before: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return what a constant and `before` [n, q] leave of values [n], or of columns of them."""
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
    """Return a pair's share of the whole, less what chance gives on average."""
    left, weights = data
    chance, seen = _chance(form, known), float(explained(form, left[None])[0])
    mean, floor = float(chance.mean()), float(chance.isf(least))

    def beyond(share: Any) -> Any:
        return (share - mean) / (1.0 - mean)

    # Less chance twice: a resample holds some configurations twice, which explains as much again.
    again = beyond(beyond(resampled_shape(form, left, weights)))
    low, high = np.clip(np.quantile(again, [0.025, 0.975]) * remaining, 0.0, 1.0)
    share = max(0.0, beyond(seen)) * remaining
    return Interaction(
        names,
        Estimate(share, float(low), float(high)),
        max(0.0, beyond(floor)) * remaining,
        seen > floor,
    )
