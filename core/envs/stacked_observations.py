"""Observations stacked over time: what a policy sees are the last `length` ones, oldest first.

Observations before the first of an episode are zeros. Because the core resets ended episodes by
`reset`, nothing of an episode is ever seen in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ...errors import ConfigError
from ..pytree import Pytree, pytree
from .bodies import agents_of
from .contract import Environment, ShadowedEnvironment, Step

__all__ = ["Remembering", "StackedEnvironment", "pushed", "unwrapped"]


@pytree
class Remembering(Pytree):
    """State of an environment whose observations are stacked.

    Attributes:
        inner: the environment's own.
        seen: the last observations, oldest first, [length, ...].
    """

    inner: Any
    seen: Array


class StackedEnvironment:
    """An environment that shows its last `length` observations as [length, ...]."""

    def __init__(self, env: Environment, length: int):
        """Wrap an environment.

        Raises:
            ConfigError: its observations are a tree, or it has several bodies.
        """
        if agents_of(env) > 1:
            raise ConfigError(
                f"history is {length}, but {env.id} has several bodies, whose observations are "
                "not stacked; leave history out"
            )
        struct = env.observation_struct
        if not hasattr(struct, "shape"):
            raise ConfigError(
                f"history is {length}, but the observations of {env.id} are a tree, which cannot "
                "be stacked; leave history out or choose another `observation`"
            )
        self.inner, self.length = env, length
        self.id, self.action_space = env.id, env.action_space
        self.has_mask, self.never_ends = env.has_mask, env.never_ends
        self.warmup_steps, self.default_params = env.warmup_steps, env.default_params
        self.observation_struct = jax.ShapeDtypeStruct((length, *struct.shape), struct.dtype)

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Remembering, Array]:
        """Return a fresh state and its first observation, behind zeros."""
        state, observation = self.inner.reset(key, params)
        struct = self.observation_struct
        seen = pushed(jnp.zeros(struct.shape, struct.dtype), observation)
        return Remembering(state, seen), seen

    def step(self, key: PRNGKeyArray, state: Remembering, action: Array, params: Any) -> Step:
        """Advance one step; the oldest observation makes room for the newest."""
        return _seen(state, self.inner.step(key, state.inner, action, params))

    @property
    def has_shadow(self) -> bool:
        """Whether the environment has one."""
        return isinstance(self.inner, ShadowedEnvironment) and self.inner.has_shadow

    def shadow_step(self, key: PRNGKeyArray, state: Remembering, params: Any) -> Step:
        """Advance one step by the environment's own rule."""
        assert isinstance(self.inner, ShadowedEnvironment)
        return _seen(state, self.inner.shadow_step(key, state.inner, params))

    def action_mask(self, state: Remembering, params: Any) -> Array:
        """Return the valid actions of this state."""
        return self.inner.action_mask(state.inner, params)

    def summarise(self, sums: Mapping[str, Array], steps: Array) -> dict[str, Array]:
        """Return the environment's own metrics."""
        return self.inner.summarise(sums, steps)


def _seen(before: Remembering, after: Step) -> Step:
    """Return a step of the inner environment as the stack shows it."""
    seen = pushed(before.seen, after.observation)
    return after.replace(state=Remembering(after.state, seen), observation=seen)


def pushed(seen: Array, observation: Array) -> Array:
    """Return stacked observations [length, ...] with one more in the place of the oldest."""
    return jnp.concatenate([seen[1:], observation[None]])


def unwrapped(env: Environment) -> Environment:
    """Return the environment that an id names, without what the engine puts around it.

    Whoever asks for more than the contract (`isinstance(env, OpticalEnvironment)`, `env.routes`)
    asks the unwrapped one.
    """
    while isinstance(env, StackedEnvironment):
        env = env.inner
    return env
