"""What a running study says: one class for events, one for each way of showing progress.

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
from ...studies.spec import Study
from ..formatting import duration, number
from ..visible import echo
from .console import let_go_of_terminal
from .pace import Pace
from .progress_text import best_text, ended_text, status_line

__all__ = ["LinesView", "QuietView", "RunView"]

_FAILURES_SAID = 5
_PHASES = {
    Phase.CHOOSE: "confirm: {} {} on fresh seeds, which choose the winner",
    Phase.REPORT: "confirm: {} {} on other fresh seeds, which give the number reported",
}


class RunView(Silent):
    """Says what happens; a context manager around the run, and an observer of it.

    A view must never harm a study: one whose stream is gone goes silent.

    Args:
        stream: where to; stderr, because results alone go to stdout.
        command: what to type to go on with this study.
    """

    def __init__(self, stream: TextIO | None = None, command: str = "hpo run"):
        self.stream: TextIO | None = stream if stream is not None else sys.stderr
        self.command = command
        self.on_ready: Callable[[], None] = lambda: None
        self._best: int | None = None
        self._failures = 0
        self._every_trial = False
        self._lock = threading.Lock()
        self.pace: Pace | None = None

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
        """Print a line as long as somebody listens; from any thread.

        Args:
            text: what it says.
            command: what to type, at its end.
        """
        text = f"{text} {command}" if command else text
        with self._lock:
            if self.stream is None:
                return
            try:
                echo(text, file=self.stream, flush=True)
            except (OSError, ValueError):  # nobody listens any more; the study goes on
                self.stream = None
                let_go_of_terminal()

    def warn(self, text: str) -> None:
        """Print a warning, quiet or not."""
        self.write(f"warning: {text}")

    @contextmanager
    def compiling(self, words: str) -> Iterator[None]:
        """Show what is compiled, and how long it took; entered around a compile."""
        self.compile_begins(words)
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        if self.pace is not None:
            self.pace.compiled(seconds)
        self.compile_ends(words, seconds)

    def compile_begins(self, words: str) -> None:
        """Show that a program is being compiled."""
        self.say(f"compiling {words}")

    def compile_ends(self, words: str, seconds: float) -> None:
        """Show how long it took."""
        self.say(f"compiled in {duration(seconds)}")

    def pressed(self) -> None:
        """Answer the first Ctrl-C; called from another thread."""
        self.write("Finishing this chunk and committing; press Ctrl-C again to leave at once.")

    def leaving(self) -> None:
        """Answer the second Ctrl-C; called from another thread, the process ends after it."""
        self.close()
        self.write("Left at once; all that was committed is kept. Go on with:", self.command)

    # ------------------------------------------------------------------ observing

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        """Show what begins, and take Ctrl-C over."""
        self.pace = Pace(study)
        self._every_trial = any(logger.type == "console" for logger in study.loggers)
        verb = "going on with" if resumed else "beginning"
        self.say(f"{verb} {study.name}: {study.env.id}, {study.search.method}, in {folder}/")
        self.on_ready()

    def on_baseline(self, baseline: str, value: float) -> None:
        """Show what a rule gets that learns nothing."""
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
        if self._every_trial or (failed and self._failures <= _FAILURES_SAID):
            self.say(ended_text(trial))

    def on_confirm(self, phase: Phase, trials: tuple[int, ...]) -> None:
        """Show who is confirmed."""
        if trials:
            many = f"trial{'s' * (len(trials) > 1)} {', '.join(map(str, trials))}"
            self.say(_PHASES[phase].format(many, "runs" if len(trials) == 1 else "run"))


class LinesView(RunView):
    """Events, and a line on where the study stands every few seconds.

    Args:
        stream: where to.
        command: what to type to go on with this study.
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
        """Print the line if it is time."""
        super().on_chunk(progress)
        if self.pace is None:
            raise RuntimeError("on_start comes first")
        outlook, now = self.pace.see(progress), time.monotonic()
        if now - self._said >= self._every:
            self._said, self._last = now, status_line(progress, outlook)
            self.say(self._last)

    def on_end(self, progress: Progress, state: str) -> None:
        """Print where the study ended."""
        if self.pace is None:
            return
        line = status_line(progress, self.pace.see(progress))
        if line != self._last:
            self.say(line)


class QuietView(RunView):
    """Warnings, and the answers to Ctrl-C."""

    def say(self, text: str) -> None:
        """Print nothing."""
