"""Ask a study that runs elsewhere to end in good order: a file in its folder, which it looks for.

The file names the process that holds the study's lock, so that no request ever ends a later one.
A file rather than a signal: it reaches a process on another machine or in another container, where
its number means nothing, and never a stranger that was given the same number.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from .. import disk
from ..errors import StoreError

__all__ = ["STOP_NAME", "StopRequest", "ask_to_stop"]

STOP_NAME = "stop"
_LOOK_SECONDS = 0.2
_LONGEST = 400


def ask_to_stop(folder: Path, holder: str) -> None:
    """Ask the process that writes a study to commit and end.

    Args:
        folder: of the study.
        holder: who holds its lock, as `lock_holder` says it.

    Raises:
        StoreError: the disk refuses, or something else has the file's place.
    """
    disk.write_text(folder / STOP_NAME, holder)


class StopRequest:
    """Whether this process was asked to end; looks five times a second at most.

    Args:
        folder: of the study.
        holder: what this process's own lock says.
    """

    def __init__(self, folder: Path, holder: str):
        self._path, self._holder = folder / STOP_NAME, holder
        self._next, self._asked = 0.0, False

    def __call__(self) -> bool:
        """Return whether there is a request for this process; once True, always."""
        now = time.monotonic()
        if not self._asked and now >= self._next:
            self._next = now + _LOOK_SECONDS
            self._asked = self._read() == self._holder
        return self._asked

    def _read(self) -> str:
        try:
            return disk.read_text(self._path)[:_LONGEST]
        except (OSError, UnicodeDecodeError, StoreError):  # no request, or none that can be read
            return ""

    def close(self) -> None:
        """Delete the request: it has been heard, or came too late."""
        with suppress(OSError):  # one that stays names a process that has ended
            self._path.unlink()
