"""What is known of an environment without importing it: its parameters, its keys, its metrics.

`params` are float parameters (each may differ per lane and be swept as `env.<name>`); `keys` are
fixed for a program and become part of the Plan; searched, each value is a bucket.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["INT32", "EnvEntry", "EnvKey"]

INT32 = 2**31 - 1
_NOUNS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "any": "what the environment takes",
}
_TYPES = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True)
class EnvKey:
    """A key of `env:` that is fixed for a program: searched, each value is a bucket of its own.

    Attributes:
        type: what its values are; `any` is checked by the environment itself.
        default: its value when left out.
        choices: legal values, if they are few.
        meaning: one line, with unit where there is one.
        low: smallest legal number.
        low_open: `low` itself is not legal.
        high: largest legal number; None is that of an int32 for whole numbers, none for others.
        file: it may be the path of a file, relative to the folder of the file that names it.
    """

    type: Literal["int", "bool", "float", "str", "any"]
    default: Any
    choices: tuple[Any, ...] = ()
    meaning: str = ""
    low: float = -math.inf
    low_open: bool = False
    high: int | None = None
    file: bool = False

    def allowed(self) -> str:
        """Return in words what is legal."""
        if self.choices:
            return ", ".join(map(str, self.choices))
        noun = _NOUNS[self.type]
        if self.low == -math.inf:
            return noun
        if self.high is not None:
            return f"{noun} from {self.low:g} to {self.high}"
        return f"{noun} {'above' if self.low_open else 'of at least'} {self.low:g}"

    def is_legal(self, value: Any) -> bool:
        """Return whether a value is of the type, in range, and among the choices."""
        if value is None and self.default is None:
            return True
        legal = self.type == "any" or type(value) is _TYPES[self.type]
        if self.type in ("int", "float") and isinstance(value, int | float):
            legal = legal and self.in_range(value)
        return legal and (not self.choices or value in self.choices)

    def in_range(self, number: float) -> bool:
        """Return whether a number is legal."""
        if not math.isfinite(number) or number > self._most():
            return False
        return number > self.low if self.low_open else number >= self.low

    def _most(self) -> float:
        if self.high is not None:
            return self.high
        return INT32 if self.type == "int" else math.inf


@dataclass(frozen=True)
class EnvEntry:
    """What is known of one environment.

    Attributes:
        id: as written in a study.
        source: the library or module it comes from.
        actions: kind of action space; `any` where it depends on the keys.
        params: float parameter -> default.
        keys: fixed key -> its description.
        meaning: one line.
        positive: the parameters that must be above 0; all others may be any finite number.
        metrics: what evaluations report as `eval/<name>`: name -> meaning.
        elsewhere: what another system calls a key -> our name; suggested, never accepted.
        best_return: the key or parameter whose value is the highest return that an episode can
            have, and that good policies reach; None where nobody knows it.
        returns: the lowest and the highest return that an episode can have: numbers, or a key
            or parameter that has them as its value (`-key`: the negative of it).
    """

    id: str
    source: str
    actions: Literal["discrete", "continuous", "any"]
    params: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, EnvKey] = field(default_factory=dict)
    meaning: str = ""
    positive: tuple[str, ...] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    best_return: str | None = None
    returns: tuple[str | float, str | float] = (-math.inf, math.inf)

    def return_range(self, given: Mapping[str, Any]) -> tuple[float, float]:
        """Return the lowest and the highest return that an episode can have; infinite if unknown.

        Args:
            given: keys and parameters of the environment that are not at their defaults.
        """
        values = {**{name: key.default for name, key in self.keys.items()}, **self.params, **given}
        low, high = (self._end(end, values, infinite) for end, infinite in
                     zip(self.returns, (-math.inf, math.inf), strict=True))  # fmt: skip
        return low, high

    @staticmethod
    def _end(end: str | float, values: Mapping[str, Any], unknown: float) -> float:
        if not isinstance(end, str):
            return end
        value = values.get(end.removeprefix("-"))
        if not isinstance(value, int | float):
            return unknown
        return -value if end.startswith("-") else value
