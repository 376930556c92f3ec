"""JaxMARL environments with identical agents, without their auto-reset.

JaxMARL does not distinguish its step limit from termination. JaxMARL's limit is therefore
disabled; this adapter counts steps and truncates at the limit. JaxMARL is imported when an
environment is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ...environments.table import EnvEntry
from ...errors import ConfigError
from . import foreign
from .contract import ActionSpace, Box, Step
from .foreign import EpisodicEnvironment, TimedState, relaxed

_NEVER = 2**30


class JaxMarlEnvironment(EpisodicEnvironment):
    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        self.id = entry.id
        self._limit, given = foreign.limit_and_keys(entry, keys)
        jaxmarl = foreign.imported("jaxmarl", entry)
        with relaxed():
            name = entry.id.removeprefix("jaxmarl:")
            self._env = jaxmarl.make(name, max_steps=_NEVER, **given)
        self._names = tuple(self._env.agents)
        self.agents = len(self._names)
        spaces = [foreign.action_space_of(self._env.action_space(n), self.id) for n in self._names]
        self.action_space: ActionSpace = _common_value(self.id, "do", spaces)
        self.default_params = foreign.made_params({})
        key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
        with relaxed():
            structs = jax.eval_shape(self._env.reset, key)[0]
        shape = _common_value(self.id, "see", [structs[name].shape for name in self._names])
        self.observation_struct = jax.ShapeDtypeStruct(shape, np.float32)

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[TimedState, Array]:
        with relaxed():
            observed, inner = self._env.reset(key)
            inner = jax.tree.map(foreign.canonical, inner)
        return TimedState(inner, jnp.int32(0)), self._stack_agents(observed)

    def step(self, key: PRNGKeyArray, state: TimedState, action: Array, params: Any) -> Step:
        rows = action
        if self.agents == 1:
            rows = action[None]
        if isinstance(self.action_space, Box):
            bounds = (self.action_space.low, self.action_space.high)
            rows = jnp.clip(rows, *(jnp.asarray(bound, jnp.float32)[None] for bound in bounds))
        given = {name: rows[i] for i, name in enumerate(self._names)}
        with relaxed():
            observed, inner, rewards, ends, _ = self._env.step_env(key, state.inner, given)
            inner = jax.tree.map(  # a step drops the agent axis of some leaves
                lambda after, before: jnp.broadcast_to(foreign.canonical(after), before.shape),
                inner,
                state.inner,
            )
            ended = jnp.asarray(ends["__all__"], bool).reshape(())
        after = TimedState(inner, state.time + 1)
        cut = after.time >= self._limit
        return Step(
            after, self._stack_agents(observed), self._stack_agents(rewards), ended, cut, info={}
        )

    def _stack_agents(self, by_name: Mapping[str, Any]) -> Array:
        with relaxed():
            rows = [jnp.asarray(by_name[name]).astype(jnp.float32) for name in self._names]
        if self.agents == 1:
            return rows[0]
        return jnp.stack(rows)


def _common_value(id_: str, verb: str, each: list[Any]) -> Any:
    if any(one != each[0] for one in each):
        raise ConfigError(
            f"the agents of {id_} {verb} different spaces, so they cannot share one policy"
        )
    return each[0]
