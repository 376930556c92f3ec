"""Helpers for adapters: run library code inside `relaxed`, and make its results `canonical`."""

from __future__ import annotations

import dataclasses
import importlib
import io
from collections.abc import Generator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ...environments.table import EnvEntry
from ...errors import ConfigError, MissingExtraError
from ..pytree import Pytree, is_key, pytree
from .contract import ActionSpace, Box, Discrete, MultiDiscrete

_LIMIT = "max_steps_in_episode"


class EpisodicEnvironment:
    id: str
    has_mask = False
    never_ends = False
    warmup_steps = 0

    def action_mask(self, state: Any, params: Any) -> Array:
        raise ConfigError(f"{self.id} has no action mask")

    def summarise(self, sums: Mapping[str, Array], steps: Array) -> dict[str, Array]:
        return {}


@pytree
class TimedState(Pytree):
    inner: Any
    time: Int[Array, ""]


def imported(module: str, entry: EnvEntry) -> Any:
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(entry.source, entry.source, f"environment {entry.id}") from error


def limit_and_keys(entry: EnvEntry, keys: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    given = entry.key_defaults | dict(keys)
    return int(given.pop(_LIMIT)), given


def action_space_of(space: Any, id_: str) -> ActionSpace:
    if hasattr(space, "nvec"):
        return MultiDiscrete(tuple(int(n) for n in np.asarray(space.nvec).reshape(-1)))
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    whole = np.issubdtype(np.dtype(getattr(space, "dtype", np.float32)), np.integer)
    if hasattr(space, "low") and not whole:
        low, high = (np.asarray(bound, np.float32) for bound in (space.low, space.high))
        shape = space.shape
        return Box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), shape)
    kind = type(space).__name__
    if whole:
        kind += " of integers"
    raise ConfigError(f"{id_}: actions of type {kind} are not supported")


@contextmanager
def relaxed() -> Generator[None, None, None]:
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def canonical(leaf: Any) -> Array:
    """Return a strongly typed array: float32, int32, bool, uint8 or keys."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.lax.convert_element_type(leaf, np.float32)
    if leaf.dtype in (jnp.bool_, jnp.uint8) or is_key(leaf):
        return leaf
    return jax.lax.convert_element_type(leaf, np.int32)


def made_params(defaults: Mapping[str, float]) -> Any:
    """Return parameters as a frozen pytree dataclass with one float field per parameter."""
    names = list(defaults)
    made = dataclasses.make_dataclass("Params", [(name, float) for name in names], frozen=True)
    jax.tree_util.register_dataclass(made, data_fields=names, meta_fields=[])
    return made(**defaults)
