"""Advantages that tell terminated from truncated episodes: generalised estimation, and V-trace."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .pytree import Pytree, pytree


@pytree
class Steps(Pytree):
    """What advantages are made of, time first.

    Attributes:
        reward: r_t.
        value: V(s_t).
        next_value: V(s'_t); of a truncated step that of the episode's final observation, so that
            a time limit bootstraps.
        terminated: the episode ended by the environment's rules; nothing is bootstrapped.
        truncated: it was cut by a limit.
    """

    reward: Float[Array, "T *batch"]
    value: Float[Array, "T *batch"]
    next_value: Float[Array, "T *batch"]
    terminated: Bool[Array, "T *batch"]
    truncated: Bool[Array, "T *batch"]


def gae(
    steps: Steps,
    gamma: Float[Array, "*#batch"],
    gae_lambda: Float[Array, "*#batch"],
    unroll: int = 1,
) -> Float[Array, "T *batch"]:
    """Return the advantages of a rollout, time first.

    delta_t = r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t)
    A_t = delta_t + gamma lambda (1 - terminated_t)(1 - truncated_t) A_{t+1}

    (Schulman et al. 2016, equations 11 to 16.)

    Args:
        steps: of the rollout.
        gamma: discount, per batch entry or broadcast.
        gae_lambda: lambda, likewise.
        unroll: steps that one iteration of the loop does.
    """
    return _summed(temporal_differences(steps, gamma), steps, gamma, gae_lambda, unroll=unroll)


def temporal_differences(steps: Steps, gamma: Float[Array, "*#batch"]) -> Float[Array, "T *batch"]:
    """Return delta_t = r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t); arguments as for `gae`."""
    going_on = 1.0 - steps.terminated.astype(jnp.float32)
    ahead = _spread(gamma, steps.reward) * going_on * steps.next_value
    return steps.reward + ahead - steps.value


def v_trace(
    steps: Steps,
    gamma: Float[Array, "*#batch"],
    gae_lambda: Float[Array, "*#batch"],
    ratio: Float[Array, "T *batch"],
    rho_clip: Float[Array, "*#batch"],
    c_clip: Float[Array, "*#batch"],
    unroll: int = 1,
) -> Float[Array, "T *batch"]:
    """Return the V-trace advantages of a rollout of another policy, time first.

    With rho_t = min(ratio_t, rho_clip) and c_t = min(ratio_t, c_clip):

    delta_t = rho_t (r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t))
    A_t = delta_t + gamma lambda c_t (1 - terminated_t)(1 - truncated_t) A_{t+1}

    so that A_t + V(s_t) at lambda 1 is v_t of Espeholt et al. 2018 (IMPALA), equation 1, and A_t
    is `gae` where every ratio is 1 and no clip is below 1.

    Args:
        steps: of the rollout.
        gamma: discount.
        gae_lambda: lambda.
        ratio: probability of the action now over that when it was taken.
        rho_clip: largest weight of an error.
        c_clip: largest weight of what follows.
        unroll: steps that one iteration of the loop does.
    """
    rho, trace = (jnp.minimum(ratio, _spread(clip, ratio)) for clip in (rho_clip, c_clip))
    deltas = rho * temporal_differences(steps, gamma)
    return _summed(deltas, steps, gamma, gae_lambda, trace, unroll)


def _spread(number: Array, like: Float[Array, "T *batch"]) -> Array:
    return jnp.broadcast_to(number, like.shape[1:])[None]


def _summed(
    deltas: Float[Array, "T *batch"],
    steps: Steps,
    gamma: Float[Array, "*#batch"],
    gae_lambda: Float[Array, "*#batch"],
    trace: Float[Array, "T *batch"] | None = None,
    unroll: int = 1,
) -> Float[Array, "T *batch"]:
    """Return A_t = delta_t + gamma lambda c_t (1 - terminated_t)(1 - truncated_t) A_{t+1}."""
    going_on = 1.0 - steps.terminated.astype(jnp.float32)
    decay = _spread(gamma, deltas) * _spread(gae_lambda, deltas) * going_on
    decay = decay * (1.0 - steps.truncated.astype(jnp.float32))
    decay = decay if trace is None else decay * trace

    def back(
        later: Float[Array, "*batch"], step: tuple[Array, Array]
    ) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
        delta, weight = step
        advantage = delta + weight * later
        return advantage, advantage

    start = jnp.zeros_like(deltas[0])
    _, advantages = jax.lax.scan(back, start, (deltas, decay), reverse=True, unroll=unroll)
    return advantages
