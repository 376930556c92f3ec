"""The one way in which a policy acts: normalise, remember, choose.

Evaluations, `predict` and optical networks all act through `act`, so that none of them can forget
the normaliser, the memory or the mask.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Bool, PRNGKeyArray

from . import policy
from .envs.contract import Environment
from .hypers import Hypers
from .normalise import RunningStatistics
from .plan import Plan

__all__ = ["act"]


def act(
    plan: Plan,
    env: Environment,
    hypers: Hypers,
    params: Any,
    statistics: RunningStatistics,
    observation: Any,
    mask: Bool[Array, "... A"] | None,
    memory: Any,
    key: PRNGKeyArray | None,
) -> tuple[Array, Any]:
    """Return what the environment takes for observations [...], and the memory after them.

    Args:
        plan: the static part.
        env: whose actions these are.
        hypers: of one lane.
        params: of one lane's network.
        statistics: frozen observation normaliser.
        observation: [...], as the environment shows it; stacked where `history` is above 1.
        mask: valid actions, or None where every action is allowed.
        memory: before the step, [...]; None at the start of episodes.
        key: draws the actions; None takes the mode of the distribution.
    """
    seen = policy.normalised(plan, hypers, statistics, observation)
    outputs, memory = policy.step(plan, params, seen, memory)
    distribution = policy.distribution_of(plan, hypers, params, outputs, mask)
    if key is None:
        return policy.environment_action(plan, env, distribution.mode()), memory
    noise = policy.draw_noise(plan, env, key, outputs.value.shape)
    return policy.environment_action(plan, env, distribution.sample(noise)), memory
