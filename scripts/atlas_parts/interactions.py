"""Which interactions are real?

What every pair of knobs explains of the final values once all knobs alone have explained theirs
(polynomials of degree 4, choices by their means): by the products of the pair's parabolas. Values
are normal scores of their ranks, because whether effects add up depends on the scale: on that of
ranks, sums of effects no longer add up near both ends, and interactions would be found that are
none. Held against the same of residuals dealt out anew (Freedman and Lane 1983): a pair is
named if it is above a floor that any of the pairs passes in 5 % of the deals (min-P, Westfall and
Young 1993), so that where no interaction exists one is named in 5 % of such analyses, however many
pairs there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from hpo.errors import ConfigError
from hpo.store.explained import (
    Column,
    beyond,
    deals,
    judge,
    midranks,
    product_shape,
    removed,
    resampled_shape,
    residual,
)

from .resampling import Estimate, generator

LEVEL = 0.05
_DEALS, _DEALS_A_PAIR, _RESAMPLES = 999, 20, 500


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
    columns: Sequence[Column], values: Sequence[float], seed: int = 8
) -> Interactions:
    """Return what pairs of knobs explain.

    Args:
        columns: one a knob.
        values: one finite value a configuration.
        seed: of the deals and resamples.

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
    left = residual(before, scores)
    remaining = float(left @ left) / float(scores @ scores or 1.0)
    pairs = list(itertools.combinations(columns, 2))
    forms = [product_shape(one, other, before) for one, other in pairs]
    draws = generator(seed)
    orders = deals(draws, count, max(_DEALS, _DEALS_A_PAIR * len(pairs)))
    # What is dealt out is fitted again: else main effects would take from the residuals alone.
    dealt = residual(before, left[orders].T).T
    judged = judge(forms, dealt, LEVEL)
    weights = draws.multinomial(count, np.full(count, 1 / count), _RESAMPLES).astype(np.float64)
    found = list[Interaction]()
    for at, (one, other) in enumerate(pairs):
        chance, floor = float(judged.means[at]), float(judged.floors[at])
        if not forms[at].basis.shape[1]:  # one value alone
            continue
        # Less chance twice: a resample holds some configurations twice, which explains as much
        # once more.
        again = beyond(beyond(resampled_shape(forms[at], left, weights), chance), chance)
        low, high = np.clip(np.quantile(again, [0.025, 0.975]) * remaining, 0.0, 1.0)
        share = max(0.0, float(beyond(judged.shares[at], chance))) * remaining
        found.append(
            Interaction(
                names=(one.name, other.name),
                share=Estimate(share, float(low), float(high)),
                floor=max(0.0, float(beyond(judged.floors[at], chance))) * remaining,
                real=bool(judged.shares[at] > floor),
            )
        )
    found.sort(key=lambda one: -one.share.value)
    rank = int(np.linalg.matrix_rank(before - before.mean(axis=0)))
    return Interactions(
        1.0 - remaining * (count - 1) / (count - 1 - rank),
        tuple(found),
    )
