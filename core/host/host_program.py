"""A program with host-stepped environments; only the policy is compiled.

Environments cannot be copied, so the program owns them and has only a single set of lanes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from ...errors import SearchError
from ..checkpoint import restore_tree, save_tree
from ..envs.from_gymnasium import GymnasiumEnvironment
from ..evaluation import Episodes, Policies
from ..hypers import Hypers
from ..metrics import Metrics
from ..plan import Plan
from ..population import (
    EVERYWHERE,
    LANES,
    Changes,
    Lanes,
    Refills,
    lane_mesh,
    lane_shapes,
    over_devices,
)
from ..program import Program, compiled_property, compiler_options
from ..rollout import forget
from .batch import Batch, BatchMaker, EnvironmentsFailed, Infos, Warn, columns, unheard
from .compiled import ActingCalls, Functions, HostSteps, look_function, to_act
from .host_evaluation import act_function, evaluate_on_host, hosted
from .stage import Stage
from .vector_batch import make_batch

_ENVIRONMENTS = "environments.npz"
SMALL_CALL = 2_000_000
"""Weights times environments of a policy's call up to which one CPU device is the fastest.

A call on two devices takes 0.2 ms longer to start (decision 112).
"""


@dataclass(frozen=True, eq=False)
class HostProgram(Program):
    workers: BatchMaker | None = None  # None steps environments in this process
    warn: Warn = unheard  # receives lines about failed environments
    _phases: list[tuple[float, float]] = field(default_factory=list, init=False)
    _broken_off: list[SearchError] = field(default_factory=list, init=False)

    @cached_property
    def env(self) -> GymnasiumEnvironment:
        return hosted(self.plan.env)

    @cached_property
    def stage(self) -> Stage:
        return Stage(self._batch_of_training(), self.lanes, self.plan.num_envs, self.warn)

    def _batch_of_training(self, tells: bool = False) -> Batch:
        return make_batch(self.env.id, self.env.code, self._slot_count, self.workers, tells)

    @cached_property
    def _stage_of_evaluation(self) -> Batch:
        env = hosted(self.plan.eval_env)
        count = self.evaluation_width * self.evaluation.episodes
        return make_batch(env.id, env.code, count, self.workers)

    @cached_property
    def acting_mesh(self) -> Mesh:
        """Return the devices to act on: only one if dispatching to several would take longer."""
        shapes = lane_shapes(self.plan, self.example)
        weights = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes.params))
        if self.devices[0].platform == "cpu" and weights * self._slot_count <= SMALL_CALL:
            return lane_mesh(self.devices[:1])
        return self.mesh

    @property
    def _slot_count(self) -> int:
        return self.lanes * self.plan.num_envs

    @compiled_property
    def _advance(self) -> dict[str, Any]:
        functions, lanes = Functions(self.plan, self.mesh, self.tile), self.empty()
        rollout = jax.eval_shape(functions.begin, lanes)
        acting, memory = jax.eval_shape(lambda given: (to_act(given), given.state.carry), lanes)
        cut = np.zeros((self.lanes, self.plan.num_envs), bool)
        busy, step, struct = np.zeros(self.lanes, bool), np.int32(0), self.env.observation_struct
        observation = np.zeros((*cut.shape, *struct.shape), struct.dtype)
        options, mesh = compiler_options(self.devices), self.acting_mesh
        actor = Functions(self.plan, mesh, self.tile)
        to_act_on = (acting, memory, rollout, step, observation, cut)
        to_learn = (lanes, busy, busy, memory, observation, rollout, self._no_answers())
        lowered = {
            "start": functions.start.lower(
                step, lanes, self.no_refills(), self._initial_on_devices
            ),
            "begin": functions.begin.lower(lanes),
            "learn": functions.learn.lower(*to_learn),
        }
        compiled = {name: one.compile(compiler_options=options) for name, one in lowered.items()}
        calls = ActingCalls(actor, to_act_on, options, moves=mesh is not self.mesh)
        return {**compiled, "acting": calls}

    @cached_property
    def _step_numbers(self) -> list[jax.Array]:
        """Return a rollout's step numbers as device arrays, so that calls need not send them."""
        numbers = list(np.arange(self.plan.rollout_length, dtype=np.int32))
        return jax.device_put(numbers, NamedSharding(self.acting_mesh, EVERYWHERE))

    def _no_answers(self) -> HostSteps:
        steps = (self.plan.rollout_length, self.lanes, self.plan.num_envs)
        return HostSteps(np.zeros(steps, np.float32), np.zeros(steps, bool), np.zeros(steps, bool))

    def advance(self, seed: int, lanes: Lanes, refills: Refills) -> tuple[Lanes, Metrics]:
        """See `Program.advance`; lanes with failed environments diverge (see `failures`)."""
        with self._all_or_nothing():
            self.stage.rest(refills.busy & ~refills.mask)
            given = (np.int32(seed), lanes, self.place(refills), self._initial_on_devices)
            lanes = self._advance["start"](*given)
            if refills.mask.any():
                keys = np.asarray(jax.device_get(lanes.state.key))
                self.stage.begin(self._env_values(refills.hypers, refills.mask), keys)
            found: list[Metrics] = []
            self._phases.clear()
            for _ in range(self.updates):
                lanes, metrics = self._update_lanes(lanes, refills.busy)
                found.append(metrics)
        return lanes, jax.tree.map(lambda *updates: np.stack(updates), *found)

    def failures(self) -> dict[int, str]:
        return self.stage.take_failures()

    def phase_seconds(self) -> dict[str, np.ndarray]:
        rollouts, updates = np.array(self._phases, np.float64).reshape(-1, 2).T
        return {"rollout_seconds": rollouts, "update_seconds": updates}

    @contextmanager
    def _all_or_nothing(self) -> Generator[None, None, None]:
        """Record whether a step failed halfway, because such a state must not be saved."""
        try:
            yield
        except SearchError as error:
            self._broken_off.append(error)
            raise

    def _env_values(self, hypers: Hypers, mask: np.ndarray) -> dict[int, dict[str, Any]]:
        chosen = np.flatnonzero(mask).tolist()
        return {lane: self.env.values(_tree_row(hypers.env_params, lane)) for lane in chosen}

    def look(self, lanes: Lanes, which: int, hypers: Hypers) -> dict[str, Any]:
        """See `Program.look`; this steps copies of the lane's environments.

        The result also contains `begun_anew`, the number of environments that could not be
        reproduced and started new episodes. Returns {} if the lane has no environments, or if one
        fails.
        """
        if not self.stage.is_open(which):
            return {}
        batch = self._batch_of_training(tells=True)
        with self._all_or_nothing(), closing(batch):
            state = lanes.state
            stage, lost = self.stage.copy_of_lane(
                which, batch, np.asarray(state.key), np.asarray(state.observation)
            )
            lanes = self._without_episodes(lanes, lost, stage)
            said: list[Infos] = []
            busy = np.arange(self.lanes) == which
            memory, rollout, answers = self._collect_rollout(lanes, busy, stage, said)
            follows = (memory, stage.observation)
        if failed := stage.take_failures():
            self.warn(f"could not record the rollout of a saved policy: {failed[which]}")
            return {}
        by_lane = jax.device_get(_tree_lane((lanes, *follows), which))
        by_time = jax.device_get(_tree_lane((rollout, answers), which, 1))
        found = self._look(hypers, *by_lane, *by_time)
        trajectories = found["trajectories"].replace(info=_info_rows(said, which, self.plan))
        fetched = jax.device_get({**found, "trajectories": trajectories})
        return {**fetched, "begun_anew": int(lost[which].sum())}

    @cached_property
    def _look(self) -> Any:
        return jax.jit(look_function(self.plan))

    def _update_lanes(self, lanes: Lanes, busy: np.ndarray) -> tuple[Lanes, Metrics]:
        began = time.perf_counter()
        memory, rollout, answers = self._collect_rollout(lanes, busy, self.stage)
        follows = (memory, self.stage.observation)
        refused = self.stage.refused
        acted = time.perf_counter()
        lanes, metrics = self._advance["learn"](lanes, busy, refused, *follows, rollout, answers)
        fetched = jax.device_get(metrics)
        self._phases.append((acted - began, time.perf_counter() - acted))
        return lanes, fetched

    def _collect_rollout(
        self, lanes: Lanes, busy: np.ndarray, stage: Stage, said: list[Infos] | None = None
    ) -> tuple[Any, Any, HostSteps]:
        """Step the environments; return memory, rollout and replies; append infos to `said`."""
        arrays, compiled = stage.batch.arrays, self._advance
        rollout = compiled["acting"].start(lanes, compiled["begin"](lanes))
        answers, ended = self._no_answers(), np.zeros((self.lanes, self.plan.num_envs), bool)
        for step, at in enumerate(self._step_numbers):
            stage.step(rollout.act(at, stage.observation, ended), busy)
            if said is not None:
                said.append(dict(stage.batch.said))
            answers.reward[step] = stage.lanes_view(arrays.reward)
            answers.terminated[step] = stage.lanes_view(arrays.terminated & arrays.active)
            answers.truncated[step] = stage.lanes_view(arrays.truncated & arrays.active)
            ended = answers.terminated[step] | answers.truncated[step]
            cut = answers.truncated[step] & ~answers.terminated[step]
            if cut.any():
                rollout.cut(at, stage.final, cut)
        return *rollout.finish(), answers

    def change(self, lanes: Lanes, changes: Changes) -> Lanes:
        """Copy lanes with their environments, and change hyperparameters; see `Stage.change`."""
        lanes = super().change(lanes, changes)
        values, state = self._env_values(changes.hypers, changes.mask), lanes.state
        with self._all_or_nothing():
            lost = self.stage.change(
                changes.source, values, np.asarray(state.key), np.asarray(state.observation)
            )
        return self._without_episodes(lanes, lost, self.stage)

    @compiled_property
    def _evaluate(self) -> Any:
        function = act_function(self.plan, self.evaluation.greedy)
        into = (LANES, EVERYWHERE, LANES, LANES, LANES)
        return jax.jit(over_devices(function, self.mesh, into, (LANES, LANES)))

    def _evaluate_padded(self, lanes: Lanes, padded: np.ndarray, count: int) -> Episodes:
        try:
            return self._evaluate_wide(self._gather(lanes, padded), count)
        except EnvironmentsFailed as error:
            reasons = {int(padded[row]): why for row, why in error.reasons.items()}
            raise EnvironmentsFailed(reasons) from None

    def _evaluate_wide(self, policies: Policies, count: int) -> Episodes:
        how = self.evaluation
        with self._all_or_nothing():
            return evaluate_on_host(
                self.plan,
                self._evaluate,
                policies,
                self._stage_of_evaluation,
                count,
                episodes=how.episodes,
                steps=how.steps,
                warn=self.warn,
                cut_after=how.cut_after,
            )

    def _no_episodes(self) -> Episodes:
        rows = (0, self.evaluation.episodes)
        return Episodes(np.zeros(rows, np.float32), np.zeros(rows, np.int32), {})

    def save(self, lanes: Lanes, directory: Path) -> None:
        if self._broken_off:
            raise self._broken_off[-1]
        save_tree(directory, lanes)
        self.stage.save(directory / _ENVIRONMENTS)

    def restore(self, lanes: Lanes, directory: Path) -> Lanes:
        """Restore lanes from a saved directory; environments that are not reproducible restart."""
        tree: Lanes = restore_tree(directory, lanes)
        state, params = tree.state, tree.hypers.env_params
        keys, observation = np.asarray(state.key), np.asarray(state.observation)

        def values(lane: int) -> dict[str, Any]:
            return self.env.values(_tree_row(params, lane))

        lost = self.stage.restore(directory / _ENVIRONMENTS, values, keys, observation)
        return self._without_episodes(self.place(tree), lost, self.stage)

    def _without_episodes(self, lanes: Lanes, lost: np.ndarray, stage: Stage) -> Lanes:
        if not lost.any():
            return lanes
        state = lanes.state
        state = state.replace(
            observation=jnp.asarray(stage.observation),
            carry=forget(self.plan, jnp.asarray(lost), state.carry),
            discounted_return=jnp.where(lost, 0.0, state.discounted_return),
            episode_return=jnp.where(lost, 0.0, state.episode_return),
            episode_length=jnp.where(lost, 0, state.episode_length),
        )
        return self.place(lanes.replace(state=state))


def _tree_row(tree: Any, at: int) -> Any:
    return jax.tree.map(lambda x: x[at], tree)


def _tree_lane(tree: Any, at: int, axis: int = 0) -> Any:
    if axis == 0:
        return jax.tree.map(lambda x: x[at : at + 1], tree)
    return jax.tree.map(lambda x: x[:, at : at + 1], tree)


def _info_rows(said: list[Infos], lane: int, plan: Plan) -> dict[str, jax.Array]:
    first, envs = lane * plan.num_envs, plan.num_envs

    def of_lane(step: Infos) -> Infos:
        return {env: step.get(first + env, {}) for env in range(envs)}

    steps = list(map(of_lane, said))
    found = columns(steps, np.ones((envs, len(said)), bool))
    return {name: jnp.asarray(rows.T, jnp.float32) for name, rows in found.items()}
