"""Environments side by side, and their bodies: E environments of `agents` bodies are S segments.

Everything that learns sees segments alone: one sequence of observations, actions, rewards and
endings of one body, [S] with the bodies of an environment next to each other. With one body each
(S = E) these functions are a plain `vmap`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from .contract import Environment, Step

__all__ = ["agents_of", "mask_all", "mean_over_bodies", "per_body", "reset_all", "step_all"]


def agents_of(env: Environment) -> int:
    """Return the bodies of one environment: its `agents`, 1 where it has none to say."""
    return getattr(env, "agents", 1)


def reset_all(env: Environment, keys: Key[Array, " E"], params: Any) -> tuple[Any, Any]:
    """Return fresh (states [E, ...], observations [S, ...]) from keys [E]."""
    state, observation = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    return state, _joined(env, observation)


def step_all(
    env: Environment, keys: Key[Array, " E"], state: Any, action: Array, params: Any
) -> Step:
    """Advance all one step.

    Args:
        env: the environment.
        keys: [E].
        state: [E, ...].
        action: [S, ...], as the environment takes them.
        params: of the environment, shared.

    Returns:
        A step whose observation and reward are [S, ...], and all else [E, ...].
    """
    agents = agents_of(env)
    if agents > 1:
        action = action.reshape((-1, agents, *action.shape[1:]))
    after = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, action, params)
    if agents == 1:
        return after
    return after.replace(
        observation=_joined(env, after.observation), reward=_joined(env, after.reward)
    )


def mask_all(env: Environment, state: Any, params: Any) -> Array | None:
    """Return the valid actions [S, A] of states [E, ...], or None where there are no masks."""
    if not env.has_mask:
        return None
    return _joined(env, jax.vmap(lambda one: env.action_mask(one, params))(state))


def per_body(env: Environment, flags: Array) -> Array:
    """Return [..., S] from what all bodies of an environment share, [..., E]."""
    agents = agents_of(env)
    return flags if agents == 1 else jnp.repeat(flags, agents, axis=-1)


def mean_over_bodies(env: Environment, values: Array) -> Array:
    """Return the mean [..., E] over the bodies of each environment of [..., S]."""
    agents = agents_of(env)
    if agents == 1:
        return values
    return jnp.mean(values.reshape((*values.shape[:-1], -1, agents)), axis=-1)


def _joined(env: Environment, tree: Any) -> Any:
    if agents_of(env) == 1:
        return tree
    return jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), tree)
