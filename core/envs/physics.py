"""Environments of a physics engine whose physics is set per lane: brax and MuJoCo Playground.

Both say `done` where an episode ended by its rules; the time limit is counted here, so that the
two are told apart. The wrappers of neither library are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...env_entry import EnvEntry
from ...errors import ConfigError
from ..pytree import Pytree, pytree
from .contract import ActionSpace, Box, Step
from .foreign import ForeignEnvironment, canonical, limit_and_keys, made_params, relaxed

__all__ = ["PhysicsEnvironment", "PhysicsState"]


@pytree
class PhysicsState(Pytree):
    """The library's own state, as a checkpoint takes it, and the steps taken in the episode."""

    inner: Any
    time: Int[Array, ""]


class PhysicsEnvironment(ForeignEnvironment):
    """One environment of a physics engine with fixed keys; its physics is traced.

    An episode whose physics gives numbers that are not finite terminates at once, with reward 0
    and an observation of zeros, so that it spoils neither the learner nor the normaliser.
    """

    def __init__(
        self,
        entry: EnvEntry,
        keys: Mapping[str, Any],
        load: Callable[[EnvEntry, Mapping[str, Any]], Any],
        with_physics: Callable[[Any, Any], Any],
    ):
        """Make the environment of an entry.

        Args:
            entry: from `environments.ENVIRONMENTS`.
            keys: fixed keys that differ from the entry's.
            load: (entry, keys without the time limit) -> the library's environment.
            with_physics: (that environment, parameters) -> a copy with this physics.

        Raises:
            MissingExtraError: the library is not installed.
            ConfigError: it refuses the keys, or observations are several arrays.
        """
        self.id = entry.id
        self._limit, given = limit_and_keys(entry, keys)
        self._env, self._with_physics = load(entry, given), with_physics
        size = self._env.action_size
        self.action_space: ActionSpace = Box((-1.0,) * size, (1.0,) * size, (size,))
        self.default_params = made_params(entry.params)
        key = jax.random.key(0, impl="threefry2x32")
        self._inner_struct = jax.eval_shape(self._fresh, key, self.default_params)
        self.observation_struct = self._inner_struct.obs
        if not hasattr(self.observation_struct, "shape"):
            raise ConfigError(f"{self.id} has observations of several arrays; none is supported")

    def _fresh(self, key: PRNGKeyArray, params: Any) -> Any:
        with relaxed():
            return jax.tree.map(canonical, self._with_physics(self._env, params).reset(key))

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[PhysicsState, Any]:
        """Return a fresh (state, observation)."""
        inner = self._fresh(key, params)
        return PhysicsState(jax.tree.map(_stored, inner), jnp.int32(0)), inner.obs

    def step(
        self, key: PRNGKeyArray, state: PhysicsState, action: Float[Array, " A"], params: Any
    ) -> Step:
        """Advance one step; actions are clipped to [-1, 1] first."""
        was = jax.tree.map(_theirs, self._inner_struct, state.inner)
        # The dictionaries are copied: the libraries write into them.
        before = was.replace(metrics=dict(was.metrics), info=dict(was.info))
        with relaxed():
            env = self._with_physics(self._env, params)
            inner = jax.tree.map(canonical, env.step(before, jnp.clip(action, -1.0, 1.0)))
        sane = jnp.isfinite(inner.reward) & jnp.all(jnp.isfinite(inner.obs))
        time = state.time + 1
        return Step(
            state=PhysicsState(jax.tree.map(_stored, inner), time),
            observation=jnp.where(sane, inner.obs, 0.0),
            reward=jnp.where(sane, inner.reward, 0.0),
            terminated=(inner.done > 0.5) | ~sane,
            truncated=time >= self._limit,
            info={},
        )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _stored(leaf: Array) -> Array | None:
    """Return what a checkpoint takes: the words of a key, nothing for an array without numbers."""
    if leaf.size == 0:
        return None
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _theirs(struct: Any, leaf: Array | None) -> Array:
    """Return the library's array of this struct again."""
    if leaf is None:
        return jnp.zeros(struct.shape, struct.dtype)
    return jax.random.wrap_key_data(leaf, impl="threefry2x32") if _is_key(struct) else leaf
