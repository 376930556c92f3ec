"""brax environments behind the core's contract; brax is imported when one is made."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from ...env_entry import EnvEntry
from ...errors import ConfigError
from .foreign import imported, relaxed
from .physics import PhysicsEnvironment

__all__ = ["BraxEnvironment"]


class BraxEnvironment(PhysicsEnvironment):
    """One brax environment with fixed keys; gravity, friction and strength are traced."""

    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        """Make the environment of an entry with source `brax`; errors are the base's."""
        super().__init__(entry, keys, _load, _with_physics)


def _with_physics(env: Any, params: Any) -> Any:
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


def _load(entry: EnvEntry, keys: Mapping[str, Any]) -> Any:
    envs, name = imported("brax.envs", entry), entry.id.removeprefix("brax:")
    try:
        with relaxed():
            return envs.get_environment(name, **keys)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"brax refuses {entry.id} with {dict(keys)}: {error}") from error
