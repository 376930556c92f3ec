"""Dataclasses to JSON values and back, exactly: every bit of a float, every declared type.

The loop's state is stored as text; no pickle, so that a reader in ten years still reads it.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["decode", "encode"]

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Return the JSON value of a dataclass, an enum, a list, a mapping or a plain value.

    Raises:
        TypeError: something in it has no JSON form.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: encode(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): encode(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [encode(item) for item in value]
    raise TypeError(f"no JSON form for {value!r} of type {type(value).__name__}")


def decode(kind: type[T], value: Any) -> T:
    """Return what `encode` made a JSON value of.

    Args:
        kind: the declared type; a dataclass, enum, `list[X]`, `dict[str | int, X]`,
            `tuple[X, ...]`, `X | None` or a plain type.
        value: what `json.loads` gave.

    Raises:
        TypeError: the value does not fit the type, for example one of another version.
    """
    return _decode(kind, value)


def _decode(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _decode_optional(kind, value)
    if origin in (list, tuple, dict):
        return _decode_container(origin, get_args(kind), value)
    if is_dataclass(kind):
        return _decode_dataclass(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and type(value) in (int, float):
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"expected {kind}, got {value!r}")
    return value


def _decode_optional(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    (inner,) = [entry for entry in get_args(kind) if entry is not types.NoneType]
    return _decode(inner, value)


def _decode_container(origin: Any, inner: tuple[Any, ...], value: Any) -> Any:
    if origin is dict:
        key_kind, item_kind = inner
        return {key_kind(key): _decode(item_kind, item) for key, item in value.items()}
    return origin(_decode(inner[0], item) for item in value)


def _decode_dataclass(kind: Any, value: Any) -> Any:
    hints = _hints(kind)
    if set(value) != set(hints):
        raise TypeError(f"{kind.__name__} has fields {sorted(hints)}, got {sorted(value)}")
    return kind(**{name: _decode(hints[name], item) for name, item in value.items()})


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _key(key: Any) -> str:
    if not isinstance(key, (str, int)) or isinstance(key, bool):
        raise TypeError(f"a key must be text or an integer, got {key!r}")
    return str(key)
