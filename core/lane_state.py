"""The state that a lane carries from update to update, and its random keys.

Letters used in array shapes throughout: L lanes, E environments, T rollout steps, N training rows
(T E single steps, or E whole segments), B minibatch rows, A actions or action components, K
updates per chunk. With several agents (see `envs.contract`), E is the number of segments in
learning: environments times agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from .plan import Plan
from .pytree import Leaf, Pytree, pytree


@pytree
class RunningStatistics(Pytree):
    count: Float[Array, ""]
    mean: Float[Array, "*shape"]
    square: Float[Array, "*shape"]

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> RunningStatistics:
        return cls(*(jnp.zeros(size, jnp.float32) for size in ((), shape, shape)))

    def merge(self, batch: Float[Array, "N *shape"]) -> RunningStatistics:
        size = jnp.float32(batch.shape[0])
        mean = jnp.mean(batch, axis=0)
        square = jnp.sum((batch - mean[None]) ** 2, axis=0)
        total = self.count + size
        shift = mean - self.mean
        moved = self.mean + shift * (size / total)
        square = self.square + square + shift**2 * (self.count * size / total)
        return RunningStatistics(total, moved, square)

    def std(self) -> Float[Array, "*shape"]:
        """Return the standard deviation (divisor N): 1 before any data, at least 1e-4."""
        variance = self.square / jnp.maximum(self.count, 1.0)
        return jnp.where(self.count > 0.0, jnp.sqrt(jnp.maximum(variance, 1e-8)), 1.0)

    def normalise(
        self, values: Float[Array, "... *shape"], clip: Float[Array, ""]
    ) -> Float[Array, "... *shape"]:
        lead = (1,) * (values.ndim - self.mean.ndim)
        mean, std = (jnp.reshape(x, lead + x.shape) for x in (self.mean, self.std()))
        return jnp.clip((values - mean) / std, -clip, clip)


@pytree
class LaneState(Pytree):
    # threefry key of (seed, stream, replicate); draws fold in a use and `updates`
    key: UInt32[Array, "... 2"]
    updates: Int[Array, "..."]  # negative during warm-up
    total_updates: Int[Array, "..."]  # updates of the full run, the horizon of the schedules
    params: Any
    moments: Any  # optimiser moments: (policy's, critic's)
    gradient_steps: Int[Array, "..."]
    env_state: Any
    observation: Any  # raw
    carry: Any  # memory of recurrent networks [E], else ()
    observation_statistics: RunningStatistics  # shape [] without normalise_observations
    return_statistics: RunningStatistics  # of the discounted return or the scaled reward
    discounted_return: Float[Array, "... E"]  # for normalise_rewards
    average_reward: Float[Array, "..."]  # for reward_centering
    average_trace: Float[Array, "..."]  # o, the weight that the average has seen
    episode_return: Float[Array, "... E"]
    episode_length: Int[Array, "... E"]


def lane_key(seed: Leaf, stream: Leaf, replicate: Leaf) -> UInt32[Array, "2"]:
    key = jax.random.key(seed, impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, stream), replicate)
    return jax.random.key_data(key)


def use_key(raw: UInt32[Leaf, "2"], use: int, counter: Leaf | int = 0) -> Array:
    key = jax.random.wrap_key_data(raw, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, use), jnp.asarray(counter, jnp.int32))


_PARTS = ("count", "mean", "square")
_USES = {"normalise_rewards": "reward statistics", "reward_centering": "average reward"}


@pytree
class RewardState(Pytree):
    returns: RunningStatistics | None = None  # see `LaneState.return_statistics`
    average: Float[Leaf, ""] | None = None
    trace: Float[Leaf, ""] | None = None

    @classmethod
    def of(cls, state: LaneState) -> RewardState:
        whole = cls(state.return_statistics, state.average_reward, state.average_trace)
        has_returns = float(state.return_statistics.count) > 0.0
        return whole.only(has_returns, float(state.average_trace) > 0.0)

    def only(self, returns: bool, centring: bool) -> RewardState:
        found = self
        if not returns:
            found = found.replace(returns=None)
        if not centring:
            found = found.replace(average=None, trace=None)
        return found

    def for_plan(self, plan: Plan) -> RewardState:
        features = plan.features
        return self.only("normalise_rewards" in features, "reward_centering" in features)

    def in_units(self, saved: bool, here: frozenset[bool]) -> RewardState:
        if here == frozenset((saved,)):
            return self
        return self.replace(returns=None)

    def fields(self) -> dict[str, Any]:
        found = {
            "return_statistics": self.returns,
            "average_reward": self.average,
            "average_trace": self.trace,
        }
        return {name: value for name, value in found.items() if value is not None}

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"returns": None, "centring": None}
        if self.returns is not None:
            data["returns"] = {name: float(getattr(self.returns, name)) for name in _PARTS}
        if self.average is not None and self.trace is not None:
            data["centring"] = {"average": float(self.average), "trace": float(self.trace)}
        return data

    @classmethod
    def from_data(
        cls, returns: Mapping[str, float] | None, centring: Mapping[str, float] | None
    ) -> RewardState:
        found = cls()
        if returns is not None:
            found = found.replace(returns=RunningStatistics(*_float_arrays(returns, _PARTS)))
        if centring is not None:
            average, trace = _float_arrays(centring, ("average", "trace"))
            found = found.replace(average=average, trace=trace)
        return found


def _float_arrays(data: Mapping[str, float], names: tuple[str, ...]) -> list[Array]:
    return [jnp.float32(data[name]) for name in names]


def reward_notes(plan: Plan, rewards: RewardState | None, same_units: bool = True) -> list[str]:
    """Return notes on the reward statistics that a saved policy lacks (None in early versions)."""
    found = rewards or RewardState()
    here = {"normalise_rewards": found.returns, "reward_centering": found.average}
    lacks = [name for name, value in here.items() if name in plan.features and value is None]
    if not lacks:
        return []
    words = " and ".join(f"{_USES[name]} ({name})" for name in lacks)
    why = "it was trained without them"
    if not same_units:
        why = "its raw_reward_deviation may be different"
    if rewards is None:
        why = "it was written by an earlier version; train it again to include them"
    return [f"init: the saved policy has no {words}, so they start fresh ({why})"]
