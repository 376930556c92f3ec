"""The data of a rollout, wherever its environments are stepped, with its episodes counted."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from . import policy
from .lane_state import LaneState
from .plan import Plan
from .pytree import Pytree, pytree, where


@pytree
class ShadowSteps(Pytree):
    value: Float[Array, "... L E"]
    reward: Float[Array, "... L E"]
    bootstrap: Float[Array, "... L E"]  # as in `Trajectory`


@pytree
class Trajectory(Pytree):
    """One rollout, [T, L, E, ...]; with several agents an environment E counts segments."""

    observation: Any  # raw (with words for dropout, where that is on)
    action: Array
    mask: Bool[Array, "... L E A"] | None  # valid actions
    log_prob: Float[Array, "... L E"]
    value: Float[Array, "... L E"]
    reward: Float[Array, "... L E"]  # raw
    terminated: Bool[Array, "... L E"]  # the episode ended by its rules
    truncated: Bool[Array, "... L E"]  # it was cut
    bootstrap: Float[Array, "... L E"]  # V of the final observation where it was cut, else 0
    carry: Any = ()  # memory of recurrent networks before the first step, [1, L, E, ...]
    # probability that the raw policy gives to valid actions, 0 without any
    valid_mass: Float[Array, "... L E"] | None = None
    info: Any = ()  # the environment's other numbers, by name [T, L, E]; only for inspection
    shadow: ShadowSteps | None = None


@pytree
class EpisodeSums(Pytree):
    """Sums over ended episodes, over all steps for `info`, [L]; [L, E] while a rollout runs."""

    episodes: Float[Array, "L *E"]
    returns: Float[Array, "L *E"]
    lengths: Float[Array, "L *E"]
    info: dict[str, Float[Array, " L"]]

    @classmethod
    def of_none(cls, *shape: int) -> EpisodeSums:
        zero = jnp.zeros(shape, jnp.float32)
        return cls(zero, zero, zero, {})

    def of_lanes(self, agents: int) -> EpisodeSums:
        """Return the sums of lanes, [L]; several agents' episode counts once, by their mean."""
        sums = [self.episodes, self.returns, self.lengths]
        if self.episodes.ndim == 2:
            sums = [jnp.sum(x, axis=-1) for x in sums]
        if agents > 1:
            sums = [x / agents for x in sums]
        return EpisodeSums(*sums, self.info)


@pytree
class Rollout(Pytree):
    state: LaneState  # after it, but `updates` is that before it
    trajectory: Trajectory
    sums: EpisodeSums
    last_value: Float[Array, "L E"]  # V of the observation after it
    # the environments' numbers of each step, by name [T, L, E]
    info: dict[str, Array] = dataclasses.field(default_factory=dict)
    shadow_value: Float[Array, "L E"] | None = None


def count_step(
    state: LaneState, sums: EpisodeSums, reward: Float[Array, "L E"], ended: Bool[Array, "L E"]
) -> tuple[LaneState, EpisodeSums]:
    episode_return = state.episode_return + reward
    episode_length = state.episode_length + 1
    gone = ended.astype(jnp.float32)

    def added(total: Array, part: Float[Array, "L E"]) -> Array:
        return total + (part if total.ndim == 2 else jnp.sum(part, axis=-1))

    sums = sums.replace(
        episodes=added(sums.episodes, gone),
        returns=added(sums.returns, gone * episode_return),
        lengths=added(sums.lengths, gone * episode_length.astype(jnp.float32)),
    )
    state = state.replace(
        episode_return=jnp.where(ended, 0.0, episode_return),
        episode_length=jnp.where(ended, 0, episode_length),
    )
    return state, sums


def forget(plan: Plan, ended: Bool[Array, "L E"], memory: Any) -> Any:
    return where(ended, policy.initial_carry(plan, ended.shape), memory)


def as_record(step: Trajectory) -> tuple[Trajectory, Int[Array, "W L E"]]:
    """Return a step without its numbers [L, E], and these as rows of words, flags in the last."""
    leaves, structure = jax.tree.flatten(step)
    small = [leaf for leaf in leaves if _is_number(leaf)]
    flags = [leaf for leaf in small if leaf.dtype == jnp.bool_]
    rows = [jax.lax.bitcast_convert_type(x, jnp.int32) for x in small if x.dtype != jnp.bool_]
    bits = [flag.astype(jnp.int32) << place for place, flag in enumerate(flags)]
    rest = [jnp.zeros((0,), leaf.dtype) if _is_number(leaf) else leaf for leaf in leaves]
    return structure.unflatten(rest), jnp.stack([*rows, sum(bits[1:], bits[0])])


def from_record(rest: Trajectory, words: Int[Array, "T W L E"]) -> Trajectory:
    leaves, structure = jax.tree.flatten(rest)
    row, place = 0, 0
    for i, leaf in enumerate(leaves):
        if leaf.shape[1:] != (0,):
            continue
        if leaf.dtype == jnp.bool_:
            leaves[i] = (words[:, -1] >> place) & 1 == 1
            place += 1
        else:
            leaves[i] = jax.lax.bitcast_convert_type(words[:, row], leaf.dtype)
            row += 1
    return structure.unflatten(leaves)


def _is_number(leaf: Array) -> bool:
    return leaf.ndim == 2 and (leaf.dtype == jnp.bool_ or leaf.dtype.itemsize == 4)
