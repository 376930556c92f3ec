"""Lanes for a custom training class: presents `core.training` as a population."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core.envs import registry as environments
from ...core.metrics import rows_of_chunk
from ...core.policy_document import TRAINING
from ...core.saved_policy import copy_files
from ...core.training import Lane, Training
from ...core.training_check import Shapes, shapes_of
from ...core.training_errors import method_of
from ...core.training_program import TrainingProgram
from ...errors import ConfigError
from ...files.atomic_files import write_text
from ...store.rows import Stream
from ...studies.chunk_sizes import chunk_sizes_of
from ...studies.programs import words_of_bucket
from ...studies.spec import Study
from ...studies.study_keys import COSTS, METRICS
from .contract import ChunkResult, EvaluationResult, LaneChange, Refill, Resolved
from .lane_count import Devices, Division, auto_lanes, lanes_of_share, population_replicates
from .local import DeviceFactory, baseline_of
from .local_population import STREAMS, ProgramLanes


@dataclass(frozen=True)
class TrainingParts:
    """A complete configuration: the payload of `TrainingFactory.resolve`."""

    training: Training
    hypers: Mapping[str, np.float32]


class TrainingFactory(DeviceFactory["TrainingPopulation"]):
    """Creates the populations of a study with a custom training class."""

    def __init__(self, study: Study, *args: Any, **rest: Any):
        super().__init__(study, *args, **rest)
        knobs = study.algorithm.knobs
        self._traced = tuple(name for name, knob in knobs.items() if knob.traced)
        self._shapes: dict[str, Shapes] = {}

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        static = {name: value for name, value in config.items() if name not in self._traced}
        text = json.dumps(static, sort_keys=True, default=list)
        bucket = hashlib.sha256(text.encode()).hexdigest()[:16]
        training = self.study.training(config)
        hypers = {name: np.float32(config[name]) for name in self._traced}
        steps = chunk_sizes_of(self.study, training.steps_per_update).steps_per_chunk
        return Resolved(config, bucket, steps, TrainingParts(training, hypers))

    def check(self, resolved: Resolved) -> None:
        """Reject a training class with invalid shapes, results or metrics; compile nothing."""
        values = self.shapes(resolved).values
        known = [f"eval/{name}" for name in values if name not in ("return", "length")]
        known += [
            name for name in METRICS if name.removeprefix("eval/").rpartition("_")[0] in values
        ]
        study = self.study
        asked = [study.metric.name, *study.objective_names]
        for name in (*asked, *(one.metric for one in study.constraints)):
            if name not in known and name not in COSTS:
                where = method_of(type(resolved.payload.training), "evaluate")
                one_of = ", ".join(known)
                raise ConfigError(f"{where} does not return {name}; known: {one_of}")
        if population_replicates(self.study) > 1:
            self.program_of(resolved)

    def shapes(self, resolved: Resolved) -> Shapes:
        if resolved.bucket not in self._shapes:
            self._shapes[resolved.bucket] = shapes_of(resolved.payload.training, self._traced)
        return self._shapes[resolved.bucket]

    def program_of(
        self, resolved: Resolved, lanes: int | None = None, shares: int = 1, neighbours: int = 1
    ) -> TrainingProgram:
        """See `DeviceFactory`.

        On a CPU a tile is a single lane, because under `vmap` a conditional runs both branches and
        copies large buffers. On a GPU all lanes of a device form one tile.
        """
        if lanes is None:
            lanes = self.study.population.lanes
        each = 3 * self.shapes(resolved).state_bytes  # raises if this program does not fit
        if lanes is None:
            replicates, needed = self._replicates_per_share(shares)
            machine = Devices(
                self.backend, self.device_count, self._memory_per_environment // neighbours
            )
            lanes = auto_lanes(machine, 1, replicates, each, needed=needed)
            self._refuse_fewer(lanes, needed)
        lanes = self._on_all_devices(lanes)
        tile = self._whole_tile(resolved, lanes)
        training = resolved.payload.training
        updates = chunk_sizes_of(self.study, training.steps_per_update).updates_per_chunk
        episodes = self.study.evaluation.episodes
        lane = Lane(training, self._traced)
        return TrainingProgram(lane, lanes, updates, tile, episodes, self.devices)

    def _whole_tile(self, resolved: Resolved, lanes: int) -> int:
        if self.backend == "cpu":
            return 1
        return self._on_all_devices(lanes) // self.device_count

    def notes(self, resolved: Resolved) -> Iterator[str]:
        yield from super().notes(resolved)
        if note := self.shapes(resolved).note:
            yield note

    def divide(
        self, resolved: Resolved, lanes: int | None, shares: int, neighbours: int = 1
    ) -> Division:
        """Divide a bucket's lanes into equal shares; see `LocalFactory.divide`."""
        lanes = lanes or self.study.population.lanes
        own = lanes_of_share(lanes, shares)
        share = self.program_of(resolved, own, shares, neighbours)
        return self._divide_lanes(lanes or shares * share.lanes, shares, share.tile)

    def _make_population(
        self, compiled: TrainingProgram, resolved: Resolved
    ) -> TrainingPopulation:
        words = words_of_bucket(self.study, resolved.config)
        return TrainingPopulation(self.study, compiled, self.compiling, words)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        given = resolved.payload.training.given
        if given is None:
            raise ConfigError(f"baseline {name!r}: {self.study.algorithm.name} has no heuristics")
        params = environments.params_of(environments.make(given.plan), given.params)
        return baseline_of(self.study, name, given.plan, params, seeds)


class TrainingPopulation(ProgramLanes):
    """The lanes of a custom training program."""

    warmup_chunks = 0
    _program: TrainingProgram

    def __init__(
        self,
        study: Study,
        program: TrainingProgram,
        compiling: Callable[[str], AbstractContextManager[object]],
        words: str,
    ):
        self._study, each = study, program.lane.training.steps_per_update
        words = words or study.algorithm.label
        super().__init__(program, each, study.log_every, compiling, words)

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        self.compile()
        started = time.perf_counter()
        fresh = {
            int(self._place[one.lane]): (
                STREAMS[one.stream],
                one.replicate,
                one.resolved.payload.hypers,
            )
            for one in refills
        }
        starts = self._program.starts(self._place[list(busy)].tolist(), fresh)
        self._lane_arrays, metrics = self._program.advance(
            self._study.seed, self._lane_arrays, starts
        )
        finite = [np.all(np.isfinite(values), axis=0) for values in metrics.values()]
        diverged = ~np.all([np.ones(self.lanes, bool), *finite], axis=0)
        return self._chunk_result(rows_of_chunk(metrics, self._row_ends), diverged, started)

    def change(self, changes: Sequence[LaneChange]) -> None:
        given = {
            int(self._place[one.lane]): (
                int(self._place[one.origin]),
                one.resolved.payload.hypers,
            )
            for one in changes
        }
        self._lane_arrays = self._program.change(self._lane_arrays, self._program.changes(given))

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        self.compile_evaluation()
        if not lanes:
            return []
        found = self._program.evaluate(self._lane_arrays, self._place[list(lanes)].tolist())
        return [_evaluation_in_row(found, at) for at in range(len(lanes))]

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        """Write a lane's exact state, with `about` and the configuration."""
        self.save_state(self.take([lane])[0], directory)
        given = resolved.payload.training.given
        description = {
            "algorithm": self._study.algorithm.name,
            "config": dict(resolved.config),
            "length": self._study.horizon,
            "about": {"study": self._study.name, **about},
        }
        if given is not None:
            description["env"] = copy_files(given.plan, "env", directory)
            description |= {"env_params": dict(given.params), "steps": given.steps}
        text = json.dumps(description, indent=2, default=list)
        write_text(directory / TRAINING, text + "\n")

    def evaluate_kept(
        self, resolved: Resolved, directory: Path, stream: Stream, replicate: int
    ) -> EvaluationResult:
        """See `Population`; the random key in the state determines the episodes."""
        self.put({0: (self.restore_state(directory), resolved)})
        return self.evaluate([0])[0]


def _evaluation_in_row(found: Mapping[str, np.ndarray], at: int) -> EvaluationResult:
    """Return the evaluation in row `at`; missing `return` and `length` become NaN and 0."""
    wide = {name: np.asarray(rows[at], np.float64) for name, rows in found.items()}
    episodes = len(next(iter(wide.values())))
    lengths = wide.pop("length", np.zeros(episodes))
    returns = wide.pop("return", np.full(episodes, np.nan))
    return EvaluationResult(returns, np.nan_to_num(lengths).astype(np.int64), wide)
