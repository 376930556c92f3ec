"""A heuristic on a study's evaluation streams: the same requests as policies with the same key."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from ...evaluation import STEP_LIMIT, Episodes, reset_keys, restart_keys, step_words
from ...pytree import Pytree, pytree
from .agents import Rule, begin_all, make_agent, restart_ended
from .optical_environment import OpticalEnvironment
from .traffic import WORDS_PER_REQUEST, OpticalParams, random_words


@pytree
class _Carry(Pytree):
    step: Int[Array, ""]
    state: Any
    memory: Any
    running: Bool[Array, " episodes"]
    returns: Float[Array, " episodes"]
    lengths: Int[Array, " episodes"]
    info: dict[str, Float[Array, " episodes"]]


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
    """Return returns, lengths and metrics of one replicate, [episodes]."""
    first = environment.warmup_steps if steps is not None else 0
    last = STEP_LIMIT if steps is None else first + steps
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
    state, _ = jax.vmap(environment.reset, (0, None))(reset_keys(key, episodes), params)
    agent = make_agent(rule, environment)

    def serve(words: UInt32[Array, "2"], state: Any, memory: Any) -> tuple[Any, Any]:
        offers = environment.offers(state, params)
        path, start, memory = agent.choose(state, offers, params, memory, words)
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        drawn = random_words(key, WORDS_PER_REQUEST)
        return environment.serve(drawn, state, offers, path, start, params), memory

    def step(carry: _Carry) -> _Carry:
        words = step_words(key, carry.step, episodes)
        after, memory = jax.vmap(serve)(words, carry.state, carry.memory)
        counted = carry.running & (carry.step >= first)
        ended = after.terminated | after.truncated
        running, state = carry.running, after.state
        if steps is None:
            running = running & ~ended
        elif not environment.never_ends:
            fresh, _ = jax.vmap(environment.reset, (0, None))(restart_keys(words), params)
            state, memory = restart_ended(ended, (fresh, memories), (state, memory))

        def add(total: Array, value: Array) -> Array:
            return total + jnp.where(counted, value, 0.0)

        return _Carry(
            step=carry.step + 1,
            state=state,
            memory=memory,
            running=running,
            returns=add(carry.returns, after.reward),
            lengths=carry.lengths + counted.astype(jnp.int32),
            info={name: add(carry.info[name], value) for name, value in after.info.items()},
        )

    zero = jnp.zeros(episodes, jnp.float32)
    words = jnp.zeros((episodes, 2), jnp.uint32)
    memories = begin_all(agent, episodes)
    names = jax.eval_shape(jax.vmap(serve), words, state, memories)[0].info
    carry = _Carry(
        step=jnp.int32(0),
        state=state,
        memory=memories,
        running=jnp.ones(episodes, bool),
        returns=zero,
        lengths=jnp.zeros(episodes, jnp.int32),
        info=dict.fromkeys(names, zero),
    )
    carry = jax.lax.while_loop(lambda c: (c.step < last) & jnp.any(c.running), step, carry)
    counts = jnp.maximum(carry.lengths, 1).astype(jnp.float32)
    metrics = jax.vmap(environment.summarise)(carry.info, counts)
    return carry.returns, carry.lengths, metrics
