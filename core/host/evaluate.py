"""Evaluation of policies in environments that the host steps; see `core.evaluation`.

Episode e of every lane with the same key has the same seed, whatever the policy. All episodes run
side by side; one that has ended rests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .. import evaluation as compiled
from .. import policy
from ..envs import registry as environments
from ..envs.from_gymnasium import GymnasiumEnvironment
from ..evaluation import Episodes, Policies
from ..plan import Plan
from ..rollout import forget
from .batch import TimedBatch, make_batch
from .outcome import EnvironmentsFailed
from .slots import Opening
from .stage import stream_words
from .steady import Steady

__all__ = ["ActFunction", "act_function", "evaluate_here", "evaluate_on_host"]

ActFunction = Callable[[Policies, Any, Any, Any, Any], Any]
"""`act(policies [W], step, observation [W, episodes], memory, ended) -> (action, memory)`."""


def act_function(plan: Plan, greedy: bool) -> ActFunction:
    """Give the function, to be compiled, by which policies act in evaluation."""
    env = environments.make(plan.eval_env)

    def act(policies: Policies, step: Any, observation: Any, memory: Any, ended: Any) -> Any:
        def one(lane: Policies, seen: Any, memory: Any) -> Any:
            action, _, memory = compiled.act(plan, env, lane, step, (), seen, memory, greedy)
            return action, memory

        return jax.vmap(one)(policies, observation, forget(plan, ended, memory))

    return act


def evaluate_on_host(
    plan: Plan,
    act: ActFunction,
    policies: Policies,
    batch: TimedBatch,
    count: int,
    episodes: int,
    steps: int | None,
    warn: Callable[[str], None] = lambda text: None,
) -> Episodes:
    """Give one row an episode of the first `count` policies, host arrays [count, episodes].

    Args:
        plan: the static part; its `eval_env` is the environment.
        act: compiled, see `act_function`.
        policies: on the devices, [W, ...].
        batch: of W x episodes slots.
        count: policies that are wanted, at most W.
        episodes: of each.
        steps: env steps of each, whatever ends; None runs each episode to its end.
        warn: takes a line about a process that ended.

    Raises:
        EnvironmentsFailed: those of some policies, by row.
    """
    steady = Steady(batch, episodes, warn, keeps=batch.may_lose)
    _open(_hosted(plan), policies, steady, count, episodes)
    board = batch.board
    width = len(board.active) // episodes
    running = np.repeat(np.arange(width) < count, episodes)
    returns, lengths = np.zeros(len(running), np.float32), np.zeros(len(running), np.int32)
    running &= ~steady.out
    step, last = 0, compiled.STEP_LIMIT if steps is None else steps
    memory, ended = policy.initial_carry(plan, (width, episodes)), np.zeros(len(running), bool)
    while step < last and running.any():
        observation = board.observation.reshape((width, episodes, *board.observation.shape[1:]))
        given = (observation.copy(), memory, ended.reshape((width, episodes)))
        action, memory = act(policies, np.int32(step), *given)
        board.action[:] = np.asarray(action).reshape(board.action.shape)
        board.active[:] = running
        anew = steady.step(restart=steps is not None)
        running &= ~steady.out
        returns += np.where(running, board.reward, np.float32(0.0))
        lengths += running
        ended = running & (board.terminated | board.truncated)
        if steps is None and anew.any():  # these begin again, and are counted from there
            returns[anew], lengths[anew], ended[anew] = 0.0, 0, True
        if steps is None:
            running = running & ~(ended & ~anew)
        step += 1
    if reasons := steady.take_reasons():
        raise EnvironmentsFailed(reasons)

    def rows(values: np.ndarray) -> np.ndarray:
        return values.reshape((width, episodes))[:count]

    return Episodes(rows(returns), rows(lengths), {})


def evaluate_here(
    plan: Plan, policies: Policies, episodes: int, greedy: bool, steps: int | None
) -> Episodes:
    """Evaluate policies [W, ...] in this process, without a program.

    Raises:
        EnvironmentsFailed: those of some policies, by row.
    """
    env = _hosted(plan)
    count = len(policies.key)
    batch = make_batch(env.id, env.code, count * episodes, None)
    act = jax.jit(act_function(plan, greedy))
    try:
        return evaluate_on_host(plan, act, policies, batch, count, episodes, steps)
    finally:
        batch.close()


def _hosted(plan: Plan) -> GymnasiumEnvironment:
    env = environments.make(plan.eval_env)
    if not isinstance(env, GymnasiumEnvironment):
        raise TypeError(f"{env.id} is not stepped by the host")
    return env


def _open(
    env: GymnasiumEnvironment, policies: Policies, steady: Steady, count: int, episodes: int
) -> None:
    keys, params = jax.device_get((policies.key, policies.hypers.eval_params))
    openings = []
    for lane in range(count):
        values = env.values(jax.tree.map(lambda x, at=lane: x[at], params))
        for episode in range(episodes):
            words = stream_words(keys[lane], "evaluation", episode)
            openings.append(Opening(lane * episodes + episode, values, words))
    steady.open(openings)
