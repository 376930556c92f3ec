"""brax environments behind the core's contract, without brax's own wrappers.

brax says `done` where an episode ended by its rules; the time limit is counted here, so that the
two are told apart. `BraxEnvironment` sets physics per lane; brax is imported when one is made.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...env_entry import EnvEntry
from ...errors import ConfigError
from ..pytree import Pytree, pytree
from .contract import ActionSpace, Box, Step
from .foreign import (
    ForeignEnvironment,
    canonical,
    imported,
    limit_and_keys,
    made_params,
    relaxed,
)

__all__ = ["BraxEnvironment", "BraxState"]


@pytree
class BraxState(Pytree):
    """brax's own state, and the steps taken in the episode."""

    inner: Any
    time: Int[Array, ""]


class BraxEnvironment(ForeignEnvironment):
    """One brax environment with fixed keys; gravity, friction and strength are traced.

    An episode whose physics gives numbers that are not finite terminates at once, with reward 0
    and an observation of zeros, so that it spoils neither the learner nor the normaliser.
    """

    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        """Make the environment of an entry.

        Args:
            entry: from `environments.ENVIRONMENTS`, with source `brax`.
            keys: fixed keys that differ from the entry's.

        Raises:
            MissingExtraError: brax is not installed.
            ConfigError: brax refuses the keys.
        """
        self.id = entry.id
        self._limit, given = limit_and_keys(entry, keys)
        self._env = _made(entry, given)
        self.action_space: ActionSpace = _box(self._env.action_size)
        self.default_params = made_params(entry.params)
        probe = jax.eval_shape(self.reset, jax.random.key(0), self.default_params)
        self.observation_struct = probe[1]
        if not hasattr(self.observation_struct, "shape"):
            raise ConfigError(f"{self.id} has observations of several arrays; none is supported")

    def _of(self, params: Any) -> Any:
        """Give the environment with the physics of these parameters."""
        env = copy.copy(self._env)
        system = env.sys
        down = jnp.stack([jnp.zeros_like(params.gravity)] * 2 + [-params.gravity])
        env.sys = system.replace(
            gravity=down,
            opt=system.opt.replace(gravity=down),
            actuator=system.actuator.replace(gear=system.actuator.gear * params.strength),
            actuator_gear=system.actuator_gear * params.strength,
            geom_friction=system.geom_friction * params.friction,
        )
        return env

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[BraxState, Any]:
        """Give a fresh (state, observation)."""
        with relaxed():
            inner = jax.tree.map(canonical, self._of(params).reset(key))
        return BraxState(inner, jnp.int32(0)), inner.obs

    def step(
        self, key: PRNGKeyArray, state: BraxState, action: Float[Array, " A"], params: Any
    ) -> Step:
        """Advance one step; actions are clipped to [-1, 1] first."""
        before = state.inner.replace(metrics=dict(state.inner.metrics))  # brax writes into it
        with relaxed():
            inner = self._of(params).step(before, jnp.clip(action, -1.0, 1.0))
            inner = jax.tree.map(canonical, inner)
        sane = jnp.isfinite(inner.reward) & jnp.all(jnp.isfinite(inner.obs))
        time = state.time + 1
        return Step(
            state=BraxState(inner, time),
            observation=jnp.where(sane, inner.obs, 0.0),
            reward=jnp.where(sane, inner.reward, 0.0),
            terminated=(inner.done > 0.5) | ~sane,
            truncated=time >= self._limit,
            info={},
        )


def _made(entry: EnvEntry, keys: Mapping[str, Any]) -> Any:
    envs, name = imported("brax.envs", entry), entry.id.removeprefix("brax:")
    try:
        with relaxed():
            return envs.get_environment(name, **keys)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"brax refuses {entry.id} with {dict(keys)}: {error}") from error


def _box(size: int) -> Box:
    return Box((-1.0,) * size, (1.0,) * size, (size,))
