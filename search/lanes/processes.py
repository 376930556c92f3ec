"""Lanes that are processes: the command of a study as a population.

Each lane runs the process of one replicate, at that process's speed. The search counts a lane's
chunk once the process has reported its steps, and ends the process when its trial stops. At a rung
the process is suspended until the trial has been judged.
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...files.atomic_files import delete_folder, make_folder, new_folder, read_text, write_text
from ...machine.processes import (
    STDERR,
    STDOUT,
    Launch,
    LocalProcesses,
    Process,
    ProcessExecutor,
    last_lines,
)
from ...machine.reported import Reader, Row, reader_of
from ...machine.software import code_version
from ...store.codec import plain_json
from ...store.rows import REFERENCE_TRIAL, Stream
from ...store.study_folder import PROCESS
from ...studies.chunk_sizes import ChunkSizes, chunk_sizes_of
from ...studies.command import Template, resumed
from ...studies.execution_spec import MetricFiles, Processes
from ...studies.spec import Study
from ...studies.study_keys import COSTS
from .contract import ChunkResult, EvaluationResult, LaneChange, Population, Refill, Resolved

FOLDER = "processes"
"""The folder in a study's folder that contains those of its processes."""
_RECORD = "run.json"
_GLANCE, _PAUSE = 0.25, 0.01  # longest wait of `ready`, and pause between two checks, in seconds
_ENOUGH = 3.0  # seconds between two reported steps that suffice to measure a process's speed
_SAME_CODE = 5.0  # seconds between two checks of the state of the code
_SEEDS = 10_000  # seeds per study; no two replicates of a study share a seed
_STREAMS = {Stream.SEARCH: 0, Stream.CHOOSE: 1000, Stream.REPORT: 2000}
# share of the length at which a process may end by itself, since batches may not divide it
_NEAR = 0.9
_MOST_OUTPUT = 1 << 30  # bytes of output per process
_MOST_NAMED = 12  # metrics listed in an error
_MOST_LOSSES = 3  # consecutive node failures of one run
_MOST_ROWS = 5000  # counted rows that are kept per process


def seed_of(study: Study, stream: Stream, replicate: int) -> int:
    """Return the `{seed}` of a replicate: from 0 in the search, from 1000 or 2000 on new seeds.

    The study's `seed` shifts all of them by 10,000.
    """
    return (study.seed * _SEEDS + _STREAMS[stream] + replicate) % 2**31


class ProcessFactory:
    """Creates the processes of one study; see `PopulationFactory`."""

    backend, device_count = "processes", 1

    def __init__(
        self,
        study: Study,
        compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
        warn: Callable[[str], None] = lambda text: None,
        *,
        cores: int | None = None,
        environments: int = 1,
        executor: ProcessExecutor | None = None,
    ):
        self.study = study
        self.settings = study.processes or Processes()
        self.executor = executor or LocalProcesses(self.settings)
        self.metrics = study.metrics or MetricFiles()
        self.line = Template(study.command or "")
        self.resume: Template | None = None
        if study.resume is not None:
            self.resume = resumed(self.line.text, study.resume)
        self.chunk_sizes: ChunkSizes = chunk_sizes_of(study, study.steps_per_update({}))
        self.cwd = Path(study.source).absolute()
        self.folder = self.cwd / FOLDER
        self._made: list[ProcessPopulation] = []
        self._code: dict[str, str] = {}
        self._looked = -math.inf

    def begin(self, folder: Path) -> None:
        """Set the results folder; end or find processes of an earlier start of the study."""
        self.folder = folder.absolute() / FOLDER
        self.executor.begin(self.folder)

    def code(self) -> dict[str, str]:
        """Return the state of the code in the working folder, read every few seconds."""
        if time.monotonic() - self._looked > _SAME_CODE:
            self._code, self._looked = code_version(self.cwd), time.monotonic()
        return self._code

    def close(self) -> None:
        """End all processes."""
        for population in self._made:
            population.close()
        self.executor.close()

    @property
    def wanted(self) -> tuple[str, ...]:
        """The metrics that the study needs."""
        study = self.study
        names = [one.name for one in study.objectives] or [study.metric.name]
        names += [one.metric for one in study.constraints]
        return tuple(dict.fromkeys(name for name in names if name not in COSTS))

    @property
    def at_once(self) -> int:
        return self.executor.at_once

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        return Resolved(config, FOLDER, self.chunk_sizes.steps_per_chunk, dict(config))

    def check(self, resolved: Resolved) -> None:
        """Reject a command that cannot start where it would run, or an invalid number of GPUs."""
        each = self.settings.gpus
        if each and each > 1 and each != int(each):
            raise ConfigError(f"processes.gpus is {each:g}; allowed: 0.5, 0.25, 1, 2, ...")
        program = ""  # of a shell command line
        if not self.line.needs_shell:
            program = self.line.argv(self.values(Refill(0, resolved, Stream.SEARCH, 0)))[0]
        self.executor.check(program, self.cwd)

    def notes(self, resolved: Resolved) -> Iterator[str]:
        if "seed" not in self.line.names:
            yield (
                "command has no {seed}: if the script draws the same numbers each time, all "
                "seeds of a trial are equal; add it, for example --seed {seed}"
            )

    def make(self, resolved: Resolved, lanes: int | None) -> ProcessPopulation:
        made = ProcessPopulation(self, lanes or self.at_once)
        self._made.append(made)
        return made

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        raise ConfigError(f"baseline {name!r}: a command has no heuristics; remove baselines")

    def values(self, refill: Refill) -> dict[str, Any]:
        """Return the values of all placeholders for a run."""
        length = self.study.horizon
        return {
            **refill.resolved.payload,
            "seed": seed_of(self.study, refill.stream, refill.replicate),
            "folder": str(self.folder_of(refill)),
            "env_steps": length,
            "length": length,
            "trial": refill.trial,
        }

    def folder_of(self, refill: Refill) -> Path:
        trial = f"trial_{refill.trial}"
        if refill.trial == REFERENCE_TRIAL:
            trial = "default"
        return self.folder / trial / f"{refill.stream}_{refill.replicate}"

    def launch(self, refill: Refill, line: Template) -> Launch:
        values = self.values(refill)
        own = {
            "HPO_FOLDER": str(values["folder"]),
            "HPO_SEED": str(values["seed"]),
            "HPO_ENV_STEPS": str(values["env_steps"]),
            "HPO_TRIAL": str(refill.trial),
        }
        settings = {**own, **line.settings(values)}
        return Launch(line.argv(values), settings, self.cwd, Path(values["folder"]))


@dataclass
class ProcessRun:
    """One replicate run as a process: its start, its reported metrics and its end."""

    factory: ProcessFactory = field(repr=False)
    refill: Refill
    chunks: int = 0  # number counted so far
    is_free: bool = False  # at no rung: it is not judged
    process: Process | None = None
    before: Process | None = None  # the lane's previous process, which must end first
    reader: Reader | None = None
    rows: list[Row] = field(default_factory=list[Row])
    exit_code: int | None = None
    failure: str = ""
    diverged: bool = False
    continued: bool = False  # started from a checkpoint
    starts_over: bool = False  # because it could not continue
    last_step: float = 0.0
    has_steps: bool = False
    losses: int = 0  # in a row, from its node or its slot
    _lost_at: float = 0.0  # its last step at that time
    _has_looked_back: bool = False  # for a process of an earlier start of the study
    _sign: float = 0.0  # time of its last report

    @property
    def key(self) -> tuple[int, Stream, int]:
        return self.refill.trial, self.refill.stream, self.refill.replicate

    @property
    def folder(self) -> Path:
        return self.factory.folder_of(self.refill)

    @property
    def is_over(self) -> bool:
        return self.exit_code is not None or bool(self.failure) or self.diverged

    def look(self) -> None:
        """Start the process when its lane is free, read new metrics, and detect its end."""
        if self.is_over:
            return
        if self.process is None:
            if self.before is None or self.before.look() is not None:
                self._start()
            return
        code = self.process.look()
        self._read_metrics(ended=code is not None)
        if code is not None:
            self._end_process(code)
            return
        self._check_output()
        if not self.is_over and self._waits_at_rung():
            self.process.pause()
        elif self.process.is_paused:
            self._sign = time.monotonic()
            self.process.go_on()

    def _start(self) -> None:
        self.before, self._sign = None, time.monotonic()
        line = self.factory.launch(self.refill, self.factory.line)
        record = _record_of(self.folder)
        is_sound = record.get("command") == list(line.argv) and "failure" not in record
        if is_sound and record.get("exit_code") == 0:
            self._open_reader(record)  # of an earlier start, which did not commit it
            self._read_metrics(ended=True)
            self._end_process(0)
            return
        left = self._left_over(is_sound)
        if self.before is not None:
            return
        resume = None
        if is_sound and not self.starts_over:
            resume = self.factory.resume
        if left is None and resume is None:
            delete_folder(self.folder)
            record = {}
        self._open_reader(record)
        if left is not None:
            self.process = left
            return
        launch, self.continued = line, resume is not None
        if resume is not None:
            launch = self.factory.launch(self.refill, resume)
        make_folder(self.folder)
        told = {
            "command": list(line.argv),
            "seed": seed_of(self.factory.study, self.refill.stream, self.refill.replicate),
            "working_folder": str(self.factory.cwd),
            "started_at": float(record.get("started_at", time.time())),
            **self.factory.code(),
        }
        if self.continued:
            told["resumed_by"] = list(launch.argv)
        write_text(self.folder / _RECORD, json.dumps(told, indent=2) + "\n")
        self.process = self.factory.executor.start(launch, self.refill.lane)

    def _left_over(self, is_wanted: bool) -> Process | None:
        """Return the process left by an earlier start of the study; end it if it is not wanted."""
        if self._has_looked_back:
            return None
        self._has_looked_back = True
        left = self.factory.executor.find(self.folder)
        if left is None or is_wanted:
            return left
        if left.look() is None:
            left.ask_to_end(self.factory.settings.grace)
            self.before = left
        return None

    def _open_reader(self, record: Mapping[str, Any]) -> None:
        metrics, since = self.factory.metrics, float(record.get("started_at", time.time()))
        pattern = ""
        if metrics.file is not None:
            pattern = self._fill_pattern(metrics.file)
        self.reader = reader_of(metrics.type, pattern, self.folder, metrics.step, since)

    def _fill_pattern(self, pattern: str) -> str:
        text = Template(pattern)
        values = self.factory.values(self.refill)
        known = {name: values[name] for name in text.names if name in values}
        for name in text.names:
            if name not in known:
                raise ConfigError(f"metrics.file has {{{name}}}; Known: {', '.join(values)}")
        path = pattern
        for name, value in known.items():
            path = path.replace(f"{{{name}}}", str(value))
        return str(self.factory.cwd / path)

    def _read_metrics(self, ended: bool) -> None:
        assert self.reader is not None
        for step, numbers in self.reader.read(ended):
            if numbers or step is not None:
                self._sign = time.monotonic()
            if step is not None:
                self.last_step, self.has_steps = max(self.last_step, step), True
            self.rows.append((step, numbers))
            for name in self.factory.wanted:
                if not math.isfinite(numbers.get(name, 0.0)):
                    self.diverged = True
        if self.diverged and self.process is not None:
            self.process.ask_to_end(0.0)

    def _end_process(self, code: int) -> None:
        if self.process is not None and self.process.lost and not self.diverged:
            self._lose(self.process.lost)
            return
        if code != 0 and self.continued:  # its checkpoint may be incomplete
            self.continued, self.starts_over = False, True
            self._run_again()
            return
        self.exit_code = code
        if self.diverged:
            return
        length, unit = self.factory.study.env_steps, self.factory.study.algorithm.unit
        missing = [name for name in self.factory.wanted if name not in self.names]
        if code < 0:
            self._fail(f"ended by {signal.Signals(-code).name}")
        elif code > 0:
            self._fail(f"exit code {code}")
        elif missing:
            self._fail(f"ended without {missing[0]}; {self._reported_names}")
        elif self.has_steps and self.last_step < min(_NEAR * length, length - 1):
            self._fail(
                f"exited by itself at {self.last_step:,.0f} of {length:,} {unit}; pass "
                "{env_steps} to the script, or lower the length"
            )
        elif self.process is not None:  # otherwise, an earlier start of the study recorded it
            self._note_end()

    def _lose(self, why: str) -> None:
        """Restart the process, unless it has been lost too often."""
        if self.factory.resume is not None and self.last_step > self._lost_at:
            self.losses = 0
        self.losses += 1
        self._lost_at = self.last_step
        if self.losses < _MOST_LOSSES:
            self._run_again()
        else:
            self._fail(f"{why}, {self.losses} times in a row")

    def _run_again(self) -> None:
        self.process = None
        self.rows, self.last_step, self.has_steps = [], 0.0, False

    @property
    def _reported_names(self) -> str:
        if not self.names:
            return "it reported no metric; print JSON lines, or name the files under metrics"
        named = [*self.names][:_MOST_NAMED]
        if len(self.names) > _MOST_NAMED:
            named.append("...")
        return f"it reported {', '.join(named)}; name one under metric"

    @property
    def names(self) -> Collection[str]:
        if self.reader is None:
            return ()
        return self.reader.names

    def _note_end(self) -> None:
        record = _record_of(self.folder)
        if self.exit_code is not None:
            record["exit_code"] = self.exit_code
        if self.failure:
            record["failure"] = self.failure
        record |= {"ended_at": time.time(), "last_step": self.last_step}
        write_text(self.folder / _RECORD, json.dumps(record, indent=2) + "\n")

    def _fail(self, why: str) -> None:
        """Mark the run as failed, with the last lines of its output."""
        if self.process is not None:
            self.process.ask_to_end(self.factory.settings.grace)
        said = ""
        if self.exit_code != 0:
            said = last_lines(self.folder / STDERR) or last_lines(self.folder / STDOUT)
        *before, last = said.splitlines() or [""]
        place = self.folder.relative_to(self.factory.folder.parent)
        if last:
            why = f"{why}: {last}"
        lines = [why, *before, f"(all output: {place}/)"]
        self.failure = "\n".join(lines)
        self._note_end()

    def _check_output(self) -> None:
        timeout = self.factory.settings.timeout
        assert self.process is not None
        if self.process.is_waiting:
            self._sign = time.monotonic()
        if timeout and not self.process.is_paused and time.monotonic() - self._sign > timeout:
            self._fail(f"no metric for {timeout:g} s; raise processes.timeout (0: no limit)")
        for name in (STDOUT, STDERR):
            path = self.folder / name
            if path.is_file() and path.stat().st_size > _MOST_OUTPUT:
                self._fail(f"{name} is larger than 1 GiB; print less")

    def _waits_at_rung(self) -> bool:
        if self.is_free or self.refill.stream is not Stream.SEARCH:
            return False
        rungs = self.factory.chunk_sizes.rung_chunks
        following = next((rung for rung in rungs if rung > self.chunks), None)
        return following is not None and self.has_reached(following)

    def has_reached(self, chunks: int) -> bool:
        """Return whether this many chunks can be counted; for all, the process must have ended."""
        chunk_sizes = self.factory.chunk_sizes
        if self.is_over:
            return True
        if chunks >= chunk_sizes.chunks:
            return False
        mark = chunks * chunk_sizes.steps_per_chunk
        if self.last_step < mark:
            return False
        return chunks not in self._evaluation_marks or all(
            self._first_row_after(name, mark) is not None for name in self.factory.wanted
        )

    @cached_property
    def _evaluation_marks(self) -> frozenset[int]:
        """The chunks at which the metric is measured."""
        chunk_sizes, every = self.factory.chunk_sizes, self.factory.study.evaluation.every
        marks = set(chunk_sizes.rung_chunks)
        if isinstance(every, int):
            length = self.factory.study.env_steps
            marks |= {-(-at // chunk_sizes.steps_per_chunk) for at in range(every, length, every)}
        return frozenset(marks)

    def _first_row_after(self, name: str, mark: float) -> int | None:
        """Return the index of the first row, at or after a mark, that has a metric."""
        rows = enumerate(self.rows)
        return next(
            (at for at, (step, own) in rows if step is not None and step >= mark and name in own),
            None,
        )

    def measured(self) -> dict[str, float]:
        """Return the metrics at the counted chunk: the first ones reported there or later."""
        mark = self.chunks * self.factory.chunk_sizes.steps_per_chunk
        is_last = self.chunks >= self.factory.chunk_sizes.chunks
        found: dict[str, float] = {}
        for name in self.names:
            ends = [at for at, (_, own) in enumerate(self.rows) if name in own]
            first = None
            if not is_last:
                first = self._first_row_after(name, mark)
            if first is not None:
                ends = [at for at in ends if at <= first]
            if ends:
                count = 1
                if name in self.factory.wanted:
                    count = self.factory.metrics.mean_of
                found[name] = float(np.mean([self.rows[at][1][name] for at in ends[-count:]]))
        return found

    def count(self) -> dict[str, float]:
        """Count a chunk; return each metric's last value in it."""
        each = self.factory.chunk_sizes.steps_per_chunk
        start, end = self.chunks * each, (self.chunks + 1) * each
        self.chunks += 1
        is_last = self.chunks >= self.factory.chunk_sizes.chunks
        found: dict[str, float] = {}
        for step, numbers in self.rows:
            inside = step is not None and step > start and (step <= end or is_last)
            if inside or (step is None and is_last):
                found |= numbers
        self._drop_old_rows(start)
        return found

    def _drop_old_rows(self, mark: float) -> None:
        """Drop rows before a mark, except the last ones, which a mean may still need."""
        if len(self.rows) > 2 * _MOST_ROWS + self.factory.metrics.mean_of:
            keep = len(self.rows) - _MOST_ROWS - self.factory.metrics.mean_of
            cut = [at for at, (step, _) in enumerate(self.rows) if (step or mark) < mark]
            del self.rows[: min(keep, len(cut))]

    def leave(self) -> Process | None:
        """Ask the process to end; return it if it is still running."""
        if self.process is None:
            return self.before
        has_ended = self.process.look() is not None
        if not self.is_over:  # otherwise its end is recorded
            self._read_metrics(ended=has_ended)
            self._note_end()
        if has_ended:
            return None
        self.process.ask_to_end(self.factory.settings.grace)
        return self.process

    def put_aside(self) -> None:
        """Suspend the process, or end it if it can resume from a checkpoint."""
        if self.process is None:
            return
        if self.factory.resume is None:
            self.process.pause()
            return
        self.before, self.process = self.leave(), None

    def as_data(self) -> dict[str, Any]:
        return {
            "trial": self.refill.trial,
            "stream": str(self.refill.stream),
            "replicate": self.refill.replicate,
            "config": plain_json(self.refill.resolved.payload),
            "chunks": self.chunks,
        }


@dataclass(frozen=True)
class Tried:
    """The results of a process that ran for a few seconds."""

    steps_per_second: float  # after its start; 0 if it reported fewer than two steps
    start_seconds: float  # per process, in addition to its steps: imports, compiling, its end
    run_seconds: float | None  # of a whole run, if it finished
    names: tuple[str, ...]  # names of its metrics
    memory_bytes: int  # the largest value seen
    failure: str = ""

    @property
    def words(self) -> str:
        seen = ", ".join(self.names[:8]) or "no metric so far"
        if len(self.names) > 8:
            seen += f" and {len(self.names) - 8} more"
        speed = f"{self.steps_per_second:,.0f} env steps per second; " * bool(
            self.steps_per_second
        )
        memory = f"; {self.memory_bytes / 2**20:,.0f} MiB" * bool(self.memory_bytes)
        return f"{speed}reports {seen}{memory}"


def try_out(factory: ProcessFactory, folder: Path, seconds: float) -> Tried:
    """Run the default configuration until its speed is known, for at most `seconds`."""
    factory.begin(folder)
    resolved = factory.resolve(factory.study.default())
    refill = Refill(0, resolved, Stream.SEARCH, 0, trial=0)
    run = ProcessRun(factory, refill, is_free=True)
    factory.code()  # so that its time does not count
    started, memory = time.monotonic(), 0
    marks: list[tuple[float, float]] = []  # seconds and steps of the first and the last report
    while not run.is_over and time.monotonic() - started < seconds:
        known = all(name in run.names for name in factory.wanted)
        if known and marks and marks[-1][0] - marks[0][0] > _ENOUGH:
            break
        run.look()
        if run.process is not None:
            memory = max(memory, run.process.memory())
        if run.has_steps and (not marks or run.last_step != marks[-1][1]):
            marks = [*marks[:1], (time.monotonic() - started, run.last_step)]
        time.sleep(_PAUSE)
    took = time.monotonic() - started
    left = run.leave()
    if left is not None:
        left.end()
    whole = took if run.exit_code == 0 else None
    failure = run.failure.partition("\n(all output")[0]  # its folder is deleted
    if run.diverged and not failure:
        failure = "its metric is not finite"
    speed, start = speed_and_start(marks, took, whole is not None)
    return Tried(speed, start, whole, tuple(run.names), memory, failure)


def speed_and_start(
    marks: Sequence[tuple[float, float]], took: float, is_whole: bool
) -> tuple[float, float]:
    """Return steps per second, and the seconds that a process needs in addition to its steps.

    `marks` are the seconds and steps of the first and the last report, or fewer. For a whole run
    without two reports, all its time counts as start-up, because no rung can shorten it.

    >>> speed_and_start([(3.0, 100), (5.0, 300)], 5.5, False)
    (100.0, 2.0)
    >>> speed_and_start([(3.0, 100), (5.0, 300)], 5.5, True)
    (100.0, 2.5)
    """
    if len(marks) < 2:
        if is_whole:
            return 0.0, took
        if not marks:
            return 0.0, 0.0
        return marks[-1][1] / took, 0.0
    (first, low), (last, high) = marks[0], marks[-1]
    speed = (high - low) / (last - first)
    at, step = first, low
    if is_whole:
        at, step = took, high
    return speed, max(0.0, at - step / speed)


def _record_of(folder: Path) -> dict[str, Any]:
    """Return the record of a folder's process; {} if it is damaged."""
    path = folder / _RECORD
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(read_text(path)))
    except ValueError:
        return {}


class ProcessPopulation(Population):
    """The processes of a study; lanes advance one by one, see `RunsAlone`."""

    warmup_chunks, block = 0, 1

    def __init__(self, factory: ProcessFactory, lanes: int):
        self._factory, self.lanes = factory, lanes
        self.steps_per_chunk = factory.chunk_sizes.steps_per_chunk
        self._runs: list[ProcessRun | None] = [None] * lanes
        self._ending: list[Process | None] = [None] * lanes
        self._away: dict[tuple[int, Stream, int], ProcessRun] = {}  # taken out of their lanes
        self._leaving: list[Process] = []  # of runs that are no longer needed
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
        counted = {lane: self._run(lane).count() for lane in busy}
        metrics: dict[str, np.ndarray] = {}
        for lane, numbers in counted.items():
            for name, value in numbers.items():
                metrics.setdefault(name, np.full(self.lanes, np.nan))[lane] = value
        diverged = np.zeros(self.lanes, bool)
        failed: dict[int, str] = {}
        for lane in busy:
            run = self._run(lane)
            diverged[lane] = run.diverged or bool(run.failure)
            if run.failure:
                failed[lane] = run.failure
        before, self._counted_at = self._counted_at, time.perf_counter()
        return ChunkResult(metrics, diverged, self._counted_at - before, failed)

    def _begin_runs(self, refills: Sequence[Refill]) -> None:
        for refill in refills:
            there = self._runs[refill.lane]
            run = ProcessRun(self._factory, refill)
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
        run = self._run(lane)
        return run.has_reached(run.chunks + 1)

    def _run(self, lane: int) -> ProcessRun:
        run = self._runs[lane]
        if run is None:
            raise ValueError(f"lane {lane} is empty")
        return run

    def change(self, changes: Sequence[LaneChange]) -> None:
        if changes:
            raise ConfigError("processes do not copy each other; use early_terminate: asha")

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """Return the metrics that processes reported at their counted chunks."""
        each = (self._run(lane).measured() for lane in lanes)
        return [*map(_result_of, each)]

    def take(self, lanes: Sequence[int]) -> list[Any]:
        """Remove processes from their lanes; they are suspended, or ended if they can resume."""
        found: list[ProcessRun] = []
        for lane in lanes:
            run = self._run(lane)
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
        """End processes returned by `take`, except those of these (trial, replicate) pairs."""
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
        config = self._factory.study.complete(data["config"])
        resolved = self._factory.resolve(config)
        numbers = (data["replicate"], data["trial"])
        refill = Refill(lane, resolved, Stream(data["stream"]), *numbers)
        return ProcessRun(self._factory, refill, data["chunks"])

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        """Write a run's command line, seed and folder, and the state of the code."""
        run = self._run(lane)
        told = {**_record_of(run.folder), "folder": str(run.folder), "about": dict(about)}
        write_text(new_folder(directory) / PROCESS, json.dumps(told, indent=2) + "\n")

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
