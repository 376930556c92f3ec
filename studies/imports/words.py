"""What a word on a command line, or a text in a YAML file, stands for."""

from __future__ import annotations

import math
from typing import Any

from ..amounts import number_of

__all__ = ["file_name", "one_line", "read_word"]

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def read_word(value: Any) -> Any:
    """Return what a word on a command line stands for; other values as they are.

    >>> read_word("True"), read_word("1e6"), read_word("0.5"), read_word("cosine")
    (True, 1000000, 0.5, 'cosine')
    """
    if not isinstance(value, str):
        return value
    if value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    number = number_of(value)
    if number is not None:
        return number
    try:
        number = float(value)
    except ValueError:
        return value
    if not math.isfinite(number):
        return value
    return int(number) if number.is_integer() and "." not in value else number


def one_line(text: str) -> str:
    """Return a text on one line, without what steers a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def file_name(name: str, otherwise: str) -> str:
    """Return a name as a folder of results may be called.

    >>> file_name("my sweep/2", "x"), file_name("???", "sweep")
    ('my-sweep-2', 'sweep')
    """
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    return kept.strip("-._")[:100] or otherwise
