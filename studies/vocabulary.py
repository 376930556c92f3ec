"""The names a study may use for what it sets: knobs, and parameters of its environment.

Everything below asks here whether a name or a value is legal, so knobs and `env.<name>` are
checked in one place, by the two plain tables that need no jax.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..environments import EnvEntry, EnvKey
from ..errors import ConfigError, suggestion
from ..knobs import KNOBS, canonical_name, check_name, check_value
from .amounts import number_of

__all__ = ["Vocabulary", "check_env_value"]

_REGISTERED = ("network",)
"""Choices that user code can add to."""


@dataclass(frozen=True)
class Vocabulary:
    """What may be named.

    Attributes:
        env: the table's entry of the environment; None when it is not known.
        env_values: what the study gives under `env:`.
        imports: user code may register what the tables do not know.
    """

    env: EnvEntry | None = None
    env_values: Mapping[str, Any] = field(default_factory=dict)
    imports: bool = False

    def name(self, given: str) -> str:
        """Give our spelling of a knob or of `env.<name>`.

        Raises:
            ConfigError: it is not known; says the nearest.
        """
        if not given.startswith("env."):
            return self._knob_name(given)
        key = given.removeprefix("env.")
        if self.env is None or key in self.env.params:
            return given
        if key in self.env.keys:
            raise ConfigError(
                f"{key!r} of {self.env.id} is fixed for a study; write it under `env:`, "
                f"as env: {{id: {self.env.id}, {key}: ...}}"
            )
        known = ", ".join(f"env.{name}" for name in self.env.params) or "none"
        hint = suggestion(given, [f"env.{name}" for name in self.env.params])
        raise ConfigError(f"{self.env.id} has no parameter {given!r};{hint} Known: {known}")

    def _knob_name(self, given: str) -> str:
        if self.env is not None and given in self.env.params and canonical_name(given) is None:
            raise ConfigError(f"unknown knob {given!r}; did you mean 'env.{given}'?")
        return check_name(given)

    def type(self, name: str) -> Literal["float", "int", "bool", "choice", "widths"]:
        """Give the type of a known name."""
        return "float" if name.startswith("env.") else KNOBS[name].type

    def words(self, name: str) -> tuple[str, ...]:
        """Give the words that are legal for a number beside numbers."""
        return () if name.startswith("env.") else KNOBS[name].choices

    def value(self, name: str, given: Any) -> Any:
        """Make the value of a known name canonical; `50k` is 50000.

        Raises:
            ConfigError: says what was given and what is allowed.
        """
        number = number_of(given) if isinstance(given, str) else None
        value = given if number is None or given in self.words(name) else number
        if not name.startswith("env."):
            if name in _REGISTERED and self.imports and isinstance(value, str):
                return value
            return check_value(name, value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name} is {given!r}; allowed: a number")
        if not math.isfinite(value):
            raise ConfigError(f"{name} is {given!r}; allowed: a finite number")
        return float(value)

    def default(self, name: str) -> Any:
        """Give the value a known name has when nobody sets it; None for unknown parameters."""
        if not name.startswith("env."):
            return KNOBS[name].default
        key = name.removeprefix("env.")
        own = self.env.params.get(key) if self.env is not None else None
        return self.env_values.get(key, own)


def check_env_value(env: EnvEntry, key: str, given: Any) -> Any:
    """Make the value of one key under `env:` canonical.

    Raises:
        ConfigError: the environment has no such key, or not with this value.
    """
    if key in env.params:
        number = number_of(given)
        if number is None:
            raise ConfigError(f"env.{key} is {given!r}; allowed: a number")
        return float(number)
    if key not in env.keys:
        known = [*env.keys, *env.params]
        raise ConfigError(
            f"{env.id} has no key {key!r};{suggestion(key, known)} "
            f"Known: {', '.join(known) or 'none'}"
        )
    return _key_value(key, env.keys[key], given)


_NOUNS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "any": "what the environment takes",
}


def _key_value(key: str, spec: EnvKey, given: Any) -> Any:
    value = given
    if spec.type in ("int", "float") and isinstance(given, str):
        number = number_of(given)
        value = given if number is None else number
    if spec.type == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if spec.type == "int" and isinstance(value, float) and value == math.floor(value):
        value = int(value)
    types = {"int": int, "float": float, "bool": bool, "str": str}
    legal = spec.type == "any" or type(value) is types[spec.type]
    if isinstance(value, float) and not math.isfinite(value):
        legal = False
    if spec.choices and value not in spec.choices:
        legal = False
    if legal or (given is None and spec.default is None):
        return value if legal else None
    nouns = {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "str": "a text",
    }
    allowed = ", ".join(map(str, spec.choices)) if spec.choices else nouns.get(spec.type, "")
    raise ConfigError(f"env.{key} is {given!r}; allowed: {allowed}")
