"""The legal names and values of hyperparameters and environment parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..environments.table import INT32, EnvEntry, EnvKey
from ..errors import ConfigError, listed, suggestion
from ..files.plain_data import freeze, is_number
from ..knobs import REGISTRABLE, canonical_name, canonical_value, check_name
from .algorithm import Algorithm

_COUNT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?(k|K|M|G|B)")
_WRONG_UNIT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)\s*")
_FACTORS = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_TIME = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,6})?[dhms]\s*)+")
_PIECE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dhms])")
_PPO = Algorithm()
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def number_of(value: Any) -> float | int | None:
    """Return a finite number, or None; `50k` is 50000, and integers remain int.

    >>> number_of("1.1k"), number_of(0.5), number_of("x"), number_of(True)
    (1100, 0.5, None, None)
    """
    if isinstance(value, str):
        return _parse_suffixed(value)
    if is_number(value):
        return value
    return None


def count_of(value: Any) -> int | None:
    """Return an integer, or None; `200M` and `1e6` are integers.

    >>> count_of("200M"), count_of(1e6), count_of("1.5"), count_of(1.5)
    (200000000, 1000000, None, None)
    """
    number = number_of(value)
    if number is None or number != int(number):
        return None
    return int(number)


def amount_meant(value: Any) -> str:
    """Return the probable meaning of a number with an unknown unit, or "".

    >>> amount_meant("20q"), amount_meant("1.5 m"), amount_meant("20k"), amount_meant("x20")
    ('20k', '1.5M', '', '')
    """
    if not isinstance(value, str) or number_of(value) is not None:
        return ""
    match = _WRONG_UNIT.fullmatch(value)
    if match is None:
        return ""
    letter = match[2][0]
    unit = next((one for one in (letter, letter.upper()) if one in _FACTORS), "k")
    return f"{match[1]}{unit}"


def seconds_of(value: Any) -> float | None:
    """Return a time in seconds, or None; a bare number is in seconds.

    >>> seconds_of("2h30m"), seconds_of(90), seconds_of("2 hours")
    (9000.0, 90.0, None)
    """
    if isinstance(value, str):
        if not _TIME.fullmatch(value.strip()):
            return None
        return sum(float(amount) * _SECONDS[unit] for amount, unit in _PIECE.findall(value))
    number = number_of(value)
    if number is None:
        return None
    return float(number)


def _parse_suffixed(text: str) -> float | int | None:
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        return None
    whole, fraction, suffix = match.group(1), match.group(2) or "", match.group(3)
    scaled = int(whole + fraction) * _FACTORS[suffix]
    unit = 10 ** len(fraction)
    if scaled % unit == 0:
        return scaled // unit
    return scaled / unit


@dataclass(frozen=True)
class Vocabulary:
    env: EnvEntry | None = None  # None if unknown
    # from `env:`; for several environments, the first one that has the key
    env_values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # whether names may be defined in user code, or on the machine where the study ran
    imports: bool = False
    algorithm: Algorithm = _PPO

    def name(self, given: str) -> str:
        if not self.algorithm.is_ppo:
            return self.algorithm.knob(given).name
        if not given.startswith("env."):
            if self.env is not None and given in self.env.params and canonical_name(given) is None:
                raise ConfigError(f"unknown knob {given!r}; did you mean 'env.{given}'?")
            return check_name(given)
        key = given.removeprefix("env.")
        if self.env is None or self.env.is_open or key in self.env.params or key in self.env.keys:
            return given
        raise _unknown_key_error(self.env, key, "env.")

    def env_key(self, name: str) -> EnvKey | None:
        """Return the shape-changing environment key with this name, or None."""
        if self.env is None or not name.startswith("env."):
            return None
        return self.env.keys.get(name.removeprefix("env."))

    def type(self, name: str) -> str:
        """Return the type of a hyperparameter or of an environment key."""
        if not name.startswith("env."):
            return self.algorithm.knobs[name].type
        key = self.env_key(name)
        if key is None:
            return "float"
        return key.type

    def is_real(self, name: str) -> bool:
        """Return whether a name is known to be real-valued.

        Parameters of unknown environments may be integers.
        """
        if name.startswith("env."):
            return self.env is not None and name.removeprefix("env.") in self.env.params
        return self.algorithm.knobs[name].type == "float"

    def value(self, name: str, given: Any) -> Any:
        """Make the value of a known name canonical; `50k` is 50000."""
        if not name.startswith("env."):
            return self._knob_value(name, given)
        if self.env is not None:
            return check_env_value(self.env, name.removeprefix("env."), given)
        value = amount_of(given)
        if not isinstance(value, bool | int | float | str):
            raise ConfigError(f"{name} is {value!r}; allowed: a number, a string, true or false")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} is {value!r}; allowed: a finite number")
        return value

    def _knob_value(self, name: str, given: Any) -> Any:
        knob, value = self.algorithm.knobs[name], given
        if given not in knob.choices:
            value = amount_of(given)
        own = self.algorithm.is_ppo and name in REGISTRABLE and self.imports
        if own and isinstance(value, str):
            return value
        return canonical_value(knob, value)

    def default(self, name: str) -> Any:
        if not name.startswith("env."):
            return self.algorithm.knobs[name].default
        key = name.removeprefix("env.")
        if self.env is None or key in self.env_values:
            return self.env_values.get(key)
        return self.env.default_of(key)


def check_env_value(env: EnvEntry, key: str, given: Any) -> Any:
    if key in env.params:
        return _parameter_value(env, key, given)
    if key in env.keys:
        return freeze(_key_value(key, env.keys[key], given))
    if env.is_open:
        return freeze(given)
    raise _unknown_key_error(env, key)


def _parameter_value(env: EnvEntry, key: str, given: Any) -> float:
    number, positive = number_of(given), key in env.positive
    if number is None or (positive and number <= 0):
        noun = "a finite number"
        if positive:
            noun = "a number above 0"
        raise ConfigError(f"env.{key} is {given!r}; allowed: {noun}")
    return float(number)


def _key_value(key: str, spec: EnvKey, given: Any) -> Any:
    value, allowed = given, spec.allowed()
    if spec.type in ("int", "float"):
        value = _as_number(spec, given)
    if spec.is_legal(value):
        return value
    if isinstance(value, int) and min(spec.high, value) > INT32:
        allowed = f"{allowed} that fits an int32"
    raise ConfigError(f"env.{key} is {given!r}; allowed: {allowed}")


def amount_of(given: Any) -> Any:
    """Return the number for a string such as `50k`; other values are unchanged."""
    if not isinstance(given, str):
        return given
    number = number_of(given)
    if number is None:
        return given
    return number


def _as_number(spec: EnvKey, given: Any) -> Any:
    """Return a number with the key's type; other values are unchanged."""
    value = amount_of(given)
    if spec.type == "float" and type(value) is int:
        return float(value)
    if spec.type == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _unknown_key_error(env: EnvEntry, key: str, prefix: str = "") -> ConfigError:
    start = f"{env.id} has no key {prefix + key!r};"
    if key in env.elsewhere:
        return ConfigError(f"{start} here it is called {prefix + env.elsewhere[key]!r}")
    given, known = prefix + key, [prefix + name for name in (*env.keys, *env.params)]
    words = "Known: none"
    if known:
        words = listed(given, known)
    return ConfigError(f"{start}{suggestion(given, known)} {words}")
