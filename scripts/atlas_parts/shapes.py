"""The regressors of an interaction, and the share that a shape explains in resamples."""

from __future__ import annotations

import numpy as np

from hpo.store.importance import (
    DEGREE,
    FEWEST_TRIALS,
    TINY,
    ImportanceColumn,
    Regressors,
    orthonormal,
    powers,
    squared_error,
)


def product_shape(
    one: ImportanceColumn, other: ImportanceColumn, before: np.ndarray
) -> Regressors:
    """Return the regressors of an interaction, without the part explained by `before` [n, q]."""
    pairs = list(zip(one.places, other.places, strict=True))
    rows = np.array([row for row, pair in enumerate(pairs) if None not in pair], np.intp)
    if len(rows) < FEWEST_TRIALS:
        return Regressors(rows, np.zeros((len(rows), 0)))
    first, second = (
        powers(np.array([column.places[row] for row in rows], float), column.choices, DEGREE)
        for column in (one, other)
    )
    plain = (first[:, :, None] * second[:, None, :]).reshape(len(rows), -1)
    return orthonormal(rows, plain, before)


def resampled_shape(form: Regressors, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the share of rank variance [n] that a shape explains in each resample.

    `weights` [b, n] is how often each trial is in a resample.
    """
    own, held = values[form.rows], weights[:, form.rows]
    ones = np.ones((len(form.rows), 1))
    alone, both = (
        squared_error(part, own, held) for part in (ones, np.hstack([ones, form.basis]))
    )
    gain = np.maximum(0.0, alone - both)
    return np.divide(gain, alone, out=np.zeros_like(gain), where=alone > TINY)
