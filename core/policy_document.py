"""The contents of `policy.json`, checked once on reading; nothing here starts jax.

The code that uses the values (`knobs.complete`, the environments) checks whether they are
consistent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..environments.registry import files_of
from ..environments.table import ENVIRONMENTS
from ..errors import StoreError
from ..files.atomic_files import read_text
from ..files.plain_data import freeze, is_dict, is_list, parse_json
from .plan import EnvPlan

NAME = "policy.json"
TRAINING = "training.json"  # at the same place in the folder of a custom training
IMPORTS = "imports"  # subfolder for the code that registers the policy's parts
FORMAT = 1
_FIELDS = ("env", "eval_env", "features", "config", "env_params", "eval_params", "about")
_MOST = (2.0 - 2.0**-23) * 2.0**127  # the largest float32
_REWARDS = {"returns": ("count", "mean", "square"), "centring": ("average", "trace")}
_Fits = Callable[[Any], bool]


@dataclass(frozen=True)
class PolicyDocument:
    env: EnvPlan
    eval_env: EnvPlan
    features: tuple[str, ...]
    config: Mapping[str, Any]  # every hyperparameter, lists as tuples
    env_params: Mapping[str, float]
    eval_params: Mapping[str, float]
    about: Mapping[str, Any]
    imports: tuple[str, ...]  # files of user code
    # `returns`: return statistics; `centring`: average reward; None from an earlier version
    rewards: Mapping[str, Mapping[str, float] | None] | None


def saved_env(id_: str, keys: Mapping[str, Any], directory: Path) -> EnvPlan:
    """Return an environment whose files, if any, are in the directory."""
    folder = ""
    if files_of(id_, keys):
        folder = str(directory)
    return EnvPlan(id_, tuple(sorted(keys.items())), folder)


def read_document(path: Path) -> PolicyDocument:
    data = _Data(path, _parse_file(path))
    found = data.fields.get("format")
    if found != FORMAT:
        raise StoreError(f"{path} has format {found!r:.60}; this version of hpo reads {FORMAT}")
    missing = [name for name in _FIELDS if name not in data.fields]
    if missing:
        raise StoreError(f"{path} is damaged: it has no {', '.join(missing)}")
    rewards = None
    if "reward_state" in data.fields:
        given = _Data(path, data.mapping("reward_state"), "reward_state.")
        rewards = {name: given.all_of(name, parts) for name, parts in _REWARDS.items()}
    config = data.mapping("config")
    return PolicyDocument(
        env=data.environment("env"),
        eval_env=data.environment("eval_env"),
        features=data.words("features"),
        config={name: freeze(value) for name, value in config.items()},
        env_params=data.numbers("env_params"),
        eval_params=data.numbers("eval_params"),
        about=data.mapping("about"),
        imports=read_imports(path),
        rewards=rewards,
    )


def read_about(path: Path) -> Mapping[str, Any]:
    data = _Data(path, _parse_file(path))
    if not data.fields.get("about"):
        return {}
    return data.mapping("about")


def read_imports(path: Path) -> tuple[str, ...]:
    data = _Data(path, _parse_file(path))
    if "imports" not in data.fields:
        return ()
    return data.words("imports")


def read_training(folder: Path) -> dict[str, Any]:
    path = folder / TRAINING
    if not path.is_file():
        raise StoreError(f"{folder} is not a training folder: it has no {TRAINING}")
    data = _Data(path, _parse_file(path))
    if not isinstance(data.fields.get("algorithm"), str):
        raise StoreError(f"{path} is damaged: it has no algorithm")
    return data.fields


def _parse_file(path: Path) -> Any:
    try:
        return parse_json(read_text(path))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} is damaged: {error}") from error


class _Data:
    def __init__(self, path: Path, fields: Any, above: str = ""):
        self.path, self.above = path, above
        self.fields = self._check_value(above.rstrip("."), fields, is_dict, "an object")

    def _check_value(self, where: str, value: Any, fits: _Fits, allowed: str) -> Any:
        if not fits(value):
            name = f"{self.path} is damaged: {where or 'it'}"
            raise StoreError(f"{name} is {value!r:.60}; allowed: {allowed}")
        return value

    def _read_field(self, name: str, fits: _Fits, allowed: str) -> Any:
        return self._check_value(self.above + name, self.fields.get(name), fits, allowed)

    def mapping(self, name: str) -> dict[str, Any]:
        return self._read_field(name, is_dict, "an object")

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(self._read_field(name, _is_words, "a list of names"))

    def numbers(self, name: str) -> dict[str, float]:
        found = self._read_field(name, _is_numbers, "an object with finite float32 numbers")
        return {key: float(value) for key, value in found.items()}

    def environment(self, name: str) -> EnvPlan:
        data = _Data(self.path, self.mapping(name), f"{name}.")
        data._read_field("id", lambda value: isinstance(value, str), "an environment id")
        keys = {key: freeze(value) for key, value in data.mapping("keys").items()}
        known: Mapping[str, Any] = {}
        if data.fields["id"] in ENVIRONMENTS:
            known = ENVIRONMENTS[data.fields["id"]].keys
        for key, value in keys.items():
            where, spec = f"{name}.keys.{key}", known.get(key)
            self._check_value(where, value, _is_hashable, "strings, numbers and lists")
            if spec is not None:
                self._check_value(where, value, spec.is_legal, spec.allowed())
        return saved_env(data.fields["id"], keys, self.path.parent)

    def all_of(self, name: str, parts: tuple[str, ...]) -> dict[str, float] | None:
        def fits(value: Any) -> bool:
            return value is None or (
                is_dict(value) and all(_is_number(value.get(part)) for part in parts)
            )

        if name not in self.fields:
            raise StoreError(f"{self.path} is damaged: it has no {self.above}{name}")
        allowed = f"null or an object with the numbers {', '.join(parts)}"
        found = self._read_field(name, fits, allowed)
        if found is None:
            return None
        return {part: float(found[part]) for part in parts}


def _is_words(value: Any) -> bool:
    return is_list(value) and all(isinstance(item, str) for item in value)


def _is_numbers(value: Any) -> bool:
    return is_dict(value) and all(
        _is_number(item) and math.isfinite(item) for item in value.values()
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= _MOST or (isinstance(value, float) and not math.isfinite(value))


def _is_hashable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_hashable, value))
    return not is_dict(value)
