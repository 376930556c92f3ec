"""Values as people write them: lists made hashable, truth told from numbers."""

from __future__ import annotations

import math
from typing import Any

from ..plain_data import is_sequence

__all__ = ["freeze", "is_number", "same"]


def freeze(value: Any) -> Any:
    """Return lists as tuples, at any depth, so that a value can be hashed.

    >>> freeze([64, [1, 2]])
    (64, (1, 2))
    """
    if is_sequence(value):
        return tuple(freeze(item) for item in value)
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, telling True from 1.

    >>> same(1, 1.0), same(1, True), same([64], (64,))
    (True, False, True)
    """
    return freeze(one) == freeze(other) and isinstance(one, bool) == isinstance(other, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number; True and False are none."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and math.isfinite(value)
