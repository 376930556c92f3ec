"""Whether two samples of seeds differ by more than chance deals: an exact test of means.

Values of both sides are put together and dealt out anew; the interval holds what 99 of 100 deals
give. Under equal distributions, whatever their form, ties and ceilings included, a difference lies
outside in at most 1 of 100 pairs of samples (Fisher's randomisation test; Good 2005, section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:  # numpy is loaded on use
    import numpy as np

Scores = Sequence[Sequence[float]]
LEVEL = 0.99
DEALS = 9_999


@dataclass(frozen=True)
class Agreement:
    """Two samples beside each other.

    Attributes:
        difference: mean of the second less mean of the first.
        low, high: the interval that 99 of 100 deals lie in.
        within: whether the difference does, ends included.
    """

    difference: float
    low: float
    high: float
    within: bool


def agreement(
    recorded: Sequence[float], fresh: Sequence[float], deals: int = DEALS, seed: int = 0
) -> Agreement:
    """Return how far a fresh sample's mean lies from a recorded one's, and how far chance does.

    Args:
        recorded: one value a seed.
        fresh: likewise, of other seeds.
        deals: how often values are dealt out; the same deals every time.
        seed: of the deals.

    Raises:
        ConfigError: a side of fewer than 5 values, where no 99 % interval exists.

    >>> agreement([1.0] * 8, [1.0] * 8).within
    True
    """
    import numpy as np

    count, other = len(recorded), len(fresh)
    if min(count, other) < 5:
        raise ConfigError(f"samples of {count} and {other} values; at least 5 are needed")
    whole = np.asarray([*recorded, *fresh], np.float64)
    if not np.isfinite(whole).all():
        raise ConfigError("a value is not finite")
    middle = whole.mean()
    centred = whole - middle  # rounding errors of far means would split ties
    second = centred[_orders(count + other, deals, seed)[:, count:]].sum(axis=1)
    dealt = second / other - (centred.sum() - second) / count
    seen = centred[count:].sum()
    difference = float(seen / other - (centred.sum() - seen) / count)
    tail = (1.0 - LEVEL) / 2.0
    # With the seen one among them, k of n + 1 on either side hold at most the level.
    skipped = int(tail * (deals + 1))
    ordered = np.sort(dealt)
    low, high = float(ordered[max(0, skipped - 1)]), float(ordered[deals - max(1, skipped)])
    slack = 1e-12 * max(1.0, float(np.abs(centred).max()))
    within = low - slack <= difference <= high + slack
    return Agreement(difference, low, high, within)


def deal_p(ours: Scores, theirs: Scores) -> float:
    """Return the exact two-sided p-value of equal distributions in every environment.

    The share of 9,999 deals, in each environment by itself, and the seen one, whose difference of
    means is at least as far from 0.

    Args:
        ours: values [environments][seeds].
        theirs: likewise, maybe of another number of seeds.

    >>> deal_p([[1.0] * 6], [[0.0] * 6]) < 0.01, deal_p([[1.0] * 6], [[1.0] * 6])
    (True, 1.0)
    """
    import numpy as np

    dealt, seen, size = np.zeros(DEALS), 0.0, 0.0
    for stream, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        whole = np.asarray([*a, *b], np.float64)
        # Centred values sum to 0, so the sum of one side says how far apart the means are.
        centred = (whole - whole.mean()) / len(a) / len(b)
        dealt += centred[_orders(len(whole), DEALS, stream)[:, len(a) :]].sum(axis=1)
        seen += float(centred[len(a) :].sum())
        size += float(np.abs(centred).sum())
    far = int(np.count_nonzero(np.abs(dealt) >= abs(seen) - 1e-9 * size))
    return (1 + far) / (DEALS + 1)


@lru_cache(maxsize=16)
def _orders(count: int, deals: int, seed: int) -> np.ndarray:
    """Return orders of all values [deals, count], the same for every call."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.permuted(np.broadcast_to(np.arange(count), (deals, count)), axis=1)
