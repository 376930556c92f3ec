"""What a lane's next update would see, without taking it: its rollout, advantages and gradient.

Nothing is recorded inside the compiled updates, which would cost every lane; a lane that is looked
at is left as it was.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .hypers import Hypers
from .losses import ppo_loss
from .plan import Plan
from .rollout import rollout
from .state import LaneState
from .update import prepare

__all__ = ["look"]


def look(plan: Plan, hypers: Hypers, state: LaneState) -> dict[str, Any]:
    """Give the parts `trajectories`, `advantages`, `losses` and `gradients` of one lane.

    Trajectories and advantages are time first, [T, E, ...] (rows of several bodies [T, S, ...]);
    losses and gradients are those of the whole rollout as one minibatch, before the first step:
    every row once, so that none has the importance weight that rows drawn by priority carry.

    Args:
        plan: static part.
        hypers: traced part, scalars.
        state: of one lane.
    """
    one = jax.tree.map(lambda x: jnp.asarray(x)[None], (hypers, state))
    after, trajectory, _, last_value = rollout(plan, *one)
    values, _, samples = prepare(plan, one[0], after, trajectory, last_value)
    shape = trajectory.reward.shape  # [T, 1, rows]

    def by_time(x: jax.Array) -> jax.Array:
        return x[0].T if plan.by_segments else x[0].reshape((shape[0], shape[2]))

    unweighted = samples.replace(importance=None)
    coefficients, rows = jax.tree.map(lambda x: x[0], (values.coefficients, unweighted))
    gradient = jax.grad(ppo_loss, has_aux=True)
    alone = jax.tree.map(lambda x: x[0], one)
    gradients, losses = gradient(alone[1].params, plan, alone[0], coefficients, rows, None)
    return {
        "trajectories": jax.tree.map(lambda x: x[:, 0], trajectory),
        "advantages": {
            "advantage": by_time(samples.advantage),
            "target": by_time(samples.target),
        },
        "losses": losses,
        "gradients": gradients,
    }
