"""What a lane carries from update to update, and the keys of its random numbers.

Letters of array shapes, used everywhere: L lanes, E environments, T steps of a rollout, N rows to
learn from (T E single steps, or E whole segments), B minibatch rows, A actions or action
components, K updates of a chunk. Where one environment has several bodies (see `envs.bodies`),
what is [E] of a learner counts segments, E times the bodies.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from .normalise import RunningStatistics
from .pytree import Leaf, Pytree, pytree

__all__ = ["LaneState", "lane_key", "use_key"]


@pytree
class LaneState(Pytree):
    """Everything one lane carries from update to update.

    Attributes:
        key: raw threefry key of (seed, stream, replicate); every draw folds in a use and the
            lane's own update counter.
        updates: updates done; negative during warm-up.
        total_updates: updates of the full run, the horizon of the schedules.
        params: of the networks.
        moments: the optimiser's (count, first, second) for policy and critic parameters.
        gradient_steps: taken so far.
        env_state: of the environments [E].
        observation: raw, of the environments [E].
        carry: memory of recurrent networks [E], () for all others.
        observation_statistics: for normalise_observations, else of shape [].
        return_statistics: of the discounted return, for normalise_rewards; with
            raw_reward_deviation of the scaled reward.
        discounted_return: float32 [E], likewise.
        average_reward: for reward_centering.
        average_trace: o, how much of a step's weight the average has seen; likewise.
        episode_return: float32 [E], of the episodes that run.
        episode_length: int32 [E].
    """

    key: UInt32[Array, "... 2"]
    updates: Int[Array, "..."]
    total_updates: Int[Array, "..."]
    params: Any
    moments: Any
    gradient_steps: Int[Array, "..."]
    env_state: Any
    observation: Any
    carry: Any
    observation_statistics: RunningStatistics
    return_statistics: RunningStatistics
    discounted_return: Float[Array, "... E"]
    average_reward: Float[Array, "..."]
    average_trace: Float[Array, "..."]
    episode_return: Float[Array, "... E"]
    episode_length: Int[Array, "... E"]


def lane_key(seed: Leaf, stream: Leaf, replicate: Leaf) -> UInt32[Array, "2"]:
    """Return the raw key of a replicate: threefry, folded from (seed, stream, replicate)."""
    key = jax.random.key(seed, impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, stream), replicate)
    return jax.random.key_data(key)


def use_key(raw: UInt32[Leaf, "2"], use: int, counter: Leaf | int = 0) -> Array:
    """Return the typed key of one use of a lane's key at one value of its counter."""
    key = jax.random.wrap_key_data(raw, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, use), jnp.asarray(counter, jnp.int32))
