"""How much does each hyperparameter matter, and when?

For every point of the run, this finds the hyperparameters that matter for the mean over all seeds
at that point, by the test of `hpo importance`: the share of the ranks that a hyperparameter
explains above chance, and the threshold that any of them exceeds by chance in 4 % of permutations.
It also finds whether a hyperparameter's share differs between a quarter of the run and its end:
the difference of the shares that it explains alone, from the same resamples of the configurations
at both points, by simultaneous intervals for all hyperparameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpo.store.importance import Decided, ImportanceColumn, decide, midranks, shape

from .resampling import Estimate, around, generator
from .shapes import resampled_shape

EARLY = 0.25
_RESAMPLES = 1_000


@dataclass(frozen=True)
class Shift:
    """The share that a hyperparameter explains at the end minus the share that it explains early.

    Attributes:
        name: name of the hyperparameter.
        later: the difference, as a share of the variance of ranks.
        early, end: the two shares, above chance.
    """

    name: str
    later: Estimate
    early: float
    end: float

    @property
    def verdict(self) -> str:
        """`late`, `early`, or "" if the interval contains 0."""
        if self.later.low > 0.0:
            return "late"
        return "early" if self.later.high < 0.0 else ""


def decided_over_time(columns: Sequence[ImportanceColumn], values: np.ndarray) -> list[Decided]:
    """Return the hyperparameters that matter at every point.

    Args:
        columns: one per hyperparameter.
        values: values of the configurations, larger is better, [c, p].
    """
    return [decide(columns, at.tolist()) for at in values.T]


def early_point(fractions: np.ndarray) -> int:
    """Return the point nearest to a quarter of the run."""
    return int(np.argmin(np.abs(np.asarray(fractions) - EARLY)))


def shifts(
    columns: Sequence[ImportanceColumn],
    values: np.ndarray,
    fractions: np.ndarray,
    resamples: int = _RESAMPLES,
) -> list[Shift]:
    """Return how every hyperparameter's share differs between early and the end.

    Args:
        columns: one per hyperparameter.
        values: larger is better, [c, p].
        fractions: shares of the run, [p].
        resamples: number for the intervals.
    """
    count = len(values)
    weights = generator(7).multinomial(count, np.full(count, 1 / count), resamples)
    weights = np.vstack([np.ones(count), weights]).astype(np.float64)
    early, end = (midranks(values[:, at].tolist()) for at in (early_point(fractions), -1))
    found = list[Shift]()
    for column in columns:
        form = shape(column, np.zeros((count, 0)))
        width = form.basis.shape[1]
        if not width:  # only one value
            found.append(Shift(column.name, Estimate(0.0, 0.0, 0.0), 0.0, 0.0))
            continue
        chance = width / (len(form.rows) - 1)  # mean share of noise that as many columns explain
        first, last = (
            (resampled_shape(form, ranks, weights) - chance) / (1.0 - chance)
            for ranks in (early, end)
        )
        apart = last - first
        (later,) = around(apart[:1], apart[1:, None], tests=len(columns))
        found.append(Shift(column.name, later, float(first[0]), float(last[0])))
    return found
