"""MuJoCo Playground's control suite behind the core's contract, by MJX's JAX implementation.

Playground's own default is MuJoCo Warp, which is no JAX program: it compiles kernels of its own.
Playground is imported when an environment is made.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from ...env_entry import EnvEntry
from ...errors import ConfigError
from .foreign import imported, relaxed
from .physics import PhysicsEnvironment

__all__ = ["PlaygroundEnvironment"]


class PlaygroundEnvironment(PhysicsEnvironment):
    """One environment of Playground with fixed keys; what its entry has of physics is traced."""

    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        """Make the environment of an entry with source `playground`; errors are the base's."""
        super().__init__(entry, keys, _load, _with_physics)


def _with_physics(env: Any, params: Any) -> Any:
    env, model = copy.copy(env), env.mjx_model
    changed = {"actuator_gear": model.actuator_gear * params.strength}
    if hasattr(params, "friction"):
        changed["geom_friction"] = model.geom_friction * params.friction
    if hasattr(params, "gravity"):
        down = jnp.stack([jnp.zeros_like(params.gravity)] * 2 + [-params.gravity])
        changed["opt"] = model.opt.replace(gravity=down)
    env._mjx_model = model.replace(**changed)  # Playground has no public name to set it by
    return env


def _load(entry: EnvEntry, keys: Mapping[str, Any]) -> Any:
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
