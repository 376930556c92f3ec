"""Files of ConfigSpace, JSON and YAML, written so that every reader takes them.

ConfigSpace's own YAML writer gives Python tuples a tag that its reader refuses; files of that kind
are read here all the same.
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import yaml
from ConfigSpace import ConfigurationSpace

from ..disk import output
from ..errors import ConfigError
from ..plain_data import is_dict, is_list
from ..user_files import parse_json, reading
from .as_configspace import META

__all__ = ["read_configspace", "write_configspace"]

_ENDINGS = (".json", ".yaml", ".yml")


def write_configspace(space: ConfigurationSpace, path: Path) -> None:
    """Write a space; the ending chooses JSON or YAML.

    Raises:
        ConfigError: another ending.
    """
    _check_ending(path)
    data = json.loads(json.dumps(space.to_serialized_dict(), default=_plain))
    if path.suffix == ".json":
        text = json.dumps(data, indent=2) + "\n"
    else:
        text = yaml.safe_dump(data, sort_keys=False)
    with output(path) as file:
        file.write(text)


def read_configspace(path: Path) -> ConfigurationSpace:
    """Read a space that ConfigSpace or `write_configspace` wrote.

    Raises:
        ConfigError: no such file, no such format, or nothing that ConfigSpace takes.
    """
    _check_ending(path)
    try:
        with reading(path, "space"):
            text = path.read_text(encoding="utf-8")
        data = parse_json(text) if path.suffix == ".json" else yaml.load(text, _Loader)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path}: not valid {path.suffix[1:]}: {' '.join(str(error).split())}"
        ) from None
    if not is_dict(data) or "hyperparameters" not in data:
        raise ConfigError(f"{path}: not a space of ConfigSpace; it has no `hyperparameters`")
    try:
        with warnings.catch_warnings():
            # What they warn of they read as something else, and no warning is for our terminal.
            for kind in (UserWarning, RuntimeWarning):
                warnings.simplefilter("error", kind)
            return ConfigurationSpace.from_serialized_dict(_as_written_by_it(data))
    except Exception as error:  # whatever their decoder says about a file that is not theirs
        words = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{path}: ConfigSpace refuses it: {words}") from error


def _as_written_by_it(data: dict[str, Any]) -> dict[str, Any]:
    """Return a space as today's ConfigSpace writes it.

    HyperSweeper's has a mapping of hyperparameters, which may leave `default` and `log` out.
    """
    given = data["hyperparameters"]
    if is_list(given):
        today = [_of_today(fields) if is_dict(fields) else fields for fields in given]
        return {**data, "hyperparameters": today}
    if not is_dict(given):
        return data
    return {
        "name": data.get("name"),
        "hyperparameters": [_hyperparameter(name, fields) for name, fields in given.items()],
        "conditions": data.get("conditions", []),
        "forbiddens": data.get("forbiddens", []),
        "python_module_version": "1.2.0",
        "format_version": 0.4,
    }


def _hyperparameter(name: Any, fields: Any) -> dict[str, Any]:
    if not is_dict(fields):
        raise ValueError(f"hyperparameter {name!r} is {fields!r}; allowed: a mapping")
    whole = _of_today({"name": str(name), "meta": None, **fields})
    default = whole.pop("default_value", None)
    if whole.get("type") == "categorical":
        whole.setdefault("weights", None)
        default = whole["choices"][0] if default is None else default
    elif whole.get("type") in ("uniform_float", "uniform_int"):
        log = whole.setdefault("log", False)
        low, high = whole["lower"], whole["upper"]
        middle = math.sqrt(low * high) if log else (low + high) / 2
        whole_number = whole["type"] == "uniform_int"
        default = (round(middle) if whole_number else middle) if default is None else default
    return {**whole, "default_value": default}


def _of_today(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a hyperparameter without the fields that ConfigSpace had before its version 1.

    It still takes them, but drops the step `q` and the probabilities of values.
    """
    found, step = dict(fields), fields.get("q")
    for old, new in (("default", "default_value"), ("probabilities", "weights")):
        value = found.pop(old, None)
        if value is not None:
            found[new] = value
    found.pop("q", None)
    if step is None or (found.get("type") == "uniform_int" and step == 1):
        return found
    if found.get("type") not in ("uniform_float", "uniform_int"):
        raise ValueError(f"{found.get('name')!r} has a step (q); allowed: only of uniform ones")
    kind = "int_uniform" if found["type"] == "uniform_int" else "uniform"
    kind = f"log_{kind}" if found.get("log") else kind
    kept = {"min": found["lower"], "max": found["upper"], "q": step, "distribution": kind}
    meta = found.get("meta")
    return {**found, "meta": {**(meta if is_dict(meta) else {}), META: kept}}


class _Loader(yaml.SafeLoader):
    """Plain YAML, and tuples as ConfigSpace writes them; no other tag."""


def _tuple(loader: _Loader, node: yaml.Node) -> list[Any]:
    assert isinstance(node, yaml.SequenceNode)
    return list(loader.construct_sequence(node, deep=True))


_Loader.add_constructor("tag:yaml.org,2002:python/tuple", _tuple)


def _check_ending(path: Path) -> None:
    if path.suffix not in _ENDINGS:
        raise ConfigError(f"{path}: files of ConfigSpace end in {', '.join(_ENDINGS)}")


def _plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} cannot be written")
