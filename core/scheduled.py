"""The values of an update that follow the lane's progress through its run: what, and when."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from .hypers import OFF, Hypers
from .lane_state import LaneState
from .optimisers import StepSizes, step_sizes
from .plan import Plan
from .pytree import Pytree, pytree
from .schedules import annealed_lambda, curve

__all__ = ["Coefficients", "Scheduled", "progress_of", "scheduled_values"]


@pytree
class Coefficients(Pytree):
    """Values of one update that the loss takes, []."""

    clip_eps: Float[Array, ""]
    ent_coef: Float[Array, ""]
    valid_mass_coef: Float[Array, ""]
    gae_lambda: Float[Array, ""]
    vf_gae_lambda: Float[Array, ""]


@pytree
class Scheduled(Pytree):
    """Values of one update of one lane, [].

    Attributes:
        progress: share of the full run that is done.
        priority_beta: exponent of the importance weights.
        coefficients: of the loss.
        sizes: learning rates.
    """

    progress: Float[Array, ""]
    priority_beta: Float[Array, ""]
    coefficients: Coefficients
    sizes: StepSizes


def progress_of(
    plan: Plan, hypers: Hypers, state: LaneState, minibatches: int, taken: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the share of its full run that one lane has done.

    Updates done over updates of the full run; with `schedule_on_gradient_steps` gradient steps
    taken over those of the full run, which is then no more than reached: steps that target_kl
    skips are not taken.

    Args:
        plan: static part.
        hypers: of the lane.
        state: of the lane; counts what was done before this update.
        minibatches: of an epoch; `accumulate_minibatches` of them make a gradient step.
        taken: gradient steps of this update so far.
    """
    done = jnp.maximum(state.updates, 0).astype(jnp.float32)
    updates = jnp.maximum(state.total_updates, 1).astype(jnp.float32)
    progress = done / updates
    if "schedule_on_gradient_steps" not in plan.features:
        return progress
    steps_per_epoch = math.ceil(minibatches / plan.accumulate_minibatches)
    steps = updates * (hypers.update_epochs * steps_per_epoch).astype(jnp.float32)
    by_steps = (state.gradient_steps.astype(jnp.float32) + taken) / steps
    return jnp.where(hypers.schedule_on_gradient_steps > 0.0, by_steps, progress)


def scheduled_values(hypers: Hypers, progress: Float[Array, ""]) -> Scheduled:
    """Return one lane's values at `progress` through its run."""
    one = jnp.ones_like(progress)
    clip_eps = curve(
        hypers, progress, hypers.clip_eps, hypers.clip_eps_schedule,
        hypers.clip_eps_end_fraction, one,
    )  # fmt: skip
    ent_coef = curve(
        hypers, progress, hypers.ent_coef, hypers.ent_schedule, hypers.ent_end_fraction,
        hypers.ent_schedule_multiplier,
    )  # fmt: skip
    valid_mass_coef = curve(
        hypers, progress, hypers.valid_mass_coef, hypers.valid_mass_schedule,
        hypers.valid_mass_end_fraction, hypers.valid_mass_schedule_multiplier,
    )  # fmt: skip
    gae_lambda = annealed_lambda(
        hypers.gae_lambda_initial,
        hypers.gae_lambda_final,
        progress,
        hypers.gae_lambda_schedule_multiplier,
    )
    own = hypers.vf_gae_lambda < OFF
    vf_gae_lambda = jnp.where(own, hypers.vf_gae_lambda, gae_lambda)
    share = jnp.where(hypers.anneal_priority_beta > 0.0, jnp.minimum(progress, 1.0), 0.0)
    return Scheduled(
        progress=progress,
        priority_beta=hypers.priority_beta0 + (1.0 - hypers.priority_beta0) * share,
        coefficients=Coefficients(clip_eps, ent_coef, valid_mass_coef, gae_lambda, vf_gae_lambda),
        sizes=step_sizes(hypers, progress),
    )
