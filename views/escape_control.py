"""Printing that shows control characters instead of sending them to the terminal.

Names and messages come from study files, journals and imported files of any author; an escape
sequence in one could rename a window, hide a line or type into a shell. What user code prints
itself is left as it is.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""All but tab and line feed, and the characters that change the direction of text."""


def shown(text: str) -> str:
    r"""Return a text with its control characters written out.

    >>> print(shown("a\x1b[2Jc"))
    a\x1b[2Jc
    """
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], text)


def echo(
    text: object = "", *, file: TextIO | None = None, end: str = "\n", flush: bool = False
) -> None:
    """Print a text, escaped on stderr and on terminals; a pipe or file on stdout gets it raw."""
    stream = sys.stdout if file is None else file
    if stream is None:  # there is no terminal, as under pythonw
        return
    for_people = stream is sys.stderr or stream.isatty()
    print(shown(str(text)) if for_people else text, file=stream, end=end, flush=flush)


def discard(descriptor: int) -> None:
    """Send nowhere what is written to a file descriptor."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def note(text: str) -> None:
    echo(text, file=sys.stderr)
