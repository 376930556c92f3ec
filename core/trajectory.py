"""What a rollout gives, wherever its environments are stepped, with its episodes counted."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from . import policy
from .lane_state import LaneState
from .plan import Plan
from .pytree import Pytree, pytree

__all__ = ["EpisodeSums", "Rollout", "Trajectory", "count_step", "forget", "where_ended"]


@pytree
class Trajectory(Pytree):
    """One rollout, [T, L, E, ...]; with several bodies an environment E counts segments.

    Attributes:
        observation: raw, as the environment gave it (with words for dropout, where that is on).
        action: taken.
        mask: valid actions, or None.
        log_prob: of the action.
        value: V(s).
        reward: as the environment gave it.
        terminated: the episode ended by its rules.
        truncated: it was cut.
        bootstrap: V of the final observation where it was cut, else 0.
        carry: memory of recurrent networks before the first step, [1, L, E, ...]; else ().
        valid_mass: probability that the raw policy gives to valid actions (0 where there are
            none), or None without masks.
        info: what the environment said besides, by name [T, L, E]; only where somebody looks.
    """

    observation: Any
    action: Array
    mask: Bool[Array, "... L E A"] | None
    log_prob: Float[Array, "... L E"]
    value: Float[Array, "... L E"]
    reward: Float[Array, "... L E"]
    terminated: Bool[Array, "... L E"]
    truncated: Bool[Array, "... L E"]
    bootstrap: Float[Array, "... L E"]
    carry: Any = ()
    valid_mass: Float[Array, "... L E"] | None = None
    info: Any = ()


@pytree
class EpisodeSums(Pytree):
    """Sums over the episodes that ended, and over all steps for `info`, [L]."""

    episodes: Float[Array, " L"]
    returns: Float[Array, " L"]
    lengths: Float[Array, " L"]
    info: dict[str, Float[Array, " L"]]

    @classmethod
    def of_none(cls, lanes: int) -> EpisodeSums:
        """Return the sums of lanes in which no episode has ended yet."""
        zero = jnp.zeros(lanes, jnp.float32)
        return cls(zero, zero, zero, {})


@pytree
class Rollout(Pytree):
    """T steps of all lanes.

    Attributes:
        state: the lanes after it; its `updates` are those before it.
        trajectory: time first.
        sums: over the episodes that ended in it.
        last_value: V of the observation after it.
        info: what the environments said in each step, by name [T, L, E].
    """

    state: LaneState
    trajectory: Trajectory
    sums: EpisodeSums
    last_value: Float[Array, "L E"]
    info: dict[str, Array] = dataclasses.field(default_factory=dict)


def count_step(
    state: LaneState, sums: EpisodeSums, reward: Float[Array, "L E"], ended: Bool[Array, "L E"]
) -> tuple[LaneState, EpisodeSums]:
    """Add one step to the episodes that run, and those that it ended to the sums."""
    episode_return = state.episode_return + reward
    episode_length = state.episode_length + 1
    gone = ended.astype(jnp.float32)
    sums = sums.replace(
        episodes=sums.episodes + jnp.sum(gone, axis=-1),
        returns=sums.returns + jnp.sum(gone * episode_return, axis=-1),
        lengths=sums.lengths + jnp.sum(gone * episode_length.astype(jnp.float32), axis=-1),
    )
    state = state.replace(
        episode_return=jnp.where(ended, 0.0, episode_return),
        episode_length=jnp.where(ended, 0, episode_length),
    )
    return state, sums


def where_ended(ended: Bool[Array, "L E"], new: Any, old: Any) -> Any:
    """Return trees [L, E, ...]: `new` where an episode ended, `old` elsewhere."""

    def one(a: Array, b: Array) -> Array:
        return jnp.where(ended.reshape(ended.shape + (1,) * (a.ndim - 2)), a, b)

    return jax.tree.map(one, new, old)


def forget(plan: Plan, ended: Bool[Array, "L E"], memory: Any) -> Any:
    """Empty the memory where an episode ended."""
    return where_ended(ended, policy.initial_carry(plan, ended.shape), memory)
