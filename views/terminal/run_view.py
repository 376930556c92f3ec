"""Prints the events of a running study as lines; subclasses show more or less of its progress."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ...errors import clause, ignore
from ...search.state.loop_state import Phase
from ...search.state.progress import Best, Observer, Progress
from ...store.rows import TrialRow, TrialState
from ...studies.algorithm import ENV_STEPS
from ...studies.spec import Study
from ...studies.study_environments import env_words
from ..formatting import duration, number, steps, with_interval
from ..output import echo
from .console import let_go_of_terminal

_ALWAYS = (TrialState.RUNNING, TrialState.STOPPED, TrialState.FINISHED)
_ORDER = (
    TrialState.RUNNING, TrialState.INTERRUPTED, TrialState.WAITING, TrialState.PAUSED,
    TrialState.STOPPED, TrialState.FINISHED, TrialState.DIVERGED, TrialState.FAILED,
    TrialState.UNFINISHED,
)  # fmt: skip
PHASE_WORDS = {
    Phase.SEARCH: "search",
    Phase.CHOOSE: "confirm: selecting the winner on new seeds",
    Phase.REPORT: "confirm: testing the winner on test seeds",
    Phase.ALSO: "confirm: testing more trials on test seeds",
    Phase.DONE: "done",
}

_STAGES = {
    **{phase: str(phase) for phase in Phase},
    Phase.CHOOSE: "select",
    Phase.REPORT: "test",
    Phase.ALSO: "confirm",
}
_FAILURES_SAID = 5


def counts_text(progress: Progress, always: Sequence[TrialState] = ()) -> str:
    counts = {state: progress.states.get(state, 0) for state in _ORDER}
    return ", ".join(f"{n} {state}" for state, n in counts.items() if n or state in always)


def standing_text(progress: Progress, unit: str = ENV_STEPS) -> str:
    if progress.best is not None:
        return best_text(progress.best)
    if (leader := progress.leader) is None:
        return "no trial has finished yet"
    at = f"{number(leader.value)} at {steps(leader.env_steps)} {unit}"
    return f"{at} in trial {leader.trial}; no trial has finished yet"


def best_text(best: Best) -> str:
    text = with_interval(best.value, best.low, best.high)
    if best.low is None and len(best.seed_values) > 1:
        text += f" (seeds {', '.join(map(number, best.seed_values))})"
    return f"{text} in trial {best.trial}"


def left_text(progress: Progress) -> str:
    """Return the time left as estimated after the last chunk; "" if unknown.

    The estimate is not counted down between chunks, because it might then have to increase after
    the next chunk.
    """
    if progress.seconds_left is None or progress.phase is Phase.DONE:
        return ""
    if progress.seconds_left < 1.0:
        return ", nearly done"
    return f", {duration(progress.seconds_left)} left"


def progress_facts(
    progress: Progress, compiles: str = "", lanes: str = "lanes", unit: str = ENV_STEPS
) -> list[tuple[str, str]]:
    amounts = f"{steps(progress.env_steps)} of about {steps(progress.env_steps_total)}, "
    speed = f"{steps(round(progress.env_steps_per_second))} per second{compiles}"
    busy = f"{progress.lanes_busy} of {progress.lanes} busy"
    proposed = str(progress.proposed)
    if progress.trials_total is not None:
        proposed += f" of {progress.trials_total}"
    trials = f"{proposed} proposed: {counts_text(progress, _ALWAYS)}"
    return [
        ("phase", PHASE_WORDS[progress.phase]),
        (unit, amounts + speed),
        (lanes, f"{busy}, on average {progress.occupancy:.0%} while there was work"),
        ("trials", trials),
        ("best", standing_text(progress, unit)),
    ]


def status_line(progress: Progress, lanes: str = "lanes", unit: str = ENV_STEPS) -> str:
    """Return the status in one line, for output that is not a terminal."""
    best = ""
    if progress.best is not None:
        best = f" | best {best_text(progress.best)}"
    elif (one := progress.leader) is not None:
        best = f" | trial {one.trial} leads: {number(one.value)} at {steps(one.env_steps)}"
    return (
        f"{duration(progress.seconds)}{left_text(progress)} | {_STAGES[progress.phase]} "
        f"{steps(progress.env_steps)} {unit} ({progress.share:.0%}), "
        f"{steps(round(progress.env_steps_per_second))}/s | {lanes} "
        f"{progress.lanes_busy}/{progress.lanes} | {counts_text(progress)}{best}"
    )


def ended_text(trial: TrialRow, unit: str = ENV_STEPS, lanes: str = "lanes") -> str:
    text = f"trial {trial.trial} {trial.state}"
    if trial.state is not TrialState.FAILED or lanes != "processes":
        text += f" after {steps(trial.env_steps)} {unit}"  # a failed process may have run further
    if trial.value is not None:
        return f"{text}: {number(trial.value)}"
    if trial.state is TrialState.STOPPED:
        value = number(trial.rung_value)
        if trial.rung_env_steps is not None:
            value += f" at {steps(trial.rung_env_steps)}"
        return f"{text}: {value} ({trial.stop_rule})"
    return text + clause(": {}", trial.error)


PATIENCE = 8.0  # seconds that a compile may continue after a request to stop


class RunView(Observer):
    """Prints events; a context manager around a run, and an observer of it."""

    def __init__(self, stream: TextIO | None = None, command: str = "hpo run"):
        self.stream: TextIO | None = stream or sys.stderr
        self.command, self.unit, self.lanes = command, ENV_STEPS, "lanes"
        self.on_ready: Callable[[], None] = ignore
        self._best: int | None = None
        self._failures, self._resumed = 0, False
        self._evolves = False  # whether trial 0 may no longer be the default
        self._every_trial = False
        self._lock = threading.Lock()
        self.is_compiling = False

    def __enter__(self) -> RunView:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Restore the terminal; a second call does nothing."""

    def say(self, text: str) -> None:
        self.write(text)

    def write(self, text: str, command: str = "") -> None:
        """Print a line, from any thread; do nothing if the stream is closed."""
        text += clause(" {}", command)
        with self._lock:
            if self.stream is None:
                return
            try:
                echo(text, file=self.stream, flush=True)
            except (OSError, ValueError):  # the stream is closed, but the study continues
                self.stream = None
                let_go_of_terminal()

    def warn(self, text: str) -> None:
        self.write(f"warning: {text}")

    @contextmanager
    def compiling(self, words: str) -> Iterator[None]:
        self.compile_begins(words)
        started, self.is_compiling = time.perf_counter(), True
        try:
            yield
        finally:
            self.is_compiling = False
        self.compile_ends(words, time.perf_counter() - started)

    def compile_begins(self, words: str) -> None:
        self.say(f"compiling {words}")

    def compile_ends(self, words: str, seconds: float) -> None:
        self.say(f"compiled in {duration(seconds)}")

    def pressed(self) -> None:
        """Report how the study ends after the first Ctrl-C; called from another thread."""
        what = "Finishing this chunk and committing"
        if self.lanes != "lanes":
            what = "Committing and ending the processes"
        if self.is_compiling:
            what = "The run stops after this compile and the next step, "
            what += f"or in {PATIENCE:.0f} s if the compile takes longer"
        self.write(f"{what}; press Ctrl-C again to quit at once.")

    def leaving(self) -> None:
        """Close the view before a second Ctrl-C ends the process; called from another thread."""
        self.close()
        self.write("Quitting at once; everything committed is kept. Resume with:", self.command)

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        self.unit, self._resumed = study.algorithm.unit, resumed
        self.lanes = study.algorithm.lanes
        self._evolves = bool(study.early_terminate and study.early_terminate.evolves)
        self._every_trial = any(logger.type == "console" for logger in study.loggers)
        verb = "starting"
        if resumed:
            verb = "resuming"
        self.say(
            f"{verb} study {study.name}: {'environment ' * study.algorithm.is_ppo}"
            f"{env_words(study)}, search {study.search.method}, in {folder}/"
        )
        self.on_ready()

    def on_baseline(self, baseline: str, value: float) -> None:
        self.say(f"baseline {baseline}: {number(value)}")

    def on_chunk(self, progress: Progress) -> None:
        best = progress.best
        if best is not None and best.trial != self._best:
            words = "new best"
            if self._resumed:
                words = "best so far"
            self._best, self._resumed = best.trial, False
            self.say(f"{words}: {best_text(best)}")

    def on_trial_end(self, trial: TrialRow) -> None:
        failed = trial.state is TrialState.FAILED
        self._failures += failed
        if self._every_trial or (failed and self._failures <= _FAILURES_SAID):
            self.say(ended_text(trial, self.unit, self.lanes))

    def on_confirm(self, phase: Phase, trials: tuple[int, ...]) -> None:
        if not trials:
            return
        default, seeds = [-1], "test"
        if not self._evolves:
            default.append(0)
        if phase is Phase.CHOOSE:
            seeds = "selection"
        names = ", ".join(f"{n}{' (the default)' * (n in default)}" for n in trials)
        which = f"trials {names} run"
        if len(trials) == 1:
            which = f"trial {names} runs"
        self.say(f"confirm: {which} on {seeds} seeds")


class LinesView(RunView):
    def __init__(
        self, stream: TextIO | None = None, command: str = "hpo run", every_seconds: float = 5.0
    ):
        super().__init__(stream, command)
        self._every, self._said = every_seconds, -float("inf")
        self._last: tuple[Phase, int] | None = None  # of the last status line

    def on_chunk(self, progress: Progress) -> None:
        super().on_chunk(progress)
        now = time.monotonic()
        if now - self._said >= self._every and progress.phase is not Phase.DONE:
            self._said, self._last = now, (progress.phase, progress.env_steps)
            self.say(status_line(progress, self.lanes, self.unit))

    def on_end(self, progress: Progress, state: str) -> None:
        if self._last != (progress.phase, progress.env_steps):
            self.say(status_line(progress, self.lanes, self.unit))


class QuietView(RunView):
    def say(self, text: str) -> None: ...
