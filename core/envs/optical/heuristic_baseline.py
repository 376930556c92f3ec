"""A heuristic on a study's evaluation streams: the same requests as policies with the same key."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from ...evaluation import STEP_LIMIT, Carry, Episodes, reset_keys, restart_keys, step_words
from ..contract import Step
from .agents import Rule, begin_all, make_agent
from .optical_environment import OpticalEnvironment
from .traffic import WORDS_PER_REQUEST, OpticalParams, random_words


def evaluate_baseline(
    environment: OpticalEnvironment,
    rule: Rule,
    params: OpticalParams,
    keys: UInt32[np.ndarray, "R 2"],
    episodes: int,
    steps: int | None,
) -> Episodes:
    """Return the results of a rule on the streams of R replicates, host arrays [R, episodes]."""
    run = functools.partial(_replicate, environment, rule, params, episodes, steps)
    return jax.device_get(jax.jit(lambda keys: Episodes(*jax.lax.map(run, keys)))(keys))


def _replicate(
    environment: OpticalEnvironment,
    rule: Rule,
    params: OpticalParams,
    episodes: int,
    steps: int | None,
    key: UInt32[Array, "2"],
) -> tuple[Array, Array, dict[str, Array]]:
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
    state, _ = jax.vmap(environment.reset, (0, None))(reset_keys(key, episodes), params)
    agent = make_agent(rule, environment)

    memories = begin_all(agent, episodes)

    def serve(words: UInt32[Array, "2"], state: Any, memory: Any) -> tuple[Step, Any]:
        offers = environment.offers(state, params)
        path, start, memory = agent.choose(state, offers, params, memory, words)
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        drawn = random_words(key, WORDS_PER_REQUEST)
        after = environment.serve(drawn, state, offers, path, start, params)
        return after.replace(observation=()), memory

    def step(carry: Carry) -> Carry:
        words = step_words(key, carry.step, episodes)
        after, memory = jax.vmap(serve)(words, carry.env_state, carry.memory)

        def fresh() -> tuple[Any, Any, Any]:
            started, _ = jax.vmap(environment.reset, (0, None))(restart_keys(words), params)
            return started, (), memories

        return carry.after(environment, after, memory, steps, fresh)

    carry = Carry.begun((episodes,), state, (), memories).with_info(step)
    last = STEP_LIMIT if steps is None else environment.warmup_steps + steps
    return carry.played(environment, step, last)
