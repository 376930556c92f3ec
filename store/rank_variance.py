"""How much of the differences between trials a knob explains, and what chance alone explains.

Values are ranks. A knob with an order explains by a parabola over its axis, one without by a
mean a choice; simulated, higher degrees find fewer of the effects that knobs have. Two knobs
explain together, beyond what each does alone, by the products of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:  # numpy is loaded on use: reading verbs that need no statistics start faster
    import numpy as np

FEWEST_TRIALS = 10
_DEGREE = 2
_DEGREE_REMOVED = 4
_FEW_TRIALS = 40
_TINY = 1e-9


@dataclass(frozen=True)
class Column:
    """One knob in every trial.

    Attributes:
        name: of the knob.
        places: where on its axis, from 0 to 1, or which choice; None where it was not active.
        choices: places are choices without an order.
    """

    name: str
    places: Sequence[float | None]
    choices: bool = False


@dataclass(frozen=True)
class Shape:
    """The columns that a knob explains values with, among the trials in which it was active.

    Attributes:
        rows: numbers of these trials, [m].
        basis: orthonormal columns that sum to 0 over them, [m, d]; d may be 0.
    """

    rows: np.ndarray
    basis: np.ndarray


def midranks(values: Sequence[float]) -> np.ndarray:
    """Return ranks from 1, those of equal values their mean, less the mean of all.

    Raises:
        ConfigError: a value that is not finite.
    """
    import numpy as np

    found = np.asarray(values, np.float64)
    if not np.isfinite(found).all():
        raise ConfigError("importance takes finite values only")
    _, place, count = np.unique(found, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    ranks = (ends - (count - 1) / 2)[place]
    return ranks - ranks.mean()


def shape(column: Column, before: np.ndarray, degree: int = _DEGREE) -> Shape:
    """Return what a knob explains with once `before` [n, q] is known.

    Without enough active trials, or without two values, it explains with nothing.
    """
    import numpy as np

    rows, places = _active(column)
    if len(rows) < FEWEST_TRIALS:
        return Shape(rows, np.zeros((len(rows), 0)))
    return _orthonormal(rows, _powers(places, column.choices, degree), before)


def product_shape(one: Column, other: Column, before: np.ndarray) -> Shape:
    """Return what two knobs explain together once `before` [n, q] is known.

    The products of their parabolas (or choices) among the trials that have both.
    """
    import numpy as np

    both = [
        row
        for row, pair in enumerate(zip(one.places, other.places, strict=True))
        if None not in pair
    ]
    rows = np.array(both, np.intp)
    if len(rows) < FEWEST_TRIALS:
        return Shape(rows, np.zeros((len(rows), 0)))
    places = [np.array([column.places[row] for row in both], float) for column in (one, other)]
    first, second = (
        _powers(place, column.choices, _DEGREE)
        for place, column in zip(places, (one, other), strict=True)
    )
    plain = (first[:, :, None] * second[:, None, :]).reshape(len(rows), -1)
    return _orthonormal(rows, plain, before)


def _orthonormal(rows: np.ndarray, plain: np.ndarray, before: np.ndarray) -> Shape:
    """Return the part of some columns that a constant and `before` do not explain."""
    import numpy as np

    known = np.hstack([np.ones((len(rows), 1)), before[rows]])
    rest = plain - known @ np.linalg.lstsq(known, plain, rcond=None)[0]
    left, sizes, _ = np.linalg.svd(rest, full_matrices=False)
    return Shape(rows, left[:, sizes > _TINY * max(1.0, np.sqrt(len(rows)))])


def _active(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the trials in which a knob was active, and its places there."""
    import numpy as np

    found = [(row, place) for row, place in enumerate(column.places) if place is not None]
    return (
        np.array([row for row, _ in found], np.intp),
        np.array([place for _, place in found], np.float64),
    )


def _powers(places: np.ndarray, choices: bool, degree: int) -> np.ndarray:
    """Return a column a choice but one, or Legendre polynomials from degree 1 on."""
    import numpy as np

    known = np.unique(places)
    if choices:
        return (places[:, None] == known[None, 1:]).astype(np.float64)
    degree = min(degree, len(known) - 1)
    return np.polynomial.legendre.legvander(2.0 * places - 1.0, degree)[:, 1:]


def removed(columns: Sequence[Column], trials: int) -> np.ndarray:
    """Return columns [n, q] that take away all that these knobs explain.

    A finer polynomial than the one that finds a knob: what is left of a decisive knob would
    otherwise be found in others, which moved with it while a model searched.
    """
    import numpy as np

    degree = _DEGREE_REMOVED if trials >= _FEW_TRIALS else _DEGREE
    parts = [np.zeros((trials, 0))]
    for column in columns:
        rows, places = _active(column)
        part = _powers(places, column.choices, degree)
        whole = np.zeros((trials, part.shape[1] + 1))
        whole[rows, :-1] = part - part.mean(axis=0)
        whole[rows, -1] = 1.0
        parts.append(whole if len(rows) < trials else whole[:, :-1])
    return np.hstack(parts)


def explained(form: Shape, values: np.ndarray) -> np.ndarray:
    """Return the share of the variance among its trials that a knob explains, a row of values.

    Args:
        form: of the knob.
        values: any number of rows of ranks (what is left of them), [b, n].
    """
    import numpy as np

    own = values[:, form.rows]
    whole = (own * own).sum(axis=1) - len(form.rows) * own.mean(axis=1) ** 2
    hit = ((own @ form.basis) ** 2).sum(axis=1)
    return np.divide(hit, whole, out=np.zeros_like(hit), where=whole > _TINY)


def resampled_shape(form: Shape, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the share of the variance among its trials that a shape explains in every resample.

    Args:
        form: of a knob, or of a pair of them.
        values: ranks, or what is left of them, [n].
        weights: how often a resample holds a trial, [b, n].
    """
    import numpy as np

    own, held = values[form.rows], weights[:, form.rows]
    ones = np.ones((len(form.rows), 1))
    alone, both = (
        _squared_error(part, own, held) for part in (ones, np.hstack([ones, form.basis]))
    )
    gain = np.maximum(0.0, alone - both)
    return np.divide(gain, alone, out=np.zeros_like(gain), where=alone > _TINY)


def resampled(
    column: Column, before: np.ndarray, ranks: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of what was left that a knob explains in every resample, and what was left.

    The share by which squared errors shrink once the knob is known, and the share of the whole
    variance that they had before, [b] each, from weighted normal equations.

    Args:
        column: the knob.
        before: what was known before it, [n, q].
        ranks: of the values, [n].
        weights: how often a resample holds a trial, [b, n].
    """
    import numpy as np

    rows, places = _active(column)
    known = np.hstack([np.ones((len(rows), 1)), before[rows]])
    both = np.hstack([known, _powers(places, column.choices, _DEGREE)])
    own, held = ranks[rows], weights[:, rows]
    error = [_squared_error(part, own, held) for part in (known[:, :1], known, both)]
    gain = np.maximum(0.0, error[1] - error[2])
    share = np.divide(gain, error[1], out=np.zeros_like(gain), where=error[1] > _TINY)
    return share, np.divide(error[1], error[0], out=np.zeros_like(gain), where=error[0] > _TINY)


def _squared_error(known: np.ndarray, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weighted squared error of the best fit, a row of weights."""
    import numpy as np

    width = known.shape[1]
    squares = (known[:, :, None] * known[:, None, :]).reshape(len(values), -1)
    gram = (weights @ squares).reshape(-1, width, width)
    side = weights @ (known * values[:, None])
    fitted = np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ side[:, :, None]
    return weights @ values**2 - (side[:, None, :] @ fitted)[:, 0, 0]
