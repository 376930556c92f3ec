"""Pictures of a policy at work in a compiled environment that can draw itself.

The episodes are those of `evaluation.evaluate` with the same key: their states are kept, and drawn
one by one afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..errors import ConfigError
from .envs import registry as environments
from .envs.contract import DrawingEnvironment
from .envs.stacked_observations import Remembering, unwrapped
from .evaluation import Policies, advance, begin, last_step
from .plan import Plan

__all__ = ["film"]

_BLOCK = 256


def film(
    plan: Plan, lanes: Policies, episodes: int, greedy: bool
) -> tuple[float, Iterator[np.ndarray]]:
    """Return pictures a second, and the pictures uint8 [H, W, 3] of one episode after the other.

    Args:
        plan: the static part; its `eval_env` is the environment.
        lanes: one policy, [1, ...].
        episodes: how many.
        greedy: the mode of the distribution instead of a sample.

    Raises:
        ConfigError: the environment cannot draw itself.
    """
    env = unwrapped(environments.make(plan.eval_env))
    if not isinstance(env, DrawingEnvironment):
        raise ConfigError(
            f"{env.id} cannot draw itself; environments of Gymnasium (gym:...) can, those of "
            "gymnax, and one of your own that has a method `pictures`"
        )
    return env.pictures_a_second, _pictures(plan, lanes, episodes, greedy, env)


def _pictures(
    plan: Plan, lanes: Policies, episodes: int, greedy: bool, env: DrawingEnvironment
) -> Iterator[np.ndarray]:
    params = jax.device_get(jax.tree.map(lambda x: x[0], lanes.hypers.eval_params))
    for states in _states(plan, lanes, episodes, greedy):
        yield from env.pictures(states, params)


def _states(plan: Plan, lanes: Policies, episodes: int, greedy: bool) -> list[list[Any]]:
    """Return the states of each episode, from its first to the one in which it ended."""

    @jax.jit
    def block(lanes: Policies, carry: Any) -> tuple[Any, Any]:
        def step(carry: Any, _: None) -> tuple[Any, Any]:
            after = advance(plan, lanes, carry, greedy, None)[0]
            return after, (after.env_state, carry.running)

        return jax.lax.scan(step, carry, None, length=_BLOCK)

    carry = jax.jit(lambda lanes: begin(plan, lanes, episodes, greedy, None))(lanes)
    first = jax.device_get(jax.tree.map(lambda x: x[0], carry.env_state))
    found = [[_inner(jax.tree.map(lambda x, at=at: x[at], first))] for at in range(episodes)]
    for _ in range(-(-last_step(plan, None) // _BLOCK)):
        carry, (states, running) = block(lanes, carry)
        states, running = jax.device_get((states, running))
        for step, episode in zip(*np.nonzero(running[:, 0]), strict=True):
            one = jax.tree.map(lambda x, at=(step, 0, episode): x[at], states)
            found[episode].append(_inner(one))
        if not jax.device_get(carry.running).any():
            break
    return found


def _inner(state: Any) -> Any:
    """Return the state of the environment itself, whose observations may be stacked."""
    return state.inner if isinstance(state, Remembering) else state
