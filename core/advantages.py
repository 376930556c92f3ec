"""GAE and V-trace advantages, which distinguish terminated from truncated episodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .pytree import Pytree, pytree


@pytree
class Steps(Pytree):
    reward: Float[Array, "T *batch"]
    value: Float[Array, "T *batch"]
    # V(s'_t); for a truncated step, V of the final observation, because time limits bootstrap
    next_value: Float[Array, "T *batch"]
    terminated: Bool[Array, "T *batch"]  # the episode ended by its rules: no bootstrap
    truncated: Bool[Array, "T *batch"]  # a limit cut the episode


def gae(
    steps: Steps,
    gamma: Float[Array, "*#batch"],
    gae_lambda: Float[Array, "*#batch"],
    unroll: int = 1,
) -> Float[Array, "T *batch"]:
    """Return the GAE advantages of a rollout; the first axis is time.

    delta_t = r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t)

    A_t = delta_t + gamma lambda (1 - terminated_t)(1 - truncated_t) A_{t+1}

    (Schulman et al. 2016, equations 11 to 16.) `unroll` is the number of steps per loop iteration.
    """
    return _discounted_sums(
        temporal_differences(steps, gamma), steps, gamma, gae_lambda, unroll=unroll
    )


def temporal_differences(steps: Steps, gamma: Float[Array, "*#batch"]) -> Float[Array, "T *batch"]:
    going_on = 1.0 - steps.terminated.astype(jnp.float32)
    ahead = _per_step(gamma, steps.reward) * going_on * steps.next_value
    return steps.reward + ahead - steps.value


def v_trace(
    steps: Steps,
    gamma: Float[Array, "*#batch"],
    gae_lambda: Float[Array, "*#batch"],
    ratio: Float[Array, "T *batch"],
    *,
    rho_clip: Float[Array, "*#batch"],
    c_clip: Float[Array, "*#batch"],
    unroll: int = 1,
) -> Float[Array, "T *batch"]:
    """Return the V-trace advantages of an off-policy rollout; the first axis is time.

    With rho_t = min(ratio_t, rho_clip), c_t = min(ratio_t, c_clip), and `ratio` the action's
    current probability divided by its probability when it was taken:

    delta_t = rho_t (r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t))

    A_t = delta_t + gamma lambda c_t (1 - terminated_t)(1 - truncated_t) A_{t+1}

    At lambda 1, A_t + V(s_t) is v_t in equation 1 of Espeholt et al. 2018 (IMPALA). If every ratio
    is 1 and no clip is below 1, A_t equals the result of `gae`.
    """
    rho, trace = (jnp.minimum(ratio, _per_step(clip, ratio)) for clip in (rho_clip, c_clip))
    deltas = rho * temporal_differences(steps, gamma)
    return _discounted_sums(deltas, steps, gamma, gae_lambda, trace=trace, unroll=unroll)


def _per_step(number: Array, like: Float[Array, "T *batch"]) -> Array:
    return jnp.broadcast_to(number, like.shape[1:])[None]


def _discounted_sums(
    deltas: Float[Array, "T *batch"],
    steps: Steps,
    gamma: Float[Array, "*#batch"],
    gae_lambda: Float[Array, "*#batch"],
    *,
    trace: Float[Array, "T *batch"] | None = None,
    unroll: int = 1,
) -> Float[Array, "T *batch"]:
    """Return A_t = delta_t + gamma lambda c_t (1 - terminated_t)(1 - truncated_t) A_{t+1}."""
    going_on = 1.0 - steps.terminated.astype(jnp.float32)
    decay = _per_step(gamma, deltas) * _per_step(gae_lambda, deltas) * going_on
    decay = decay * (1.0 - steps.truncated.astype(jnp.float32))
    if trace is not None:
        decay = decay * trace

    def back(
        later: Float[Array, "*batch"], step: tuple[Array, Array]
    ) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
        delta, weight = step
        advantage = delta + weight * later
        return advantage, advantage

    start = jnp.zeros_like(deltas[0])
    _, advantages = jax.lax.scan(back, start, (deltas, decay), reverse=True, unroll=unroll)
    return advantages
