"""Whether two samples of seeds differ by more than chance deals: an exact test of means.

Values of both sides are put together and dealt out anew; the interval holds what 99 of 100 deals
give. Under equal distributions, whatever their form, ties and ceilings included, a difference lies
outside in at most 1 of 100 pairs of samples (Fisher's randomisation test; Good 2005, section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ConfigError

__all__ = ["DEALS", "LEVEL", "Agreement", "agreement"]

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
    rng = np.random.Generator(np.random.PCG64(seed))
    order = rng.permuted(np.broadcast_to(np.arange(count + other), (deals, count + other)), axis=1)
    second = centred[order[:, count:]].sum(axis=1)
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
