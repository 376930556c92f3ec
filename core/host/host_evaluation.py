"""Evaluates policies in environments that the host steps; see `core.evaluation`.

In lanes with the same key, episode e has the same seed, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ...environments.hosted import is_simulated
from ...environments.via_gymnasium import draw_unheard, render_facts
from ...errors import ConfigError
from .. import evaluation as compiled
from .. import policy
from ..envs import registry as environments
from ..envs.from_gymnasium import GymnasiumEnvironment
from ..evaluation import Episodes, Policies, Seen, columns_of
from ..plan import EnvPlan, Plan
from ..rollout import forget
from . import batch as batches
from .batch import Batch, EnvironmentsFailed, Infos, LocalBatch, Opening, Warn, unheard
from .restartable_batch import Steady
from .stage import stream_words
from .vector_batch import local_batch, make_batch

# `act(policies [W], step, observation [W, episodes], memory, ended) -> (action, memory)`
ActFunction = Callable[[Policies, Any, Any, Any, Any], Any]


def act_function(plan: Plan, greedy: bool) -> ActFunction:
    env = environments.make(plan.eval_env)

    def act(policies: Policies, step: Any, observation: Any, memory: Any, ended: Any) -> Any:
        def one(lane: Policies, observed: Any, memory: Any) -> Any:
            action, _, memory = compiled.act(
                plan, env, lane, step, (), observation=observed, memory=memory, greedy=greedy
            )
            return action, memory

        return jax.vmap(one)(policies, observation, forget(plan, ended, memory))

    return act


def evaluate_on_host(
    plan: Plan,
    act: ActFunction,
    policies: Policies,
    batch: Batch,
    count: int,
    *,
    episodes: int,
    steps: int | None,
    warn: Warn = unheard,
    cut_after: int = compiled.STEP_LIMIT,
) -> Episodes:
    """Return the results of the first `count` of W policies, as host arrays [count, episodes].

    `batch` has W x episodes slots. If `steps` is None, each episode runs until it ends or reaches
    `cut_after` env steps. Raises `EnvironmentsFailed` with the rows of the affected policies.
    """
    steady = Steady(batch, episodes, warn, keeps=batch.may_lose)
    arrays, width = batch.arrays, len(batch.arrays.active) // episodes
    running = np.repeat(np.arange(width) < count, episodes)
    returns, lengths = np.zeros(len(running), np.float32), np.zeros(len(running), np.int32)
    begin(plan, policies, steady, running)
    for turn in play(plan, act, policies, steady, running, steps=steps, cut_after=cut_after):
        returns += np.where(turn.running, arrays.reward, np.float32(0.0))
        lengths += turn.running
        returns[turn.restarted], lengths[turn.restarted] = 0.0, 0
    returns, lengths = (x.reshape((width, episodes))[:count] for x in (returns, lengths))
    return Episodes(returns, lengths, {})


@dataclass(frozen=True, eq=False)
class Turn:
    observation: np.ndarray  # [N, ...] acted on
    running: np.ndarray  # bool [N], episodes that took the step
    restarted: np.ndarray  # bool [N], lost episodes that restart at this step


def play(
    plan: Plan,
    act: ActFunction,
    policies: Policies,
    steady: Steady,
    running: np.ndarray,
    *,
    steps: int | None,
    cut_after: int = compiled.STEP_LIMIT,
) -> Iterator[Turn]:
    arrays, width = steady.batch.arrays, len(policies.key)
    running = running & ~steady.out
    episodes = len(running) // width
    step, last = 0, cut_after
    if steps is not None:
        last = steps
    memory, ended = policy.initial_carry(plan, (width, episodes)), np.zeros(len(running), bool)
    while step < last and running.any():
        flat_observation = arrays.observation.copy()
        observation = flat_observation.reshape((width, episodes, *flat_observation.shape[1:]))
        given = (observation, memory, ended.reshape((width, episodes)))
        action, memory = act(policies, np.int32(step), *given)
        arrays.action[:] = np.asarray(action).reshape(arrays.action.shape)
        arrays.active[:] = running
        restarted = steady.step(restart=steps is not None)
        running = running & ~steady.out
        restarted = restarted & (steps is None)  # otherwise the lost episode counts as cut
        yield Turn(flat_observation, running, restarted)
        ended = running & (arrays.terminated | arrays.truncated | restarted)
        if steps is None:
            running = running & (~ended | restarted)
        step += 1
    if reasons := steady.take_reasons():
        raise EnvironmentsFailed(reasons)


def evaluate_here(
    plan: Plan, policies: Policies, episodes: int, greedy: bool, steps: int | None
) -> Episodes:
    env, count = hosted(plan.eval_env), len(policies.key)
    act = jax.jit(act_function(plan, greedy))
    with closing(make_batch(env.id, env.code, count * episodes, None)) as batch:
        return evaluate_on_host(plan, act, policies, batch, count, episodes=episodes, steps=steps)


def hosted(plan: EnvPlan) -> GymnasiumEnvironment:
    env = environments.make(plan)
    if not isinstance(env, GymnasiumEnvironment):
        raise TypeError(f"{env.id} is not stepped by the host; use core.program.Program")
    return env


def begin(plan: Plan, policies: Policies, steady: Steady, running: np.ndarray) -> None:
    env = hosted(plan.eval_env)
    keys, params = jax.device_get((policies.key, policies.hypers.eval_params))
    episodes, openings = len(running) // len(keys), []
    for slot in np.flatnonzero(running).tolist():
        lane, episode = divmod(slot, episodes)
        values = env.values(jax.tree.map(lambda x, at=lane: x[at], params))
        openings.append(Opening(slot, values, stream_words(keys[lane], "evaluation", episode)))
    steady.open(openings)
    if not (running & ~steady.out).any() and (reasons := steady.take_reasons()):
        raise EnvironmentsFailed(reasons)


def trace_here(
    plan: Plan, policies: Policies, episodes: int, greedy: bool, steps: int | None = None
) -> dict[str, np.ndarray]:
    """Return columns like `core.evaluation.trace`; missing `info` numbers are nan."""
    env = hosted(plan.eval_env)
    code = env.code
    steps_seen: list[Seen] = []
    infos: list[Infos] = []
    with closing(local_batch(env.id, code, episodes)) as batch:
        arrays, act = batch.arrays, jax.jit(act_function(plan, greedy))
        steady, running = Steady(batch, episodes, keeps=False), np.ones(episodes, bool)
        begin(plan, policies, steady, running)
        for turn in play(plan, act, policies, steady, running, steps=steps):
            transition = Seen(
                counted=turn.running[None],
                observation=turn.observation[None],
                action=np.asarray(code.actions(arrays.action))[None],
                reward=arrays.reward[None].copy(),
                terminated=arrays.terminated[None].copy(),
                truncated=arrays.truncated[None].copy(),
                info={},
            )
            steps_seen.append(transition)
            infos.append(batch.said)
    # [steps][1, episodes, ...] -> [episodes, steps, ...]
    whole: Seen = jax.tree.map(lambda *rows: np.moveaxis(np.concatenate(rows), 0, 1), *steps_seen)
    return columns_of(whole.replace(info=batches.columns(infos, np.asarray(whole.counted))))


def film_here(
    plan: Plan, policies: Policies, episodes: int, greedy: bool
) -> tuple[float, Iterator[np.ndarray]]:
    env = hosted(plan.eval_env)
    if is_simulated(env.id):
        raise ConfigError(f"{env.id} does not support render mode rgb_array")
    modes, rate = render_facts(env.id, env.keys)
    if "rgb_array" not in modes:
        why = f"{env.id} does not support render mode rgb_array"
        if modes:
            why += f"; supported: {', '.join(modes)}"
        raise ConfigError(why)
    return rate, _episode_pictures(plan, policies, episodes, greedy)


def _episode_pictures(
    plan: Plan, policies: Policies, episodes: int, greedy: bool
) -> Iterator[np.ndarray]:
    draw_unheard()
    env = hosted(plan.eval_env)
    act, mode = jax.jit(act_function(plan, greedy)), {"render_mode": "rgb_array"}
    for episode in range(episodes):
        running = np.arange(episodes) == episode
        with closing(LocalBatch(env.id, env.code, episodes, mode)) as batch:
            steady = Steady(batch, episodes, keeps=False)
            begin(plan, policies, steady, running)
            yield _rendered_picture(env.id, batch, episode)
            for turn in play(plan, act, policies, steady, running, steps=None):
                if turn.running.any():  # none: the environment failed, and `play` raises
                    yield _rendered_picture(env.id, batch, episode)


def _rendered_picture(id_: str, batch: LocalBatch, slot: int) -> np.ndarray:
    drawn = np.asarray(batch.slots.drawn(slot))
    if drawn.dtype != np.uint8 or drawn.ndim != 3 or drawn.shape[2] != 3:
        raise ConfigError(
            f"{id_} renders {drawn.dtype} frames of shape {list(drawn.shape)}; they must be uint8 "
            "[height, width, 3]"
        )
    return drawn
