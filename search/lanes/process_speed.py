"""A short run of a study's command, from which `hpo check` estimates the study's time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...store.rows import Stream
from .contract import Refill
from .process_run import ProcessRun
from .process_setup import ProcessSetup

_ENOUGH = 3.0  # seconds between two reported steps that suffice to measure a process's speed
_PAUSE = 0.01  # seconds between two checks of the process
_MOST_NAMED = 8  # metrics listed


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
        names = ", ".join(self.names[:_MOST_NAMED]) or "no metric so far"
        if len(self.names) > _MOST_NAMED:
            names += f" and {len(self.names) - _MOST_NAMED} more"
        speed, memory = "", ""
        if self.steps_per_second:
            speed = f"{self.steps_per_second:,.0f} env steps per second; "
        if self.memory_bytes:
            memory = f"; {self.memory_bytes / 2**20:,.0f} MiB"
        return f"{speed}reports {names}{memory}"


def try_out(setup: ProcessSetup, folder: Path, seconds: float) -> Tried:
    """Run the default configuration until its speed is known, for at most `seconds`."""
    setup.begin(folder)
    resolved = setup.resolve(setup.study.default())
    refill = Refill(0, resolved, Stream.SEARCH, 0, trial=0)
    run = ProcessRun(setup, refill, is_free=True)
    setup.code()  # so that its time does not count
    started, memory = time.monotonic(), 0
    reported = run.reported
    marks: list[tuple[float, float]] = []  # seconds and steps of the first and the last report
    while not run.is_over and time.monotonic() - started < seconds:
        known = all(name in reported.names for name in setup.wanted)
        if known and marks and marks[-1][0] - marks[0][0] > _ENOUGH:
            break
        run.look()
        if run.process is not None:
            memory = max(memory, run.process.memory())
        if reported.has_steps and (not marks or reported.last_step != marks[-1][1]):
            marks = [*marks[:1], (time.monotonic() - started, reported.last_step)]
        time.sleep(_PAUSE)
    took = time.monotonic() - started
    left = run.leave()
    if left is not None:
        left.end()
    whole = took if run.exit_code == 0 else None
    speed, start = speed_and_start(marks, took, whole is not None)
    return Tried(speed, start, whole, tuple(reported.names), memory, _failure_of(run))


def _failure_of(run: ProcessRun) -> str:
    """Return why a run failed, without naming its output folder, which is deleted."""
    failure = run.failure.partition("\n(all output")[0]
    if run.diverged and not failure:
        return "its metric is not finite"
    return failure


def speed_and_start(
    marks: Sequence[tuple[float, float]], took: float, is_whole: bool
) -> tuple[float, float]:
    """Return steps per second, and the seconds that a process needs in addition to its steps.

    `marks` are the (seconds, steps) pairs of the first and the last report; there may be fewer.
    For a whole run with fewer than two reports, all of the time counts as start-up, because no
    rung can shorten it.

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
