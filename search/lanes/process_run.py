"""One replicate of a study with `command`: its process, its reported metrics, and its end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...files.atomic_files import delete_folder, make_folder, read_text, write_text
from ...machine.processes import STDERR, STDOUT, Launch, StartedProcess, last_lines
from ...store.codec import plain_json
from ...store.rows import Stream
from ...studies.command import Template
from .contract import Refill
from .process_setup import ProcessSetup
from .reported_metrics import ReportedMetrics

_RECORD = "run.json"
# share of the length at which a process may end by itself, since batches may not divide it
_NEAR = 0.9
_MOST_OUTPUT = 1 << 30  # bytes of output per process
_MOST_LOSSES = 3  # consecutive node failures of one run


@dataclass
class ProcessRun:
    """One replicate run as a process: its start, its reported metrics and its end."""

    setup: ProcessSetup = field(repr=False)
    refill: Refill
    chunks: int = 0  # number counted so far
    is_free: bool = False  # at no rung: it is not judged
    process: StartedProcess | None = None
    before: StartedProcess | None = None  # the lane's previous process, which must end first
    exit_code: int | None = None
    failure: str = ""
    continued: bool = False  # started from a checkpoint
    starts_over: bool = False  # because it could not continue
    losses: int = 0  # in a row, from its node or its slot
    reported: ReportedMetrics = field(init=False, repr=False)
    _lost_at: float = 0.0  # its last step at that time
    _has_looked_back: bool = False  # for a process of an earlier start of the study
    _sign: float = 0.0  # time of its last report

    def __post_init__(self) -> None:
        self.reported = ReportedMetrics(self.setup)

    @property
    def key(self) -> tuple[int, Stream, int]:
        return self.refill.trial, self.refill.stream, self.refill.replicate

    @property
    def folder(self) -> Path:
        return self.setup.folder_of(self.refill)

    @property
    def diverged(self) -> bool:
        return self.reported.diverged

    @property
    def is_over(self) -> bool:
        return self.exit_code is not None or bool(self.failure) or self.diverged

    @property
    def is_lost(self) -> bool:
        """Whether the run failed or diverged in the counted chunks."""
        return (self.diverged or bool(self.failure)) and self.reported.ends_by(self.chunks)

    def look(self) -> None:
        """Start the process when its lane is free, read new metrics, and detect its end."""
        if self.is_over:
            return
        if self.process is None:
            if self.before is None or self.before.look() is not None:
                self._start_or_take_over()
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

    def _start_or_take_over(self) -> None:
        self.before, self._sign = None, time.monotonic()
        launch = self.setup.launch(self.refill, self.setup.command)
        record = record_of(self.folder)
        is_sound = record.get("command") == list(launch.argv) and "failure" not in record
        if is_sound and record.get("exit_code") == 0:
            self._open_metrics(record)  # of an earlier start, which did not commit it
            self._read_metrics(ended=True)
            self._end_process(0)
            return
        left = self._left_over(is_sound)
        if self.before is not None:
            return
        resume = None
        if is_sound and not self.starts_over:
            resume = self.setup.resume
        if left is None and resume is None:
            delete_folder(self.folder)
            record = {}
        self._open_metrics(record)
        if left is not None:
            self.process = left
            return
        self._launch_process(launch, resume, record)

    def _left_over(self, is_wanted: bool) -> StartedProcess | None:
        """Return the process left over from an earlier start; end it if it is not wanted."""
        if self._has_looked_back:
            return None
        self._has_looked_back = True
        left = self.setup.executor.find(self.folder)
        if left is None or is_wanted:
            return left
        if left.look() is None:
            left.ask_to_end(self.setup.settings.grace)
            self.before = left
        return None

    def _launch_process(
        self, first: Launch, resume: Template | None, earlier: Mapping[str, Any]
    ) -> None:
        """Start the process with its first command or from its checkpoint, and record it."""
        launch, self.continued = first, resume is not None
        if resume is not None:
            launch = self.setup.launch(self.refill, resume)
        make_folder(self.folder)
        record = {
            "command": list(first.argv),
            "seed": self.setup.values(self.refill)["seed"],
            "working_folder": str(self.setup.cwd),
            "started_at": float(earlier.get("started_at", time.time())),
            **self.setup.code(),
        }
        if self.continued:
            record["resumed_by"] = list(launch.argv)
        self._write_record(record)
        self.process = self.setup.executor.start(launch, self.refill.lane)

    def _open_metrics(self, record: Mapping[str, Any]) -> None:
        self.reported.open(self.refill, float(record.get("started_at", time.time())))

    def _read_metrics(self, ended: bool) -> None:
        if self.reported.read(ended):
            self._sign = time.monotonic()
        if self.diverged and self.process is not None:
            self.process.ask_to_end(0.0)

    def _waits_at_rung(self) -> bool:
        if self.is_free or self.refill.stream is not Stream.SEARCH:
            return False
        rungs = self.setup.chunk_sizes.rung_chunks
        next_rung = next((rung for rung in rungs if rung > self.chunks), None)
        return next_rung is not None and self.has_reached(next_rung)

    def has_reached(self, chunks: int) -> bool:
        """Return whether this many chunks can be counted.

        The last chunk can be counted only after the process has ended.
        """
        if self.is_over:
            return True
        if chunks >= self.setup.chunk_sizes.chunks:
            return False
        return self.reported.has_reached(chunks)

    def measured(self) -> dict[str, float]:
        """Return the metrics at the counted chunk: the first ones reported there or later."""
        return self.reported.measured(self.chunks)

    def count(self) -> dict[str, float]:
        """Count a chunk; return each metric's last value in it."""
        self.chunks += 1
        return self.reported.last_in_chunk(self.chunks - 1)

    def _end_process(self, code: int) -> None:
        if self.process is not None and self.process.lost and not self.diverged:
            self._restart_or_fail(self.process.lost)
            return
        if code != 0 and self.continued:  # its checkpoint may be incomplete
            self.continued, self.starts_over = False, True
            self._run_again()
            return
        self.exit_code = code
        if self.diverged:
            return
        if why := self._why_failed(code):
            self._mark_failed(why)
        elif self.process is not None:  # otherwise, an earlier start of the study recorded it
            self._record_end()

    def _why_failed(self, code: int) -> str:
        """Return why a process that ended with this exit code has failed, or ""."""
        reported, study = self.reported, self.setup.study
        length, unit = study.env_steps, study.algorithm.unit
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        if code > 0:
            return f"exit code {code}"
        if reported.missing:
            return f"ended without {reported.missing[0]}; {reported.names_text}"
        if reported.has_steps and reported.last_step < min(_NEAR * length, length - 1):
            return (
                f"exited by itself at {reported.last_step:,.0f} of {length:,} {unit}; pass "
                "{env_steps} to the script, or reduce the run length"
            )
        return ""

    def _restart_or_fail(self, why: str) -> None:
        """Restart the process, unless it has been lost too often."""
        last_step = self.reported.last_step
        if self.setup.resume is not None and last_step > self._lost_at:
            self.losses = 0
        self.losses += 1
        self._lost_at = last_step
        if self.losses < _MOST_LOSSES:
            self._run_again()
        else:
            self._mark_failed(f"{why}, {self.losses} times in a row")

    def _run_again(self) -> None:
        self.process = None
        self.reported.clear()

    def _record_end(self) -> None:
        record = record_of(self.folder)
        if self.exit_code is not None:
            record["exit_code"] = self.exit_code
        if self.failure:
            record["failure"] = self.failure
        record |= {"ended_at": time.time(), "last_step": self.reported.last_step}
        self._write_record(record)

    def _write_record(self, record: Mapping[str, Any]) -> None:
        write_text(self.folder / _RECORD, json.dumps(record, indent=2) + "\n")

    def _mark_failed(self, why: str) -> None:
        """Mark the run as failed, with the last lines of its output."""
        if self.process is not None:
            self.process.ask_to_end(self.setup.settings.grace)
        output = ""
        if self.exit_code != 0:
            output = last_lines(self.folder / STDERR) or last_lines(self.folder / STDOUT)
        *before, last = output.splitlines() or [""]
        place = self.folder.relative_to(self.setup.folder.parent)
        if last:
            why = f"{why}: {last}"
        lines = [why, *before, f"(all output: {place}/)"]
        self.failure = "\n".join(lines)
        self._record_end()

    def _check_output(self) -> None:
        """Mark the run as failed if the process is silent for too long or prints too much."""
        timeout = self.setup.settings.timeout
        assert self.process is not None
        if self.process.is_waiting:
            self._sign = time.monotonic()
        if timeout and not self.process.is_paused and time.monotonic() - self._sign > timeout:
            self._mark_failed(
                f"no metric for {timeout:g} s; raise processes.timeout (0: no limit)"
            )
        for name in (STDOUT, STDERR):
            path = self.folder / name
            if path.is_file() and path.stat().st_size > _MOST_OUTPUT:
                self._mark_failed(f"{name} is larger than 1 GiB; print less")

    def leave(self) -> StartedProcess | None:
        """Ask the process to end; return it if it is still running."""
        if self.process is None:
            return self.before
        has_ended = self.process.look() is not None
        if not self.is_over:  # otherwise its end is recorded
            self._read_metrics(ended=has_ended)
            self._record_end()
        if has_ended:
            return None
        self.process.ask_to_end(self.setup.settings.grace)
        return self.process

    def put_aside(self) -> None:
        """Suspend the process, or end it if it can resume from a checkpoint."""
        if self.process is None:
            return
        if self.setup.resume is None:
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


def record_of(folder: Path) -> dict[str, Any]:
    """Return the record of a folder's process; {} if there is none or it is damaged."""
    path = folder / _RECORD
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(read_text(path)))
    except ValueError:
        return {}
