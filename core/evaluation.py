"""Evaluation of policies on seeds that training never uses, many episodes side by side.

Every lane's parameters run in the evaluation environment until each of its episodes has ended (or
for a fixed number of steps in continuous operation). Normalisers are frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import ConfigError
from . import acting, policy
from .envs import registry as environments
from .envs.contract import (
    DrawingEnvironment,
    Environment,
    Remembering,
    agents_of,
    mask_all,
    mean_over_bodies,
    per_body,
    reset_all,
    step_all,
    unwrapped,
)
from .hypers import Hypers
from .lane_state import RunningStatistics, use_key
from .plan import Plan
from .pytree import Leaf, Pytree, pytree, where
from .trajectory import forget

EVALUATION = 5  # use of a lane's key
STEP_LIMIT = 100_000  # env steps after which an episode that never ends is cut by default


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
        returns: undiscounted, unscaled; with several agents their mean.
        lengths: env steps.
        metrics: the environment's metrics of each episode.
    """

    returns: Float[Leaf, "L episodes"]
    lengths: Int[Leaf, "L episodes"]
    metrics: dict[str, Float[Leaf, "L episodes"]]


@pytree
class Seen(Pytree):
    """One env step of all episodes, [L, episodes, ...]."""

    # the step belongs to an episode or, in continuous operation, to the window
    counted: Bool[Leaf, "... L episodes"]
    observation: Any  # before the step, raw
    action: Leaf
    reward: Float[Leaf, "... L episodes"]  # raw, the mean over agents
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
    """Return the results of `episodes` episodes per lane.

    Episode e of every lane with the same key has the same seed, whatever the policy (common random
    numbers). With `steps` so many env steps after the environment's warm-up are counted and
    episode ends ignored (continuous operation); else each episode runs to its end, or to
    `cut_after`.
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
    return STEP_LIMIT if steps is None else environments.make(plan.eval_env).warmup_steps + steps


def begin(plan: Plan, lanes: Policies, episodes: int, greedy: bool, steps: int | None) -> _Carry:
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
    return jax.random.split(use_key(raw, EVALUATION), episodes)


def step_words(raw: Array, step: Int[Array, ""], episodes: int) -> Array:
    return jax.random.bits(use_key(raw, EVALUATION, step + 1), (episodes, 2))


def restart_keys(words: Array) -> Array:
    """Return the keys of the episodes that start after a step with keys `words`."""
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
    """Return one lane's actions (of every agent), raw step keys [episodes, 2] and memory."""
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
    """Return rows of agents [L, episodes agents, ...] as [L, episodes, agents, ...]."""
    agents = agents_of(env)
    return x if agents == 1 else x.reshape((x.shape[0], -1, agents, *x.shape[2:]))


def _restart(
    plan: Plan, env: Environment, lanes: Policies, words: Array, ended: Array, going: Any
) -> tuple[Any, Any, Any]:
    keys = restart_keys(words)
    fresh = jax.vmap(lambda *lane: reset_all(env, *lane))(keys, lanes.hypers.eval_params)
    fresh_state, fresh_observation = fresh
    state, observation, memory = going
    segments = per_body(env, ended)
    return (
        where(ended, fresh_state, state),
        where(segments, fresh_observation, observation),
        forget(plan, segments, memory),
    )


_BLOCK = 256


def film(
    plan: Plan, lanes: Policies, episodes: int, greedy: bool
) -> tuple[float, Iterator[np.ndarray]]:
    """Return pictures per second, and the pictures uint8 [H, W, 3] of one episode after the other.

    `lanes` is one policy, [1, ...].

    Raises:
        ConfigError: the environment cannot draw itself.
    """
    env = unwrapped(environments.make(plan.eval_env))
    if not isinstance(env, DrawingEnvironment):
        raise ConfigError(
            f"{env.id} cannot draw itself; environments of Gymnasium (gym:...) can, those of "
            "gymnax, and any environment with a method `pictures`"
        )
    return env.pictures_a_second, _pictures(plan, lanes, episodes, greedy, env)


def _pictures(
    plan: Plan, lanes: Policies, episodes: int, greedy: bool, env: DrawingEnvironment
) -> Iterator[np.ndarray]:
    params = jax.device_get(jax.tree.map(lambda x: x[0], lanes.hypers.eval_params))
    carry = _start(plan, lanes, episodes, greedy, None)
    first = jax.device_get(jax.tree.map(lambda x: x[0], carry.env_state))
    # the states of each episode, from its first to the one in which it ended
    found = [[_inner(jax.tree.map(lambda x, at=at: x[at], first))] for at in range(episodes)]

    def show(before: _Carry, after: _Carry, seen: Seen) -> Any:
        return before.running, after.env_state

    for running, states in _blocks(plan, lanes, carry, greedy, None, show):
        for step, episode in zip(*np.nonzero(running[:, 0]), strict=True):
            one = jax.tree.map(lambda x, at=(step, 0, episode): x[at], states)
            found[episode].append(_inner(one))
    for states in found:
        yield from env.pictures(states, params)


def _start(plan: Plan, lanes: Policies, episodes: int, greedy: bool, steps: int | None) -> _Carry:
    return jax.jit(lambda lanes: begin(plan, lanes, episodes, greedy, steps))(lanes)


def _blocks(
    plan: Plan, lanes: Policies, carry: _Carry, greedy: bool, steps: int | None,
    show: Callable[[_Carry, _Carry, Seen], Any],
) -> Iterator[Any]:  # fmt: skip
    """Yield blocks [steps, ...] of `show(before, after, seen)` of each step, as host arrays."""

    @jax.jit
    def block(lanes: Policies, carry: Any) -> tuple[Any, Any]:
        def step(carry: Any, _: None) -> tuple[Any, Any]:
            after, seen = advance(plan, lanes, carry, greedy, steps)
            return after, show(carry, after, seen)

        return jax.lax.scan(step, carry, None, length=_BLOCK)

    for _ in range(-(-last_step(plan, steps) // _BLOCK)):
        if not np.any(jax.device_get(carry.running)):
            return
        carry, shown = block(lanes, carry)
        yield jax.device_get(shown)


def _inner(state: Any) -> Any:
    return state.inner if isinstance(state, Remembering) else state


_MOST_COMPONENTS = 256  # of an observation, beyond which it is left out


def trace(
    plan: Plan, lanes: Policies, episodes: int, greedy: bool, steps: int | None = None
) -> dict[str, np.ndarray]:
    """Return columns with one row per env step, episode by episode.

    Columns are `episode`, `step`, `reward`, `return` so far, `terminated`, `truncated`, `action`
    (or `action_0`, ...), `observation_0`, ... (before the step; of up to 256 components) and the
    environment's numbers as `info_<name>`. `lanes` is one policy, [1, ...].
    """
    last, carry = last_step(plan, steps), _start(plan, lanes, episodes, greedy, steps)
    blocks = list(_blocks(plan, lanes, carry, greedy, steps, lambda _, __, seen: seen))
    # [blocks][steps, 1, episodes, ...] -> [episodes, steps, ...]
    whole: Seen = jax.tree.map(
        lambda *parts: np.moveaxis(np.concatenate(parts)[:last, 0], 0, 1), *blocks
    )
    return columns_of(whole)


def columns_of(seen: Seen) -> dict[str, np.ndarray]:
    """Return the steps that count as rows; arrays come as [episodes, steps, ...]."""
    rows = np.asarray(seen.counted)
    episode, at = np.nonzero(rows)
    reward = np.where(rows, seen.reward, 0.0).astype(np.float64)
    columns = {
        "episode": episode,
        "step": at - np.argmax(rows, axis=1)[episode],
        "reward": reward[rows],
        "return": np.cumsum(reward, axis=1)[rows],
        "terminated": np.asarray(seen.terminated)[rows],
        "truncated": np.asarray(seen.truncated)[rows],
        **_components("action", seen.action, rows),
    }
    if hasattr(seen.observation, "shape"):  # a tree has no columns of its own
        columns |= _components("observation", seen.observation, rows)
    return columns | {f"info_{name}": np.asarray(x)[rows] for name, x in seen.info.items()}


def _components(name: str, values: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    flat = np.asarray(values)[rows]
    if flat.ndim == 1:
        return {name: flat}
    flat = flat.reshape(len(flat), -1)
    if flat.shape[1] > _MOST_COMPONENTS:
        return {}
    return {f"{name}_{index}": flat[:, index] for index in range(flat.shape[1])}
