"""What a message says to type, in the words of the interface that it is read in.

Everything below the commands speaks of the command line's options; whoever calls from Python has
arguments instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import HpoError

__all__ = ["in_python", "speaks_python"]

_WORDS = (
    (r"hpo run FILE --new\b", "hpo.run(..., new=True)"),
    (r"hpo run study\.yaml\b", 'hpo.run("study.yaml")'),
    (r"(?<![\w-])--new\b", "new=True"),
    (r"(?<![\w-])--accept-new-bits\b", "accept_new_bits=True"),
    (r"(?<![\w-])--accept-changed-files\b", "accept_changed_files=True"),
    (r"--no-time, or time=False in Python", "time=False"),
    (r"(?<![\w-])--no-time leaves", "time=False leaves"),
    (r"(?<![\w-])--time runs", "time=True runs"),
    (r"(?<![\w-])with --(out|study)\b", r"with \1="),
    (r"(?<![\w-])--at\b", "at="),
    (r"(?<![\w-])--name: name is", "name is"),
    (r"(?<![\w-])--seeds is", "seeds is"),
    (r"(?<![\w-])--early-terminate (\S+):", r"'\1':"),
)
"""An option of a command, as messages have it -> the argument of the same meaning."""


def in_python(text: str) -> str:
    """Return a message with arguments in place of options.

    >>> in_python("results/a holds a study already; begin another with --new")
    'results/a holds a study already; begin another with new=True'
    """
    for option, argument in _WORDS:
        text = re.sub(option, argument, text)
    return text


@contextmanager
def speaks_python() -> Iterator[None]:
    """Let an error of ours say what to type in Python."""
    try:
        yield
    except HpoError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (in_python(error.args[0]), *error.args[1:])
        raise
