"""The PPO loss of one minibatch of one lane (Schulman et al. 2017), every switch traced."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from . import policy
from .networks.outputs import Outputs
from .pytree import Pytree, pytree
from .state import SAME, Hypers, Plan

__all__ = ["Coefficients", "Losses", "Samples", "ppo_loss"]


@pytree
class Samples(Pytree):
    """Rows of a rollout, [B, ...] or [N, ...]; with whole segments [B, T, ...] or [N, T, ...].

    Attributes:
        observation: as the network saw it (normalised).
        action: taken.
        mask: valid actions then, or None.
        log_prob: of the action under the policy that took it.
        value: V_old.
        advantage: A.
        target: R = A + V_old.
        noise: for entropies that are sampled, or None (see `distributions.draw_entropy_noise`).
        first: for networks with a memory: an episode begins at this step, [B, T].
        carry: likewise: the memory before the segment, [B, 1, ...].
    """

    observation: Any
    action: Array
    mask: Array | None
    log_prob: Float[Array, "B *T"]
    value: Float[Array, "B *T"]
    advantage: Float[Array, "B *T"]
    target: Float[Array, "B *T"]
    noise: Array | None = None
    first: Bool[Array, "B T"] | None = None
    carry: Any = ()


@pytree
class Coefficients(Pytree):
    """Scheduled values of one update."""

    clip_eps: Float[Array, ""]
    ent_coef: Float[Array, ""]


@pytree
class Losses(Pytree):
    """What one minibatch showed; means over its rows unless said otherwise."""

    loss: Float[Array, "..."]
    policy_loss: Float[Array, "..."]
    value_loss: Float[Array, "..."]
    entropy: Float[Array, "..."]
    approx_kl: Float[Array, "..."]
    clip_fraction: Float[Array, "..."]
    ratio_mean: Float[Array, "..."]
    ratio_std: Float[Array, "..."]
    ratio_min: Float[Array, "..."]
    ratio_max: Float[Array, "..."]


def ppo_loss(
    params: dict[str, Any],
    plan: Plan,
    hypers: Hypers,
    coefficients: Coefficients,
    rows: Samples,
    weight: Float[Array, " B"] | None,
) -> tuple[Float[Array, ""], Losses]:
    """Give the loss and what is worth seeing of it.

    L = -mean(min(r A, clip(r, 1 - eps, 1 + eps) A)) + vf_coef L_V - ent_coef mean(H), with
    r = exp(clip(log pi - log pi_old, +-logr_clip)), A normalised over the minibatch, and
    L_V = 0.5 mean((V - R)^2), or the larger of that and the same for V clipped to V_old +-
    value_clip_eps. approx_kl = mean((r - 1) - log r) (Schulman 2020, estimator k3).

    Args:
        params: of one lane.
        plan: static part.
        hypers: traced part, scalars.
        coefficients: scheduled values.
        rows: the minibatch.
        weight: 0 for rows that only fill the last minibatch up, or None if there are none.
    """

    def mean(x: Float[Array, " B"]) -> Float[Array, ""]:
        return jnp.mean(x) if weight is None else jnp.sum(x * weight) / jnp.sum(weight)

    outputs = _outputs(plan, params, rows)
    if plan.by_segments:
        outputs, rows, weight = _steps(plan, outputs, rows, weight)
    distribution = policy.distribution_of(plan, hypers, params, outputs, rows.mask)
    change = distribution.log_prob(rows.action) - rows.log_prob
    log_ratio = jnp.clip(change, -hypers.logr_clip, hypers.logr_clip)
    ratio = jnp.exp(log_ratio)
    advantage = _normalised(rows.advantage, hypers, mean)
    eps = coefficients.clip_eps
    clipped = jnp.clip(ratio, 1.0 - eps, 1.0 + eps)
    policy_loss = -mean(jnp.minimum(ratio * advantage, clipped * advantage))
    value_loss = mean(_value_errors(outputs.value, rows, hypers, eps))
    entropy = mean(distribution.entropy(rows.noise))
    loss = policy_loss + hypers.vf_coef * value_loss - coefficients.ent_coef * entropy
    ratio_mean = mean(ratio)
    present = ratio if weight is None else jnp.where(weight > 0.0, ratio, 1.0)
    return loss, Losses(
        loss=loss,
        policy_loss=policy_loss,
        value_loss=value_loss,
        entropy=entropy,
        approx_kl=mean((ratio - 1.0) - log_ratio),
        clip_fraction=mean((jnp.abs(ratio - 1.0) > eps).astype(jnp.float32)),
        ratio_mean=ratio_mean,
        ratio_std=jnp.sqrt(jnp.maximum(mean(jnp.square(ratio - ratio_mean)), 0.0)),
        ratio_min=jnp.min(present),
        ratio_max=jnp.max(present),
    )


def _outputs(plan: Plan, params: dict[str, Any], rows: Samples) -> Outputs:
    """Run the network; one with a memory through whole segments, time first."""
    if rows.first is None:
        return policy.apply(plan, params, rows.observation)

    def swapped(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)

    observation, first = swapped((rows.observation, rows.first))
    carry = jax.tree.map(lambda x: x[:, 0], rows.carry)
    return swapped(policy.unroll(plan, params, observation, first, carry))


def _steps(
    plan: Plan, outputs: Outputs, rows: Samples, weight: Float[Array, " B"] | None
) -> tuple[Outputs, Samples, Float[Array, " steps"] | None]:
    """Give the single steps of whole segments: [B, T, ...] becomes [B T, ...]."""
    rows = rows.replace(first=None, carry=())
    flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), (outputs, rows))
    return *flat, None if weight is None else jnp.repeat(weight, plan.rollout_length)


def _normalised(advantage: Float[Array, " B"], hypers: Hypers, mean: Any) -> Float[Array, " B"]:
    centre = mean(advantage)
    deviation = jnp.sqrt(mean(jnp.square(advantage - centre)))
    clean = (advantage - centre) / (deviation + 1e-8)
    clean = jnp.clip(clean, -hypers.adv_clip, hypers.adv_clip)
    return jnp.where(hypers.normalise_advantages > 0.0, clean, advantage)


def _value_errors(
    value: Float[Array, " B"], rows: Samples, hypers: Hypers, clip_eps: Float[Array, ""]
) -> Float[Array, " B"]:
    limit = jnp.where(hypers.value_clip_eps == SAME, clip_eps, hypers.value_clip_eps)
    near = rows.value + jnp.clip(value - rows.value, -limit, limit)
    free = jnp.square(value - rows.target)
    held = jnp.where(jnp.isinf(limit), free, jnp.square(near - rows.target))
    return 0.5 * jnp.maximum(free, held)
