"""The events of a running study as lines: one class for events, one a way to show progress.

`LinesView` writes plain lines, `QuietView` nothing but warnings; `live.LiveView` draws.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TextIO

from ...search.state.loop_state import Phase
from ...search.state.progress import Best, Observer, Progress
from ...store.rows import TrialRow, TrialState
from ...studies.several_environments import env_words
from ...studies.spec import Study
from ..escape_control import echo
from ..formatting import between, duration, number, steps
from .console import let_go_of_terminal

_ALWAYS = (TrialState.RUNNING, TrialState.STOPPED, TrialState.FINISHED)
_ORDER = (
    TrialState.RUNNING,
    TrialState.INTERRUPTED,
    TrialState.WAITING,
    TrialState.PAUSED,
    TrialState.STOPPED,
    TrialState.FINISHED,
    TrialState.DIVERGED,
    TrialState.FAILED,
    TrialState.UNFINISHED,
)
_PHASE_WORDS = {
    Phase.SEARCH: "search",
    Phase.CHOOSE: "confirm: selecting the winner on new seeds",
    Phase.REPORT: "confirm: measuring on test seeds",
    Phase.ALSO: "confirm: measuring more trials on test seeds",
    Phase.DONE: "done",
}


def phase_text(phase: Phase) -> str:
    """Return the name of a phase."""
    return _PHASE_WORDS[phase]


def trials_text(progress: Progress) -> str:
    """Return how many trials are in which state."""
    counts = progress.states
    parts = [
        f"{counts.get(state, 0)} {state}"
        for state in _ORDER
        if counts.get(state, 0) or state in _ALWAYS
    ]
    total = f" of {progress.trials_total}" if progress.trials_total is not None else ""
    return f"{progress.proposed}{total} proposed: {', '.join(parts)}"


def standing_text(progress: Progress) -> str:
    """Return the best finished trial and its value; before there is one, the leader at a rung."""
    if progress.best is not None:
        return best_text(progress.best)
    leader = progress.leader
    if leader is None:
        return "none has finished yet"
    at = f"{number(leader.value)} at {steps(leader.env_steps)} env steps"
    return f"{at} in trial {leader.trial}; none has finished yet"


def best_text(best: Best) -> str:
    """Return the value of the best finished trial, with its interval or all its values."""
    around = between(best.low, best.high)
    if not around and len(best.seed_values) > 1:
        around = f"(seeds {', '.join(map(number, best.seed_values))})"
    return f"{number(best.value)} {around}".rstrip() + f" in trial {best.trial}"


def lanes_text(progress: Progress) -> str:
    """Return how many lanes are busy now, and the share that was while there was work."""
    busy = f"{progress.lanes_busy} of {progress.lanes} busy"
    return f"{busy}, {progress.occupancy:.0%} while there was work"


def left_text(progress: Progress) -> str:
    """Return the time left at the last chunk boundary, "" while nothing is known of it.

    It is not counted down between boundaries: at the next one it would have to run backwards.
    """
    if progress.seconds_left is None or progress.phase is Phase.DONE:
        return ""
    left = progress.seconds_left
    return f", {duration(left)} left" if left >= 1.0 else ", nearly done"


def status_line(progress: Progress) -> str:
    """Return everything in one line, for output that is not a terminal."""
    counts = ", ".join(
        f"{count} {state}" for state in _ORDER if (count := progress.states.get(state, 0))
    )
    best = ""
    if progress.best is not None:
        best = f" | best {best_text(progress.best)}"
    elif progress.leader is not None:
        leader = progress.leader
        best = (
            f" | leads {number(leader.value)} at {steps(leader.env_steps)} in trial {leader.trial}"
        )
    return (
        f"{duration(progress.seconds)}{left_text(progress)} | {progress.phase} "
        f"{steps(progress.env_steps)} env steps ({progress.share:.0%}), "
        f"{steps(round(progress.env_steps_per_second))}/s | lanes "
        f"{progress.lanes_busy}/{progress.lanes} | {counts}{best}"
    )


def ended_text(trial: TrialRow) -> str:
    """Describe in one line how a trial ended."""
    text = f"trial {trial.trial} {trial.state} after {steps(trial.env_steps)} env steps"
    if trial.value is not None:
        return f"{text}: {number(trial.value)}"
    if trial.state is TrialState.STOPPED:
        at = "" if trial.rung_env_steps is None else f" at {steps(trial.rung_env_steps)}"
        return f"{text}: {number(trial.rung_value)}{at} ({trial.stop_rule})"
    return f"{text}: {trial.error}" if trial.error else text


_FAILURES_SAID = 5
_PHASE_LINES = {
    Phase.CHOOSE: "confirm: {} {} on selection seeds",
    Phase.REPORT: "confirm: {} {} on test seeds",
    Phase.ALSO: "confirm: {} {} on test seeds",
}


class RunView(Observer):
    """Prints what happens; a context manager around the run, and an observer of it.

    A view must never harm a study: one whose stream is gone goes silent.

    Args:
        stream: default stderr, because only results go to stdout.
        command: to type to resume this study.
    """

    def __init__(self, stream: TextIO | None = None, command: str = "hpo run"):
        self.stream: TextIO | None = stream if stream is not None else sys.stderr
        self.command = command
        self.on_ready: Callable[[], None] = lambda: None
        self._best: int | None = None
        self._failures = 0
        self._changed = False  # trial 0, from the default configuration
        self._every_trial = False
        self._lock = threading.Lock()
        self.is_compiling = False

    def __enter__(self) -> RunView:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was; a second call does nothing."""

    # ------------------------------------------------------------------ saying

    def say(self, text: str) -> None:
        """Print one line that stays."""
        self.write(text)

    def write(self, text: str, command: str = "") -> None:
        """Print a line unless the stream is gone; from any thread.

        Args:
            text: the line.
            command: to type, appended to it.
        """
        text = f"{text} {command}" if command else text
        with self._lock:
            if self.stream is None:
                return
            try:
                echo(text, file=self.stream, flush=True)
            except (OSError, ValueError):  # the stream is gone; the study goes on
                self.stream = None
                let_go_of_terminal()

    def warn(self, text: str) -> None:
        """Print a warning, quiet or not."""
        self.write(f"warning: {text}")

    @contextmanager
    def compiling(self, words: str) -> Iterator[None]:
        """Show what is compiled and how long it takes; entered around a compile."""
        self.compile_begins(words)
        started, self.is_compiling = time.perf_counter(), True
        try:
            yield
        finally:
            self.is_compiling = False
        self.compile_ends(words, time.perf_counter() - started)

    def compile_begins(self, words: str) -> None:
        """Show that a program is being compiled."""
        self.say(f"compiling {words}")

    def compile_ends(self, words: str, seconds: float) -> None:
        """Show how long it took."""
        self.say(f"compiled in {duration(seconds)}")

    def pressed(self) -> None:
        """Answer the first Ctrl-C; called from another thread."""
        what = "Finishing this chunk and committing"
        if self.is_compiling:
            what = "Stops when this compile and the step behind it are done"
        self.write(f"{what}; press Ctrl-C again to quit at once.")

    def leaving(self) -> None:
        """Answer the second Ctrl-C; called from another thread, the process ends after it."""
        self.close()
        self.write("Quit at once; everything committed is kept. Resume with:", self.command)

    # ------------------------------------------------------------------ observing

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        """Show which study starts, and begin to listen for Ctrl-C."""
        self._every_trial = any(logger.type == "console" for logger in study.loggers)
        # Of one that is gone on with nobody knows here whether trial 0 was changed before.
        self._changed = bool(study.early_terminate and study.early_terminate.evolves)
        verb = "resuming" if resumed else "starting"
        self.say(
            f"{verb} study {study.name}: environment {env_words(study)}, "
            f"search {study.search.method}, in {folder}/"
        )
        self.on_ready()

    def on_baseline(self, baseline: str, value: float) -> None:
        """Show the value of a rule that learns nothing."""
        self.say(f"baseline {baseline}: {number(value)}")

    def on_chunk(self, progress: Progress) -> None:
        """Show a new best trial."""
        best = progress.best
        if best is not None and best.trial != self._best:
            self._best = best.trial
            self.say(f"new best: {best_text(best)}")

    def on_trial_end(self, trial: TrialRow) -> None:
        """Show how a trial ended: the first failures, or all if the study logs to the console."""
        failed = trial.state is TrialState.FAILED
        self._failures += failed
        if trial.trial == 0:
            self._changed = bool(trial.schedule)
        if self._every_trial or (failed and self._failures <= _FAILURES_SAID):
            self.say(ended_text(trial))

    def on_confirm(self, phase: Phase, trials: tuple[int, ...]) -> None:
        """Show which trials are confirmed."""
        if trials:
            one = len(trials) == 1
            which = f"{'trial' if one else 'trials'} {', '.join(map(self._named, trials))}"
            self.say(_PHASE_LINES[phase].format(which, "runs" if one else "run"))

    def _named(self, trial: int) -> str:
        """Return a trial's number, and of the default configuration that it is it.

        Trial 0 is it no more where a population has changed its knobs on the way.
        """
        is_default = trial < 0 or (trial == 0 and not self._changed)
        return f"{trial} (the default)" if is_default else str(trial)


class LinesView(RunView):
    """Events, and a line on where the study stands every few seconds.

    Args:
        stream: default stderr.
        command: to type to resume this study.
        every_seconds: between two lines, at least.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        command: str = "hpo run",
        every_seconds: float = 5.0,
    ):
        super().__init__(stream, command)
        self._every, self._said, self._last = every_seconds, -float("inf"), ""

    def on_chunk(self, progress: Progress) -> None:
        """Print the status line every few seconds."""
        super().on_chunk(progress)
        now = time.monotonic()
        if now - self._said >= self._every:
            self._said, self._last = now, status_line(progress)
            self.say(self._last)

    def on_end(self, progress: Progress, state: str) -> None:
        """Print where the study ended."""
        line = status_line(progress)
        if line != self._last:
            self.say(line)


class QuietView(RunView):
    """Warnings, and the answers to Ctrl-C."""

    def say(self, text: str) -> None:
        """Print nothing."""
