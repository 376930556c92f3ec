"""What adapters of other libraries share: imports, strictness, types, and what none of them has.

Their code runs inside `relaxed`; what leaves an adapter is canonical.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...environments.table import EnvEntry
from ...errors import ConfigError, MissingExtraError
from .contract import ActionSpace, Box, Discrete, MultiDiscrete

_LIMIT = "max_steps_in_episode"


class ForeignEnvironment:
    """An environment with episodes, and with neither masks nor metrics of its own."""

    id: str
    has_mask = False
    never_ends = False
    warmup_steps = 0

    def action_mask(self, state: Any, params: Any) -> Array:
        """Refuse: every action is allowed."""
        raise ConfigError(f"{self.id} has no action mask")

    def summarise(self, sums: Mapping[str, Array], steps: Array) -> dict[str, Array]:
        """Return nothing: returns and lengths say what there is to say."""
        return {}


def imported(module: str, entry: EnvEntry) -> Any:
    """Import what an environment needs, and drop what it prints; `entry.source` is its extra.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        purpose = f"environment {entry.id}"
        raise MissingExtraError(entry.source, entry.source, purpose) from error


def limit_and_keys(entry: EnvEntry, keys: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the env steps of an episode, which the adapter counts, and all other fixed keys.

    Args:
        entry: says the defaults.
        keys: that differ from them.
    """
    given = {name: key.default for name, key in entry.keys.items()} | dict(keys)
    return int(given.pop(_LIMIT)), given


def action_space_of(space: Any, id_: str) -> ActionSpace:
    """Return a space of whatever library as ours, by what it has: `nvec`, `n`, or bounds.

    Raises:
        ConfigError: it has none of these, or bounds of whole numbers.
    """
    if hasattr(space, "nvec"):
        return MultiDiscrete(tuple(int(n) for n in np.asarray(space.nvec).reshape(-1)))
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    whole = np.issubdtype(np.dtype(getattr(space, "dtype", np.float32)), np.integer)
    if hasattr(space, "low") and not whole:
        return box_of(space)
    kind = f"{type(space).__name__} of whole numbers" if whole else type(space).__name__
    raise ConfigError(f"{id_}: actions of the kind {kind} are not supported")


def box_of(space: Any) -> Box:
    """Return a space with `low`, `high` and `shape`, numbers or arrays, as ours."""
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float32), space.shape)
        for bound in (space.low, space.high)
    )
    return Box(low, high, space.shape)


@contextmanager
def relaxed() -> Generator[None, None, None]:
    """Allow what strict promotion refuses; other libraries' code runs inside, and nothing else."""
    with ExitStack() as stack:
        stack.enter_context(jax.numpy_dtype_promotion("standard"))
        stack.enter_context(jax.numpy_rank_promotion("allow"))
        yield


def canonical(leaf: Any) -> Array:
    """Return an array of float32, int32, bool, uint8 or keys, strongly typed."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.lax.convert_element_type(leaf, np.float32)
    if jnp.issubdtype(leaf.dtype, jnp.bool_) or leaf.dtype == jnp.uint8:
        return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return jax.lax.convert_element_type(leaf, np.int32)


def made_params(defaults: Mapping[str, float]) -> Any:
    """Return float parameters as a frozen dataclass that is a pytree, one field each."""
    names = list(defaults)
    made = dataclasses.make_dataclass("Params", [(name, float) for name in names], frozen=True)
    jax.tree_util.register_dataclass(made, data_fields=names, meta_fields=[])
    return made(**defaults)
