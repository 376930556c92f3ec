"""Adam and AdamW with every number traced, one for the policy and one for the critic.

The two share clip, moments and step size unless `separate_vf_optimiser` is on in a lane, in which
case the critic's parameters follow the `vf_*` knobs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from .policy import is_critic
from .pytree import Pytree, pytree
from .schedules import scheduled
from .state import Hypers, Plan

__all__ = ["StepSizes", "apply_gradients", "init_moments", "step_sizes", "tree_norm"]


@pytree
class StepSizes(Pytree):
    """Learning rates of one update, after their schedules."""

    policy: Float[Array, ""]
    critic: Float[Array, ""]


def step_sizes(hypers: Hypers, progress: Float[Array, ""]) -> StepSizes:
    """Give the learning rates at `progress` through the run (see `schedules.scheduled`)."""
    policy = scheduled(
        hypers.learning_rate,
        hypers.lr_schedule,
        progress,
        end_fraction=hypers.lr_end_fraction,
        multiplier=hypers.lr_schedule_multiplier,
        exponent=hypers.lr_decay_exponent,
        warmup_fraction=hypers.lr_warmup_fraction,
        peak_multiplier=hypers.lr_warmup_multiplier,
        start_fraction=hypers.lr_warmup_start_fraction,
    )
    critic = scheduled(
        hypers.vf_learning_rate,
        hypers.vf_lr_schedule,
        progress,
        end_fraction=hypers.vf_lr_end_fraction,
        multiplier=hypers.vf_schedule_multiplier,
        exponent=hypers.lr_decay_exponent,
        warmup_fraction=hypers.vf_warmup_fraction,
        peak_multiplier=hypers.vf_warmup_multiplier,
        start_fraction=hypers.vf_warmup_start_fraction,
    )
    return StepSizes(policy, jnp.where(hypers.separate_vf_optimiser > 0.0, critic, policy))


def _groups(params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    critic = {name: value for name, value in params.items() if is_critic(name)}
    return {name: value for name, value in params.items() if name not in critic}, critic


def init_moments(params: dict[str, Any]) -> tuple[optax.OptState, optax.OptState]:
    """Give Adam's state for policy and critic parameters."""
    policy, critic = _groups(params)
    adam = optax.scale_by_adam()
    return adam.init(policy), adam.init(critic)


def tree_norm(tree: Any) -> Float[Array, ""]:
    """Give the Euclidean norm over all leaves."""
    return jnp.sqrt(_square(tree))


def _square(tree: Any) -> Float[Array, ""]:
    leaves = jax.tree.leaves(tree)
    return jnp.sum(jnp.stack([jnp.sum(jnp.square(leaf)) for leaf in leaves]))


def apply_gradients(
    plan: Plan,
    hypers: Hypers,
    sizes: StepSizes,
    params: dict[str, Any],
    moments: tuple[optax.OptState, optax.OptState],
    gradients: dict[str, Any],
) -> tuple[dict[str, Any], tuple[optax.OptState, optax.OptState], Float[Array, ""]]:
    """Take one step; gives new parameters, new moments and the global gradient norm.

    Gradients are clipped by their global norm (over all parameters, or over each group with
    `separate_vf_optimiser`), then Adam (Kingma & Ba 2015) or AdamW (Loshchilov & Hutter 2019).
    """
    separate = hypers.separate_vf_optimiser > 0.0
    square_policy, square_critic = (_square(group) for group in _groups(gradients))
    norm = jnp.sqrt(square_policy + square_critic)
    norms = (
        jnp.where(separate, jnp.sqrt(square_policy), norm),
        jnp.where(separate, jnp.sqrt(square_critic), norm),
    )

    def own(critic: Array, policy: Array) -> Array:
        return jnp.where(separate, critic, policy)

    settings = (
        (sizes.policy, hypers.max_grad_norm, hypers.adam_beta1, hypers.adam_beta2,
         hypers.adam_eps, hypers.weight_decay),
        (sizes.critic, own(hypers.vf_max_grad_norm, hypers.max_grad_norm),
         own(hypers.vf_adam_beta1, hypers.adam_beta1),
         own(hypers.vf_adam_beta2, hypers.adam_beta2), own(hypers.vf_adam_eps, hypers.adam_eps),
         own(hypers.vf_weight_decay, hypers.weight_decay)),
    )  # fmt: skip
    new_params: dict[str, Any] = {}
    new_moments = []
    for group, gradient, moment, group_norm, (size, limit, beta1, beta2, eps, decay) in zip(
        _groups(params), _groups(gradients), moments, norms, settings, strict=True
    ):
        scale = jnp.minimum(1.0, limit / group_norm)
        clipped = jax.tree.map(lambda g, scale=scale: g * scale, gradient)
        with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 power
            direction, moment = optax.scale_by_adam(beta1, beta2, eps).update(clipped, moment)
        if plan.optimiser == "adamw":
            direction = jax.tree.map(lambda d, p, w=decay: d + w * p, direction, group)
        new_params |= jax.tree.map(lambda p, d, size=size: p - size * d, group, direction)
        new_moments.append(moment)
    return new_params, (new_moments[0], new_moments[1]), norm
