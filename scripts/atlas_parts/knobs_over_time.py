"""How much does each knob matter, and when?

At every point of the run, which knobs decide the mean over all seeds there, by the test of
`hpo importance`: what a knob explains of the ranks beyond chance, and the floor that chance passes
in 4 % of deals with any knob. And whether a knob's share differs between a quarter of the run and
its end: the difference of what it explains alone, from the same resamples of the configurations at
both, by intervals that hold for all knobs at once.
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
    """What a knob explains at the end less what it explains early.

    Attributes:
        name: of the knob.
        later: the difference, shares of the variance of ranks.
        early, end: what it explains at both, beyond chance.
    """

    name: str
    later: Estimate
    early: float
    end: float

    @property
    def verdict(self) -> str:
        """`late`, `early`, or empty where the interval holds 0."""
        if self.later.low > 0.0:
            return "late"
        return "early" if self.later.high < 0.0 else ""


def decided_over_time(columns: Sequence[ImportanceColumn], values: np.ndarray) -> list[Decided]:
    """Return which knobs decided at every point.

    Args:
        columns: one a knob.
        values: of the configurations, larger is better, [c, p].
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
    """Return how the share of every knob differs between early and the end.

    Args:
        columns: one a knob.
        values: larger is better, [c, p].
        fractions: of the run, [p].
        resamples: of the intervals.
    """
    count = len(values)
    weights = generator(7).multinomial(count, np.full(count, 1 / count), resamples)
    weights = np.vstack([np.ones(count), weights]).astype(np.float64)
    early, end = (midranks(values[:, at].tolist()) for at in (early_point(fractions), -1))
    found = list[Shift]()
    for column in columns:
        form = shape(column, np.zeros((count, 0)))
        width = form.basis.shape[1]
        if not width:  # one value alone
            found.append(Shift(column.name, Estimate(0.0, 0.0, 0.0), 0.0, 0.0))
            continue
        chance = width / (len(form.rows) - 1)  # what as many columns explain of noise on average
        first, last = (
            (resampled_shape(form, ranks, weights) - chance) / (1.0 - chance)
            for ranks in (early, end)
        )
        apart = last - first
        (later,) = around(apart[:1], apart[1:, None], tests=len(columns))
        found.append(Shift(column.name, later, float(first[0]), float(last[0])))
    return found
