"""Frozen dataclasses that are pytrees, with every field a child unless `static` marks it.

Unflattening does not run `__init__`. jax also fills pytrees with shapes, axes and sentinels, but
`__init__` accepts only arrays (tests check its annotations).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

if TYPE_CHECKING:
    Leaf = Any
else:  # checked when tests run: rows are NumPy arrays until they are put on a device
    Leaf = Array | np.ndarray

T = TypeVar("T")


def static(**rest: Any) -> Any:
    """Mark a field as part of the pytree's structure: a hashable Python value, never traced."""
    return dataclasses.field(metadata={"static": True}, **rest)


class Pytree:
    def replace(self: T, **changes: Any) -> T:
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]  # made by `pytree`


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Turn a class into a frozen dataclass that is a pytree with its fields as named children."""
    made: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(made)
    names = tuple(field.name for field in fields if not field.metadata.get("static"))
    fixed = tuple(field.name for field in fields if field.metadata.get("static"))

    def structure(tree: T) -> tuple[Any, ...]:
        return tuple(getattr(tree, name) for name in fixed)

    def children(tree: T) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
        keyed = ((jax.tree_util.GetAttrKey(name), getattr(tree, name)) for name in names)
        return tuple(keyed), structure(tree)

    def flat(tree: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(tree, name) for name in names), structure(tree)

    def rebuilt(values: tuple[Any, ...], leaves: Any) -> T:
        tree = object.__new__(made)
        for name, value in zip(fixed, values, strict=True):
            object.__setattr__(tree, name, value)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(tree, name, leaf)
        return tree

    jax.tree_util.register_pytree_with_keys(made, children, rebuilt, flat)
    return made


def is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a jaxpr and of all nested jaxprs."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in inner_jaxprs(equation):
            yield from equations(inner)


def inner_jaxprs(equation: Any) -> list[Any]:
    leaves = jax.tree.leaves(list(equation.params.values()))
    found = [getattr(leaf, "jaxpr", leaf) for leaf in leaves]
    return [jaxpr for jaxpr in found if hasattr(jaxpr, "eqns")]


def named_leaves(tree: Any) -> dict[str, Any]:
    leaves: list[tuple[Any, Any]] = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def where(mask: Array, new: Any, old: Any) -> Any:
    """Select from pytrees whose leading axes match the mask: `new` where true, else `old`."""

    def one(new: Array, old: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - mask.ndim)), new, old)

    return jax.tree.map(one, new, old)


Axes = int | None | tuple[int | None, ...]


def over_lanes(
    function: Callable[..., Any], in_axes: Axes = 0, out_axes: int = 0
) -> Callable[..., Any]:
    """Map a function of one lane over lanes, like `jax.vmap`, but without vmap for a single lane.

    >>> over_lanes(lambda x, y: x + y, (0, None))(jnp.zeros((1, 3)), jnp.ones(3)).shape
    (1, 3)
    """

    def mapped(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        pairs = list(zip(args, axes, strict=True))
        sizes = {
            leaf.shape[axis]
            for arg, axis in pairs
            if axis is not None
            for leaf in jax.tree.leaves(arg)
        }
        if sizes != {1}:
            return jax.vmap(function, in_axes, out_axes)(*args)
        alone = [
            arg if axis is None else jax.tree.map(lambda x, at=axis: jnp.squeeze(x, at), arg)
            for arg, axis in pairs
        ]
        return jax.tree.map(lambda x: jnp.expand_dims(x, out_axes), function(*alone))

    return mapped
