"""The two streams of a command: results on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import os
import sys
import termios
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.segment import Segment
from rich.table import Table

from ..escape_control import echo, shown
from ..formatting import Listing, folded


class _Console(Console):
    """A console that escapes control characters in its text, but not in what rich itself sends."""

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        """Render, with control characters of the text written out."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=shown(segment.text))

    def on_broken_pipe(self) -> None:
        """Leave a closed pipe to the command line; rich would exit with code 1."""
        raise BrokenPipeError


def console(stream: TextIO) -> Console:
    """Return a console that prints text unchanged, with the colours and width of a stream."""
    return _Console(file=stream, markup=False, highlight=False, emoji=False)


def print_listing(terminal: Console, listing: Listing) -> None:
    """Print a table: wrapped into a terminal, one line a row for programs that read lines."""
    text = listing.text()
    if not terminal.is_terminal or max(map(len, text.splitlines())) <= terminal.width:
        terminal.print(text, soft_wrap=True)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, (name, is_right) in enumerate(zip(listing.header, listing.right, strict=True)):
        table.add_column(name, justify="right" if is_right else "left", no_wrap=index == 0)
    for row in listing.rows:
        table.add_row(*row)
    terminal.print(table)


def print_lines(terminal: Console, listing: Listing) -> None:
    """Print a table with one line per row, cut at the terminal's width; uncut through a pipe."""
    text = listing.cropped(terminal.width) if terminal.is_terminal else listing.text()
    terminal.print(text, soft_wrap=True)


def fitted(text: str, stream: TextIO, indent: int = 0) -> str:
    """Return text folded to the terminal's width; unchanged for programs that read lines."""
    return in_columns(text, stream, indent) if stream.isatty() else text


def in_columns(text: str, stream: TextIO, indent: int = 0) -> str:
    """Return sentences folded to the terminal's width, or to 80 columns where there is none.

    Through a pipe, too, as all that `rich` prints: a pager or a log is read by people. Programs
    read `--json`.
    """
    return folded(text, console(stream).width, indent)


def can_draw() -> bool:
    """Return whether a view can be redrawn in place: both streams are a capable terminal."""
    both = all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    return both and os.environ.get("TERM", "dumb") not in ("dumb", "")


def knows_blocks(stream: TextIO) -> bool:
    """Return whether a stream can encode the characters of a sparkline."""
    try:
        "▁█".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def hush_keys() -> Callable[[], None]:
    """Keep the terminal from writing ^C into what is drawn in place; return what undoes it.

    The two characters would move the cursor away from where the view is redrawn.
    """
    try:
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
        after = before.copy()
        after[3] &= ~termios.ECHOCTL
        termios.tcsetattr(keyboard, termios.TCSADRAIN, after)
    except (AttributeError, ValueError, OSError, termios.error):
        return lambda: None  # stdin is no terminal

    def undo() -> None:
        with suppress(OSError, termios.error):  # the terminal itself is gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)

    return undo


def let_go_of_terminal() -> None:
    """Discard what is written to a terminal that has been closed.

    Otherwise views, user code and libraries that write to stdout or stderr would fail.
    """
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError as error:
            if error.errno == errno.EIO:  # what a closed terminal answers
                _discard(descriptor)


def _discard(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def to_stderr(text: str) -> None:
    """Print a warning."""
    echo(f"warning: {text}", file=sys.stderr)


@contextmanager
def plain_warnings(say: Callable[[str], None] = to_stderr) -> Iterator[None]:
    """Print Python's `UserWarning`s as one line each, without file and code, each once."""
    told: set[str] = set()
    with warnings.catch_warnings():
        original = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any) -> None:
            text = " ".join(str(message).split())
            if not issubclass(category, UserWarning):
                original(message, category, *rest)
            elif text not in told:
                told.add(text)
                say(text)

        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
