"""The live view: a study's progress, redrawn in place several times per second by a thread.

The loop only passes on its latest progress; drawing happens while compiled code runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...errors import counted
from ...search.state.progress import Progress
from ...studies.algorithm import ENV_STEPS
from ...studies.spec import Study, env_words
from ..formatting import duration, folded
from .console import console, hush_keys, let_go_of_terminal
from .run_view import RunView, left_text, progress_facts


def live(terminal: Console, picture: Callable[[], RenderableType]) -> Live:
    return Live(
        console=terminal,
        get_renderable=picture,
        refresh_per_second=4,
        transient=True,
        redirect_stdout=False,
    )


def title_of(study: Study, name: str) -> str:
    rule = f" + {study.early_terminate.type}" if study.early_terminate else ""
    return f"{name}  {env_words(study)}, {study.search.method}{rule}"


class LiveView(RunView):
    def __init__(
        self, command: str = "hpo run", terminal: Console | None = None, at_once: bool = True
    ):
        super().__init__(None, command)
        self._at_once = at_once
        self._title = ""
        self._now = "starting"
        self._began = self._seen = time.monotonic()
        self._progress: Progress | None = None
        self._compiles, self._compile_seconds = 0, 0.0
        self._unhush: Callable[[], None] = lambda: None
        self._console = console(sys.stderr) if terminal is None else terminal
        self._live = live(self._console, self._current_panel)

    def __enter__(self) -> LiveView:
        self._unhush = hush_keys()
        if self._at_once:
            self._live.start(refresh=True)
        return self

    def close(self) -> None:
        with suppress(OSError):  # the terminal is closed
            self._live.stop()
        self._unhush()

    def write(self, text: str, command: str = "") -> None:
        """Print a wrapped line above the view; commands are not wrapped, so they can be copied."""
        try:
            lines = folded(text, self._console.width)
            self._console.print(f"{lines}\n{command}" if command else lines, soft_wrap=True)
        except OSError:  # the terminal is closed, but the study continues
            let_go_of_terminal()

    def _enter_stage(self, now: str) -> None:
        self._now, self._began = now, time.monotonic()

    def compile_begins(self, words: str) -> None:
        self._enter_stage(f"compiling {words}")

    def compile_ends(self, words: str, seconds: float) -> None:
        self._compiles += 1
        self._compile_seconds += seconds
        self._enter_stage("first evaluation" if words.startswith("evaluation") else "first chunk")
        self.say(f"compiled {words} in {duration(seconds)}")

    def pressed(self) -> None:
        step = "compile and the next step" if self.is_compiling else "chunk"
        self._enter_stage(f"finishing this {step}, then committing")
        super().pressed()

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        self._title = title_of(study, study.name)
        self._enter_stage(f"preparing the {study.algorithm.lanes}")
        self._live.start(refresh=True)
        super().on_start(study, folder, resumed)

    def on_chunk(self, progress: Progress) -> None:
        self._progress, self._seen = progress, time.monotonic()
        self._enter_stage("")
        super().on_chunk(progress)

    def _current_panel(self) -> RenderableType:
        now = time.monotonic()
        doing = f"{duration(now - self._began)}  {self._now}" if self._now else ""
        compiled = (self._compiles, self._compile_seconds)
        return panel(
            self._title,
            self._progress,
            now - self._seen,
            doing,
            compiled,
            unit=self.unit,
            lanes=self.lanes,
        )


def panel(
    title: str,
    progress: Progress | None,
    age: float,
    doing: str,
    compiled: tuple[int, float] = (0, 0.0),
    *,
    unit: str = ENV_STEPS,
    lanes: str = "lanes",
) -> RenderableType:
    """Return the view of a study, `age` seconds after its last chunk."""

    def line(text: str, style: str) -> list[RenderableType]:
        return [Text(text, style=style, no_wrap=True, overflow="ellipsis")] if text else []

    facts: list[RenderableType] = []
    if progress is not None:
        facts = [_progress_row(progress, age), _facts(progress, compiled, unit, lanes)]
    return Group(*line(title, "bold"), *facts, *line(doing, "cyan"))


def _progress_row(progress: Progress, age: float) -> Table:
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    clock = duration(progress.seconds + age) + left_text(progress)
    row.add_row(
        ProgressBar(total=1.0, completed=progress.share, width=None),
        Text(f"{progress.share:4.0%}  {clock}"),
    )
    return row


def _facts(progress: Progress, compiled: tuple[int, float], unit: str, lanes: str) -> Table:
    count, seconds = compiled
    compiles = f", {counted(count, 'compile')} ({duration(seconds)})" if count else ""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, text in progress_facts(progress, compiles, lanes, unit):
        style = "green" if name == "best" else ""
        table.add_row(name, Text(text, style=style))
    return table
