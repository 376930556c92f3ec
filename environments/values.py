"""Arguments of environments' constructors: their types, and errors due to their values."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from ..errors import ConfigError, is_interrupt, named
from .table import KeyType


def type_of(default: Any, real: bool) -> KeyType:
    """Return the type of an argument by its default; `real` takes whole numbers as real ones."""
    if isinstance(default, bool):
        return "bool"
    if isinstance(default, float) or (real and isinstance(default, int)):
        return "float"
    if isinstance(default, int):
        return "int"
    return "str" if isinstance(default, str) else "any"


@contextmanager
def blamed(id_: str, values: Mapping[str, Any]) -> Generator[None, None, None]:
    """Turn any error of a constructor into one line about the values that it was given."""
    try:
        yield
    except BaseException as error:
        if is_interrupt(error):
            raise
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items()) or "its defaults"
        raise ConfigError(f"{id_} cannot be made with {shown}: {named(error)}") from error
