"""The one way in which a policy acts: normalise, remember, choose.

Rollouts, evaluations, `predict`, hosted environments and optical networks all act through
`respond`, so that none of them can forget the normaliser, the memory or the mask.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Bool, Float, PRNGKeyArray

from . import policy
from .actions import component_sizes, draw_noise, environment_action, raw_logits
from .distributions import Distribution
from .envs.contract import Environment
from .hypers import Hypers
from .lane_state import LaneState, RunningStatistics
from .masking import valid_mass_of
from .networks.layers import Outputs
from .plan import Plan
from .pytree import Pytree, pytree


@pytree
class Response(Pytree):
    """What a policy makes of observations [...].

    Attributes:
        distribution: of its actions.
        outputs: of its network.
        memory: after the step.
    """

    distribution: Distribution
    outputs: Outputs
    memory: Any


@pytree
class Acted(Pytree):
    """One step of one lane's bodies, with what learning needs of it, [S, ...].

    Attributes:
        action: of the policy.
        taken: the same, as the environment takes it.
        mask: valid actions, or None.
        log_prob: of the action.
        value: V(s).
        valid_mass: probability that the raw policy gives to valid actions (0 where there are
            none), or None without masks.
        memory: after the step.
    """

    action: Array
    taken: Array
    mask: Bool[Array, "... A"] | None
    log_prob: Float[Array, "..."]
    value: Float[Array, "..."]
    valid_mass: Float[Array, "..."] | None
    memory: Any


def respond(
    plan: Plan,
    hypers: Hypers,
    params: Any,
    statistics: RunningStatistics,
    observation: Any,
    mask: Bool[Array, "... A"] | None,
    memory: Any,
) -> Response:
    """Return what one lane's policy makes of observations [...].

    Args:
        plan: the static part.
        hypers: of one lane.
        params: of one lane's network.
        statistics: observation normaliser, as it is.
        observation: [...], as the environment shows it; stacked where `history` is above 1.
        mask: valid actions, or None where every action is allowed.
        memory: before the step, [...]; None at the start of episodes.
    """
    seen = policy.normalised(plan, hypers, statistics, observation)
    outputs, memory = policy.step(plan, params, seen, memory)
    distribution = policy.distribution_of(plan, hypers, params, outputs, mask)
    return Response(distribution, outputs, memory)


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
        plan: as for `respond`, like all that follow but `env` and `key`.
        env: whose actions these are.
        hypers: of one lane.
        params: of one lane's network.
        statistics: frozen observation normaliser.
        observation: [...].
        mask: valid actions, or None.
        memory: before the step.
        key: draws the actions; None takes the mode of the distribution.
    """
    response = respond(plan, hypers, params, statistics, observation, mask, memory)
    distribution, memory = response.distribution, response.memory
    if key is None:
        return environment_action(plan, env, distribution.mode()), memory
    noise = draw_noise(plan, env, key, response.outputs.value.shape)
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
    """Return one lane's step of a rollout.

    Args:
        plan: the static part.
        env: whose actions these are.
        hypers: of one lane.
        state: of one lane: its network, normaliser and memory.
        shown: observations [S, ...], with words for dropout where that is on.
        mask: valid actions, or None where every action is allowed.
        noise: of the actions.
    """
    response = respond(
        plan, hypers, state.params, state.observation_statistics, shown, mask, state.carry
    )
    action = response.distribution.sample(noise)
    valid_mass = None
    if mask is not None:
        logits = raw_logits(plan, env, response.outputs.policy)
        valid_mass = valid_mass_of(logits, mask, component_sizes(env))
    return Acted(
        action=action,
        taken=environment_action(plan, env, action),
        mask=mask,
        log_prob=response.distribution.log_prob(action),
        value=response.outputs.value,
        valid_mass=valid_mass,
        memory=response.memory,
    )


def value_of(plan: Plan, hypers: Hypers, state: LaneState, observation: Any) -> Float[Array, "*S"]:
    """Return V of one lane's observations [*S, ...], with the memory that it has."""
    return look_ahead(plan, hypers, state, observation, state.carry)[0]


def look_ahead(
    plan: Plan, hypers: Hypers, state: LaneState, observation: Any, memory: Any
) -> tuple[Float[Array, "*S"], Any]:
    """Return V of one lane's observations [*S, ...] by a memory, and the memory after them."""
    seen = policy.normalised(plan, hypers, state.observation_statistics, observation)
    outputs, memory = policy.step(plan, state.params, seen, memory)
    return outputs.value, memory
