"""The two output streams of a command: results on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console
from rich.segment import Segment

from ...errors import ignore
from ..formatting import Listing, folded
from ..output import discard, shown


class _Console(Console):
    """A console that escapes the control characters in texts, but not those added by rich."""

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=shown(segment.text))

    def on_broken_pipe(self) -> None:
        """Let the command line handle closed pipes, because rich would exit with code 1."""
        raise BrokenPipeError


def console(stream: TextIO) -> Console:
    return _Console(file=stream, markup=False, highlight=False, emoji=False)


def print_listing(terminal: Console, listing: Listing) -> None:
    """Print a table with one line per row, truncated to the terminal's width except in a pipe."""
    text = listing.cropped(terminal.width) if terminal.is_terminal else listing.text()
    terminal.print(text, soft_wrap=True)


def fitted(text: str, stream: TextIO, indent: int = 0) -> str:
    """Wrap text at the terminal's width; leave it unchanged in a pipe."""
    return in_columns(text, stream, indent) if stream.isatty() else text


def in_columns(text: str, stream: TextIO, indent: int = 0) -> str:
    """Wrap sentences at the terminal's width, or at 80 columns in a pipe."""
    return folded(text, console(stream).width, indent)


def can_draw() -> bool:
    both = all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    return both and os.environ.get("TERM", "dumb") not in ("dumb", "")


def knows_blocks(stream: TextIO) -> bool:
    try:
        "▁█".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def hush_keys() -> Callable[[], None]:
    """Stop the terminal from printing ^C, which moves the cursor; return an undo function."""
    try:
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
        after = before.copy()
        after[3] &= ~termios.ECHOCTL
        termios.tcsetattr(keyboard, termios.TCSADRAIN, after)
    except (AttributeError, ValueError, OSError, termios.error):
        return ignore  # stdin is not a terminal

    def undo() -> None:
        with suppress(OSError, termios.error):  # the terminal is closed
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)

    return undo


def let_go_of_terminal() -> None:
    """Discard output to a closed terminal, because writing to it would raise errors elsewhere."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal is closed
                discard(descriptor)
