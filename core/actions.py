"""Between an action space and a policy: which distribution, and what the environment takes.

A policy's action is what its distribution has a density of; `environment_action` maps it to one
of the environment.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..environments.registry import fitting_distributions
from ..errors import ConfigError
from . import distributions
from .distributions import (
    Actions,
    Beta,
    Categorical,
    Distribution,
    Family,
    Gaussian,
    MultiCategorical,
    TanhGaussian,
    own_family,
)
from .envs.contract import Box, Discrete, Environment, MultiDiscrete
from .plan import Plan

_KINDS = {Discrete: "discrete", MultiDiscrete: "multi_discrete", Box: "continuous"}


def distribution_kind(plan: Plan, env: Environment) -> str:
    """Return the distribution of a plan: its own word, or the first that fits the action space.

    Raises:
        ConfigError: the chosen distribution does not fit the action space.
    """
    actions = _KINDS.get(type(env.action_space), "")
    fitting = fitting_distributions(actions)
    if not fitting:
        kind = type(env.action_space).__name__
        raise ConfigError(f"{env.id} has actions of the kind {kind}, which no distribution fits")
    if plan.distribution is None:
        return fitting[0]
    if plan.distribution not in fitting:
        known = ", ".join(fitting)
        raise ConfigError(
            f"distribution is {plan.distribution!r}, which does not fit the actions of {env.id}; "
            f"leave it out, or take one of: {known}"
        )
    return plan.distribution


def action_shape(env: Environment) -> tuple[int, ...]:
    """Return the shape of one action as the policy makes it: [], or flat [D]."""
    space = env.action_space
    if isinstance(space, Discrete):
        return ()
    if isinstance(space, MultiDiscrete):
        return (len(space.nvec),)
    return (math.prod(space.shape),)


def component_sizes(env: Environment) -> tuple[int, ...] | None:
    """Return the choices of each component of an action, None if an action is one choice."""
    space = env.action_space
    return space.nvec if isinstance(space, MultiDiscrete) else None


def head_outputs(plan: Plan, env: Environment) -> int:
    """Return how many numbers the policy head gives: logits, means, or two numbers a component.

    Raises:
        ConfigError: the distribution does not fit the actions, or leaves them no range.
    """
    space = env.action_space
    own = _own(plan, env)
    if own is not None:
        return own.outputs(_actions(plan, env, own))
    if isinstance(space, Discrete):
        return space.n
    if isinstance(space, MultiDiscrete):
        return sum(space.nvec)
    kind = distribution_kind(plan, env)
    if kind != "gaussian":
        _bounded_range(plan, env.id, space)
    elif _has_own_range(plan):
        action_range(plan, space)
    return math.prod(space.shape) * (2 if kind == "beta" else 1)


def has_log_std(plan: Plan, env: Environment) -> bool:
    """Return whether the policy has log standard deviations as parameters of their own."""
    own = _own(plan, env)
    if own is not None:
        return own.has_log_std
    return distribution_kind(plan, env) in ("gaussian", "tanh_gaussian")


def draw_noise(plan: Plan, env: Environment, key: PRNGKeyArray, batch: tuple[int, ...]) -> Array:
    """Draw what `sample` needs for a batch of actions (see `distributions.draw_noise`)."""
    own, shape = _own(plan, env), action_shape(env)
    if own is not None:
        return own.noise(key, batch, shape)
    return distributions.draw_noise(distribution_kind(plan, env), key, batch, shape)


def draw_entropy_noise(
    plan: Plan, env: Environment, key: PRNGKeyArray, batch: tuple[int, ...]
) -> Array | None:
    """Draw what `entropy` needs for a batch, or None where it needs nothing."""
    own, shape = _own(plan, env), action_shape(env)
    if own is not None:
        return own.entropy_noise(key, batch, shape)
    return distributions.draw_entropy_noise(distribution_kind(plan, env), key, batch, shape)


def raw_logits(
    plan: Plan, env: Environment, outputs: Float[Array, "... P"]
) -> Float[Array, "... A"]:
    """Return the logits of the choices without a mask, from the outputs of a head."""
    own = _own(plan, env)
    return outputs if own is None else own.logits(outputs, _actions(plan, env, own))


def _own(plan: Plan, env: Environment) -> Family | None:
    """Return the registered distribution of a plan, None if it has a built-in one."""
    return own_family(plan.distribution) and own_family(distribution_kind(plan, env))


def _actions(plan: Plan, env: Environment, own: Family) -> Actions:
    space = env.action_space
    low = high = np.zeros(0, np.float32)
    if isinstance(space, Box):
        needs = own.bounded
        low, high = _bounded_range(plan, env.id, space) if needs else action_range(plan, space)
    return Actions(space, action_shape(env), low, high)


def action_range(plan: Plan, space: Box) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest actions [D] that a policy of this plan may take.

    They are the space's, unless `action_low` or `action_high` replace them (for all components).

    Raises:
        ConfigError: low is not below high.
    """
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    if plan.action_low is not None:
        low = np.full_like(low, plan.action_low)
    if plan.action_high is not None:
        high = np.full_like(high, plan.action_high)
    if not np.all(low < high):
        at = int(np.argmin(low < high))
        raise ConfigError(
            f"actions would lie between {low[at]:g} and {high[at]:g}; action_low must lie below "
            "action_high (or the environment's own bound, where one is unset)"
        )
    return low, high


def make_distribution(
    plan: Plan,
    env: Environment,
    outputs: Float[Array, "... P"],
    mask: Bool[Array, "... P"] | None,
    log_std: Float[Array, " D"] | None,
) -> Distribution:
    """Return the distribution over actions for a head's outputs.

    Args:
        plan: static part.
        env: the environment.
        outputs: of the head, `head_outputs` of them.
        mask: valid actions, or None.
        log_std: where `has_log_std`, clipped.

    Raises:
        ConfigError: a distribution within a box for actions without bounds.
    """
    space = env.action_space
    own = _own(plan, env)
    if own is not None:
        actions = _actions(plan, env, own)
        if outputs.shape[-1] != own.outputs(actions):
            raise ConfigError(
                f"distribution {plan.distribution} needs {own.outputs(actions)} outputs, but "
                f"network {plan.network} gives {outputs.shape[-1]} here; take another of them"
            )
        return own.make(outputs, actions, mask, log_std)
    if isinstance(space, Discrete):
        return Categorical.make(outputs, mask, plan.backend.selects_actions)
    if isinstance(space, MultiDiscrete):
        return MultiCategorical.make(outputs, space.nvec, mask, plan.backend.selects_actions)
    kind = distribution_kind(plan, env)
    if kind == "beta":
        low, high = _bounded_range(plan, env.id, space)
        return Beta.make(outputs, _log_volume(high - low))
    assert log_std is not None  # `has_log_std` says so
    lead = (1,) * (outputs.ndim - 1)
    gaussian = Gaussian(outputs, jnp.broadcast_to(log_std.reshape((*lead, -1)), outputs.shape))
    if kind == "gaussian":
        return gaussian
    low, high = _bounded_range(plan, env.id, space)
    return TanhGaussian(gaussian, _log_volume(0.5 * (high - low)))


def environment_action(plan: Plan, env: Environment, action: Array) -> Array:
    """Return what the environment takes for actions of the policy, leading axes allowed.

    Integers as they are. Real actions are mapped into the range of `action_range`: a Gaussian's
    are clipped to it where `action_low` or `action_high` is set (else the environment clips them
    to its box), a tanh-Gaussian's are mid + half tanh(u), a Beta's low + width / (1 + exp(-y)).
    A distribution of one's own maps its actions itself, and is clipped as a Gaussian is.
    """
    space = env.action_space
    if not isinstance(space, Box):
        return action
    kind, own = distribution_kind(plan, env), _own(plan, env)
    if own is not None:
        action = own.environment_action(action, _actions(plan, env, own))
    if kind == "gaussian" or own is not None:
        if _has_own_range(plan):
            low, high = _wide(action_range(plan, space), action)
            action = jnp.clip(action, low, high)
    else:
        low, high = _wide(_bounded_range(plan, env.id, space), action)
        squashed = kind == "tanh_gaussian"
        share = 0.5 * (jnp.tanh(action) + 1.0) if squashed else jax.nn.sigmoid(action)
        action = jnp.clip(low + (high - low) * share, low, high)  # rounding may leave the box
    return action.reshape((*action.shape[:-1], *space.shape))


def _has_own_range(plan: Plan) -> bool:
    return plan.action_low is not None or plan.action_high is not None


def _wide(bounds: tuple[np.ndarray, np.ndarray], like: Array) -> tuple[Array, Array]:
    low, high = (jnp.asarray(x).reshape((1,) * (like.ndim - 1) + x.shape) for x in bounds)
    return low, high


def _bounded_range(plan: Plan, env_id: str, space: Box) -> tuple[np.ndarray, np.ndarray]:
    low, high = action_range(plan, space)
    if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
        raise ConfigError(
            f"distribution {plan.distribution} needs bounded actions, but those of {env_id} are "
            "not; set action_low and action_high, or take gaussian"
        )
    return low, high


def _log_volume(widths: np.ndarray) -> Float[Array, ""]:
    return jnp.float32(np.sum(np.log(widths.astype(np.float64))))
