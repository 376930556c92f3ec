"""Frozen dataclasses that are pytrees, every field a child.

Unlike other such helpers, unflattening does not run `__init__`: jax fills trees with shapes, axes
and sentinels, while `__init__`, whose annotations the tests check, sees arrays alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

__all__ = ["Pytree", "pytree"]

T = TypeVar("T")


class Pytree:
    """Base of all classes made by `pytree`."""

    def replace(self: T, **changes: Any) -> T:
        """Give a copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]  # made by `pytree`


@dataclass_transform(frozen_default=True)
def pytree(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass and a pytree with its fields as named children."""
    made: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
    names = tuple(field.name for field in dataclasses.fields(made))

    def children(tree: T) -> tuple[tuple[tuple[Any, Any], ...], None]:
        keyed = ((jax.tree_util.GetAttrKey(name), getattr(tree, name)) for name in names)
        return tuple(keyed), None

    def flat(tree: T) -> tuple[tuple[Any, ...], None]:
        return tuple(getattr(tree, name) for name in names), None

    def rebuilt(_: None, leaves: Any) -> T:
        tree = object.__new__(made)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(tree, name, leaf)
        return tree

    jax.tree_util.register_pytree_with_keys(made, children, rebuilt, flat)
    return made
