"""JaxMARL environments of like bodies behind the core's contract, without their auto-reset.

Their own limit of steps, which they do not tell from an ending, is put out of reach; the limit is
counted here and truncates. JaxMARL is imported when an environment is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from ...environments.table import EnvEntry
from ...errors import ConfigError
from ..pytree import Pytree, pytree
from .contract import ActionSpace, Box, Discrete, Step
from .foreign import (
    ForeignEnvironment,
    box_of,
    canonical,
    imported,
    limit_and_keys,
    made_params,
    relaxed,
)

_NEVER = 2**30


@pytree
class JaxMarlState(Pytree):
    """JaxMARL's own state, and the steps taken in the episode."""

    inner: Any
    time: Int[Array, ""]


class JaxMarlEnvironment(ForeignEnvironment):
    """One JaxMARL environment with fixed keys, all of whose bodies see and do alike."""

    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        """Make the environment of an entry.

        Args:
            entry: from `environments.ENVIRONMENTS`, with source `jaxmarl`.
            keys: fixed keys that differ from the entry's.

        Raises:
            MissingExtraError: JaxMARL is not installed.
            ConfigError: its bodies see or do different things.
        """
        self.id = entry.id
        self._limit, given = limit_and_keys(entry, keys)
        self._env = _made(entry, given)
        self._names = tuple(self._env.agents)
        self.agents = len(self._names)
        self.action_space: ActionSpace = _alike(
            self.id, "do", [_action_space(self._env.action_space(name)) for name in self._names]
        )
        self.default_params = made_params({})
        key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
        with relaxed():
            seen = jax.eval_shape(self._env.reset, key)[0]
        shape = _alike(self.id, "see", [seen[name].shape for name in self._names])
        self.observation_struct = jax.ShapeDtypeStruct(shape, np.float32)

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[JaxMarlState, Array]:
        """Return a fresh (state, observations), [agents, ...] where there are several."""
        with relaxed():
            seen, inner = self._env.reset(key)
            inner = jax.tree.map(canonical, inner)
        return JaxMarlState(inner, jnp.int32(0)), self._rows(seen)

    def step(self, key: PRNGKeyArray, state: JaxMarlState, action: Array, params: Any) -> Step:
        """Advance one step; real actions are clipped to the box first."""
        rows = action if self.agents > 1 else action[None]
        if isinstance(self.action_space, Box):
            low, high = (
                jnp.asarray(x, jnp.float32)[None]
                for x in (self.action_space.low, self.action_space.high)
            )
            rows = jnp.clip(rows, low, high)
        given = {name: rows[i] for i, name in enumerate(self._names)}
        with relaxed():
            seen, inner, rewards, ends, _ = self._env.step_env(key, state.inner, given)
            inner = jax.tree.map(_like, inner, state.inner)
            ended = jnp.asarray(ends["__all__"], bool).reshape(())
        time = state.time + 1
        return Step(
            state=JaxMarlState(inner, time),
            observation=self._rows(seen),
            reward=self._rows(rewards),
            terminated=ended,
            truncated=time >= self._limit,
            info={},
        )

    def _rows(self, by_name: Mapping[str, Any]) -> Array:
        """Return [agents, ...] from values by name; of one body just its own."""
        with relaxed():
            rows = [jnp.asarray(by_name[name]).astype(jnp.float32) for name in self._names]
        return jnp.stack(rows) if self.agents > 1 else rows[0]


def _made(entry: EnvEntry, keys: Mapping[str, Any]) -> Any:
    jaxmarl = imported("jaxmarl", entry)
    with relaxed():
        return jaxmarl.make(entry.id.removeprefix("jaxmarl:"), max_steps=_NEVER, **keys)


def _action_space(space: Any) -> ActionSpace:
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    return box_of(space)


def _like(after: Any, before: Array) -> Array:
    """Return a leaf in the shape that it had: some lose their axis of bodies in a step."""
    return jnp.broadcast_to(canonical(after), before.shape)


def _alike(id_: str, verb: str, each: list[Any]) -> Any:
    if any(one != each[0] for one in each):
        raise ConfigError(f"the bodies of {id_} {verb} different things; one policy cannot fit")
    return each[0]
