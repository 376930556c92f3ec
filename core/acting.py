"""The one way in which a policy acts: normalise, remember, choose.

Rollouts, evaluations, `predict`, hosted environments and optical networks all act through this
module, so that none of them can forget the normaliser, the memory or the mask.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Bool, Float, PRNGKeyArray

from . import policy
from .actions import component_sizes, draw_noise, environment_action, raw_logits
from .envs.contract import Environment
from .hypers import Hypers
from .lane_state import LaneState, RunningStatistics
from .masking import valid_mass_of
from .networks.layers import Outputs
from .plan import Plan
from .pytree import Pytree, pytree


@pytree
class Acted(Pytree):
    action: Array
    taken: Array  # the environment's action
    mask: Bool[Array, "... A"] | None  # valid actions
    log_prob: Float[Array, "..."]
    value: Float[Array, "..."]
    valid_mass: Float[Array, "..."] | None  # see `trajectory.Trajectory`
    memory: Any  # after the step


def _outputs(
    plan: Plan, hypers: Hypers, params: Any, statistics: RunningStatistics, observation: Any,
    memory: Any,
) -> tuple[Outputs, Any]:  # fmt: skip
    seen = policy.normalised(plan, hypers, statistics, observation)
    return policy.step(plan, params, seen, memory)


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
    """Return the environment's action of one lane for raw observations [...], and the next memory.

    Observations are stacked where `history` is above 1. `mask` None allows every action, `memory`
    None is that at the start of episodes. `key` draws the actions; None takes the mode.
    """
    outputs, memory = _outputs(plan, hypers, params, statistics, observation, memory)
    distribution = policy.distribution_of(plan, hypers, params, outputs, mask)
    if key is None:
        return environment_action(plan, env, distribution.mode()), memory
    noise = draw_noise(plan, env, key, outputs.value.shape)
    return environment_action(plan, env, distribution.sample(noise)), memory


def act_to_learn(
    plan: Plan,
    env: Environment,
    hypers: Hypers,
    state: LaneState,
    shown: Any,
    mask: Bool[Array, "S A"] | None,
    noise: Array,
) -> Acted:
    """Return one lane's step of a rollout; `shown` has words for dropout where that is on."""
    params = state.params
    outputs, memory = _outputs(
        plan, hypers, params, state.observation_statistics, shown, state.carry
    )
    distribution = policy.distribution_of(plan, hypers, params, outputs, mask)
    action = distribution.sample(noise)
    valid_mass = None
    if mask is not None:
        logits = raw_logits(plan, env, outputs.policy)
        valid_mass = valid_mass_of(logits, mask, component_sizes(env))
    return Acted(
        action=action,
        taken=environment_action(plan, env, action),
        mask=mask,
        log_prob=distribution.log_prob(action),
        value=outputs.value,
        valid_mass=valid_mass,
        memory=memory,
    )


def value_of(plan: Plan, hypers: Hypers, state: LaneState, observation: Any) -> Float[Array, "*S"]:
    return look_ahead(plan, hypers, state, observation, state.carry)[0]


def look_ahead(
    plan: Plan, hypers: Hypers, state: LaneState, observation: Any, memory: Any
) -> tuple[Float[Array, "*S"], Any]:
    """Return V of one lane's observations [*S, ...] by a memory, and the memory after them."""
    statistics = state.observation_statistics
    outputs, memory = _outputs(plan, hypers, state.params, statistics, observation, memory)
    return outputs.value, memory
