"""What a rollout gives, wherever its environments are stepped, with its episodes counted."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from . import policy
from .lane_state import LaneState
from .plan import Plan
from .pytree import Pytree, pytree


@pytree
class ShadowSteps(Pytree):
    """What the shadows of environments met (see `core.shadow`), [T, L, E].

    Attributes:
        value: V of what they showed.
        reward: as the environment gave it.
        bootstrap: V of the final observation where the episode was cut, else 0.
    """

    value: Float[Array, "... L E"]
    reward: Float[Array, "... L E"]
    bootstrap: Float[Array, "... L E"]


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
        shadow: what the shadows met; None where there are none.
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
    shadow: ShadowSteps | None = None


@pytree
class EpisodeSums(Pytree):
    """Sums over the episodes that ended, and over all steps for `info`, [L].

    While a rollout runs they may be those of each environment, [L, E].
    """

    episodes: Float[Array, "L *E"]
    returns: Float[Array, "L *E"]
    lengths: Float[Array, "L *E"]
    info: dict[str, Float[Array, " L"]]

    @classmethod
    def of_none(cls, *shape: int) -> EpisodeSums:
        """Return the sums of lanes [L], or environments [L, E], where no episode has ended yet."""
        zero = jnp.zeros(shape, jnp.float32)
        return cls(zero, zero, zero, {})

    def of_lanes(self) -> EpisodeSums:
        """Return the sums of each lane, [L]."""
        if self.episodes.ndim == 1:
            return self
        names = ("episodes", "returns", "lengths")
        return self.replace(**{name: jnp.sum(getattr(self, name), axis=-1) for name in names})


@pytree
class Rollout(Pytree):
    """T steps of all lanes.

    Attributes:
        state: the lanes after it; its `updates` are those before it.
        trajectory: time first.
        sums: over the episodes that ended in it.
        last_value: V of the observation after it.
        shadow_value: V of the shadows' observation after it; None where there are none.
        info: what the environments said in each step, by name [T, L, E].
    """

    state: LaneState
    trajectory: Trajectory
    sums: EpisodeSums
    last_value: Float[Array, "L E"]
    info: dict[str, Array] = dataclasses.field(default_factory=dict)
    shadow_value: Float[Array, "L E"] | None = None


def count_step(
    state: LaneState, sums: EpisodeSums, reward: Float[Array, "L E"], ended: Bool[Array, "L E"]
) -> tuple[LaneState, EpisodeSums]:
    """Add one step to the episodes that run, and those that it ended to the sums."""
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


def where_ended(ended: Bool[Array, "L E"], new: Any, old: Any) -> Any:
    """Return trees [L, E, ...]: `new` where an episode ended, `old` elsewhere."""

    def one(a: Array, b: Array) -> Array:
        return jnp.where(ended.reshape(ended.shape + (1,) * (a.ndim - 2)), a, b)

    return jax.tree.map(one, new, old)


def forget(plan: Plan, ended: Bool[Array, "L E"], memory: Any) -> Any:
    """Empty the memory where an episode ended."""
    return where_ended(ended, policy.initial_carry(plan, ended.shape), memory)


def as_record(step: Trajectory) -> tuple[Trajectory, Int[Array, "W L E"]]:
    """Return a step without its numbers [L, E], and these as rows of words, bit for bit.

    Flags share the last row. Where a number was, an empty array keeps its dtype.
    """
    leaves, structure = jax.tree.flatten(step)
    small = [leaf for leaf in leaves if _is_number(leaf)]
    flags = [leaf for leaf in small if leaf.dtype == jnp.bool_]
    rows = [jax.lax.bitcast_convert_type(x, jnp.int32) for x in small if x.dtype != jnp.bool_]
    bits = [flag.astype(jnp.int32) << place for place, flag in enumerate(flags)]
    rest = [jnp.zeros((0,), leaf.dtype) if _is_number(leaf) else leaf for leaf in leaves]
    return structure.unflatten(rest), jnp.stack([*rows, sum(bits[1:], bits[0])])


def from_record(rest: Trajectory, words: Int[Array, "T W L E"]) -> Trajectory:
    """Return the steps [T, L, E, ...] of what `as_record` made of each, stacked, time first."""
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
