"""The base of distributions: frozen data that maps an axis to values and back.

`outward` turns a position of `axis` into a value, `inward` is its exact inverse on the values that
`outward` gives; `why_not` says in words why a value is not allowed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Literal, Protocol

from ..files.plain_data import freeze, is_number


@dataclass(frozen=True)
class Axis:
    """An interval or a row of choices, both ends included."""

    kind: Literal["real", "integer", "choice"]  # choice: the positions 0 .. high without an order
    low: float
    high: float
    log: bool = False  # equal ratios, not equal differences, are equally likely

    def at(self, share: float) -> float | int:
        """Return the position with `share` (0 to 1) of the axis below it.

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
        """Return the share of the axis below a position, `at` undoes it.

        A whole position has a part of the axis to itself; what counts is the middle of it.
        """
        if self.kind != "real":
            low, high = self.low - 0.5, self.high + 0.5
            if self.log:
                return math.log(position / low) / math.log(high / low)
            return (position - low) / (high - low)
        low, high, at = self.low, self.high, position
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return 0.5 if low == high else min(max((at - low) / (high - low), 0.0), 1.0)

    def clip(self, position: float) -> float | int:
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
    """Return the value at `share` of the way between the logarithms; the ends exactly."""
    if share <= 0.0 or share >= 1.0:
        return low if share <= 0.0 else high
    return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; True differs from 1.

    >>> same(1, 1.0), same(1, True), same([64], (64,))
    (True, False, True)
    """
    return freeze(one) == freeze(other) and isinstance(one, bool) == isinstance(other, bool)


class Random(Protocol):
    """A source of random numbers, such as `numpy.random.Generator`."""

    def random(self) -> float: ...


@dataclass(frozen=True)
class Distribution(ABC):
    """One parameter's distribution."""

    kind: ClassVar[str]
    required: ClassVar[tuple[str, ...]] = ("min", "max")
    optional: ClassVar[tuple[str, ...]] = ()
    meaning: ClassVar[str]
    nothing: ClassVar[float] = 0.0

    zero: float = field(default=0.0, kw_only=True)

    @abstractmethod
    def _axis(self) -> Axis:
        """Return the axis without the part for zero."""

    @abstractmethod
    def _outward(self, position: float) -> Any:
        """Return the value of a position of `_axis`."""

    @abstractmethod
    def _inward(self, value: Any) -> float:
        """Return the position of a value."""

    @abstractmethod
    def _why_not(self, value: Any) -> str | None:
        """Return why a value other than an allowed zero is not allowed, or None."""

    @property
    def axis(self) -> Axis:
        """The coordinate that samplers see."""
        return self._axis().extended(self.zero) if self.zero else self._axis()

    def outward(self, position: float) -> Any:
        if self.zero and position < self._axis().low:
            return self.nothing
        return self._outward(position)

    def inward(self, value: Any) -> float | int:
        """Return the position of a value; `outward` of it is `canonical(value)`, exactly."""
        if self.zero and value == 0:
            inner, whole = self._axis(), self.axis
            if whole.kind == "integer":
                return (int(whole.low) + int(inner.low) - 1) // 2
            if whole.log:
                return math.sqrt(whole.low) * math.sqrt(inner.low)
            return (whole.low + inner.low) / 2.0
        return self._axis().clip(self._inward(value))

    def positions(self, value: Any) -> list[float | int]:
        """Return all positions of a value, where the axis has whole ones."""
        whole = self.axis
        if self.zero and value == 0 and whole.kind == "integer":
            return list(range(int(whole.low), int(self._axis().low)))
        return [self.inward(value)]

    def canonical(self, value: Any) -> Any:
        """Return the value as `sample` would give it, rounded alike."""
        return self.outward(self.inward(value))

    def why_not(self, value: Any) -> str | None:
        """Return in words why a value is not allowed, or None if it is."""
        if self.zero and is_number(value) and value == 0:
            return None
        return self._why_not(value)

    def nudged(self, value: Any, factor: float) -> Any:
        """Return a value moved a little along the axis, and not past its ends.

        Where equal ratios are alike its position is multiplied by the factor; elsewhere it moves
        by ln(factor) of the axis. Whole positions move by at least one. Choices without an order
        stay, and so does a zero outside of the range. A factor below 1 moves down.
        """
        axis = self._axis()
        if axis.kind == "choice" or (self.zero and value == 0):
            return value
        position = self._inward(value)
        moved = position * factor
        if not axis.log:
            moved = position + math.log(factor) * (axis.high - axis.low)
        if axis.kind == "integer" and factor != 1.0:
            least = math.copysign(1.0, factor - 1.0)
            moved = position + (least if abs(moved - position) < 1.0 else round(moved - position))
        return self._outward(axis.clip(moved))

    def share(self, value: Any) -> float:
        """Return where on the axis a value is, from 0 to 1; choices by their place in the list."""
        axis, position = self.axis, self.inward(value)
        if axis.kind == "real":
            return axis.share(position)
        return (position - axis.low + 0.5) / (axis.high - axis.low + 1.0)

    def sample(self, rng: Random) -> Any:
        """Draw a value; takes exactly one number from `rng`."""
        return self.outward(self.axis.at(rng.random()))

    def grid(self, points: int) -> Iterator[Any]:
        """Return up to `points` values evenly spread over the axis; zero, if allowed, first."""
        values = (self._outward(position) for position in self._axis().grid(points))
        given: set[tuple[bool, Any]] = set()
        for value in chain([self.nothing], values) if self.zero else values:
            key = (isinstance(value, bool), freeze(value))
            if key not in given:
                given.add(key)
                yield value

    def middle(self) -> Any:
        """Return the value in the middle; of choices the first."""
        return self._outward(self._axis().at(0.5))

    def ends(self) -> tuple[Any, ...]:
        """Return the extreme values (all values, where they are few and have no order)."""
        axis = self._axis()
        ends = tuple(self._outward(position) for position in (axis.low, axis.high))
        return (self.nothing, *ends) if self.zero else ends

    def as_mapping(self) -> dict[str, Any]:
        """Return the distribution as a study file writes it."""
        written: dict[str, Any] = {}
        for key in (*self.required, *self.optional):
            value = getattr(self, key)
            if value is not None and not (key == "zero" and value == 0.0):
                written[key] = list(value) if key == "values" else value
        return {**written, "distribution": self.kind}
