"""A greedy portfolio: after the default, each configuration adds most where earlier ones are bad.

A user trains n configurations on one seed each and keeps the best. So a configuration's value is
what it adds to the mean share of configurations that this choice beats: one seed selects, and the
other seeds judge. The value is a mean over random splits of the seeds and over all tables, with
equal weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .sources import Source

DEFAULT = 0
SPLITS = 400
SEED = 1


@dataclass(frozen=True, eq=False)
class Splits:
    """Each configuration's result on the selecting seed, and its value on the other seeds."""

    shown: np.ndarray  # on the selecting seed, [splits, sources, c]
    worth: np.ndarray  # share of configurations beaten on the other seeds, [splits, sources, c]


def shares_beaten(means: np.ndarray) -> np.ndarray:
    """Return, for each configuration, the share of the others that are worse; ties half; [c].

    >>> shares_beaten(np.array([1.0, 3.0, 2.0, 2.0])).round(3).tolist()
    [0.0, 1.0, 0.5, 0.5]
    """
    worse = means[:, None] > means[None, :]
    ties = means[:, None] == means[None, :]
    ties_with_others = ties.sum(axis=1) - 1
    return (worse.sum(axis=1) + 0.5 * ties_with_others) / (len(means) - 1)


def split_seeds(sources: Sequence[Source], splits: int = SPLITS, seed: int = SEED) -> Splits:
    draw = np.random.Generator(np.random.PCG64(seed))
    shown = list[list[np.ndarray]]()
    worth = list[list[np.ndarray]]()
    for _ in range(splits):
        shown.append([])
        worth.append([])
        for source in sources:
            order = draw.permutation(source.values.shape[1])
            shown[-1].append(source.chooses[:, order[0]])
            worth[-1].append(shares_beaten(source.values[:, order[1:]].mean(axis=1)))
    return Splits(np.array(shown), np.array(worth))


def learn(sources: Sequence[Source], places: int, splits: int = SPLITS) -> list[int]:
    """Return the rows of the portfolio in order, the default first."""
    found = split_seeds(sources, splits)
    rows = [DEFAULT]
    best_shown = found.shown[:, :, DEFAULT]
    best_worth = found.worth[:, :, DEFAULT]
    while len(rows) < places:
        chosen = found.shown > best_shown[:, :, None]
        worth = np.where(chosen, found.worth, best_worth[:, :, None])
        gains = worth.mean(axis=(0, 1))
        gains[rows] = -np.inf
        row = int(gains.argmax())
        rows.append(row)
        best_worth = worth[:, :, row]
        best_shown = np.maximum(best_shown, found.shown[:, :, row])
    return rows
