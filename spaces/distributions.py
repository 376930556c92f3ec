"""All kinds of distributions by the names that study files use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from ..files.plain_data import is_number
from .base import Axis, Distribution, same


@dataclass(frozen=True)
class _Listed(Distribution):
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
        return self.values


@dataclass(frozen=True)
class Categorical(_Listed):
    kind = "categorical"
    meaning = "one of values, equally likely, without an order"

    def _axis(self) -> Axis:
        return Axis("choice", 0, len(self.values) - 1)

    def middle(self) -> Any:
        return self.values[0]


@dataclass(frozen=True)
class Ordinal(_Listed):
    kind = "ordinal"
    meaning = "one of values, equally likely; neighbours in the list are alike"

    def _axis(self) -> Axis:
        return Axis("integer", 0, len(self.values) - 1)


def _decimals(smallest: float, at_most: int) -> int:
    """Decimals that keep at least eight digits of `smallest`, but no more than are exact."""
    return min(at_most, 8 + math.ceil(-math.log10(smallest)))


@dataclass(frozen=True)
class _Range(Distribution):
    min: float
    max: float

    def _why_not(self, value: Any) -> str | None:
        return _why_outside(value, self.min, self.max)


def _why_outside(value: Any, low: float, high: float) -> str | None:
    if not is_number(value):
        return f"{value!r} is not a number"
    return None if low <= value <= high else f"{value!r} is not between {low!r} and {high!r}"


@dataclass(frozen=True)
class _Stepped(_Range):
    """A range that may have a step; steps are counted from `min`."""

    q: float | None = None

    @property
    def steps(self) -> int:
        """Number of steps between min and max."""
        return math.floor((self.max - self.min) / self.q + 1e-9) if self.q else 0

    def _step(self, value: float) -> int:
        return min(max(round((value - self.min) / (self.q or 1.0)), 0), self.steps)

    def _on_step(self, index: int) -> float:
        value = float(f"{self.min + index * (self.q or 1.0):.12g}")
        return min(max(value, self.min), self.max)

    def _why_not(self, value: Any) -> str | None:
        reason = super()._why_not(value)
        if reason is None and self.q:
            near = self._on_step(self._step(value))
            if abs(near - value) > 1e-9 * max(abs(near), self.q):
                steps = f"steps of {self.q!r} from {self.min!r}"
                return f"{value!r} is not on the {steps}; nearest: {near!r}"
        return reason


@dataclass(frozen=True)
class Uniform(_Stepped):
    """Equally likely between min and max; with `q` only min, min + q, min + 2 q, ..."""

    kind = "uniform"
    optional = ("q", "zero")
    meaning = "real, equally likely between min and max"

    def _axis(self) -> Axis:
        if self.q:
            return Axis("integer", 0, self.steps)
        return Axis("real", float(self.min), float(self.max))

    def _outward(self, position: float) -> float:
        return self._on_step(int(position)) if self.q else float(position)

    def _inward(self, value: float) -> float:
        return self._step(value) if self.q else float(value)


@dataclass(frozen=True)
class LogUniform(_Stepped):
    """The logarithm is equally likely; min and max are real values above 0, not exponents."""

    kind = "log_uniform"
    optional = ("q", "zero")
    meaning = "real, logarithm equally likely; min and max are values, not exponents"

    def _axis(self) -> Axis:
        return Axis("real", float(self.min), float(self.max), log=True)

    def _outward(self, position: float) -> float:
        return self._on_step(self._step(position)) if self.q else float(position)

    def _inward(self, value: float) -> float:
        return self._on_step(self._step(value)) if self.q else float(value)


@dataclass(frozen=True)
class _Whole(_Stepped):
    optional = ("q", "zero")
    nothing = 0

    def _why_not(self, value: Any) -> str | None:
        if is_number(value) and value != int(value):
            return f"{value!r} is not an integer"
        return super()._why_not(value)


@dataclass(frozen=True)
class IntUniform(_Whole):
    kind = "int_uniform"
    meaning = "integer, equally likely from min to max"

    def _axis(self) -> Axis:
        return Axis("integer", 0, self.steps) if self.q else Axis("integer", self.min, self.max)

    def _outward(self, position: float) -> int:
        return int(self.min) + int(position) * int(self.q) if self.q else int(position)

    def _inward(self, value: float) -> float:
        return self._step(value) if self.q else int(value)


@dataclass(frozen=True)
class LogIntUniform(_Whole):
    """Integers from 1 on, small ones more likely, as the logarithm is equally likely."""

    kind = "log_int_uniform"
    meaning = "integer of at least 1, logarithm equally likely"

    def _axis(self) -> Axis:
        if self.q or self.zero:
            return Axis("real", self.min - 0.5, self.max + 0.5, log=True)
        return Axis("integer", self.min, self.max, log=True)

    def _outward(self, position: float) -> int:
        if self.q:
            return int(self.min) + self._step(position) * int(self.q)
        return int(min(max(math.floor(position + 0.5), self.min), self.max))

    def _inward(self, value: float) -> float:
        return self._outward(value)


@dataclass(frozen=True)
class Pow2(_Range):
    kind = "pow2"
    optional = ("zero",)
    nothing = 0
    meaning = "powers of two from min to max, equally likely"

    def _axis(self) -> Axis:
        return Axis("integer", int(self.min).bit_length() - 1, int(self.max).bit_length() - 1)

    def _outward(self, position: float) -> int:
        return 1 << int(position)

    def _inward(self, value: float) -> float:
        return int(value).bit_length() - 1

    def _why_not(self, value: Any) -> str | None:
        reason = super()._why_not(value)
        if reason is None and (value != int(value) or int(value) & (int(value) - 1)):
            return f"{value!r} is not a power of two"
        return reason


@dataclass(frozen=True)
class OneMinusLog(_Range):
    """For values near 1, such as discounts: the logarithm of 1 - value is equally likely."""

    kind = "one_minus_log"
    meaning = "real below 1, logarithm of (1 - value) equally likely; for discounts"

    def _axis(self) -> Axis:
        return Axis("real", 1.0 - self.max, 1.0 - self.min, log=True)

    def _outward(self, position: float) -> float:
        # Rounded, so that 1 - (1 - value) is the value again, to the last bit.
        value = round(1.0 - position, _decimals(1.0 - self.max, 15))
        return min(max(value, float(self.min)), float(self.max))

    def _inward(self, value: float) -> float:
        return 1.0 - value


@dataclass(frozen=True)
class Logit(_Range):
    """For values between 0 and 1: log(value / (1 - value)) is equally likely."""

    kind = "logit"
    meaning = "real between 0 and 1, log(value / (1 - value)) equally likely"

    def _axis(self) -> Axis:
        return Axis("real", self._inward(self.min), self._inward(self.max))

    def _outward(self, position: float) -> float:
        decimals = _decimals(min(self.min, 1.0 - self.max), 14)
        value = round(1.0 / (1.0 + math.exp(-position)), decimals)
        return min(max(value, float(self.min)), float(self.max))

    def _inward(self, value: float) -> float:
        return math.log(value) - math.log1p(-value)


@dataclass(frozen=True)
class Normal(Distribution):
    """Gaussian with mean mu and deviation sigma, cut at min and max and at 4 deviations.

    The axis is the share of the Gaussian below the value. Beyond 4 deviations that share has too
    few digits to distinguish values to eight digits, hence the cut.
    """

    kind = "normal"
    required = ("mu", "sigma")
    optional = ("min", "max", "zero")
    meaning = "real, Gaussian; cut at min, max and 4 deviations"

    mu: float
    sigma: float
    min: float | None = None
    max: float | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        low, high = self.mu - 4.0 * self.sigma, self.mu + 4.0 * self.sigma
        low = low if self.min is None else max(low, self.min)
        return low, high if self.max is None else min(high, self.max)

    def _axis(self) -> Axis:
        low, high = self.bounds
        gaussian = NormalDist(self.mu, self.sigma)
        return Axis("real", gaussian.cdf(low), gaussian.cdf(high))

    def _outward(self, position: float) -> float:
        low, high = self.bounds
        value = NormalDist(self.mu, self.sigma).inv_cdf(position)
        return min(max(round(value, _decimals(self.sigma, 15)), low), high)

    def _inward(self, value: float) -> float:
        return NormalDist(self.mu, self.sigma).cdf(value)

    def _why_not(self, value: Any) -> str | None:
        return _why_outside(value, *self.bounds)


KINDS: Mapping[str, type[Distribution]] = {
    cls.kind: cls
    for cls in (Uniform, LogUniform, IntUniform, LogIntUniform, Pow2, OneMinusLog, Logit, Normal,
                Categorical, Ordinal)
}  # fmt: skip
