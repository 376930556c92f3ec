"""Evaluation of policies on seeds that training never uses, many episodes side by side.

Every lane's parameters run in the evaluation environment until each of its episodes has ended (or
for a fixed number of steps in continuous operation); normalisers are frozen.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from . import acting, policy
from .envs import registry as environments
from .envs.bodies import agents_of, mask_all, mean_over_bodies, per_body, reset_all, step_all
from .envs.contract import Environment
from .hypers import Hypers
from .lane_state import use_key
from .normalise import RunningStatistics
from .plan import Plan
from .pytree import Leaf, Pytree, pytree
from .trajectory import forget, where_ended

__all__ = [
    "STEP_LIMIT",
    "Episodes",
    "Policies",
    "Seen",
    "act",
    "advance",
    "begin",
    "evaluate",
    "last_step",
    "reset_keys",
    "restart_keys",
    "step_words",
]

EVALUATION = 5  # use of a lane's key
STEP_LIMIT = 100_000
"""Env steps after which an episode that never ends is cut, where nobody asks for less."""


@pytree
class Policies(Pytree):
    """What evaluation needs of lanes, [L, ...]."""

    hypers: Hypers
    params: Any
    observation_statistics: RunningStatistics
    key: Array


@pytree
class Episodes(Pytree):
    """Results, [L, episodes].

    Attributes:
        returns: undiscounted, unscaled; the mean over the bodies where there are several.
        lengths: env steps.
        metrics: the environment's own, of each episode.
    """

    returns: Float[Leaf, "L episodes"]
    lengths: Int[Leaf, "L episodes"]
    metrics: dict[str, Float[Leaf, "L episodes"]]


@pytree
class Seen(Pytree):
    """One env step of all episodes, [L, episodes, ...].

    Attributes:
        counted: the step belongs to an episode (or, in continuous operation, to the window).
        observation: before the step, as the environment gave it.
        action: taken.
        reward: as the environment gave it, the mean over bodies.
        terminated: the episode ended by its rules.
        truncated: it was cut.
        info: the environment's own numbers of the step.
    """

    counted: Bool[Leaf, "... L episodes"]
    observation: Any
    action: Leaf
    reward: Float[Leaf, "... L episodes"]
    terminated: Bool[Leaf, "... L episodes"]
    truncated: Bool[Leaf, "... L episodes"]
    info: dict[str, Leaf]


@pytree
class _Carry(Pytree):
    step: Int[Array, ""]
    env_state: Any
    observation: Any
    memory: Any
    running: Bool[Array, "L episodes"]
    returns: Float[Array, "L episodes"]
    lengths: Int[Array, "L episodes"]
    info: dict[str, Float[Array, "L episodes"]]


def evaluate(
    plan: Plan,
    lanes: Policies,
    episodes: int,
    greedy: bool,
    steps: int | None = None,
    cut_after: int = STEP_LIMIT,
) -> Episodes:
    """Return one row an episode.

    Episode e of every lane with the same key has the same seed, whatever the policy (common
    random numbers).

    Args:
        plan: the static part; its `eval_env` is the environment.
        lanes: policies [L].
        episodes: how many a lane.
        greedy: the mode of the distribution instead of a sample.
        steps: count that many steps after the environment's warm-up, ignoring episode ends
            (continuous operation); None runs each episode to its end.
        cut_after: env steps after which an episode that has not ended is cut.
    """
    last = cut_after if steps is None else last_step(plan, steps)
    carry = jax.lax.while_loop(
        lambda c: (c.step < last) & jnp.any(c.running),
        lambda c: advance(plan, lanes, c, greedy, steps)[0],
        begin(plan, lanes, episodes, greedy, steps),
    )
    metrics = jax.vmap(jax.vmap(environments.make(plan.eval_env).summarise))(
        carry.info, jnp.maximum(carry.lengths, 1).astype(jnp.float32)
    )
    return Episodes(carry.returns, carry.lengths, metrics)


def last_step(plan: Plan, steps: int | None) -> int:
    """Return the env steps after which an evaluation is over, whatever still runs."""
    return STEP_LIMIT if steps is None else environments.make(plan.eval_env).warmup_steps + steps


def begin(plan: Plan, lanes: Policies, episodes: int, greedy: bool, steps: int | None) -> _Carry:
    """Return the state in which an evaluation begins; see `evaluate`."""
    env = environments.make(plan.eval_env)

    def reset(lane: Policies) -> tuple[Any, Any]:
        keys = reset_keys(lane.key, episodes)
        return reset_all(env, keys, lane.hypers.eval_params)

    env_state, observation = jax.vmap(reset)(lanes)
    shape = (lanes.key.shape[0], episodes)
    carry = _Carry(
        step=jnp.int32(0),
        env_state=env_state,
        observation=observation,
        memory=policy.initial_carry(plan, (shape[0], episodes * agents_of(env))),
        running=jnp.ones(shape, bool),
        returns=jnp.zeros(shape, jnp.float32),
        lengths=jnp.zeros(shape, jnp.int32),
        info={},
    )
    probe, _ = jax.eval_shape(lambda c: advance(plan, lanes, c, greedy, steps), carry)
    return carry.replace(info=jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), probe.info))


def reset_keys(raw: Array, episodes: int) -> Array:
    """Return the typed keys [episodes] that one lane's evaluation starts from."""
    return jax.random.split(use_key(raw, EVALUATION), episodes)


def step_words(raw: Array, step: Int[Array, ""], episodes: int) -> Array:
    """Return the raw keys [episodes, 2] of one step of one lane's evaluation."""
    return jax.random.bits(use_key(raw, EVALUATION, step + 1), (episodes, 2))


def restart_keys(words: Array) -> Array:
    """Return the typed keys of the episodes after those that ended in a step with keys `words`."""
    return jax.random.wrap_key_data(words[..., ::-1], impl="threefry2x32")


def act(
    plan: Plan,
    env: Environment,
    lane: Policies,
    step: Int[Array, ""],
    env_state: Any,
    observation: Any,
    memory: Any,
    greedy: bool,
) -> tuple[Array, Array, Any]:
    """Return one lane's actions (of every body), raw step keys [episodes, 2] and memory."""
    segments = jax.tree.leaves(observation)[0].shape[0]
    mask = mask_all(env, env_state, lane.hypers.eval_params)
    key = None if greedy else jax.random.fold_in(use_key(lane.key, EVALUATION, step + 1), 1)
    action, memory = acting.act(
        plan, env, lane.hypers, lane.params, lane.observation_statistics, observation, mask,
        memory, key,
    )  # fmt: skip
    return action, step_words(lane.key, step, segments // agents_of(env)), memory


def advance(
    plan: Plan, lanes: Policies, carry: _Carry, greedy: bool, steps: int | None
) -> tuple[_Carry, Seen]:
    """Take one env step in all episodes, and give what was seen in it; see `evaluate`."""
    env = environments.make(plan.eval_env)
    first = env.warmup_steps if steps is not None else 0
    actions, words, memory = jax.vmap(
        lambda lane, state, seen, memory: act(
            plan, env, lane, carry.step, state, seen, memory, greedy
        )
    )(lanes, carry.env_state, carry.observation, carry.memory)
    keys = jax.random.wrap_key_data(words, impl="threefry2x32")
    over_lanes = jax.vmap(lambda *lane: step_all(env, *lane))
    after = over_lanes(keys, carry.env_state, actions, lanes.hypers.eval_params)
    counted = carry.running & (carry.step >= first)
    ended = after.terminated | after.truncated
    state, observation = after.state, after.observation
    running = carry.running
    if steps is None:
        running = running & ~ended
    elif not env.never_ends:
        going = (state, observation, memory)
        state, observation, memory = _restart(plan, env, lanes, words, ended, going)
    known = carry.info or jax.tree.map(jnp.zeros_like, after.info)

    def add(total: Array, value: Array) -> Array:  # what follows an episode's end may be anything
        return total + jnp.where(counted, value, 0.0)

    after_it = _Carry(
        step=carry.step + 1,
        env_state=state,
        observation=observation,
        memory=memory,
        running=running,
        returns=add(carry.returns, mean_over_bodies(env, after.reward)),
        lengths=carry.lengths + counted.astype(jnp.int32),
        info={name: add(known[name], after.info[name]) for name in after.info},
    )
    observed, taken = jax.tree.map(lambda x: _by_episode(env, x), (carry.observation, actions))
    seen = Seen(
        counted, observed, taken, mean_over_bodies(env, after.reward), after.terminated,
        after.truncated, after.info,
    )  # fmt: skip
    return after_it, seen


def _by_episode(env: Environment, x: Array) -> Array:
    """Return rows of bodies [L, episodes agents, ...] as [L, episodes, agents, ...]."""
    agents = agents_of(env)
    return x if agents == 1 else x.reshape((x.shape[0], -1, agents, *x.shape[2:]))


def _restart(
    plan: Plan, env: Environment, lanes: Policies, words: Array, ended: Array, going: Any
) -> tuple[Any, Any, Any]:
    """Replace state, observation and memory of episodes that ended by fresh ones."""
    keys = restart_keys(words)
    fresh = jax.vmap(lambda *lane: reset_all(env, *lane))(keys, lanes.hypers.eval_params)
    fresh_state, fresh_observation = fresh
    state, observation, memory = going
    segments = per_body(env, ended)
    return (
        where_ended(ended, fresh_state, state),
        where_ended(segments, fresh_observation, observation),
        forget(plan, segments, memory),
    )
