"""The distribution that fits an action space, and the environment's action for a policy's.

A policy's action is the one that its distribution has a density of; `environment_action` maps it
to one of the environment.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..environments.registry import fitting_distributions
from ..errors import ConfigError
from .distributions import Actions, Distribution, Family, Squashed, family_of, spread_bounds
from .envs.contract import Box, Discrete, Environment, MultiDiscrete
from .plan import Plan

_KINDS = {Discrete: "discrete", MultiDiscrete: "multi_discrete", Box: "continuous"}


def distribution_kind(plan: Plan, env: Environment) -> str:
    """Return the name of a plan's distribution; unset, the first that fits the action space."""
    fitting = fitting_distributions(_KINDS.get(type(env.action_space), ""))
    if not fitting:
        kind = type(env.action_space).__name__
        raise ConfigError(f"{env.id} has actions of the kind {kind}, which no distribution fits")
    if plan.distribution is None:
        return fitting[0]
    if plan.distribution not in fitting:
        raise ConfigError(
            f"distribution is {plan.distribution!r}, which does not fit the actions of {env.id}; "
            f"leave it out, or take one of: {', '.join(fitting)}"
        )
    return plan.distribution


def action_shape(env: Environment) -> tuple[int, ...]:
    space = env.action_space
    if isinstance(space, Discrete):
        return ()
    if isinstance(space, MultiDiscrete):
        return (len(space.nvec),)
    return (math.prod(space.shape),)


def component_sizes(env: Environment) -> tuple[int, ...] | None:
    space = env.action_space
    return space.nvec if isinstance(space, MultiDiscrete) else None


def head_outputs(plan: Plan, env: Environment) -> int:
    """Return the width of the policy head: logits, means, or two numbers per component."""
    family, actions = _family(plan, env)
    return family.outputs(actions)


def has_log_std(plan: Plan, env: Environment) -> bool:
    return family_of(distribution_kind(plan, env)).has_log_std


def draw_noise(plan: Plan, env: Environment, key: PRNGKeyArray, batch: tuple[int, ...]) -> Array:
    return family_of(distribution_kind(plan, env)).noise(key, batch, action_shape(env))


def draw_entropy_noise(
    plan: Plan, env: Environment, key: PRNGKeyArray, batch: tuple[int, ...]
) -> Array | None:
    return family_of(distribution_kind(plan, env)).entropy_noise(key, batch, action_shape(env))


def raw_logits(
    plan: Plan, env: Environment, outputs: Float[Array, "... P"]
) -> Float[Array, "... A"]:
    family, actions = _family(plan, env)
    return family.logits(outputs, actions)


def _family(plan: Plan, env: Environment) -> tuple[Family, Actions]:
    family, space = family_of(distribution_kind(plan, env)), env.action_space
    low = high = np.zeros(0, np.float32)
    if isinstance(space, Box):
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        if family.bounded or _has_own_range(plan):
            low, high = action_range(plan, space)
        if family.bounded and not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
            raise ConfigError(
                f"distribution {plan.distribution} needs bounded actions, but those of {env.id} "
                "are not; set action_low and action_high, or take gaussian"
            )
    return family, Actions(space, action_shape(env), low, high, plan.backend.selects_actions)


def _has_own_range(plan: Plan) -> bool:
    return plan.action_low is not None or plan.action_high is not None


def action_range(plan: Plan, space: Box) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    if plan.action_low is not None:
        low = np.full_like(low, plan.action_low)
    if plan.action_high is not None:
        high = np.full_like(high, plan.action_high)
    if not np.all(low < high):
        at = int(np.argmin(low < high))
        raise ConfigError(
            f"actions would be between {low[at]:g} and {high[at]:g}; action_low must be below "
            "action_high (or the environment's bound, where one is unset)"
        )
    return low, high


def make_distribution(
    plan: Plan,
    env: Environment,
    outputs: Float[Array, "... P"],
    mask: Bool[Array, "... P"] | None,
    log_std: Float[Array, " D"] | None,
) -> Distribution:
    family, actions = _family(plan, env)
    if outputs.shape[-1] != family.outputs(actions):
        raise ConfigError(
            f"distribution {plan.distribution} needs {family.outputs(actions)} outputs, but "
            f"network {plan.network} gives {outputs.shape[-1]} here; take another of them"
        )
    return family.make(outputs, actions, mask, log_std)


def environment_action(plan: Plan, env: Environment, action: Array) -> Array:
    """Return the environment's action for actions of the policy, leading axes allowed.

    Integers stay as they are. Real actions are mapped by the distribution, and clipped to
    `action_low` and `action_high` where one is set. Else the environment clips them to its box.
    """
    space = env.action_space
    if not isinstance(space, Box):
        return action
    family, actions = _family(plan, env)
    action = family.environment_action(action, actions)
    if _has_own_range(plan) and not isinstance(family, Squashed):  # which clips them already
        action = jnp.clip(action, *spread_bounds(actions, action))
    return action.reshape((*action.shape[:-1], *space.shape))
