"""A trained policy in the place of a heuristic, so that both serve the same request streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Bool, Int

from ....errors import ConfigError
from ..contract import Environment, same_observations
from .environment import OpticalEnvironment, OpticalState
from .heuristics import Choice, Heuristic
from .resources import Offers
from .traffic import OpticalParams

__all__ = ["check_fits", "make_policy_rule"]

Act = Callable[[Any, Bool[Array, " A"]], Int[Array, ""]]
"""(observation, valid actions) -> action."""


def make_policy_rule(environment: OpticalEnvironment, act: Act) -> Heuristic:
    """Give the rule that observes as a policy does and serves what it chooses.

    Args:
        environment: where it acts; `check_fits` says whether a policy can.
        act: the policy, for one observation.
    """

    def choose(state: OpticalState, offers: Offers, params: OpticalParams) -> Choice:
        observation = environment.observe(state, params)
        action = act(observation, environment.action_mask(state, params))
        return environment.decode(offers, action)

    return choose


def check_fits(learnt_in: Environment, environment: OpticalEnvironment) -> None:
    """Refuse an environment whose actions or observations a policy was not trained for.

    Raises:
        ConfigError: says which.
    """
    alike = {
        "action_space": learnt_in.action_space == environment.action_space,
        "observation_struct": same_observations(learnt_in, environment),
    }
    for name, same in alike.items():
        if not same:
            theirs, ours = getattr(learnt_in, name), getattr(environment, name)
            what = "actions" if name == "action_space" else "observations"
            raise ConfigError(
                f"the policy was trained for other {what} ({theirs}) than this environment has "
                f"({ours}); give slots, k, aggregate_slots, no_op, observation and topology as "
                "in training"
            )
