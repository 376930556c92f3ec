"""YAML as other programs write it: tags of numbers, merge keys, dictionaries of Python's dumper.

Ours is stricter (`studies/reader.py`); nothing here makes objects or runs code either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError
from ..reader import MOST_BYTES, MOST_LEVELS, events_of

__all__ = ["read_yaml"]

_MOST_EVENTS = 40_000


def read_yaml(path: Path) -> Any:
    """Return the plain data of a YAML file.

    Raises:
        ConfigError: it cannot be read, is too large, or holds more than plain data.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path}: larger than {MOST_BYTES // 1024} KiB")
        text = data.decode("utf-8")
        _check_shape(path, text)
        return yaml.load(text, _Loader)
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: no text in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: no plain YAML: {' '.join(str(error).split())}") from None


def _check_shape(path: Path, text: str) -> None:
    """Refuse what nests deeply, or what aliases make large."""
    level = aliases = 0
    for count, event in enumerate(events_of(text, yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        aliases += isinstance(event, yaml.AliasEvent)
        if level > MOST_LEVELS or count > _MOST_EVENTS or aliases > 200:
            raise ConfigError(f"{path}: nested too deeply, or too large")


class _Loader(yaml.SafeLoader):
    """Plain YAML, `1e-4` as a number, and ordered dictionaries and tuples of Python's dumper."""


def _ordered(loader: _Loader, node: yaml.Node) -> dict[Any, Any]:
    assert isinstance(node, yaml.SequenceNode)
    pairs = loader.construct_sequence(node, deep=True)
    return dict(pairs[0]) if pairs else {}


def _tuple(loader: _Loader, node: yaml.Node) -> list[Any]:
    assert isinstance(node, yaml.SequenceNode)
    return list(loader.construct_sequence(node, deep=True))


def _number(loader: _Loader, node: yaml.Node) -> float:
    assert isinstance(node, yaml.ScalarNode)
    words = {".inf": float("inf"), "-.inf": float("-inf"), "inf": float("inf")}
    text = str(loader.construct_scalar(node)).replace("_", "").lower()
    return words[text] if text in words else float(text)


_Loader.add_constructor("tag:yaml.org,2002:python/object/apply:collections.OrderedDict", _ordered)
_Loader.add_constructor("tag:yaml.org,2002:python/tuple", _tuple)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
