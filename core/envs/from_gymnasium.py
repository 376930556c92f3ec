"""Spaces and parameters of Gymnasium environments, which `core.host` steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ...environments.hosted import probe
from ...environments.registry import entry
from ...errors import ConfigError
from ..host.batch import SpaceCode, code_of
from .contract import ActionSpace, Box, Discrete, MultiDiscrete, Step
from .foreign import EpisodicEnvironment, made_params


class GymnasiumEnvironment(EpisodicEnvironment):
    """A Gymnasium environment; its real-valued arguments may differ between lanes."""

    def __init__(self, id_: str, keys: Mapping[str, Any], history: int = 1):
        # `core.host` stacks `history` observations as `StackedEnvironment` does.
        self.id, self.keys = id_, dict(keys)
        code = code_of(id_, probe(id_, self.keys))
        self.code: SpaceCode = dataclasses.replace(code, history=history)
        self.action_space = _action_space(self.code)
        dtype = np.dtype(self.code.observation_dtype)
        self.observation_struct = jax.ShapeDtypeStruct(self.code.seen_shape, dtype)
        self.default_params = made_params(entry(id_).params)

    def values(self, params: Any) -> dict[str, Any]:
        """Return the constructor's arguments for one lane's parameters, omitting defaults."""
        values = dict(self.keys)
        for field in dataclasses.fields(self.default_params):
            given = np.float32(getattr(params, field.name))
            if given != np.float32(getattr(self.default_params, field.name)):
                values[field.name] = float(str(given))  # fewest digits: float32 0.1 gives 0.1
        return values

    def observed(self, raw: Any) -> np.ndarray:
        """See `HostedEnvironment`; in one-hot form, an invalid category becomes a zero vector."""
        if not self.code.one_hot:
            return np.asarray(raw, self.code.observation_dtype)
        category = np.asarray(raw)[..., None] - self.code.observation_start
        return (category == np.arange(self.code.one_hot)).astype(np.float32)

    def taken(self, action: Any) -> Any:
        given, shape = np.asarray(action), self.code.action_shape
        lead = given.shape[: given.ndim - len(shape)]
        flat = np.asarray(self.code.actions(given.reshape((-1, *shape))))
        return flat.reshape((*lead, *shape))[()]

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Any, Any]:
        return (), jnp.zeros(self.observation_struct.shape, self.observation_struct.dtype)

    def step(self, key: PRNGKeyArray, state: Any, action: Array, params: Any) -> Step:
        raise ConfigError(
            f"{self.id} is stepped by the host; use core.host.host_program.HostProgram"
        )


def _action_space(code: SpaceCode) -> ActionSpace:
    if code.action == "box":
        return Box(code.low, code.high, code.action_shape)
    if code.action == "discrete":
        return Discrete(code.sizes[0])
    return MultiDiscrete(code.sizes)
