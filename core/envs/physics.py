"""Environments of brax and MuJoCo Playground, with physics parameters that may differ per lane.

The `done` of these libraries means terminated; the time limit is applied here, without their
wrappers.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...environments.table import EnvEntry
from ...errors import ConfigError
from ..pytree import is_key
from . import foreign
from .contract import ActionSpace, Box, Step
from .foreign import EpisodicEnvironment, TimedState, relaxed


class PhysicsEnvironment(EpisodicEnvironment):
    """An environment with traced physics parameters; NaN or infinite values end an episode."""

    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        self.id = entry.id
        self._limit, given = foreign.limit_and_keys(entry, keys)
        self._env = self._load_env(entry, given)
        size = self._env.action_size
        self.action_space: ActionSpace = Box((-1.0,) * size, (1.0,) * size, (size,))
        self.default_params = foreign.made_params(entry.params)
        key = jax.random.key(0, impl="threefry2x32")
        self._inner_struct = jax.eval_shape(self._initial_state, key, self.default_params)
        self.observation_struct = self._inner_struct.obs
        if not hasattr(self.observation_struct, "shape"):
            raise ConfigError(
                f"the observations of {self.id} consist of several arrays, which is not supported"
            )

    def _load_env(self, entry: EnvEntry, keys: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def _with_physics(self, params: Any) -> Any:
        """Return a copy of the library's environment with these parameters."""
        raise NotImplementedError

    def _initial_state(self, key: PRNGKeyArray, params: Any) -> Any:
        with relaxed():
            return jax.tree.map(foreign.canonical, self._with_physics(params).reset(key))

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[TimedState, Any]:
        inner = self._initial_state(key, params)
        return TimedState(jax.tree.map(_to_checkpoint, inner), jnp.int32(0)), inner.obs

    def step(
        self, key: PRNGKeyArray, state: TimedState, action: Float[Array, " A"], params: Any
    ) -> Step:
        """Advance one step; actions are clipped to [-1, 1]."""
        was = jax.tree.map(_from_checkpoint, self._inner_struct, state.inner)
        # The dictionaries are copied because the libraries write into them.
        before = was.replace(metrics=dict(was.metrics), info=dict(was.info))
        with relaxed():
            env = self._with_physics(params)
            inner = jax.tree.map(foreign.canonical, env.step(before, jnp.clip(action, -1.0, 1.0)))
        sane = jnp.isfinite(inner.reward) & jnp.all(jnp.isfinite(inner.obs))
        time = state.time + 1
        return Step(
            state=TimedState(jax.tree.map(_to_checkpoint, inner), time),
            observation=jnp.where(sane, inner.obs, 0.0),
            reward=jnp.where(sane, inner.reward, 0.0),
            terminated=(inner.done > 0.5) | ~sane,
            truncated=time >= self._limit,
            info={},
        )


def _to_checkpoint(leaf: Array) -> Array | None:
    """Return a leaf as stored in checkpoints: a key as its words, an empty array as None."""
    if leaf.size == 0:
        return None
    if is_key(leaf):
        return jax.random.key_data(leaf)
    return leaf


def _from_checkpoint(struct: Any, leaf: Array | None) -> Array:
    if leaf is None:
        return jnp.zeros(struct.shape, struct.dtype)
    if is_key(struct):
        return jax.random.wrap_key_data(leaf, impl="threefry2x32")
    return leaf


class BraxEnvironment(PhysicsEnvironment):
    def _load_env(self, entry: EnvEntry, keys: Mapping[str, Any]) -> Any:
        envs, name = foreign.imported("brax.envs", entry), entry.id.removeprefix("brax:")
        try:
            with relaxed():
                return envs.get_environment(name, **keys)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise ConfigError(f"brax rejects {entry.id} with {dict(keys)}: {error}") from error

    def _with_physics(self, params: Any) -> Any:
        env, system = copy.copy(self._env), self._env.sys
        down = _gravity_vector(params.gravity)
        env.sys = system.replace(
            gravity=down,
            opt=system.opt.replace(gravity=down),
            actuator=system.actuator.replace(gear=system.actuator.gear * params.strength),
            actuator_gear=system.actuator_gear * params.strength,
            geom_friction=system.geom_friction * params.friction,
        )
        return env


class PlaygroundEnvironment(PhysicsEnvironment):
    def _load_env(self, entry: EnvEntry, keys: Mapping[str, Any]) -> Any:
        suite = foreign.imported("mujoco_playground", entry).dm_control_suite
        steps = keys["ctrl_dt"] / keys["sim_dt"]
        if round(steps) < 1 or abs(steps - round(steps)) > 1e-6 * steps:  # it would be rounded
            raise ConfigError(
                f"{entry.id}: ctrl_dt {keys['ctrl_dt']:g} is {steps:g} times sim_dt "
                f"{keys['sim_dt']:g}; an env step must be a whole number of physics steps"
            )
        name, changes = entry.id.removeprefix("playground:"), {**keys, "impl": "jax"}
        try:
            with relaxed():
                return suite.load(name, config_overrides=changes)
        except (AttributeError, KeyError, TypeError, ValueError, NotImplementedError) as error:
            raise ConfigError(
                f"playground rejects {entry.id} with {dict(keys)}: {error}"
            ) from error

    def _with_physics(self, params: Any) -> Any:
        env, model = copy.copy(self._env), self._env.mjx_model
        changed = {"actuator_gear": model.actuator_gear * params.strength}
        if hasattr(params, "friction"):
            changed["geom_friction"] = model.geom_friction * params.friction
        if hasattr(params, "gravity"):
            changed["opt"] = model.opt.replace(gravity=_gravity_vector(params.gravity))
        env._mjx_model = model.replace(**changed)  # Playground has no public setter
        return env


def _gravity_vector(gravity: Any) -> Array:
    return jnp.stack([jnp.zeros_like(gravity)] * 2 + [-gravity])
