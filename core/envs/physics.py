"""Environments of a physics engine whose physics is set per lane: brax and MuJoCo Playground.

Both say `done` where an episode ended by its rules; the time limit is counted here, so that the
two are told apart. The wrappers of neither library are used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...environments.table import EnvEntry
from ...errors import ConfigError
from ..pytree import Pytree, pytree
from .contract import ActionSpace, Box, Step
from .foreign import ForeignEnvironment, canonical, imported, limit_and_keys, made_params, relaxed


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


class BraxEnvironment(PhysicsEnvironment):
    """One brax environment with fixed keys; gravity, friction and strength are traced."""

    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        """Make the environment of an entry with source `brax`; errors are the base's."""
        super().__init__(entry, keys, _load_brax, _brax_with_physics)


def _brax_with_physics(env: Any, params: Any) -> Any:
    env, system = copy.copy(env), env.sys
    down = jnp.stack([jnp.zeros_like(params.gravity)] * 2 + [-params.gravity])
    env.sys = system.replace(
        gravity=down,
        opt=system.opt.replace(gravity=down),
        actuator=system.actuator.replace(gear=system.actuator.gear * params.strength),
        actuator_gear=system.actuator_gear * params.strength,
        geom_friction=system.geom_friction * params.friction,
    )
    return env


def _load_brax(entry: EnvEntry, keys: Mapping[str, Any]) -> Any:
    envs, name = imported("brax.envs", entry), entry.id.removeprefix("brax:")
    try:
        with relaxed():
            return envs.get_environment(name, **keys)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"brax refuses {entry.id} with {dict(keys)}: {error}") from error


class PlaygroundEnvironment(PhysicsEnvironment):
    """One environment of Playground with fixed keys; what its entry has of physics is traced."""

    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        """Make the environment of an entry with source `playground`; errors are the base's."""
        super().__init__(entry, keys, _load_playground, _playground_with_physics)


def _playground_with_physics(env: Any, params: Any) -> Any:
    env, model = copy.copy(env), env.mjx_model
    changed = {"actuator_gear": model.actuator_gear * params.strength}
    if hasattr(params, "friction"):
        changed["geom_friction"] = model.geom_friction * params.friction
    if hasattr(params, "gravity"):
        down = jnp.stack([jnp.zeros_like(params.gravity)] * 2 + [-params.gravity])
        changed["opt"] = model.opt.replace(gravity=down)
    env._mjx_model = model.replace(**changed)  # Playground has no public name to set it by
    return env


def _load_playground(entry: EnvEntry, keys: Mapping[str, Any]) -> Any:
    suite = imported("mujoco_playground", entry).dm_control_suite
    _refuse_parts_of_steps(entry, keys)
    try:
        with relaxed():
            return suite.load(
                entry.id.removeprefix("playground:"), config_overrides={**keys, "impl": "jax"}
            )
    except (AttributeError, KeyError, TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"playground refuses {entry.id} with {dict(keys)}: {error}") from error


def _refuse_parts_of_steps(entry: EnvEntry, keys: Mapping[str, Any]) -> None:
    """Refuse what Playground would round, to no step at all where an env step is short."""
    steps = keys["ctrl_dt"] / keys["sim_dt"]
    if round(steps) < 1 or abs(steps - round(steps)) > 1e-6 * steps:
        raise ConfigError(
            f"{entry.id}: ctrl_dt {keys['ctrl_dt']:g} is {steps:g} times sim_dt "
            f"{keys['sim_dt']:g}; an env step is a whole number of steps of the physics"
        )
