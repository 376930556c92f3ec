"""The live view: a study's progress, redrawn in place several times per second by a thread.

The search loop only stores its latest progress; the view is drawn while compiled code runs.
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

from ...errors import clause, counted, ignore
from ...search.state.progress import Progress
from ...studies.algorithm import ENV_STEPS
from ...studies.spec import Study
from ...studies.study_environments import env_words
from ..formatting import duration, folded, method_words
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
    return f"{name}  {env_words(study)}, {method_words(study)}"


class LiveView(RunView):
    def __init__(
        self, command: str = "hpo run", terminal: Console | None = None, at_once: bool = True
    ):
        super().__init__(None, command)
        self._at_once = at_once
        self._title = ""
        self._now = "starting"
        self._began = self._updated = time.monotonic()
        self._progress: Progress | None = None
        self._compiles, self._compile_seconds = 0, 0.0
        self._unhush: Callable[[], None] = ignore
        self._console = terminal or console(sys.stderr)
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
            self._console.print(lines + clause("\n{}", command), soft_wrap=True)
        except OSError:  # the terminal is closed, but the study continues
            let_go_of_terminal()

    def _enter_stage(self, now: str) -> None:
        self._now, self._began = now, time.monotonic()

    def compile_begins(self, words: str) -> None:
        self._enter_stage(f"compiling {words}")

    def compile_ends(self, words: str, seconds: float) -> None:
        self._compiles += 1
        self._compile_seconds += seconds
        stage = "first chunk"
        if words.startswith("evaluation"):
            stage = "first evaluation"
        self._enter_stage(stage)
        self.say(f"compiled {words} in {duration(seconds)}")

    def pressed(self) -> None:
        step = "chunk"
        if self.is_compiling:
            step = "compile and the next step"
        self._enter_stage(f"finishing this {step}, then committing")
        super().pressed()

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        self._title = title_of(study, study.name)
        self._enter_stage(f"preparing the {study.algorithm.lanes}")
        self._live.start(refresh=True)
        super().on_start(study, folder, resumed)

    def on_chunk(self, progress: Progress) -> None:
        self._progress, self._updated = progress, time.monotonic()
        self._enter_stage("")
        super().on_chunk(progress)

    def _current_panel(self) -> RenderableType:
        now, doing = time.monotonic(), ""
        if self._now:
            doing = f"{duration(now - self._began)}  {self._now}"
        compiled = (self._compiles, self._compile_seconds)
        return panel(
            self._title,
            self._progress,
            now - self._updated,
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
    parts: list[RenderableType] = []
    if title:
        parts.append(Text(title, style="bold", no_wrap=True, overflow="ellipsis"))
    if progress is not None:
        parts += [_progress_row(progress, age), _facts_table(progress, compiled, unit, lanes)]
    if doing:
        parts.append(Text(doing, style="cyan", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


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


def _facts_table(progress: Progress, compiled: tuple[int, float], unit: str, lanes: str) -> Table:
    count, seconds = compiled
    compiles = ""
    if count:
        compiles = f", {counted(count, 'compile')} ({duration(seconds)})"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, text in progress_facts(progress, compiles, lanes, unit):
        style = ""
        if name == "best":
            style = "green"
        table.add_row(name, Text(text, style=style))
    return table
