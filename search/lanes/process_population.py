"""A population whose lanes are processes, each running the study's command.

Each lane runs one replicate as a process, which advances at its own speed. The search counts a
lane's chunk once the process has reported its steps, and ends the process when its trial stops. At
a rung the process is suspended until the trial has been judged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...files.atomic_files import new_folder, read_text, write_text
from ...machine.processes import StartedProcess
from ...store.rows import Stream
from ...store.study_folder import PROCESS
from .contract import (
    ChunkResult,
    EvaluationResult,
    LaneChange,
    Population,
    Refill,
    Resolved,
    RunsAlone,
)
from .process_run import ProcessRun, record_of
from .process_setup import ProcessSetup

_GLANCE, _PAUSE = 0.25, 0.01  # longest wait of `ready`, and pause between two checks, in seconds


class ProcessPopulation(Population, RunsAlone):
    """The processes of a study; lanes advance independently, see `RunsAlone`."""

    warmup_chunks, block = 0, 1

    def __init__(self, setup: ProcessSetup, lanes: int):
        self._setup, self.lanes = setup, lanes
        self.steps_per_chunk = setup.chunk_sizes.steps_per_chunk
        self._runs: list[ProcessRun | None] = [None] * lanes
        self._ending: list[StartedProcess | None] = [None] * lanes
        self._away: dict[tuple[int, Stream, int], ProcessRun] = {}  # taken out of their lanes
        self._leaving: list[StartedProcess] = []  # of runs that are no longer needed
        self._counted_at = time.perf_counter()

    def ready(self, refills: Sequence[Refill], busy: Sequence[int]) -> list[int]:
        """Start processes, end those of lanes that are not busy, and wait briefly.

        Return the busy lanes whose next chunk can be counted.
        """
        self._begin_runs(refills)
        for lane, run in enumerate(self._runs):
            if run is not None and lane not in busy:
                self._ending[lane] = run.leave()
                self._runs[lane] = None
        until = time.monotonic() + _GLANCE
        while True:
            self._poll_processes()
            found = [lane for lane in busy if self._has_reached(lane)]
            if found or time.monotonic() > until:
                return found
            time.sleep(_PAUSE)

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """Count the next chunk of some lanes, after all of them have reported it."""
        self._begin_runs(refills)
        self._poll_processes()
        while not all(self._has_reached(lane) for lane in busy):
            time.sleep(_PAUSE)
            self._poll_processes()
        counted = {lane: self._run_in_lane(lane).count() for lane in busy}
        metrics: dict[str, np.ndarray] = {}
        for lane, numbers in counted.items():
            for name, value in numbers.items():
                metrics.setdefault(name, np.full(self.lanes, np.nan))[lane] = value
        diverged = np.zeros(self.lanes, bool)
        failed: dict[int, str] = {}
        for lane in busy:
            run = self._run_in_lane(lane)
            diverged[lane] = run.is_lost
            if run.is_lost and run.failure:
                failed[lane] = run.failure
        before, self._counted_at = self._counted_at, time.perf_counter()
        return ChunkResult(metrics, diverged, self._counted_at - before, failed)

    def _begin_runs(self, refills: Sequence[Refill]) -> None:
        for refill in refills:
            there = self._runs[refill.lane]
            run = ProcessRun(self._setup, refill)
            if there is not None and there.key == run.key:
                continue  # it has only just started
            if there is not None:
                self._ending[refill.lane] = there.leave()
            run.before = self._ending[refill.lane]
            self._runs[refill.lane] = run

    def _poll_processes(self) -> None:
        for run in self._runs:
            if run is not None:
                run.look()
        for lane, process in enumerate(self._ending):
            if process is not None and process.look() is not None:
                self._ending[lane] = None
        self._leaving = [process for process in self._leaving if process.look() is None]

    def _has_reached(self, lane: int) -> bool:
        run = self._run_in_lane(lane)
        return run.has_reached(run.chunks + 1)

    def _run_in_lane(self, lane: int) -> ProcessRun:
        run = self._runs[lane]
        if run is None:
            raise ValueError(f"lane {lane} is empty")
        return run

    def change(self, changes: Sequence[LaneChange]) -> None:
        if changes:
            raise ConfigError("processes cannot copy each other; use early_terminate: asha")

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """Return the metrics that processes reported at their counted chunks."""
        each = (self._run_in_lane(lane).measured() for lane in lanes)
        return [*map(_result_of, each)]

    def take(self, lanes: Sequence[int]) -> list[Any]:
        """Remove processes from their lanes: suspend them, or end those that can resume."""
        found: list[ProcessRun] = []
        for lane in lanes:
            run = self._run_in_lane(lane)
            run.put_aside()
            self._runs[lane], self._away[run.key] = None, run
            self._ending[lane] = run.before
            found.append(run)
        return list(found)

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        for lane, (run, resolved) in states.items():
            there = self._runs[lane]
            if there is not None and there is not run:
                self._ending[lane] = there.leave()
            run.refill = _move_refill(run.refill, lane, resolved)
            run.before = run.before or self._ending[lane]
            self._away.pop(run.key, None)
            self._runs[lane] = run

    def keep_only(self, kept: Collection[tuple[int, int]]) -> None:
        """End processes returned by `take`, except the (trial, replicate) pairs in `kept`."""
        for key, run in list(self._away.items()):
            if (key[0], key[2]) not in kept:
                if (process := run.leave()) is not None:
                    self._leaving.append(process)
                del self._away[key]

    def save_state(self, state: Any, directory: Path) -> None:
        write_text(new_folder(directory) / "run.json", json.dumps(state.as_data()))

    def restore_state(self, directory: Path) -> Any:
        """Return the process if it is still suspended here, otherwise a run that starts again."""
        data = json.loads(read_text(directory / "run.json"))
        run = self._from_data(0, data)
        return self._away.get(run.key, run)

    def save(self, directory: Path) -> None:
        data = [None if run is None else run.as_data() for run in self._runs]
        write_text(new_folder(directory) / "lanes.json", json.dumps(data))

    def restore(self, directory: Path) -> None:
        """Read lanes written by `save`; their processes start again."""
        data = json.loads(read_text(directory / "lanes.json"))
        for lane, one in enumerate(data):
            self._runs[lane] = None if one is None else self._from_data(lane, one)

    def _from_data(self, lane: int, data: Mapping[str, Any]) -> ProcessRun:
        config = self._setup.study.complete(data["config"])
        resolved = self._setup.resolve(config)
        numbers = (data["replicate"], data["trial"])
        refill = Refill(lane, resolved, Stream(data["stream"]), *numbers)
        return ProcessRun(self._setup, refill, data["chunks"])

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        """Write a run's command line, seed and folder, and the code version."""
        run = self._run_in_lane(lane)
        origin = {"study": self._setup.study.name, **about}
        record = {**record_of(run.folder), "folder": str(run.folder), "about": origin}
        write_text(new_folder(directory) / PROCESS, json.dumps(record, indent=2) + "\n")

    def close(self) -> None:
        """End all processes and wait until they have ended."""
        runs = [*filter(None, self._runs), *self._away.values()]
        left = [process for process in self._ending if process is not None] + self._leaving
        left += [process for run in runs if (process := run.leave()) is not None]
        for process in left:
            process.end()
        self._runs, self._away = [None] * self.lanes, {}


def _result_of(measured: Mapping[str, float]) -> EvaluationResult:
    metrics = {name: np.array([value]) for name, value in measured.items()}
    return EvaluationResult(np.full(1, np.nan), np.zeros(1, np.int64), metrics)


def _move_refill(refill: Refill, lane: int, resolved: Resolved) -> Refill:
    return Refill(lane, resolved, refill.stream, refill.replicate, refill.trial)
