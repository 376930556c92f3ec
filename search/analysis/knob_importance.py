"""PED-ANOVA (Watanabe et al. 2023): how far the best tenth of trials is from all, knob by knob."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...spaces.distributions import Axis, Distribution
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
    positions = positions_of(space, params, lambda distribution, at: distribution.inward(at))
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
    space: Space, params: Sequence[Mapping[str, Any]], place: Callable[[Distribution, Any], float]
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
    """Return normal kernels [k + 1, count], of one width by the rule of Scott (1992)."""
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
