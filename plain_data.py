"""What files hold (mappings, lists, scalars), told apart in a way that type checkers follow.

`isinstance(value, dict)` leaves keys and values without a type; these leave them `str` and `Any`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

__all__ = ["as_lists", "is_dict", "is_list", "is_mapping", "is_sequence"]


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is a dict, as parsers make them."""
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value is a mapping of any class."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value is a list, as parsers make them."""
    return isinstance(value, list)


def is_sequence(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Return whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def as_lists(value: Any) -> Any:
    """Return tuples as lists, at any depth: the data that reading a file gives.

    >>> as_lists({"widths": (64, (32, 16))})
    {'widths': [64, [32, 16]]}
    """
    if is_mapping(value):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if is_sequence(value) else value
