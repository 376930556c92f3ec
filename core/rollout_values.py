"""Values of a rollout computed after it, on backends where that is less work than step by step.

In each step a lane's few rows read all of its critic's weights, and so do the final observations
of that step. After the rollout the weights are read once for as many rows as a minibatch has.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import policy
from .acting import value_of
from .hypers import Hypers
from .lane_state import LaneState
from .over_lanes import over_lanes
from .plan import Plan
from .trajectory import Trajectory

__all__ = ["values_wait", "with_values"]


def values_wait(plan: Plan) -> bool:
    """Return whether a plan's values are computed after the rollout.

    Those of networks with a memory need it as it was, and where actor and critic share their
    layers acting has the value at hand.
    """
    return plan.backend.values_after and not (policy.is_recurrent(plan) or plan.shared_encoder)


def with_values(
    plan: Plan, hypers: Hypers, state: LaneState, seen: Trajectory, final: Any
) -> Trajectory:
    """Return a trajectory [T, L, ...] with its values and bootstraps.

    Args:
        plan: the static part.
        hypers: of the lanes.
        state: of the lanes, with the parameters and statistics that acted.
        seen: the trajectory without them.
        final: the observations that steps gave, before any reset [T, L, ...]; None where no
            episode ends.
    """
    value, after = _in_parts(plan, hypers, state, (seen.observation, final))
    cut = seen.truncated & ~seen.terminated
    bootstrap = seen.bootstrap if after is None else jnp.where(cut, after, 0.0)
    return seen.replace(value=value, bootstrap=bootstrap)


def _in_parts(plan: Plan, hypers: Hypers, state: LaneState, trees: Any) -> Any:
    """Return V of some observations [T, L, S, ...], in parts of no more rows than a minibatch."""

    def values(observation: Any) -> Float[Array, "t L S"] | None:
        if observation is None:
            return None
        return over_lanes(lambda h, s, o: value_of(plan, h, s, o), in_axes=(0, 0, 1), out_axes=1)(
            hypers, state, observation
        )

    def part(trees: tuple[Any, Any]) -> tuple[Any, Any]:
        return values(trees[0]), values(trees[1])

    steps = plan.rollout_length
    rows = max(1, plan.minibatch_size // plan.gradient_accumulation)
    count = next(n for n in range(1, steps + 1) if steps % n == 0 and _fits(plan, rows, n))
    if count == 1:
        return part(trees)
    split = jax.tree.map(lambda x: x.reshape((count, steps // count, *x.shape[1:])), trees)
    with jax.named_scope("values"):
        made = jax.lax.map(part, split)
    return jax.tree.map(lambda x: x.reshape((steps, *x.shape[2:])), made)


def _fits(plan: Plan, rows: int, parts: int) -> bool:
    """Return whether one of the parts has as few rows; one step at a time always does."""
    steps = plan.rollout_length // parts
    return steps == 1 or steps * plan.num_envs <= rows
