"""How likely the chosen trial is the best of those that it was chosen from.

An empirical Bayes model: the seeds' common effects are taken out, the noise of a seed is pooled
over trials, and true means are normal around their median, with the spread of the upper half (poor
trials are far below and say nothing about the top).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .libraries import np, special

_LEAST = 3  # trials
_GRID, _REACH = 801, 8.0  # points; standard deviations around the highest
_SHARE = 0.05  # spread of true means: at least this share of the noise of a seed


@dataclass(frozen=True)
class ChosenTrial:
    """The chosen one against the others of which it was the best."""

    trials: int  # including it
    chance: float  # that its true mean is the highest
    loss: float  # expected distance to the highest true mean


def chance_of_best(values: Sequence[Sequence[float]], chosen: int) -> ChosenTrial | None:
    """Return how likely `values[chosen]` has the highest true mean; None where that is unknown.

    Args:
        values: of each trial on the same seeds, greater is better [trials, seeds].
        chosen: its place.

    It needs three trials and two seeds, and values that are not all the same.
    """
    y = np.asarray(values, np.float64)
    trials, seeds = y.shape if y.ndim == 2 else (0, 0)
    if trials < _LEAST or seeds < 2 or not np.isfinite(y).all():
        return None
    own = y - y.mean(axis=0)
    means = own.mean(axis=1)
    noise = float(((own - means[:, None]) ** 2).sum()) / ((trials - 1) * (seeds - 1))
    if noise <= 1e-18 * float((y**2).max()):
        return None
    above = means - np.median(means)
    spread = max(float((above[above >= 0.0] ** 2).mean()) - noise / seeds, _SHARE * noise)
    kept = spread / (spread + noise / seeds)
    centres, deviation = kept * above, float(np.sqrt(kept * noise / seeds))
    top, reach = float(centres.max()), _REACH * deviation  # below, the highest is never
    grid = np.linspace(top - reach, top + reach, _GRID)
    z = (grid - centres[:, None]) / deviation
    below = np.asarray(special.ndtr(z), np.float64)  # [trials, grid]
    others = np.prod(np.delete(below, chosen, axis=0), axis=0)
    density = np.exp(-0.5 * z[chosen] ** 2) / (deviation * np.sqrt(2.0 * np.pi))
    chance = float(np.trapezoid(density * others, grid))
    highest = float(grid[-1] - np.trapezoid(others * below[chosen], grid))  # mean of the maximum
    return ChosenTrial(trials, min(1.0, chance), max(0.0, highest - float(centres[chosen])))
