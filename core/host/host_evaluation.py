"""Evaluation of policies in environments that the host steps; see `core.evaluation`.

Episode e of every lane with the same key has the same seed, whatever the policy. All episodes run
side by side; one that has ended rests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .. import evaluation as compiled
from .. import policy
from ..envs import registry as environments
from ..envs.from_gymnasium import GymnasiumEnvironment
from ..evaluation import Episodes, Policies
from ..plan import Plan
from ..trajectory import forget
from .batch import TimedBatch, make_batch
from .outcome import EnvironmentsFailed
from .slots import Opening
from .stage import stream_words
from .steady import Steady

__all__ = ["ActFunction", "Turn", "act_function", "begin", "evaluate_here", "evaluate_on_host",
           "hosted", "play"]  # fmt: skip

ActFunction = Callable[[Policies, Any, Any, Any, Any], Any]
"""`act(policies [W], step, observation [W, episodes], memory, ended) -> (action, memory)`."""


def act_function(plan: Plan, greedy: bool) -> ActFunction:
    """Return the function, to be compiled, by which policies act in evaluation."""
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
    cut_after: int = compiled.STEP_LIMIT,
) -> Episodes:
    """Return one row an episode of the first `count` policies, host arrays [count, episodes].

    Args:
        plan: the static part; its `eval_env` is the environment.
        act: compiled, see `act_function`.
        policies: on the devices, [W, ...].
        batch: of W x episodes slots.
        count: policies that are wanted, at most W.
        episodes: of each.
        steps: env steps of each, whatever ends; None runs each episode to its end.
        warn: takes a line about a process that ended.
        cut_after: env steps after which an episode that has not ended is cut.

    Raises:
        EnvironmentsFailed: those of some policies, by row.
    """
    steady = Steady(batch, episodes, warn, keeps=batch.may_lose)
    arrays, width = batch.arrays, len(batch.arrays.active) // episodes
    running = np.repeat(np.arange(width) < count, episodes)
    returns, lengths = np.zeros(len(running), np.float32), np.zeros(len(running), np.int32)
    begin(plan, policies, steady, running)
    for turn in play(plan, act, policies, steady, running, steps, cut_after):
        returns += np.where(turn.running, arrays.reward, np.float32(0.0))
        lengths += turn.running
        returns[turn.anew], lengths[turn.anew] = 0.0, 0

    def rows(values: np.ndarray) -> np.ndarray:
        return values.reshape((width, episodes))[:count]

    return Episodes(rows(returns), rows(lengths), {})


@dataclass(frozen=True, eq=False)
class Turn:
    """One env step of N episodes; what came of it stands in the arrays.

    Attributes:
        observation: [N, ...] acted on.
        running: bool [N], episodes that took the step.
        anew: bool [N], episodes that were lost and begin again: they are counted from here.
    """

    observation: np.ndarray
    running: np.ndarray
    anew: np.ndarray


def play(
    plan: Plan,
    act: ActFunction,
    policies: Policies,
    steady: Steady,
    running: np.ndarray,
    steps: int | None,
    cut_after: int = compiled.STEP_LIMIT,
) -> Iterator[Turn]:
    """Yield each step of the episodes of an evaluation, which have begun.

    Args:
        plan: the static part; its `eval_env` is the environment.
        act: compiled, see `act_function`.
        policies: on the devices, [W, ...].
        steady: W x episodes slots, those of a policy one after the other.
        running: bool [W episodes], those that are played.
        steps: see `evaluate_on_host`.
        cut_after: likewise.

    Raises:
        EnvironmentsFailed: those of some policies, by row, when all others are done.
    """
    arrays, width = steady.batch.arrays, len(policies.key)
    running = running & ~steady.out
    episodes = len(running) // width
    step, last = 0, cut_after if steps is None else steps
    memory, ended = policy.initial_carry(plan, (width, episodes)), np.zeros(len(running), bool)
    while step < last and running.any():
        seen = arrays.observation.copy()
        observation = seen.reshape((width, episodes, *seen.shape[1:]))
        given = (observation, memory, ended.reshape((width, episodes)))
        action, memory = act(policies, np.int32(step), *given)
        arrays.action[:] = np.asarray(action).reshape(arrays.action.shape)
        arrays.active[:] = running
        anew = steady.step(restart=steps is not None)
        running = running & ~steady.out
        anew = anew & (steps is None)  # else the episode that was lost counts as cut
        yield Turn(seen, running, anew)
        ended = running & (arrays.terminated | arrays.truncated | anew)
        if steps is None:
            running = running & (~ended | anew)
        step += 1
    if reasons := steady.take_reasons():
        raise EnvironmentsFailed(reasons)


def evaluate_here(
    plan: Plan, policies: Policies, episodes: int, greedy: bool, steps: int | None
) -> Episodes:
    """Evaluate policies [W, ...] in this process, without a program.

    Raises:
        EnvironmentsFailed: those of some policies, by row.
    """
    env = hosted(plan)
    count = len(policies.key)
    batch = make_batch(env.id, env.code, count * episodes, None)
    act = jax.jit(act_function(plan, greedy))
    try:
        return evaluate_on_host(plan, act, policies, batch, count, episodes, steps)
    finally:
        batch.close()


def hosted(plan: Plan) -> GymnasiumEnvironment:
    """Return the environment that evaluates, which the host must step."""
    env = environments.make(plan.eval_env)
    if not isinstance(env, GymnasiumEnvironment):
        raise TypeError(f"{env.id} is not stepped by the host")
    return env


def begin(plan: Plan, policies: Policies, steady: Steady, running: np.ndarray) -> None:
    """Begin the episodes of an evaluation; arguments are those of `play`.

    Raises:
        EnvironmentsFailed: those of all policies.
    """
    env = hosted(plan)
    keys, params = jax.device_get((policies.key, policies.hypers.eval_params))
    episodes, openings = len(running) // len(keys), []
    for slot in np.flatnonzero(running).tolist():
        lane, episode = divmod(slot, episodes)
        values = env.values(jax.tree.map(lambda x, at=lane: x[at], params))
        openings.append(Opening(slot, values, stream_words(keys[lane], "evaluation", episode)))
    steady.open(openings)
    if not (running & ~steady.out).any() and (reasons := steady.take_reasons()):
        raise EnvironmentsFailed(reasons)
