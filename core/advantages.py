"""Generalised advantage estimation that tells terminated from truncated episodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

__all__ = ["gae"]


def gae(
    rewards: Float[Array, "T *batch"],
    values: Float[Array, "T *batch"],
    next_values: Float[Array, "T *batch"],
    terminated: Bool[Array, "T *batch"],
    truncated: Bool[Array, "T *batch"],
    gamma: Float[Array, "*#batch"],
    gae_lambda: Float[Array, "*#batch"],
) -> Float[Array, "T *batch"]:
    """Give the advantages of a rollout, time first.

    delta_t = r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t)
    A_t = delta_t + gamma lambda (1 - terminated_t)(1 - truncated_t) A_{t+1}

    (Schulman et al. 2016, equations 11 to 16.) V(s'_t) of a truncated step is the value of the
    episode's final observation, so that a time limit bootstraps and an ending does not.

    Args:
        rewards: r_t.
        values: V(s_t).
        next_values: V(s'_t), final observations where episodes were truncated.
        terminated: ended by the environment's rules.
        truncated: cut by a limit.
        gamma: discount, per batch entry or broadcast.
        gae_lambda: lambda, likewise.
    """
    gamma, gae_lambda = (jnp.broadcast_to(x, rewards.shape[1:])[None] for x in (gamma, gae_lambda))
    going_on = 1.0 - terminated.astype(jnp.float32)
    deltas = rewards + gamma * going_on * next_values - values
    decay = gamma * gae_lambda * going_on * (1.0 - truncated.astype(jnp.float32))

    def back(
        later: Float[Array, "*batch"], step: tuple[Array, Array]
    ) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
        delta, weight = step
        advantage = delta + weight * later
        return advantage, advantage

    _, advantages = jax.lax.scan(back, jnp.zeros_like(deltas[0]), (deltas, decay), reverse=True)
    return advantages
