"""What a lane's next update would see, without taking it: its rollout, advantages and gradient.

Nothing is recorded inside the compiled updates, which would cost every lane; a lane that is looked
at is left as it was.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .hypers import Hypers
from .lane_state import LaneState
from .losses import ppo_loss
from .plan import Plan
from .rollout import rollout
from .trajectory import Rollout
from .update import prepare

__all__ = ["look", "look_at"]


def look(plan: Plan, hypers: Hypers, state: LaneState) -> dict[str, Any]:
    """Return the parts `trajectories`, `advantages`, `losses` and `gradients` of one lane.

    Trajectories and advantages are time first, [T, E, ...] (rows of several bodies [T, S, ...]);
    losses and gradients are those of the whole rollout as one minibatch, before the first step:
    every row once, so that none has the importance weight that rows drawn by priority carry.

    Args:
        plan: static part.
        hypers: traced part, scalars.
        state: of one lane.
    """
    one = jax.tree.map(lambda x: jnp.asarray(x)[None], state)
    all_hypers = jax.tree.map(lambda x: jnp.asarray(x)[None], hypers)
    played = rollout(plan, all_hypers, one)
    found = look_at(plan, hypers, played)
    told = jax.tree.map(lambda x: x[:, 0], played.info)
    return {**found, "trajectories": found["trajectories"].replace(info=told)}


def look_at(plan: Plan, hypers: Hypers, played: Rollout) -> dict[str, Any]:
    """Return the parts that `look` does, of a rollout that one lane has played.

    Args:
        plan: static part.
        hypers: traced part, scalars.
        played: by the one lane, whose parameters are those that acted.
    """
    all_hypers = jax.tree.map(lambda x: jnp.asarray(x)[None], hypers)
    values, _, samples = prepare(plan, all_hypers, played)
    trajectory = played.trajectory
    shape = trajectory.reward.shape  # [T, 1, rows]

    def by_time(x: jax.Array) -> jax.Array:
        return x[0].T if plan.by_segments else x[0].reshape((shape[0], shape[2]))

    coefficients, rows, params, alone = jax.tree.map(
        lambda x: x[0], (values.coefficients, samples, played.state.params, all_hypers)
    )
    gradient = jax.grad(ppo_loss, has_aux=True)
    unweighted = rows.replace(importance=None)
    gradients, losses = gradient(params, plan, alone, coefficients, unweighted, None)
    return {
        "trajectories": jax.tree.map(lambda x: x[:, 0], trajectory),
        "advantages": {
            "advantage": by_time(samples.advantage),
            "target": by_time(samples.target),
        },
        "losses": losses,
        "gradients": gradients,
    }
