"""The hyperparameters of a table: their ranges, and distances between values.

Three scales differ from those in most libraries. A discount is drawn so that log(1 - value) is
uniform: here it is `one_minus_gamma` on a log scale. A coefficient that may be 0 has a longer
range at the lower end, in which every value means 0. Integers have an additional half step at both
ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

ONE_MINUS = "one_minus_"


@dataclass(frozen=True)
class Hyperparameter:
    """One searched hyperparameter in the form used by optimisers."""

    name: str
    kind: str  # real, integer or choice
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    values: tuple[Any, ...] = ()  # for a choice
    default: Any = None
    zero_below: float | None = None  # smaller values mean 0

    @property
    def recorded_name(self) -> str:
        return self.name.removeprefix(ONE_MINUS)

    def recorded(self, value: Any) -> Any:
        """Return the value with which PPO ran."""
        if self.kind == "choice":
            return value
        if self.kind == "integer":
            return int(value)
        if self.name.startswith(ONE_MINUS):
            return 1.0 - value
        if self.zero_below is not None and value < self.zero_below:
            return 0.0
        return float(value)

    def seen(self, recorded: Any) -> Any:
        """Return a recorded value in the form used by optimisers; `recorded` inverts this."""
        if self.name.startswith(ONE_MINUS):
            return 1.0 - recorded
        if self.zero_below is not None and recorded == 0:
            return math.sqrt(self.low * self.zero_below)
        return recorded

    def share(self, value: Any) -> float:
        """Return a value's position in its range, from 0 to 1; for choices, by index.

        Raises:
            ValueError: the value is outside the range.
        """
        if self.kind == "choice":
            if value not in self.values:
                raise ValueError(f"{self.name} is {value!r}; allowed: {self.values}")
            return (self.values.index(value) + 0.5) / len(self.values)
        slack = 1e-9 * (self.high - self.low)
        if not isinstance(value, Real) or not self.low - slack <= value <= self.high + slack:
            said = f"{self.name} is {value!r}; allowed: {self.low:g} to {self.high:g}"
            raise ValueError(said + self._zero_words())
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.kind == "integer":
            low, high = low - 0.5, high + 0.5
        if self.log:
            return math.log(at / low) / math.log(high / low)
        return (at - low) / (high - low)

    def _zero_words(self) -> str:
        if self.zero_below is None:
            return ""
        return f" (below {self.zero_below:g} means 0)"

    def place(self, value: Any) -> float:
        """Return the position used for distances, from 0 to 1, of the value with which PPO runs.

        This is the value's share, except that integers and choices are counted, and that all
        values that mean 0 have the same position.
        """
        share = self.share(value)  # raises outside the range
        if self.kind == "integer":
            return (int(value) - self.low + 0.5) / (self.high - self.low + 1.0)
        if self.kind == "choice":
            return share
        return self.share(self.seen(self.recorded(value)))

    def at(self, share: float) -> Any:
        """Return the value at a share of the range; uniform shares sample as the tables do."""
        if self.kind == "choice":
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        low, high = self.low, self.high
        if self.kind == "integer":
            low, high = low - 0.5, high + 0.5
        value = low * (high / low) ** share if self.log else low + share * (high - low)
        if self.kind == "integer":
            value = math.floor(value + 0.5)
        inside = min(max(value, self.low), self.high)
        return int(inside) if self.kind == "integer" else float(inside)


@dataclass(frozen=True)
class Space:
    hyperparameters: tuple[Hyperparameter, ...]
    by_name: Mapping[str, Hyperparameter] = field(init=False)

    def __post_init__(self) -> None:
        named = {one.name: one for one in self.hyperparameters}
        object.__setattr__(self, "by_name", named)

    def check(self, configuration: Mapping[str, Any]) -> None:
        """Raise ValueError for missing and unknown names, and for anything but a mapping."""
        if not isinstance(configuration, Mapping):
            raise ValueError(f"{configuration!r} is not a configuration: a mapping of values")
        missing = [name for name in self.by_name if name not in configuration]
        unknown = [name for name in configuration if name not in self.by_name]
        if missing or unknown:
            said = f"missing: {missing}; unknown: {unknown}; known: {[*self.by_name]}"
            hints = [hint for name in unknown if (hint := self._hint(name))]
            raise ValueError("; ".join([said, *hints]))

    def _hint(self, unknown: Any) -> str:
        """Return which hyperparameter stands for a recorded name; "" if none does."""
        for one in self.hyperparameters:
            if one.recorded_name == unknown:
                return f"{unknown} is given as {one.name}, which is 1 - {unknown}"
        return ""


def read_space(given: Mapping[str, Mapping[str, Any]]) -> Space:
    """Return the space in the `space` section of a study file."""
    return Space(tuple(_read(name, dict(fields)) for name, fields in given.items()))


def _read(name: str, fields: dict[str, Any]) -> Hyperparameter:
    kind, default = fields["distribution"], fields["default"]
    if kind == "categorical":
        return Hyperparameter(name, "choice", values=tuple(fields["values"]), default=default)
    low, high = fields["min"], fields["max"]
    if kind in ("int_uniform", "log_int_uniform"):
        return Hyperparameter(name, "integer", low, high, kind.startswith("log"), (), default)
    if kind == "one_minus_log":
        other = ONE_MINUS + name
        return Hyperparameter(other, "real", 1 - high, 1 - low, True, (), 1 - default)
    log, zero = kind == "log_uniform", fields.get("zero", 0.0)
    if kind not in ("uniform", "log_uniform"):
        raise ValueError(f"{name}: these tables have no distribution {kind}")
    if not zero:
        return Hyperparameter(name, "real", float(low), float(high), log, (), default)
    longer = _longer(low, high, zero, log)
    found = Hyperparameter(name, "real", longer, float(high), log, (), None, float(low))
    return Hyperparameter(
        name, "real", longer, float(high), log, (), found.seen(default), float(low)
    )


def _longer(low: float, high: float, zero: float, log: bool) -> float:
    """Return the lower end of a range in which the lowest part, with share `zero`, means 0."""
    ratio = zero / (1.0 - zero)
    if log:
        return low * math.exp(-ratio * math.log(high / low))
    return low - ratio * (high - low)
