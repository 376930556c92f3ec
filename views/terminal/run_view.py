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

from ...search.book.progress import Progress, Silent
from ...search.book.state import Phase
from ...store.rows import TrialRow, TrialState
from ...studies.several import env_words
from ...studies.spec import Study
from ..formatting import duration, number
from ..visible import echo
from .console import let_go_of_terminal
from .progress_text import best_text, ended_text, status_line

__all__ = ["LinesView", "QuietView", "RunView"]

_FAILURES_SAID = 5
_PHASES = {
    Phase.CHOOSE: "confirm: {} {} on selection seeds",
    Phase.REPORT: "confirm: {} {} on test seeds",
    Phase.ALSO: "confirm: {} {} on test seeds",
}


class RunView(Silent):
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
            self.say(_PHASES[phase].format(which, "runs" if one else "run"))

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
