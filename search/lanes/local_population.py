"""The lanes of one program on this machine.

The loop numbers lanes in the order it fills them; the program may place them elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...core.checkpoint import restore_lane, restore_tree, save_lane, save_tree, write_parts
from ...core.envs import registry as environments
from ...core.evaluation import Episodes
from ...core.host.batch import EnvironmentsFailed
from ...core.hypers import Hypers
from ...core.lane_state import LaneState, RewardState
from ...core.metrics import split_rows
from ...core.program import Program
from ...core.saved_policy import SavedPolicy, load_policy, save_policy
from ...environments.hosted import is_hosted
from ...errors import ConfigError, StoreError
from ...files.atomic_files import new_folder
from ...files.plain_data import freeze
from ...knobs import AVERAGE_REWARD
from ...store.rows import Stream
from ...studies.chunk_sizes import row_ends, rows_per_chunk
from ...studies.user_code import imported_files
from .configuration import Split, knobs_of, parts_of
from .contract import ChunkResult, ChunkRow, EvaluationResult, LaneChange, Refill, Resolved

STREAMS = {Stream.SEARCH: 0, Stream.CHOOSE: 1, Stream.REPORT: 2}
"""Kind of seeds -> the number that is folded into their random keys."""


class ProgramLanes:
    """The lanes of one program, compiled on first use, for any kind of training; see `Population`.

    Each compilation runs in a context from `compiling`, which receives a text with `words`, a
    description of the bucket.
    """

    def __init__(
        self,
        compiled: Any,  # a `Program` or a `TrainingProgram`
        steps_per_update: int,
        log_every: int | None,
        compiling: Callable[[str], AbstractContextManager[object]],
        words: str,
    ):
        self._program, self._compiling = compiled, compiling
        self._training_lock, self._evaluation_lock = threading.Lock(), threading.Lock()
        self._place = compiled.lane_order()
        self.lanes = compiled.lanes
        self._words = f"{words}; {compiled.lanes} lanes"
        self.block = compiled.tile * len(compiled.devices)
        self._each, self.steps_per_chunk = steps_per_update, compiled.updates * steps_per_update
        split_into = rows_per_chunk(log_every, steps_per_update, compiled.updates)
        self._row_ends = row_ends(compiled.updates, split_into)

    @cached_property
    def _lane_arrays(self) -> Any:
        """Lane arrays, allocated on first use, so that several populations can compile ahead."""
        return self._program.empty()

    @property
    def program(self) -> Any:
        return self._program

    @property
    def compiles(self) -> int:
        return int(self._program.compiled)

    def compile(self) -> None:
        if self._program.compiled:
            return
        with self._compiling(f"training: {self._words}"), self._training_lock:
            self._program.compile()

    def compile_ahead(self) -> Callable[[], None] | None:
        """Trace the programs, and return a function that compiles them in a thread.

        On a GPU nothing is compiled ahead, because compilation measures kernel times on the
        device, which is busy.
        """
        if self._program.devices[0].platform != "cpu":
            return None
        self._program.trace()
        return self._compile_quietly

    def _compile_quietly(self) -> None:
        with self._training_lock:  # separate locks: the first chunk need not wait for both
            self._program.compile()
        with self._evaluation_lock:
            self._program.compile_evaluation()

    def compile_evaluation(self) -> None:
        if not self._program.evaluation_compiled:
            with self._compiling(f"evaluation: {self._words}"), self._evaluation_lock:
                self._program.compile_evaluation()

    def _in_lane_order(self, row: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: values[self._place] for name, values in row.items()}

    def _chunk_result(
        self,
        rows: Sequence[Mapping[str, np.ndarray]],
        diverged: np.ndarray,
        started: float,
        failed: Mapping[int, str] = {},
    ) -> ChunkResult:
        """Return a chunk's result from the rows of the chunk and its parts, in lane order."""
        whole, *parts = map(self._in_lane_order, rows)
        ends = (end * self._each for end in self._row_ends)
        lanes = {int(at): lane for lane, at in enumerate(self._place)}
        return ChunkResult(
            metrics=whole,
            diverged=diverged[self._place],
            seconds=time.perf_counter() - started,
            failed={lanes[at]: why for at, why in failed.items()},
            rows=tuple(ChunkRow(*pair) for pair in zip(ends, parts, strict=True)),
        )

    def take(self, lanes: Sequence[int]) -> list[Any]:
        return [
            self._program.lane_state(self._lane_arrays, int(self._place[lane])) for lane in lanes
        ]

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        whole = jax.tree.map(np.array, jax.device_get(self._lane_arrays))
        for lane, (state, resolved) in states.items():
            at = int(self._place[lane])
            put_row(whole.state, state, at)
            put_row(whole.hypers, resolved.payload.hypers, at)
        self._lane_arrays = self._program.place(whole)

    def save_state(self, state: Any, directory: Path) -> None:
        save_lane(new_folder(directory), state)

    def restore_state(self, directory: Path) -> Any:
        return restore_lane(directory, self._program.lane_state(self._lane_arrays, 0))

    def save(self, directory: Path) -> None:
        self._program.save(self._lane_arrays, directory)

    def restore(self, directory: Path) -> None:
        self._lane_arrays = self._program.restore(self._lane_arrays, directory)


class LocalPopulation(ProgramLanes):
    """The lanes of a PPO program."""

    _program: Program

    def __init__(
        self,
        split: Split,
        compiled: Program,
        compiling: Callable[[str], AbstractContextManager[object]],
        words: str,
    ):
        plan, study = compiled.plan, split.study
        each, words = plan.steps_per_update, words or plan.env.id
        super().__init__(compiled, each, study.log_every, compiling, words)
        self._split = split
        self.warmup_chunks = warmup_chunks(compiled)
        self._total_updates = split.chunk_sizes(plan).schedule_chunks * compiled.updates

    def compile_ahead(self) -> Callable[[], None] | None:
        if is_hosted(self._program.plan.env.id):
            return None
        return super().compile_ahead()

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        self.compile()
        started = time.perf_counter()
        rows = self._program.no_refills()
        rows.busy[:] = False
        rows.busy[self._place[list(busy)]] = True
        for refill in refills:
            at = self._place[refill.lane]
            rows.mask[at] = True
            rows.stream[at] = STREAMS[refill.stream]
            rows.replicate[at] = refill.replicate
            rows.updates[at] = -self.warmup_chunks * self._program.updates
            rows.total_updates[at] = self._total_updates
            put_row(rows.hypers, parts_of(refill.resolved).hypers, at)
        self._lane_arrays, metrics = self._program.advance(
            self._split.study.seed, self._lane_arrays, rows
        )
        found, diverged = split_rows(metrics, self._row_ends)
        timed = self._add_phase_seconds(found)
        if not self._split.separate_critic:  # equals the policy's rate in every lane
            for row in timed:
                row.pop("vf_learning_rate", None)
        return self._chunk_result(timed, diverged, started, self._program.failures())

    def _add_phase_seconds(
        self, rows: Sequence[Mapping[str, np.ndarray]]
    ) -> list[dict[str, np.ndarray]]:
        """Add the seconds of each phase to a chunk's rows, if the program measures them."""
        firsts = (0, 0, *self._row_ends)
        ends = (self._program.updates, *self._row_ends)
        phases = self._program.phase_seconds().items()
        found: list[dict[str, np.ndarray]] = []
        for row, first, end in zip(rows, firsts, ends, strict=False):
            seconds = {n: np.full(self.lanes, each[first:end].sum()) for n, each in phases}
            found.append({**row, **seconds})
        return found

    def change(self, changes: Sequence[LaneChange]) -> None:
        rows = self._program.no_changes()
        for change in changes:
            at = self._place[change.lane]
            rows.mask[at] = True
            if change.source is not None:
                rows.source[at] = self._place[change.source]
            put_row(rows.hypers, parts_of(change.resolved).hypers, at)
        self._lane_arrays = self._program.change(self._lane_arrays, rows)

    def take(self, lanes: Sequence[int]) -> list[Any]:
        self._check_movable()
        return super().take(lanes)

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        self._check_movable()
        super().put(states)

    def _check_movable(self) -> None:
        id_ = self._program.plan.env.id
        if is_hosted(id_):
            raise ConfigError(
                f"{id_} is stepped by the host, so its state cannot be copied; use a "
                "compiled environment"
            )

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        self.compile_evaluation()
        failed: dict[int, str] = {}
        places = self._place[list(lanes)].tolist()
        while True:
            sound = [at for at in places if at not in failed]
            try:
                found = self._program.evaluate(self._lane_arrays, sound)
                break
            except EnvironmentsFailed as error:  # evaluate the others again
                failed |= error.reasons
        results = iter(results_of(found, range(len(sound))))
        return [
            EvaluationResult.failure(failed[at]) if at in failed else next(results)
            for at in places
        ]

    def save_fields(self, directory: Path, names: Sequence[str]) -> None:
        """Write some fields of all lanes' states, except fields without arrays."""
        new_folder(directory)
        for name, value in self._state_fields(names).items():
            save_tree(directory / name, value)

    def restore_fields(self, directory: Path, names: Sequence[str]) -> None:
        """Read fields written by `save_fields`; change nothing if any of them cannot be read."""
        old = self._state_fields(names)
        found = {name: restore_tree(directory / name, value) for name, value in old.items()}
        placed = jax.tree.map(lambda new, was: jax.device_put(new, was.sharding), found, old)
        self._lane_arrays = self._lane_arrays.replace(
            state=self._lane_arrays.state.replace(**placed)
        )

    def _state_fields(self, names: Sequence[str]) -> dict[str, Any]:
        found = {name: getattr(self._lane_arrays.state, name) for name in names}
        return {name: value for name, value in found.items() if jax.tree.leaves(value)}

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        state = self._program.lane_state(self._lane_arrays, int(self._place[lane]))
        split = parts_of(resolved)
        parts = self._saved_parts(int(self._place[lane]), split.hypers, state)
        restarted = parts.pop("begun_anew", 0)
        about = {"study": self._split.study.name, **about}
        if restarted:
            about["trajectories_begun_anew"] = restarted
        saved = SavedPolicy(
            plan=self._program.plan,
            config=knobs_of(split.config),
            env_params=split.env_params,
            eval_params=split.eval_params,
            params=state.params,
            statistics=state.observation_statistics,
            about=about,
            rewards=RewardState.of(state),
            imports=self._split.study.imports,
        )
        source = self._split.source
        code = {path: source / path for path in imported_files(saved.imports, source)}
        save_policy(directory, saved, code)
        write_parts(directory, parts)

    def evaluate_kept(
        self, resolved: Resolved, directory: Path, stream: Stream, replicate: int
    ) -> EvaluationResult:
        saved, asked = load_policy(directory), knobs_of(resolved.config)
        config = _of_its_day(saved.config, asked)
        apart = [name for name, value in asked.items() if config.get(name) != freeze(value)]
        if apart:
            raise StoreError(f"{directory} has a different {apart[0]} than the trial")
        self.compile_evaluation()
        policies = saved.as_lane(self._split.study.seed, STREAMS[stream], replicate)
        hypers = jax.tree.map(lambda x: np.asarray(x)[None], parts_of(resolved).hypers)
        try:
            found = self._program.evaluate_policy(policies.replace(hypers=hypers))
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"{directory} has the arrays of a different network: {error}"
            ) from error
        return results_of(found, range(1))[0]

    def _saved_parts(self, at: int, hypers: Hypers, state: LaneState) -> dict[str, Any]:
        """Return the parts of a lane's state that the study saves with its policies.

        Parts of the rollout are omitted if environments failed; see `HostProgram.look`, which also
        explains `begun_anew`.
        """
        wanted = self._split.study.checkpoint.parts
        found: dict[str, Any] = {"parameters": state.params, "optimiser": state.moments}
        if not set(wanted) <= set(found):
            found |= self._program.look(self._lane_arrays, at, hypers)
        return {part: found[part] for part in (*wanted, "begun_anew") if part in found}


def warmup_chunks(compiled: Program) -> int:
    warmup = environments.make(compiled.plan.env).warmup_steps
    return -(-warmup // (compiled.updates * compiled.plan.rollout_length))


def results_of(found: Episodes, rows: Iterable[int]) -> list[EvaluationResult]:
    return [_result_of(found, row) for row in rows]


def _result_of(found: Episodes, row: int) -> EvaluationResult:
    metrics = {name: np.asarray(value[row], np.float64) for name, value in found.metrics.items()}
    return EvaluationResult(
        returns=np.asarray(found.returns[row], np.float64),
        lengths=np.asarray(found.lengths[row], np.int64),
        metrics=metrics,
    )


def put_row(rows: Any, row: Any, at: int) -> None:
    def put(all_rows: np.ndarray, one: np.ndarray) -> None:
        all_rows[at] = one

    jax.tree.map(put, rows, row)


def _of_its_day(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a saved policy's configuration, with the 0 of old policies replaced by `off`."""
    if saved.get(AVERAGE_REWARD) == 0 and asked.get(AVERAGE_REWARD) is None:
        return {**saved, AVERAGE_REWARD: None}
    return saved
