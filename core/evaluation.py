"""Evaluates policies on seeds that training never uses, with many episodes in parallel.

Every lane's policy runs in the evaluation environment until each of its episodes has ended (or for
a fixed number of steps in continuous operation). Normalisers are frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import ConfigError
from . import policy
from .envs import contract
from .envs import registry as environments
from .envs.contract import DrawingEnvironment, Environment, Step, agents_of, per_body
from .hypers import Hypers
from .lane_state import RunningStatistics, use_key
from .plan import Plan
from .pytree import Leaf, Pytree, pytree, where

EVALUATION = 5  # use of a lane's key
STEP_LIMIT = 100_000  # env steps after which an endless episode is cut by default
# Env steps summed at a time: a float32 sum of all steps would lose a part of each number
_SUMMED = 2**16


@pytree
class Policies(Pytree):
    hypers: Hypers
    params: Any
    observation_statistics: RunningStatistics
    key: Array


@pytree
class Episodes(Pytree):
    """Episode results, [L, episodes]."""

    returns: Float[Leaf, "*L episodes"]  # undiscounted, unscaled; mean over agents
    lengths: Int[Leaf, "*L episodes"]  # env steps
    metrics: dict[str, Float[Leaf, "*L episodes"]]  # metrics of the environment


@pytree
class Seen(Pytree):
    """The data of one env step in all episodes, [L, episodes, ...]."""

    # whether the step belongs to an episode or, in continuous operation, to the window
    counted: Bool[Leaf, "... L episodes"]
    observation: Any  # before the step, raw
    action: Leaf
    reward: Float[Leaf, "... L episodes"]  # raw, the mean over agents
    terminated: Bool[Leaf, "... L episodes"]
    truncated: Bool[Leaf, "... L episodes"]
    info: dict[str, Leaf]


@pytree
class Carry(Pytree):
    """The running episodes of several lanes, or of one."""

    step: Int[Array, ""]
    env_state: Any
    observation: Any
    memory: Any
    running: Bool[Array, "*L episodes"]
    returns: Float[Array, "*L episodes"]  # of the last `_SUMMED` steps at most, as `info`
    lengths: Int[Array, "*L episodes"]
    info: dict[str, Float[Array, "*L episodes"]]
    earlier: Any  # sums over all steps before those: returns and info

    @classmethod
    def initial(
        cls, shape: tuple[int, ...], env_state: Any, observation: Any, memory: Any
    ) -> Carry:
        running, zero = jnp.ones(shape, bool), jnp.zeros(shape, jnp.float32)
        lengths = jnp.zeros(shape, jnp.int32)
        start = (jnp.int32(0), env_state, observation, memory, running, zero, lengths)
        return cls(*start, {}, (zero, {}))

    def with_info(self, step: Callable[[Carry], Carry]) -> Carry:
        """Return a copy with an `info` sum of 0 for each number that `step` reports."""
        struct = jax.eval_shape(step, self).info
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), struct)
        return self.replace(info=zeros, earlier=(self.earlier[0], zeros))

    def counted(self, env: Environment, steps: int | None) -> Bool[Array, "*L episodes"]:
        first = 0
        if steps is not None:
            first = env.warmup_steps
        return self.running & (self.step >= first)

    def after(
        self,
        env: Environment,
        step: Step,
        memory: Any,
        steps: int | None,
        fresh: Callable[[], tuple[Any, Any, Any]],
    ) -> Carry:
        """Return the state after a step; with `steps`, ended episodes restart from `fresh()`."""
        counted, ended = self.counted(env, steps), step.terminated | step.truncated
        state, observation, running = step.state, step.observation, self.running
        if steps is None:
            running = running & ~ended
        elif not env.never_ends:
            new_state, new_observation, new_memory = fresh()
            segments = per_body(env, ended)
            state = where(ended, new_state, state)
            observation = where(segments, new_observation, observation)
            memory = where(segments, new_memory, memory)
        nothing = jax.tree.map(jnp.zeros_like, step.info)
        known, before = self.info or nothing, (self.earlier[0], self.earlier[1] or nothing)

        def add(total: Array, value: Array) -> Array:  # later values are meaningless
            return total + jnp.where(counted, value, 0.0)

        returns = add(self.returns, contract.mean_over_bodies(env, step.reward))
        sums = returns, {name: add(known[name], step.info[name]) for name in step.info}
        is_full = (self.step + 1) % _SUMMED == 0
        earlier = jax.tree.map(lambda a, b: a + jnp.where(is_full, b, 0.0), before, sums)
        returns, info = jax.tree.map(lambda part: jnp.where(is_full, 0.0, part), sums)
        return Carry(
            step=self.step + 1,
            env_state=state,
            observation=observation,
            memory=memory,
            running=running,
            returns=returns,
            lengths=self.lengths + counted.astype(jnp.int32),
            info=info,
            earlier=earlier,
        )

    def played(
        self, env: Environment, step: Callable[[Carry], Carry], last: int
    ) -> tuple[Array, Array, dict[str, Array]]:
        """Return the fields of `Episodes`, after the last step or once every episode has ended."""
        end: Carry = jax.lax.while_loop(lambda c: (c.step < last) & jnp.any(c.running), step, self)
        summarise = env.summarise
        for _ in end.lengths.shape:
            summarise = jax.vmap(summarise)
        steps = jnp.maximum(end.lengths, 1).astype(jnp.float32)
        returns, info = jax.tree.map(jnp.add, end.earlier, (end.returns, end.info))
        return returns, end.lengths, summarise(info, steps)


@dataclass(frozen=True)
class Players:
    """The policies of L lanes, which act in the same environment."""

    env: Environment
    params: Any  # of the environment, [L, ...]
    keys: Array  # uint32 [L, 2]; lanes with the same key play the same episodes
    # step, states, observations, memory -> actions, words of the step's keys, next memory
    act: Callable[..., tuple[Array, Array, Any]]
    memory: Callable[[tuple[int, ...]], Any]  # at the start of episodes [L, bodies]


def players_of(plan: Plan, lanes: Policies, greedy: bool) -> Players:
    env = environments.make(plan.eval_env)

    def of_lanes(step: Any, env_state: Any, observation: Any, memory: Any) -> Any:
        def of_lane(lane: Policies, env_state: Any, observation: Any, memory: Any) -> Any:
            return act(
                plan,
                env,
                lane,
                step,
                env_state,
                observation=observation,
                memory=memory,
                greedy=greedy,
            )

        return jax.vmap(of_lane)(lanes, env_state, observation, memory)

    memory = partial(policy.initial_carry, plan)
    return Players(env, lanes.hypers.eval_params, lanes.key, of_lanes, memory)


def evaluate(
    plan: Plan,
    lanes: Policies,
    episodes: int,
    greedy: bool,
    *,
    steps: int | None = None,
    cut_after: int = STEP_LIMIT,
) -> Episodes:
    """Return the results of `episodes` episodes per lane.

    In lanes with the same key, episode e has the same seed, whatever the policy (common random
    numbers). If `steps` is given, results cover that many env steps after the environment's
    warm-up, regardless of episode ends (continuous operation). Otherwise each episode runs until
    it ends, or is truncated after `cut_after` steps.
    """
    return play(players_of(plan, lanes, greedy), episodes, steps, cut_after)


def play(
    players: Players, episodes: int, steps: int | None = None, cut_after: int = STEP_LIMIT
) -> Episodes:
    """Return episode results, like `evaluate`."""
    env = players.env
    last = cut_after
    if steps is not None:
        last = last_step(env, steps)
    carry = begin(players, episodes, steps)
    return Episodes(*carry.played(env, lambda c: advance(players, c, steps)[0], last))


def last_step(env: Environment, steps: int | None) -> int:
    if steps is None:
        return STEP_LIMIT
    return env.warmup_steps + steps


def begin(players: Players, episodes: int, steps: int | None) -> Carry:
    env = players.env

    def reset(key: Array, params: Any) -> tuple[Any, Any]:
        return contract.reset_all(env, reset_keys(key, episodes), params)

    env_state, observation = jax.vmap(reset)(players.keys, players.params)
    count = players.keys.shape[0]
    memory = players.memory((count, episodes * agents_of(env)))
    carry = Carry.initial((count, episodes), env_state, observation, memory)
    return carry.with_info(lambda c: advance(players, c, steps)[0])


def reset_keys(raw: Array, episodes: int) -> Array:
    return jax.random.split(use_key(raw, EVALUATION), episodes)


def step_words(raw: Array, step: Int[Array, ""], episodes: int) -> Array:
    return jax.random.bits(use_key(raw, EVALUATION, step + 1), (episodes, 2))


def restart_keys(words: Array) -> Array:
    return jax.random.wrap_key_data(words[..., ::-1], impl="threefry2x32")


def act(
    plan: Plan,
    env: Environment,
    lane: Policies,
    step: Int[Array, ""],
    env_state: Any,
    *,
    observation: Any,
    memory: Any,
    greedy: bool,
) -> tuple[Array, Array, Any]:
    """Return one lane's actions (one per agent), raw step keys [episodes, 2], and memory."""
    segments = jax.tree.leaves(observation)[0].shape[0]
    mask, key = contract.mask_all(env, env_state, lane.hypers.eval_params), None
    if not greedy:
        key = jax.random.fold_in(use_key(lane.key, EVALUATION, step + 1), 1)
    action, memory = policy.act(
        plan,
        env,
        lane.hypers,
        lane.params,
        lane.observation_statistics,
        observation=observation,
        mask=mask,
        memory=memory,
        key=key,
    )
    return action, step_words(lane.key, step, segments // agents_of(env)), memory


def advance(players: Players, carry: Carry, steps: int | None) -> tuple[Carry, Seen]:
    env = players.env
    actions, words, memory = players.act(
        carry.step, carry.env_state, carry.observation, carry.memory
    )
    keys = jax.random.wrap_key_data(words, impl="threefry2x32")
    over_lanes = jax.vmap(lambda *lane: contract.step_all(env, *lane))
    after = over_lanes(keys, carry.env_state, actions, players.params)

    def fresh() -> tuple[Any, Any, Any]:
        reset = jax.vmap(lambda *lane: contract.reset_all(env, *lane))
        started = reset(restart_keys(words), players.params)
        return *started, players.memory(after.reward.shape)

    after_it = carry.after(env, after, memory, steps, fresh)
    observed, taken = jax.tree.map(lambda x: _by_episode(env, x), (carry.observation, actions))
    counted, reward = carry.counted(env, steps), contract.mean_over_bodies(env, after.reward)
    flags = (after.terminated, after.truncated)
    transition = Seen(counted, observed, taken, reward, *flags, after.info)
    return after_it, transition


def _by_episode(env: Environment, x: Array) -> Array:
    agents = agents_of(env)
    if agents == 1:
        return x
    return x.reshape((x.shape[0], -1, agents, *x.shape[2:]))


_BLOCK = 256


Making = Callable[[Any], Players]  # from a tree of arrays, inside a compiled function


def film(make: Making, policies: Any, episodes: int) -> tuple[float, Iterator[np.ndarray]]:
    """Return the frame rate and the frames of consecutive episodes, uint8 [H, W, 3].

    `make(policies)` returns `Players` with a single lane.

    Raises:
        ConfigError: the environment cannot be rendered.
    """
    env = contract.unwrapped(make(policies).env)
    if not isinstance(env, DrawingEnvironment):
        raise ConfigError(
            f"{env.id} cannot be rendered; allowed: Gymnasium (gym:...) and gymnax environments, "
            "and any environment with a `pictures` method"
        )
    return env.pictures_a_second, _episode_pictures(make, policies, episodes, env)


def _episode_pictures(
    make: Making, policies: Any, episodes: int, env: DrawingEnvironment
) -> Iterator[np.ndarray]:
    params = jax.device_get(jax.tree.map(lambda x: x[0], make(policies).params))
    carry = _begin_episodes(make, policies, episodes, None)
    first = jax.device_get(jax.tree.map(lambda x: x[0], carry.env_state))
    # the states of each episode, from its first to the one in which it ended
    found = [[_inner_state(jax.tree.map(lambda x, at=at: x[at], first))] for at in range(episodes)]

    def show(before: Carry, after: Carry, transition: Seen) -> Any:
        return before.running, after.env_state

    for running, states in _step_blocks(make, policies, carry, None, show):
        for step, episode in zip(*np.nonzero(running[:, 0]), strict=True):
            one = jax.tree.map(lambda x, at=(step, 0, episode): x[at], states)
            found[episode].append(_inner_state(one))
    for states in found:
        yield from env.pictures(states, params)


def _begin_episodes(make: Making, policies: Any, episodes: int, steps: int | None) -> Carry:
    return jax.jit(lambda policies: begin(make(policies), episodes, steps))(policies)


def _step_blocks(
    make: Making,
    policies: Any,
    carry: Carry,
    steps: int | None,
    show: Callable[[Carry, Carry, Seen], Any],
) -> Iterator[Any]:
    """Yield `show(before, after, transition)` per step, in blocks [steps, ...] of host arrays."""

    @jax.jit
    def block(policies: Any, carry: Any) -> tuple[Any, Any]:
        def step(carry: Any, _: None) -> tuple[Any, Any]:
            after, transition = advance(make(policies), carry, steps)
            return after, show(carry, after, transition)

        return jax.lax.scan(step, carry, None, length=_BLOCK)

    for _ in range(-(-last_step(make(policies).env, steps) // _BLOCK)):
        if not np.any(jax.device_get(carry.running)):
            return
        carry, shown = block(policies, carry)
        yield jax.device_get(shown)


def _inner_state(state: Any) -> Any:
    if isinstance(state, contract.Remembering):
        return state.inner
    return state


_MOST_COMPONENTS = 256  # larger observations are left out of traces


def trace(
    make: Making, policies: Any, episodes: int, steps: int | None = None
) -> dict[str, np.ndarray]:
    """Return columns with one row per env step, episode by episode; see `film` for `make`.

    Columns are `episode`, `step`, `reward`, `return` so far, `terminated`, `truncated` and
    `action` (or `action_0`, ...). They also include `observation_0`, ... (before the step; up to
    256 components) and the numbers in the environment's info as `info_<name>`.
    """
    last = last_step(make(policies).env, steps)
    carry = _begin_episodes(make, policies, episodes, steps)
    blocks = list(_step_blocks(make, policies, carry, steps, lambda _, __, transition: transition))
    # [blocks][steps, 1, episodes, ...] -> [episodes, steps, ...]
    whole: Seen = jax.tree.map(
        lambda *parts: np.moveaxis(np.concatenate(parts)[:last, 0], 0, 1), *blocks
    )
    return columns_of(whole)


def columns_of(transitions: Seen) -> dict[str, np.ndarray]:
    """Return the counted steps as columns; arrays in `transitions` are [episodes, steps, ...]."""
    rows = np.asarray(transitions.counted)
    episode, at = np.nonzero(rows)
    reward = np.where(rows, transitions.reward, 0.0).astype(np.float64)
    columns = {
        "episode": episode,
        "step": at - np.argmax(rows, axis=1)[episode],
        "reward": reward[rows],
        "return": np.cumsum(reward, axis=1)[rows],
        "terminated": np.asarray(transitions.terminated)[rows],
        "truncated": np.asarray(transitions.truncated)[rows],
        **_value_columns("action", transitions.action, rows),
    }
    if hasattr(transitions.observation, "shape"):  # a tree does not become columns
        columns |= _value_columns("observation", transitions.observation, rows)
    return columns | {f"info_{name}": np.asarray(x)[rows] for name, x in transitions.info.items()}


def _value_columns(name: str, values: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    flat = np.asarray(values)[rows]
    if flat.ndim == 1:
        return {name: flat}
    flat = flat.reshape(len(flat), -1)
    if flat.shape[1] > _MOST_COMPONENTS:
        return {}
    return {f"{name}_{index}": flat[:, index] for index in range(flat.shape[1])}
