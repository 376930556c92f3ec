"""The share of rank variance between trials that a hyperparameter explains.

An ordered hyperparameter explains by a parabola over its axis (in simulations higher degrees find
fewer effects), an unordered one by a mean per choice; an interaction by the products of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ConfigError
from .libraries import np

FEWEST_TRIALS = 10
DEGREE = 2
_DEGREE_REMOVED = 4
_FEW_TRIALS = 40
TINY = 1e-9


@dataclass(frozen=True)
class Column:
    """One hyperparameter in every trial."""

    name: str
    places: Sequence[float | None]  # on its axis from 0 to 1, or choice; None if not active
    choices: bool = False  # without an order


@dataclass(frozen=True)
class Shape:
    """The regressors of a hyperparameter among the trials in which it was active."""

    rows: np.ndarray  # [m] indices of these trials
    basis: np.ndarray  # [m, d] orthonormal columns that sum to 0; d may be 0


def midranks(values: Sequence[float]) -> np.ndarray:
    """Return centred ranks; equal values have their mean rank."""
    found = np.asarray(values, np.float64)
    if not np.isfinite(found).all():
        raise ConfigError("importance takes finite values only")
    _, place, count = np.unique(found, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    ranks = (ends - (count - 1) / 2)[place]
    return ranks - ranks.mean()


def shape(column: Column, before: np.ndarray) -> Shape:
    """Return the regressors of a hyperparameter without the part in `before` [n, q].

    None below 10 active trials, or with one value.
    """
    rows, places = _active(column)
    if len(rows) < FEWEST_TRIALS:
        return Shape(rows, np.zeros((len(rows), 0)))
    return orthonormal(rows, powers(places, column.choices, DEGREE), before)


def orthonormal(rows: np.ndarray, plain: np.ndarray, before: np.ndarray) -> Shape:
    """Return the part of columns that a constant and `before` do not explain."""
    known = np.hstack([np.ones((len(rows), 1)), before[rows]])
    rest = plain - known @ np.linalg.lstsq(known, plain, rcond=None)[0]
    left, sizes, _ = np.linalg.svd(rest, full_matrices=False)
    return Shape(rows, left[:, sizes > TINY * max(1.0, np.sqrt(len(rows)))])


def _active(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Return the trials in which a hyperparameter was active, and its places there."""
    found = [(row, place) for row, place in enumerate(column.places) if place is not None]
    return (
        np.array([row for row, _ in found], np.intp),
        np.array([place for _, place in found], np.float64),
    )


def powers(places: np.ndarray, choices: bool, degree: int) -> np.ndarray:
    """Return a column per choice except one, or Legendre polynomials from degree 1."""
    known = np.unique(places)
    if choices:
        return (places[:, None] == known[None, 1:]).astype(np.float64)
    degree = min(degree, len(known) - 1)
    return np.polynomial.legendre.legvander(2.0 * places - 1.0, degree)[:, 1:]


def removed(columns: Sequence[Column], trials: int) -> np.ndarray:
    """Return columns [n, q] that explain everything about these hyperparameters.

    The polynomials are finer than `shape`'s: otherwise the rest of a decisive hyperparameter would
    be found in others, which moved with it while a model searched.
    """
    degree = _DEGREE_REMOVED if trials >= _FEW_TRIALS else DEGREE
    parts = [np.zeros((trials, 0))]
    for column in columns:
        rows, places = _active(column)
        part = powers(places, column.choices, degree)
        whole = np.zeros((trials, part.shape[1] + 1))
        whole[rows, :-1] = part - part.mean(axis=0)
        whole[rows, -1] = 1.0
        parts.append(whole if len(rows) < trials else whole[:, :-1])
    return np.hstack(parts)


def explained(form: Shape, values: np.ndarray) -> np.ndarray:
    """Return the share of variance that a shape explains in each row of ranks, [b, n] -> [b]."""
    own = values[:, form.rows]
    whole = (own * own).sum(axis=1) - len(form.rows) * own.mean(axis=1) ** 2
    hit = ((own @ form.basis) ** 2).sum(axis=1)
    return np.divide(hit, whole, out=np.zeros_like(hit), where=whole > TINY)


def resampled(
    column: Column, before: np.ndarray, ranks: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return two shares [b] per resample, from weighted normal equations.

    The share by which a hyperparameter reduces the squared errors of `before` [n, q], and their
    share of the whole variance. `weights` [b, n]: how often a resample has a trial.
    """
    rows, places = _active(column)
    known = np.hstack([np.ones((len(rows), 1)), before[rows]])
    both = np.hstack([known, powers(places, column.choices, DEGREE)])
    own, held = ranks[rows], weights[:, rows]
    error = [squared_error(part, own, held) for part in (known[:, :1], known, both)]
    gain = np.maximum(0.0, error[1] - error[2])
    share = np.divide(gain, error[1], out=np.zeros_like(gain), where=error[1] > TINY)
    return share, np.divide(error[1], error[0], out=np.zeros_like(gain), where=error[0] > TINY)


def squared_error(known: np.ndarray, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weighted squared error of the best fit, per row of weights."""
    width = known.shape[1]
    squares = (known[:, :, None] * known[:, None, :]).reshape(len(values), -1)
    gram = (weights @ squares).reshape(-1, width, width)
    side = weights @ (known * values[:, None])
    fitted = np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ side[:, :, None]
    return weights @ values**2 - (side[:, None, :] @ fitted)[:, 0, 0]
