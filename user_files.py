"""Small files that a user names, read with every way they may be wrong told in one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import ConfigError

__all__ = ["parse_json", "reading"]

_LONGEST = 300  # digits of a whole number; float64 ends at 309


@contextmanager
def reading(path: str | Path, what: str) -> Iterator[None]:
    """Turn what goes wrong while a file is read into a `ConfigError` that names it.

    Args:
        path: of the file, which must be a regular one: a pipe would be waited for without end.
        what: the file is, such as `topology file`.

    Raises:
        ConfigError: there is no such file, it cannot be read, is no UTF-8, or no table of text.
    """
    if not Path(path).is_file():
        problem = "is no regular file" if Path(path).exists() else "does not exist"
        raise ConfigError(f"{what} {str(path)!r} {problem}")
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ConfigError(f"{path}: byte 0x{byte:02x} is not UTF-8; save it as UTF-8") from None
    except csv.Error as error:
        raise ConfigError(f"{path}: no table of text: {error}") from None


def parse_json(text: str) -> Any:
    """Return what a JSON text says.

    Raises:
        ValueError: it is no JSON, is nested deeper than Python follows, or has a number that no
            float is near.

    >>> parse_json("[1]")
    [1]
    """
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST:
        raise ValueError(f"a number of {len(digits)} characters is not allowed")
    return int(digits)
