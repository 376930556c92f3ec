"""What `policy.json` says of a policy, checked once as it is read; nothing here starts jax.

Whether its values fit each other is for those who use them (`knobs.complete`, the environments).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..environments.table import ENVIRONMENTS
from ..errors import StoreError
from ..files.atomic_files import read_text
from ..files.plain_data import is_dict, is_list, parse_json

NAME = "policy.json"
FORMAT = 1
_FIELDS = ("env", "eval_env", "features", "config", "env_params", "eval_params", "about")
_MOST = (2.0 - 2.0**-23) * 2.0**127  # of float32
_STATISTICS = ("count", "mean", "square")
_AVERAGE = ("average", "trace")
_Fits = Callable[[Any], bool]


@dataclass(frozen=True)
class EnvDocument:
    """An environment: its id, and its keys with lists as tuples."""

    id: str
    keys: Mapping[str, Any]


@dataclass(frozen=True)
class PolicyDocument:
    """A policy without its arrays.

    Attributes:
        env: that it was trained in.
        eval_env: that evaluates it.
        features: costly switches that its program has.
        config: every hyperparameter, lists as tuples.
        env_params: parameters of `env`, numbers that float32 holds.
        eval_params: those of `eval_env`.
        about: where it came from.
        imports: files of the user's own that its code is in.
        returns: the statistics of the returns; None without them.
        centring: the average reward; None without it.
        has_rewards: False of a version that wrote neither.
    """

    env: EnvDocument
    eval_env: EnvDocument
    features: tuple[str, ...]
    config: Mapping[str, Any]
    env_params: Mapping[str, float]
    eval_params: Mapping[str, float]
    about: Mapping[str, Any]
    imports: tuple[str, ...]
    returns: Mapping[str, float] | None
    centring: Mapping[str, float] | None
    has_rewards: bool


def read_document(path: Path) -> PolicyDocument:
    """Read a `policy.json`.

    Raises:
        StoreError: it cannot be read, is of another format, or a value is of another type than
            policies have.
    """
    data = _Data(path, _parsed(path))
    found = data.fields.get("format")
    if found != FORMAT:
        raise StoreError(f"{path} has format {found!r:.60}; this hpo reads {FORMAT}")
    missing = [name for name in _FIELDS if name not in data.fields]
    if missing:
        raise StoreError(f"{path} is damaged: it has no {', '.join(missing)}")
    has_rewards = "reward_state" in data.fields
    rewards = _Data(path, data.mapping("reward_state"), "reward_state.") if has_rewards else None
    config = data.mapping("config")
    return PolicyDocument(
        env=data.environment("env"),
        eval_env=data.environment("eval_env"),
        features=data.words("features"),
        config={name: _tuples(value) for name, value in config.items()},
        env_params=data.numbers("env_params"),
        eval_params=data.numbers("eval_params"),
        about=data.mapping("about"),
        imports=data.words("imports") if "imports" in data.fields else (),
        returns=rewards.all_of("returns", _STATISTICS) if rewards else None,
        centring=rewards.all_of("centring", _AVERAGE) if rewards else None,
        has_rewards=has_rewards,
    )


def read_about(path: Path) -> Mapping[str, Any]:
    """Return where a policy came from, whatever else its file says.

    Raises:
        StoreError: it cannot be read.
    """
    data = _Data(path, _parsed(path))
    return data.mapping("about") if data.fields.get("about") else {}


def _parsed(path: Path) -> Any:
    try:
        return parse_json(read_text(path))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} is damaged: {error}") from error


class _Data:
    """The fields of one object of a file."""

    def __init__(self, path: Path, fields: Any, above: str = ""):
        self.path, self.above = path, above
        self.fields = self._checked(above.rstrip("."), fields, is_dict, "an object")

    def _checked(self, where: str, value: Any, fits: _Fits, allowed: str) -> Any:
        if not fits(value):
            name = f"{self.path} is damaged: {where or 'it'}"
            raise StoreError(f"{name} is {value!r:.60}; allowed: {allowed}")
        return value

    def _field(self, name: str, fits: _Fits, allowed: str) -> Any:
        return self._checked(self.above + name, self.fields.get(name), fits, allowed)

    def mapping(self, name: str) -> dict[str, Any]:
        return self._field(name, is_dict, "an object")

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(self._field(name, _is_words, "a list of names"))

    def numbers(self, name: str) -> dict[str, float]:
        found = self._field(name, _is_numbers, "an object of finite numbers of float32")
        return {key: float(value) for key, value in found.items()}

    def environment(self, name: str) -> EnvDocument:
        data = _Data(self.path, self.mapping(name), f"{name}.")
        data._field("id", lambda value: isinstance(value, str), "the id of an environment")
        keys = {key: _tuples(value) for key, value in data.mapping("keys").items()}
        known = ENVIRONMENTS[data.fields["id"]].keys if data.fields["id"] in ENVIRONMENTS else {}
        for key, value in keys.items():
            where, spec = f"{name}.keys.{key}", known.get(key)
            self._checked(where, value, _is_hashable, "words, numbers and lists")
            if spec is not None:
                self._checked(where, value, spec.is_legal, spec.allowed())
        return EnvDocument(data.fields["id"], keys)

    def all_of(self, name: str, parts: tuple[str, ...]) -> dict[str, float] | None:
        def fits(value: Any) -> bool:
            return value is None or (
                is_dict(value) and all(_is_number(value.get(part)) for part in parts)
            )

        if name not in self.fields:
            raise StoreError(f"{self.path} is damaged: it has no {self.above}{name}")
        allowed = f"null or an object of the numbers {', '.join(parts)}"
        found = self._field(name, fits, allowed)
        return None if found is None else {part: float(found[part]) for part in parts}


def _is_words(value: Any) -> bool:
    return is_list(value) and all(isinstance(item, str) for item in value)


def _is_numbers(value: Any) -> bool:
    return is_dict(value) and all(
        _is_number(item) and math.isfinite(item) for item in value.values()
    )


def _is_number(value: Any) -> bool:
    """Whether float32 has a value; what lanes have measured may be infinite, or no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= _MOST or (isinstance(value, float) and not math.isfinite(value))


def _is_hashable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_hashable, value))
    return not is_dict(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if is_list(value) else value
