"""Writes plain data as YAML that our reader gives back unchanged, short values on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..plain_data import is_mapping, is_sequence
from .reader import scalar_of

__all__ = ["flow", "to_yaml"]

_WIDTH = 99
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")


def to_yaml(data: Mapping[str, Any]) -> str:
    r"""Return a mapping as YAML text.

    >>> to_yaml({"env": {"id": "CartPole-v1"}, "note": "off", "rate": 1e-5})
    'env: {id: CartPole-v1}\nnote: off\nrate: 1e-05\n'
    """
    return "".join(_entry(key, value, 0) for key, value in data.items())


def _entry(key: str, value: Any, indent: int) -> str:
    start = f"{' ' * indent}{_text(key)}:"
    line = f"{start} {flow(value)}\n"
    fits = len(line) <= _WIDTH and not (indent == 0 and _is_block(value))
    if fits or not (is_mapping(value) or is_sequence(value)) or not value:
        return line
    if is_mapping(value):
        return f"{start}\n" + "".join(_entry(k, v, indent + 2) for k, v in value.items())
    return f"{start}\n" + "".join(f"{' ' * indent}  - {flow(item)}\n" for item in value)


def _is_block(value: Any) -> bool:
    """Whether a top-level value holds further structures, better read one a line."""
    items: Sequence[Any] = ()
    if is_mapping(value):
        items = list(value.values())
    elif is_sequence(value):
        items = value
    return any(is_mapping(item) and item for item in items)


def flow(value: Any) -> str:
    """Return a value on one line.

    >>> flow({"values": [0.9, None, [64, 64]]})
    '{values: [0.9, null, [64, 64]]}'
    """
    if is_mapping(value):
        return "{" + ", ".join(f"{_text(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if is_sequence(value):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _text(str(value))


def _text(text: str) -> str:
    """Return a text plain where it stays a text, else in quotes."""
    if _PLAIN.fullmatch(text) and len(text) < 40 and isinstance(scalar_of(text), str):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(
        character if character.isprintable() else f"\\U{ord(character):08X}"
        for character in quoted
    )
