"""Distributions, named as in study files: frozen data that maps axis positions to values and back.

`outward` turns a position on `axis` into a value. `inward` inverts it exactly for values that
`outward` returned. `why_not` returns the reason why a value is not allowed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from statistics import NormalDist
from typing import Any, ClassVar, Literal, Protocol

from ..files.plain_data import freeze, is_number, same


@dataclass(frozen=True)
class Axis:
    """An interval that includes both ends, or a list of choices."""

    kind: Literal["real", "integer", "choice"]  # choice: unordered positions 0 .. high
    low: float
    high: float
    log: bool = False  # equal ratios are equally likely, instead of equal differences

    def at(self, share: float) -> float | int:
        """Return the position that has the fraction `share` (0 to 1) of the axis below it.

        >>> Axis("real", 1.0, 3.0).at(0.5), Axis("integer", 3, 5).at(0.99)
        (2.0, 5)
        """
        if self.kind == "real":
            if not self.log:
                return self.clip(self.low + share * (self.high - self.low))
            return self.clip(_between_logs(self.low, self.high, share))
        if not self.log:
            return self.clip(self.low + math.floor(share * (self.high - self.low + 1)))
        return self.clip(math.floor(_between_logs(self.low - 0.5, self.high + 0.5, share) + 0.5))

    def share(self, position: float) -> float:
        """Return the share of the axis below a position; the inverse of `at`.

        On an integer axis, each position covers an interval; the share is measured to its middle.
        """
        if self.kind != "real":
            low, high = self.low - 0.5, self.high + 0.5
            if self.log:
                return math.log(position / low) / math.log(high / low)
            return (position - low) / (high - low)
        low, high, at = self.low, self.high, position
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        if low == high:
            return 0.5
        return min(max((at - low) / (high - low), 0.0), 1.0)

    def clip(self, position: float) -> float | int:
        inside = min(max(position, self.low), self.high)
        if self.kind == "real":
            return float(inside)
        return int(inside)

    def grid(self, points: int) -> Iterator[float | int]:
        """Return up to `points` evenly spaced positions, including both ends, or all choices.

        Neighbouring positions on a logarithmic integer axis may be equal.
        """
        if self.kind == "choice":
            points = int(self.high) + 1
        if self.kind != "real":
            points = min(points, int(self.high - self.low) + 1)
        if self.low == self.high:
            yield self.clip(self.low)
            return
        if points == 1:
            yield self.at(0.5)
            return
        for index in range(points):
            yield self._position_at_share(index / (points - 1))

    def _position_at_share(self, share: float) -> float | int:
        if self.log:
            position = _between_logs(self.low, self.high, share)
        else:
            position = self.low + share * (self.high - self.low)
        if self.kind != "real":
            position = math.floor(position + 0.5)
        return self.clip(position)

    def extended(self, share: float) -> Axis:
        """Return the axis extended at its lower end, so that the new part is `share` of the whole.

        An integer axis grows by at least one position. A logarithmic integer axis, which cannot go
        below 1, becomes a real one whose values must be rounded.
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
    """Interpolate between two numbers on a logarithmic scale; exact at both ends."""
    if share <= 0.0:
        return low
    if share >= 1.0:
        return high
    return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))


class Random(Protocol):
    """A source of random numbers, such as `numpy.random.Generator`."""

    def random(self) -> float: ...


@dataclass(frozen=True)
class Distribution(ABC):
    """The distribution of one parameter."""

    kind: ClassVar[str]
    required: ClassVar[tuple[str, ...]] = ("min", "max")
    optional: ClassVar[tuple[str, ...]] = ()
    meaning: ClassVar[str]
    nothing: ClassVar[float] = 0.0

    zero: float = field(default=0.0, kw_only=True)

    @abstractmethod
    def _axis_without_zero(self) -> Axis:
        """Return the axis without the part that stands for zero."""

    @abstractmethod
    def _value_at(self, position: float) -> Any:
        """Return the value at a position of `_axis_without_zero`."""

    @abstractmethod
    def _position_of(self, value: Any) -> float:
        """Return the position of a value."""

    @abstractmethod
    def _why_not(self, value: Any) -> str | None:
        """Return why a value is not allowed, or None; not called for an allowed zero."""

    @cached_property
    def axis(self) -> Axis:
        """The axis that samplers work on."""
        if not self.zero:
            return self._axis_without_zero()
        return self._axis_without_zero().extended(self.zero)

    def outward(self, position: float) -> Any:
        if self.zero and position < self._axis_without_zero().low:
            return self.nothing
        return self._value_at(position)

    def inward(self, value: Any) -> float | int:
        """Return a value's position, which `outward` converts to exactly `canonical(value)`."""
        if self.zero and value == 0:
            inner, whole = self._axis_without_zero(), self.axis
            if whole.kind == "integer":
                return (int(whole.low) + int(inner.low) - 1) // 2
            if whole.log:
                return math.sqrt(whole.low) * math.sqrt(inner.low)
            return (whole.low + inner.low) / 2.0
        return self._axis_without_zero().clip(self._position_of(value))

    def positions(self, value: Any) -> list[float | int]:
        """Return all positions of a value; only a zero on an integer axis can have several."""
        whole = self.axis
        if self.zero and value == 0 and whole.kind == "integer":
            return list(range(int(whole.low), int(self._axis_without_zero().low)))
        return [self.inward(value)]

    def canonical(self, value: Any) -> Any:
        """Return the value, rounded as in `sample`."""
        return self.outward(self.inward(value))

    def why_not(self, value: Any) -> str | None:
        """Return why a value is not allowed, as text; None if it is allowed."""
        if self.zero and is_number(value) and value == 0:
            return None
        return self._why_not(value)

    def nudged(self, value: Any, factor: float) -> Any:
        """Return a value moved a little along the axis, but not past its ends.

        On logarithmic axes the position is multiplied by the factor; on others it moves by
        ln(factor) times the axis length. Integer positions move by at least one. Unordered choices
        do not move, nor does a zero outside the range. A factor below 1 moves down.
        """
        axis = self._axis_without_zero()
        if axis.kind == "choice" or (self.zero and value == 0):
            return value
        position = self._position_of(value)
        moved = position * factor
        if not axis.log:
            moved = position + math.log(factor) * (axis.high - axis.low)
        if axis.kind == "integer" and factor != 1.0:
            step: float = round(moved - position)
            if abs(moved - position) < 1.0:
                step = math.copysign(1.0, factor - 1.0)
            moved = position + step
        return self._value_at(axis.clip(moved))

    def share(self, value: Any) -> float:
        """Return a value's position on the axis, from 0 to 1; choices are placed in list order."""
        axis, position = self.axis, self.inward(value)
        if axis.kind == "real":
            return axis.share(position)
        return (position - axis.low + 0.5) / (axis.high - axis.low + 1.0)

    def column(self, value: Any) -> float:
        """Return the value's `share`; for choices, which are unordered, its index in the list."""
        if self.axis.kind == "choice":
            return self.inward(value)
        return self.share(value)

    def sample(self, rng: Random) -> Any:
        """Draw a value, using exactly one number from `rng`."""
        return self.outward(self.axis.at(rng.random()))

    def grid(self, points: int) -> Iterator[Any]:
        """Return up to `points` values, evenly spread over the axis; an allowed zero is first."""
        values = map(self._value_at, self._axis_without_zero().grid(points))
        if self.zero:
            values = chain([self.nothing], values)
        given: set[tuple[bool, Any]] = set()
        for value in values:
            key = (isinstance(value, bool), freeze(value))
            if key not in given:
                given.add(key)
                yield value

    def middle(self) -> Any:
        """Return the value in the middle of the axis; for choices, the first."""
        return self._value_at(self._axis_without_zero().at(0.5))

    def ends(self) -> tuple[Any, ...]:
        """Return the extreme values (all values, if they are few and unordered)."""
        axis = self._axis_without_zero()
        low, high = self._value_at(axis.low), self._value_at(axis.high)
        if self.zero:
            return (self.nothing, low, high)
        return (low, high)

    def as_mapping(self) -> dict[str, Any]:
        """Return the distribution in study-file form."""
        written: dict[str, Any] = {}
        for key in (*self.required, *self.optional):
            value = getattr(self, key)
            if key == "values":
                value = list(value)
            if value is not None and not (key == "zero" and value == 0.0):
                written[key] = value
        return {**written, "distribution": self.kind}


@dataclass(frozen=True)
class _Listed(Distribution):
    required = ("values",)
    values: tuple[Any, ...]

    def _value_at(self, position: float) -> Any:
        return self.values[int(position)]

    def _position_of(self, value: Any) -> float:
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
    meaning = "one of `values`, unordered and equally likely"

    def _axis_without_zero(self) -> Axis:
        return Axis("choice", 0, len(self.values) - 1)

    def middle(self) -> Any:
        return self.values[0]


@dataclass(frozen=True)
class Ordinal(_Listed):
    kind = "ordinal"
    meaning = "one of `values`, equally likely; neighbours in the list are similar"

    def _axis_without_zero(self) -> Axis:
        return Axis("integer", 0, len(self.values) - 1)


def _needed_decimals(smallest: float, at_most: int) -> int:
    """Return the number of decimals (up to `at_most`) for at least eight digits of `smallest`."""
    return min(at_most, 8 + math.ceil(-math.log10(smallest)))


@dataclass(frozen=True)
class _Range(Distribution):
    min: float
    max: float

    def _why_not(self, value: Any) -> str | None:
        return _why_outside(value, self.min, self.max)

    def _inside(self, value: float) -> float:
        return min(max(value, float(self.min)), float(self.max))


def _why_outside(value: Any, low: float, high: float) -> str | None:
    if not is_number(value):
        return f"{value!r} is not a number"
    if not low <= value <= high:
        return f"{value!r} is not between {low!r} and {high!r}"
    return None


@dataclass(frozen=True)
class _Stepped(_Range):
    """A range with an optional step, counted from `min`."""

    q: float | None = None

    @property
    def steps(self) -> int:
        """Number of steps between min and max."""
        if not self.q:
            return 0
        return math.floor((self.max - self.min) / self.q + 1e-9)

    def _step_number(self, value: float) -> int:
        return min(max(round((value - self.min) / (self.q or 1.0)), 0), self.steps)

    def _on_step(self, index: int) -> float:
        value = float(f"{self.min + index * (self.q or 1.0):.12g}")
        return min(max(value, self.min), self.max)

    def _why_not(self, value: Any) -> str | None:
        reason = super()._why_not(value)
        if reason is None and self.q:
            near = self._on_step(self._step_number(value))
            if abs(near - value) > 1e-9 * max(abs(near), self.q):
                steps = f"whole number of steps of {self.q!r} from {self.min!r}"
                return f"{value!r} is not a {steps}; nearest: {near!r}"
        return reason


@dataclass(frozen=True)
class Uniform(_Stepped):
    """Uniform between min and max; with `q`, the values are min, min + q, min + 2 q, ..."""

    kind = "uniform"
    optional = ("q", "zero")
    meaning = "real, uniform between min and max"

    def _axis_without_zero(self) -> Axis:
        if self.q:
            return Axis("integer", 0, self.steps)
        return Axis("real", float(self.min), float(self.max))

    def _value_at(self, position: float) -> float:
        if self.q:
            return self._on_step(int(position))
        return float(position)

    def _position_of(self, value: float) -> float:
        if self.q:
            return self._step_number(value)
        return float(value)


@dataclass(frozen=True)
class LogUniform(_Stepped):
    """Uniform in the logarithm; min and max are real values above 0, not exponents."""

    kind = "log_uniform"
    optional = ("q", "zero")
    meaning = "real, uniform in its logarithm; min and max are values, not exponents"

    def _axis_without_zero(self) -> Axis:
        return Axis("real", float(self.min), float(self.max), log=True)

    def _value_at(self, position: float) -> float:
        if self.q:
            return self._on_step(self._step_number(position))
        return float(position)

    def _position_of(self, value: float) -> float:
        return self._value_at(value)


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
    meaning = "integer, uniform from min to max"

    def _axis_without_zero(self) -> Axis:
        if self.q:
            return Axis("integer", 0, self.steps)
        return Axis("integer", self.min, self.max)

    def _value_at(self, position: float) -> int:
        if self.q:
            return int(self.min) + int(position) * int(self.q)
        return int(position)

    def _position_of(self, value: float) -> float:
        if self.q:
            return self._step_number(value)
        return int(value)


@dataclass(frozen=True)
class LogIntUniform(_Whole):
    """Integers of at least 1, uniform in the logarithm, so that small ones are more likely."""

    kind = "log_int_uniform"
    meaning = "integer of at least 1, uniform in its logarithm"

    def _axis_without_zero(self) -> Axis:
        if self.q or self.zero:
            return Axis("real", self.min - 0.5, self.max + 0.5, log=True)
        return Axis("integer", self.min, self.max, log=True)

    def _value_at(self, position: float) -> int:
        if self.q:
            return int(self.min) + self._step_number(position) * int(self.q)
        return int(min(max(math.floor(position + 0.5), self.min), self.max))

    def _position_of(self, value: float) -> float:
        return self._value_at(value)


@dataclass(frozen=True)
class Pow2(_Range):
    kind = "pow2"
    optional = ("zero",)
    nothing = 0
    meaning = "power of two from min to max, all equally likely"

    def _axis_without_zero(self) -> Axis:
        return Axis("integer", int(self.min).bit_length() - 1, int(self.max).bit_length() - 1)

    def _value_at(self, position: float) -> int:
        return 1 << int(position)

    def _position_of(self, value: float) -> float:
        return int(value).bit_length() - 1

    def _why_not(self, value: Any) -> str | None:
        reason = super()._why_not(value)
        if reason is None and (value != int(value) or int(value) & (int(value) - 1)):
            return f"{value!r} is not a power of two"
        return reason


@dataclass(frozen=True)
class OneMinusLog(_Range):
    """Uniform in the logarithm of 1 - value, for values near 1 such as discounts."""

    kind = "one_minus_log"
    meaning = "real below 1, uniform in log(1 - value); for discounts"

    def _axis_without_zero(self) -> Axis:
        return Axis("real", 1.0 - self.max, 1.0 - self.min, log=True)

    def _value_at(self, position: float) -> float:
        # Rounded, so that 1 - (1 - value) gives back the value, to the last bit.
        value = round(1.0 - position, _needed_decimals(1.0 - self.max, 15))
        return self._inside(value)

    def _position_of(self, value: float) -> float:
        return 1.0 - value


@dataclass(frozen=True)
class Logit(_Range):
    """Uniform in log(value / (1 - value)), for values between 0 and 1."""

    kind = "logit"
    meaning = "real between 0 and 1, uniform in log(value / (1 - value))"

    def _axis_without_zero(self) -> Axis:
        return Axis("real", self._position_of(self.min), self._position_of(self.max))

    def _value_at(self, position: float) -> float:
        decimals = _needed_decimals(min(self.min, 1.0 - self.max), 14)
        value = round(1.0 / (1.0 + math.exp(-position)), decimals)
        return self._inside(value)

    def _position_of(self, value: float) -> float:
        return math.log(value) - math.log1p(-value)


@dataclass(frozen=True)
class Normal(Distribution):
    """Gaussian with mean mu and standard deviation sigma, truncated at min, max and 4 sigma.

    A value's axis position is the Gaussian's cumulative probability. The axis is truncated at 4
    sigma, because farther out this probability is too imprecise to distinguish values to eight
    digits.
    """

    kind = "normal"
    required = ("mu", "sigma")
    optional = ("min", "max", "zero")
    meaning = "real, Gaussian; truncated at min, max and 4 sigma"

    mu: float
    sigma: float
    min: float | None = None
    max: float | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        low, high = self.mu - 4.0 * self.sigma, self.mu + 4.0 * self.sigma
        if self.min is not None:
            low = max(low, self.min)
        if self.max is not None:
            high = min(high, self.max)
        return low, high

    def _axis_without_zero(self) -> Axis:
        low, high = self.bounds
        gaussian = NormalDist(self.mu, self.sigma)
        return Axis("real", gaussian.cdf(low), gaussian.cdf(high))

    def _value_at(self, position: float) -> float:
        low, high = self.bounds
        value = NormalDist(self.mu, self.sigma).inv_cdf(position)
        return min(max(round(value, _needed_decimals(self.sigma, 15)), low), high)

    def _position_of(self, value: float) -> float:
        return NormalDist(self.mu, self.sigma).cdf(value)

    def _why_not(self, value: Any) -> str | None:
        return _why_outside(value, *self.bounds)


KINDS: Mapping[str, type[Distribution]] = {
    cls.kind: cls
    for cls in (
        Uniform,
        LogUniform,
        IntUniform,
        LogIntUniform,
        Pow2,
        OneMinusLog,
        Logit,
        Normal,
        Categorical,
        Ordinal,
    )
}
