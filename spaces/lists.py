"""Distributions over a list of values, with and without an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .axis import Axis
from .base import Distribution
from .values import same

__all__ = ["Categorical", "Ordinal"]


@dataclass(frozen=True)
class _Listed(Distribution):
    """A list of values of any kind."""

    required = ("values",)
    values: tuple[Any, ...]

    def _outward(self, position: float) -> Any:
        return self.values[int(position)]

    def _inward(self, value: Any) -> float:
        return next(i for i, known in enumerate(self.values) if same(known, value))

    def _why_not(self, value: Any) -> str | None:
        if any(same(known, value) for known in self.values):
            return None
        return f"{value!r} is not one of {', '.join(repr(known) for known in self.values)}"

    def ends(self) -> tuple[Any, ...]:
        """Return all values."""
        return self.values


@dataclass(frozen=True)
class Categorical(_Listed):
    """Values without an order, equally likely."""

    kind = "categorical"
    meaning = "one of values, equally likely, without an order"

    def _axis(self) -> Axis:
        return Axis("choice", 0, len(self.values) - 1)

    def middle(self) -> Any:
        """Return the first value."""
        return self.values[0]


@dataclass(frozen=True)
class Ordinal(_Listed):
    """Values in their order, equally likely: neighbours in the list are alike."""

    kind = "ordinal"
    meaning = "one of values, equally likely; neighbours in the list are alike"

    def _axis(self) -> Axis:
        return Axis("integer", 0, len(self.values) - 1)
