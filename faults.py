"""What code of the user's raises: in words, with file and line, and told apart from Ctrl-C."""

from __future__ import annotations

import os
import signal
import sysconfig
import threading
import traceback
from types import TracebackType

__all__ = ["Leave", "is_interrupt", "named", "shown_path", "told", "told_if_own", "told_whole"]

_LIBRARIES = tuple(
    f"{os.path.abspath(path)}{os.sep}"
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_OURS = f"{__name__.partition('.')[0]}."


class Leave(KeyboardInterrupt):
    """A second Ctrl-C while a study runs: leave at once."""


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception comes from a signal, not from the code that it passed through.

    While a study runs, a signal raises `Leave` alone. Elsewhere Python's own handler raises a
    plain `KeyboardInterrupt`, which nobody can tell from one that code raises: it counts as real.
    """
    if not isinstance(error, KeyboardInterrupt) or isinstance(error, Leave):
        return isinstance(error, Leave)
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def told(error: BaseException) -> str:
    """Return an exception on one line: `file:line: Type: what it says`.

    The line is the innermost one of the user's own; if there is none, the innermost outside of
    this package.
    """
    place, _ = _place(error.__traceback__)
    return f"{place}: {named(error)}" if place else named(error)


def told_if_own(error: BaseException) -> str:
    """Return an exception as `told` does if it passed through code of the user's, else `named`."""
    place, is_own = _place(error.__traceback__)
    return f"{place}: {named(error)}" if is_own else named(error)


def told_whole(error: BaseException) -> str:
    """Return an exception as `told` does, with all lines of what it says."""
    place, _ = _place(error.__traceback__)
    text = str(error).strip()
    said = type(error).__name__ + (f": {text}" if text else "")
    return f"{place}: {said}" if place else said


def named(error: BaseException) -> str:
    """Return an exception on one line: `Type: what it says`.

    >>> named(ValueError("too large"))
    'ValueError: too large'
    """
    text = str(error).strip()
    return type(error).__name__ + (f": {text.splitlines()[0]}" if text else "")


def _place(trace: TracebackType | None) -> tuple[str, bool]:
    """Return where an exception was raised, and whether that is the user's own code."""
    found = ""
    is_own = False
    for frame, line in traceback.walk_tb(trace):
        path = frame.f_code.co_filename
        if str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            continue
        own = not path.startswith(("<", *_LIBRARIES))
        if own or not is_own:
            found, is_own = f"{shown_path(path)}:{line}", own
    return found, is_own


def shown_path(path: str) -> str:
    """Return a path from the working folder, if the file lies in it."""
    here = os.path.join(os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path
