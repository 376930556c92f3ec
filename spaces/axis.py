"""An axis: the plain coordinate of one parameter that samplers, grids and other libraries see.

Every distribution maps an axis to the values people write and back, so that sampling, grids and
the conversions to other libraries are written once, for axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Axis"]


@dataclass(frozen=True)
class Axis:
    """An interval or a row of choices; both ends belong to it.

    Attributes:
        kind: `real`; `integer`; or `choice`, the positions 0 .. high without an order.
        low: first position.
        high: last position.
        log: equal ratios, not equal differences, are equally likely.
    """

    kind: Literal["real", "integer", "choice"]
    low: float
    high: float
    log: bool = False

    def at(self, share: float) -> float | int:
        """Return the position that `share` (0 to 1) of the axis lies below.

        >>> Axis("real", 1.0, 3.0).at(0.5), Axis("integer", 3, 5).at(0.99)
        (2.0, 5)
        """
        if self.kind == "real":
            if not self.log:
                return self.clip(self.low + share * (self.high - self.low))
            return self.clip(_between_logs(self.low, self.high, share))
        if not self.log:
            return self.clip(self.low + math.floor(share * (self.high - self.low + 1)))
        position = _between_logs(self.low - 0.5, self.high + 0.5, share)
        return self.clip(math.floor(position + 0.5))

    def share(self, position: float) -> float:
        """Return the share of a real axis that lies below a position; `at` undoes it."""
        if self.low == self.high:
            return 0.5
        if not self.log:
            return min(max((position - self.low) / (self.high - self.low), 0.0), 1.0)
        low, high = math.log(self.low), math.log(self.high)
        return min(max((math.log(position) - low) / (high - low), 0.0), 1.0)

    def clip(self, position: float) -> float | int:
        """Return the nearest position of the axis."""
        inside = min(max(position, self.low), self.high)
        return float(inside) if self.kind == "real" else int(inside)

    def grid(self, points: int) -> Iterator[float | int]:
        """Return up to `points` positions, evenly spread with both ends; every choice, always.

        Neighbours on a logarithmic integer axis may be equal.
        """
        if self.kind == "choice":
            points = int(self.high) + 1
        if self.kind != "real":
            points = min(points, int(self.high - self.low) + 1)
        if points == 1 or self.low == self.high:
            yield self.at(0.5) if self.low != self.high else self.clip(self.low)
            return
        for index in range(points):
            yield self._between(index / (points - 1))

    def _between(self, share: float) -> float | int:
        if self.log:
            position = _between_logs(self.low, self.high, share)
        else:
            position = self.low + share * (self.high - self.low)
        return self.clip(position if self.kind == "real" else math.floor(position + 0.5))

    def extended(self, share: float) -> Axis:
        """Return the axis made longer below, so that the new part has `share` of it.

        An integer axis grows by whole positions, at least one. A logarithmic integer axis, which
        cannot go below 1, becomes a real one whose values are to be rounded.
        """
        ratio = share / (1.0 - share)
        if self.kind == "integer" and not self.log:
            count = max(1, round(ratio * (self.high - self.low + 1)))
            return Axis("integer", self.low - count, self.high)
        low, high = self.low, self.high
        if self.log:
            width = math.log(high / low) or 1.0
            return Axis("real", low * math.exp(-ratio * width), high, log=True)
        return Axis("real", low - ratio * ((high - low) or 1.0), high)


def _between_logs(low: float, high: float, share: float) -> float:
    """Return the value whose logarithm lies `share` of the way; the ends exactly."""
    if share <= 0.0 or share >= 1.0:
        return low if share <= 0.0 else high
    return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
