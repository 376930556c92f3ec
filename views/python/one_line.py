"""How a study stands: one line that is updated in a notebook or at a terminal, else few lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from ...search.book.progress import Progress
from ..terminal.progress_text import status_line
from ..terminal.run_view import RunView
from ..visible import echo

__all__ = ["OneLine", "somebody_looks"]

_EVERY_SECONDS, _EVERY_SECONDS_OF_A_LOG = 0.5, 30.0


class OneLine(RunView):
    """The events of a study, each in the place of the one before; warnings stay.

    Args:
        show: replaces the line; by default where `somebody_looks` found somebody, and on stderr
            line after line where nobody does.
        every_seconds: between two lines on where the study stands, at least; None: 0.5, or 30
            where lines stay.
    """

    def __init__(
        self, show: Callable[[str], None] | None = None, every_seconds: float | None = None
    ):
        super().__init__()
        stays = show is None and not somebody_looks()
        if show is None:
            show = _in_notebook() if _notebook() else _in_log if stays else _at_terminal()
        usual = _EVERY_SECONDS_OF_A_LOG if stays else _EVERY_SECONDS
        self._show, self._every = show, usual if every_seconds is None else every_seconds
        self._shown = -float("inf")

    def say(self, text: str) -> None:
        """Replace the line."""
        self._show(text)

    def on_chunk(self, progress: Progress) -> None:
        """Show where the study stands."""
        now = time.monotonic()
        if now - self._shown >= self._every:
            self._shown = now
            self.say(status_line(progress))

    def on_end(self, progress: Progress, state: str) -> None:
        """Show where the study ended; the line stays."""
        self.say(f"{state}: {status_line(progress)}")


def somebody_looks() -> bool:
    """Return whether a line can be updated: in a notebook, or where stderr is a terminal."""
    return _notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _notebook() -> bool:
    """Return whether this is a notebook's kernel; IPython is looked for, never imported."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _in_notebook() -> Callable[[str], None]:
    handle: list[Any] = []

    def show(text: str) -> None:
        from IPython.display import display  # type: ignore[import-not-found]  # a notebook has it

        data = {"text/plain": text}
        if handle:
            handle[0].update(data, raw=True)
        else:
            handle.append(display(data, raw=True, display_id=True))

    return show


def _in_log(text: str) -> None:
    echo(text, file=sys.stderr)


def _at_terminal() -> Callable[[str], None]:
    def show(text: str) -> None:
        import shutil

        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
        sys.stderr.flush()

    return show
