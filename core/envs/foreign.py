"""What adapters of other libraries share: their strictness, and the types that leave them."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

__all__ = ["canonical", "made_params", "quietly", "relaxed"]


@contextmanager
def quietly() -> Iterator[None]:
    """Drop what a library prints when it is imported; its errors are raised as ever."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


@contextmanager
def relaxed() -> Iterator[None]:
    """Allow what strict promotion refuses; other libraries' code runs inside, and nothing else."""
    with ExitStack() as stack:
        stack.enter_context(jax.numpy_dtype_promotion("standard"))
        stack.enter_context(jax.numpy_rank_promotion("allow"))
        yield


def canonical(leaf: Any) -> Array:
    """Give an array of float32, int32, bool, uint8 or keys, strongly typed."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.lax.convert_element_type(leaf, np.float32)
    if jnp.issubdtype(leaf.dtype, jnp.bool_) or leaf.dtype == jnp.uint8:
        return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return jax.lax.convert_element_type(leaf, np.int32)


def made_params(defaults: Mapping[str, float]) -> Any:
    """Give float parameters as a frozen dataclass that is a pytree, one field each."""
    names = list(defaults)
    made = dataclasses.make_dataclass("Params", [(name, float) for name in names], frozen=True)
    jax.tree_util.register_dataclass(made, data_fields=names, meta_fields=[])
    return made(**defaults)
