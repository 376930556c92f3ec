"""Gymnasium's environments behind the core's contract, as far as arrays can describe them.

They live outside of compiled programs: `core.host` steps them. What the policy needs to know, the
spaces and the parameters that may differ per lane, is here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ...environments.via_gymnasium import facts_of, make
from ...errors import ConfigError
from ..host.shared_arrays import SpaceCode, code_of
from .contract import ActionSpace, Box, Discrete, MultiDiscrete, Step
from .foreign import ForeignEnvironment, made_params


class GymnasiumEnvironment(ForeignEnvironment):
    """One environment of Gymnasium with fixed keys; real-valued arguments may differ per lane.

    Attributes:
        id: `gym:...`.
        keys: fixed arguments of its constructor.
        code: how its observations and actions look as arrays.
    """

    def __init__(self, id_: str, keys: Mapping[str, Any], history: int = 1):
        """Make one to see its spaces.

        Args:
            id_: `gym:...`.
            keys: fixed arguments of its constructor.
            history: observations that the policy sees at once; `core.host` stacks them as
                `history.StackedEnvironment` does.

        Raises:
            HpoError: see `environments.via_gymnasium.make` and `code_of`.
        """
        self.id, self.keys = id_, dict(keys)
        params = facts_of(id_).params
        probe = make(id_, self.keys)
        self.code: SpaceCode = dataclasses.replace(code_of(id_, probe), history=history)
        probe.close()
        self.action_space = _action_space(self.code)
        dtype = np.dtype(self.code.observation_dtype)
        self.observation_struct = jax.ShapeDtypeStruct(self.code.seen_shape, dtype)
        self.default_params = made_params(params)

    def values(self, params: Any) -> dict[str, Any]:
        """Return the arguments of the constructor for one lane's parameters.

        Parameters are float32 like those of every environment; a number is given in the fewest
        digits that name it, so that 0.1 is 0.1. Defaults are left out.
        """
        values = dict(self.keys)
        for field in dataclasses.fields(self.default_params):
            given = np.float32(getattr(params, field.name))
            if given != np.float32(getattr(self.default_params, field.name)):
                values[field.name] = float(str(given))
        return values

    def observed(self, raw: Any) -> np.ndarray:
        """Return observations as the policy sees them; leading axes are allowed.

        A number that is none of the categories is a vector of zeros, as what is stacked before an
        episode's start.
        """
        if not self.code.one_hot:
            return np.asarray(raw, self.code.observation_dtype)
        category = np.asarray(raw)[..., None] - self.code.observation_start
        return (category == np.arange(self.code.one_hot)).astype(np.float32)

    def taken(self, action: Any) -> Any:
        """Return actions of the policy as the environment takes them; leading axes are allowed."""
        given, shape = np.asarray(action), self.code.action_shape
        lead = given.shape[: given.ndim - len(shape)]
        flat = np.asarray(self.code.actions(given.reshape((-1, *shape))))
        return flat.reshape((*lead, *shape))[()]

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Any, Any]:
        """Return no state, and the place of an observation: zeros until the host has reset it."""
        return (), jnp.zeros(self.observation_struct.shape, self.observation_struct.dtype)

    def step(self, key: PRNGKeyArray, state: Any, action: Array, params: Any) -> Step:
        """Refuse: no compiled program can step it."""
        raise ConfigError(f"{self.id} is stepped by the host; use HostProgram of core.host")


def _action_space(code: SpaceCode) -> ActionSpace:
    if code.action == "box":
        return Box(code.low, code.high, code.action_shape)
    return Discrete(code.sizes[0]) if code.action == "discrete" else MultiDiscrete(code.sizes)
