"""gymnax environments behind the core's contract.

gymnax code fails under strict promotion, so that it runs inside `relaxed`; what leaves this module
is float32, int32 or bool. gymnax makes arrays when it is imported, which starts jax's backend, so
that it is imported only when an environment is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ...env_entry import EnvEntry
from .contract import Box, Step
from .drawn_gymnax import drawn
from .foreign import ForeignEnvironment, action_space_of, canonical, made_params, relaxed
from .light_gymnax import import_gymnax

__all__ = ["GymnaxEnvironment", "GymnaxLike"]

_CONTROL = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0",
            "MountainCarContinuous-v0")  # fmt: skip


class GymnaxLike(ForeignEnvironment):
    """What has gymnax's API, with fixed keys; float parameters stay traced.

    A subclass sets what `__init__` of `GymnaxEnvironment` sets.
    """

    _env: Any
    _params: Any
    _floats: tuple[str, ...]

    def _settle(self, params: Any, floats: Mapping[str, float]) -> None:
        """Take what is fixed, what is traced, and look at what it shows.

        Args:
            params: gymnax's, whose other fields stay as they are.
            floats: fields that may differ per lane, with their defaults.
        """
        self._params, self._floats = params, tuple(floats)
        with relaxed():
            self.action_space = action_space_of(self._env.action_space(params), self.id)
        self.default_params = made_params(floats)
        probe = jax.eval_shape(self.reset, jax.random.key(0), self.default_params)
        self.observation_struct = probe[1]

    def _full(self, params: Any) -> Any:
        values = {name: getattr(params, name) for name in self._floats}
        return dataclasses.replace(self._params, **values)

    def _ended(self, state: Any, done: Any, params: Any) -> tuple[Any, Any]:
        """Return whether an episode terminated, and whether it was truncated.

        Args:
            state: after the step.
            done: as the step said.
            params: gymnax's.
        """
        return done, self._env.is_truncated(state, params)

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Any, Any]:
        """Return a fresh (state, observation)."""
        with relaxed():
            observation, state = self._env.reset_env(key, self._full(params))
            return jax.tree.map(canonical, (state, observation))

    def step(self, key: PRNGKeyArray, state: Any, action: Array, params: Any) -> Step:
        """Advance one step; real-valued actions are clipped to the action box first."""
        with relaxed():
            full = self._full(params)
            if isinstance(self.action_space, Box):
                box = self._env.action_space(full)  # of these parameters: max_torque may vary
                action = jnp.clip(action, box.low, box.high)
            observation, after, reward, done, _ = self._env.step_env(key, state, action, full)
            terminated, truncated = self._ended(after, done, full)
            after, observation = jax.tree.map(canonical, (after, observation))
            # Some gymnax rewards are of shape [1] or integers; a reward is one float32.
            reward = jnp.asarray(reward).astype(jnp.float32).reshape(())
        return Step(
            state=after,
            observation=observation,
            reward=reward,
            terminated=jnp.asarray(terminated, bool).reshape(()),
            truncated=jnp.asarray(truncated, bool).reshape(()),
            info={},
        )


class GymnaxEnvironment(GymnaxLike):
    """One environment that gymnax has by name."""

    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        """Make the environment of an entry.

        Args:
            entry: from `environments.ENVIRONMENTS`, with source `gymnax`.
            keys: fixed parameters that differ from gymnax's.
        """
        gymnax = import_gymnax()
        self.id = entry.id
        with relaxed():
            self._env, params = gymnax.make(entry.id)
            params = params.replace(**keys)
        self._keys = tuple(sorted(keys.items()))
        self._settle(params, entry.params)

    @property
    def pictures_a_second(self) -> float:
        """Twenty of the classic control problems, ten of all others, as gymnax shows them."""
        return 20.0 if self.id in _CONTROL else 10.0

    def pictures(self, states: Sequence[Any], params: Any) -> Iterator[np.ndarray]:
        """Return a picture of each state, by gymnax's own visualizer.

        Raises:
            ConfigError: gymnax has no picture of this environment.
            MissingExtraError: what it draws with is not installed.
        """
        return drawn(self._env, self._full(params), states, self.id)
