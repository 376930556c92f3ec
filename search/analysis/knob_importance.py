"""fANOVA: how much of what a forest predicts varies with one knob alone.

Hutter, Hoos and Leyton-Brown (2014), https://proceedings.mlr.press/v32/hutter14.html: a tree of a
random forest is constant on boxes of the space. With the mean over all other knobs of what it
predicts at x, m(x), a knob's importance is the variance of m under uniform x over that of the
tree, averaged over the trees. m is read off the boxes at once, as running sums along the knob's
axis; the forest and its numbers are those of Optuna's evaluator, which walks down the tree for
every piece of m: time quadratic in the trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import MissingExtraError
from ...spaces.base import Axis, Distribution
from ...spaces.space import Space

_BEST = 0.1
_GRID = 50
_PRIOR = 1.0  # weight of the prior kernel, as that of one trial
_FEWEST = 2  # trials that must have a knob, or lack it, to count
_TINY = 1e-12


def ped_anova(
    space: Space, params: Sequence[Mapping[str, Any]], values: Sequence[float], goal: str
) -> dict[str, float]:
    """Return the importance of every distribution of the space, by its key in `Space.keyed`."""
    losses = np.asarray(values, np.float64) * (-1.0 if goal == "maximize" else 1.0)
    last = math.ceil(_BEST * losses.size) - 1
    best = losses <= np.partition(losses, last)[last]
    positions = positions_of(space, params)
    found: dict[str, float] = {}
    for key, parameter in space.keyed:
        axis = parameter.distribution.axis
        rows = np.array([at is not None for at in positions[key]])
        places = np.array([at for at in positions[key] if at is not None], np.float64)
        among, here = best[rows], best & rows
        if axis.low == axis.high or len(places) < _FEWEST or not here.any():
            found[key] = 0.0
            continue
        share_best, share_all = here.sum() / best.sum(), len(places) / len(losses)
        near, every = _density(axis, places[among]) + _TINY, _density(axis, places) + _TINY
        divergence = float(every @ (near / every - 1.0) ** 2)  # Pearson's
        found[key] = float(share_best**2 / share_all * divergence * best.mean() ** 2)
    return found


def positions_of(
    space: Space,
    params: Sequence[Mapping[str, Any]],
    place: Callable[[Distribution, Any], float] = lambda distribution, value: distribution.inward(
        value
    ),
) -> dict[str, list[float | None]]:
    """Return distribution -> the place of every trial on its axis, None where it is not active."""
    found: dict[str, list[float | None]] = {key: [] for key, _ in space.keyed}
    for config in params:
        known = {**space.constants, **config}
        for key, parameter in space.keyed:
            active = parameter.name in config and parameter.active(known)
            value = place(parameter.distribution, config[parameter.name]) if active else None
            found[key].append(value)
    return found


def _density(axis: Axis, places: np.ndarray) -> np.ndarray:
    """Return the density of places on the grid of an axis: a mixture of a kernel a place."""
    counts = _counts(axis, places)
    at = np.flatnonzero(counts)
    weights = np.append(counts[at], _PRIOR)
    kernels = _choices(at, counts.size) if axis.kind == "choice" else _numbers(at, counts)
    return (weights / weights.sum()) @ kernels


def _counts(axis: Axis, places: np.ndarray) -> np.ndarray:
    if axis.kind == "choice":
        return np.bincount(places.astype(int), minlength=int(axis.high) + 1)
    points = _GRID
    if axis.kind == "integer" and axis.log:
        points = min(math.ceil(np.log(axis.high - axis.low + 1) / np.log(2)) + 1, points)
    elif axis.kind == "integer":
        points = min(round(axis.high - axis.low) + 1, points)
    low, high = (math.log(axis.low), math.log(axis.high)) if axis.log else (axis.low, axis.high)
    step = (high - low) / (points - 1)
    nearest = np.ceil(((np.log(places) if axis.log else places) - low) / step - 0.5).astype(int)
    return np.bincount(np.clip(nearest, 0, points - 1), minlength=points)


def _choices(at: np.ndarray, count: int) -> np.ndarray:
    kernels = np.full((len(at) + 1, count), _PRIOR / (len(at) + 1))
    kernels[np.arange(len(at)), at] += 1.0
    return kernels / kernels.sum(axis=1, keepdims=True)


def _numbers(at: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return kernels [k + 1, count] of numbers: normal, of one width by the rule of Scott (1992).

    A width is at least such that a cell holds 90 % of its kernel.
    """
    many = counts[at]
    until, total = np.cumsum(many), many.sum()
    middle = (at @ many) / total
    spread = np.sqrt((at - middle) ** 2 @ many / max(1, total - 1))
    first = np.searchsorted(until, total // 4, side="left")
    third = np.searchsorted(until, total * 3 // 4, side="right")
    between = at[min(at.size - 1, third)] - at[first]
    width = max(1.059 * min(between / 1.34, spread) * total**-0.2, 0.5 / 1.64)
    centres = np.append(at, (counts.size - 1) / 2.0)
    widths = np.append(np.full(len(at), width), float(counts.size))
    edges = np.arange(counts.size + 1) - 0.5
    below = 0.5 * _erf((edges - centres[:, None]) / (widths[:, None] * math.sqrt(2.0)))
    return np.diff(below, axis=1) / (below[:, -1:] - below[:, :1])


_erf = np.vectorize(math.erf, otypes=[np.float64])


_TREES = 64
_DEPTH = 64
_ROUNDING = 1e-12  # of the values: a tree that varies less is constant


@dataclass(frozen=True)
class _Boxes:
    """The leaves of one tree: l leaves over c columns."""

    values: np.ndarray  # what each predicts less the mean over the space, [l]
    low: np.ndarray  # lower corners, [l, c]
    high: np.ndarray  # upper corners, [l, c]
    parts: np.ndarray  # share of a column's width, [l, c]
    weights: np.ndarray  # share of the space, [l]

    @property
    def variance(self) -> float:
        return float(self.weights @ self.values**2)


def fanova(
    space: Space, params: Sequence[Mapping[str, Any]], values: Sequence[float]
) -> dict[str, float]:
    """Return the importance of every distribution of the space, by its key in `Space.keyed`.

    A forest needs every coordinate of every trial: a distribution that is not active in all of
    them gets 0, as do all where no tree finds a difference.
    """
    try:
        from sklearn.ensemble import (  # pyright: ignore[reportMissingImports]
            RandomForestRegressor,
        )
    except ImportError:
        raise MissingExtraError("scikit-learn", "fanova", "importance by fANOVA") from None
    found = dict.fromkeys((key for key, _ in space.keyed), 0.0)
    rows, bounds, columns = _encoded(space, params)
    if not columns:
        return found
    forest = RandomForestRegressor(
        n_estimators=_TREES, max_depth=_DEPTH, min_samples_split=2, min_samples_leaf=1,
        random_state=0,
    ).fit(rows, np.asarray(values, np.float64))  # fmt: skip
    trees = [_boxes(estimator.tree_, bounds) for estimator in forest.estimators_]
    rounding = (_ROUNDING * float(np.abs(values).max())) ** 2
    trees = [tree for tree in trees if tree.variance > rounding]
    for key, own in columns.items():
        varies = _along_axis if len(own) == 1 else _over_choices
        shares = [varies(tree, own) / tree.variance for tree in trees]
        found[key] = float(np.mean(shares)) if shares else 0.0
    return found


def _encoded(
    space: Space, params: Sequence[Mapping[str, Any]]
) -> tuple[np.ndarray, np.ndarray, dict[str, list[int]]]:
    """Return coordinates [n, c], their bounds [c, 2], and the columns of every key that has some.

    A number has one column, a choice one of 0 and 1 for each of its values; keys are in the order
    of their names, on which the forest's draws depend.
    """
    places = positions_of(space, params)
    axes = {key: parameter.distribution.axis for key, parameter in space.keyed}
    rows: list[np.ndarray] = []
    bounds: list[tuple[float, float]] = []
    columns: dict[str, list[int]] = {}
    for key in sorted(axes):
        axis, own = axes[key], places[key]
        if axis.low == axis.high or any(at is None for at in own):
            continue
        found, limits = [np.array(own, np.float64)], (axis.low, axis.high)
        if axis.kind == "choice":
            choices = range(int(axis.high) + 1)
            found, limits = [(found[0] == at).astype(np.float64) for at in choices], (0.0, 1.0)
        columns[key] = list(range(len(bounds), len(bounds) + len(found)))
        rows.extend(found)
        bounds.extend([limits] * len(found))
    return np.array(rows).T, np.array(bounds), columns


def _boxes(tree: Any, bounds: np.ndarray) -> _Boxes:
    low = np.tile(bounds[:, 0], (tree.node_count, 1))
    high = np.tile(bounds[:, 1], (tree.node_count, 1))
    left, right, split = tree.children_left, tree.children_right, tree.feature
    level = np.array([0])
    while (level := level[split[level] >= 0]).size:
        for children, corner in ((left[level], high), (right[level], low)):
            low[children], high[children] = low[level], high[level]
            corner[children, split[level]] = tree.threshold[level]
        level = np.concatenate([left[level], right[level]])
    leaves = split < 0
    low, high = low[leaves], high[leaves]
    parts = (high - low) / (bounds[:, 1] - bounds[:, 0])
    weights = parts.prod(axis=1)
    values = tree.value[leaves].reshape(len(weights))
    values = values - weights @ values
    return _Boxes(values, low, high, parts, weights)


def _along_axis(tree: _Boxes, own: Sequence[int]) -> float:
    """Return the variance of the mean over all other columns, along one column."""
    (column,) = own
    low, high = tree.low[:, column], tree.high[:, column]
    ends, places = np.unique(np.concatenate([low, high]), return_inverse=True)
    begins, ceases = places[: low.size], places[low.size :]
    mass = tree.values * tree.weights / tree.parts[:, column]
    steps = np.bincount(begins, mass, ends.size) - np.bincount(ceases, mass, ends.size)
    mean = np.cumsum(steps)[:-1]
    return float(np.diff(ends) @ mean**2 / (ends[-1] - ends[0]))


def _over_choices(tree: _Boxes, own: Sequence[int]) -> float:
    """Return the variance of the mean over all other columns, over those of one choice.

    A leaf has the lower half of such a column, the upper, or both. Leaves that are alike in that
    are taken together, and two kinds overlap by the product of their overlaps.
    """
    corners = np.concatenate([tree.low[:, own], tree.high[:, own]], axis=1)
    kinds, of = np.unique(corners, axis=0, return_inverse=True)
    mass = tree.values * tree.weights / tree.parts[:, own].prod(axis=1)
    sums = np.bincount(of.reshape(-1), mass, len(kinds))
    shared = np.ones((len(kinds), len(kinds)))
    for place in range(len(own)):
        low, high = kinds[:, place], kinds[:, len(own) + place]
        width = np.minimum.outer(high, high) - np.maximum.outer(low, low)
        shared *= np.maximum(width, 0.0)
    return max(0.0, float(sums @ shared @ sums))
