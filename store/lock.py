"""One writer a study: an advisory lock on the file `lock`, which the kernel frees on death.

The file stays where it is for ever, because removing it would let two processes lock two files.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from ..errors import StoreError
from ..files import atomic_files
from ..files.atomic_files import open_plain

LOCK_NAME = "lock"
_ATTEMPTS, _PAUSE_SECONDS = 10, 0.05


class StudyLock:
    """Hold the only right to write into a study's folder; a context manager.

    Attributes:
        words: what the lock says of its holder, as `lock_holder` reads it.

    Raises:
        StoreError: another process holds it; the message says which and since when.
    """

    def __init__(self, directory: Path):
        self.path = directory / LOCK_NAME
        self.words = _who()
        self._descriptor: int | None = None
        try:
            self._descriptor = open_plain(self.path, os.O_RDWR | os.O_CREAT)
            self._acquire(self._descriptor)
        except OSError as error:
            self._close()
            raise StoreError(
                f"cannot lock {self.path}: {error.strerror}; results need a folder that can be "
                "written, on a file system with locks; choose another",
                out="DIR",
            ) from error

    def _acquire(self, descriptor: int) -> None:
        # `lock_holder` takes the lock for an instant to look, so a busy lock is tried again.
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt + 1 == _ATTEMPTS:
                    holder = _text(descriptor)
                    self._close()
                    raise StoreError(
                        f"{self.path.parent} is being written by {holder}; wait for it or stop "
                        "it, or start another study",
                        new=True,
                    ) from None
                time.sleep(_PAUSE_SECONDS)
        if not _is_ours(os.pread(descriptor, 400, 0)):
            self._close()
            raise StoreError(
                f"{self.path} was not written by hpo, but a study keeps its lock there; move "
                "it away"
            )
        _say(descriptor, self.words)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def release(self) -> None:
        """Release the right to write; a second call does nothing."""
        if self._descriptor is not None:
            with suppress(OSError):  # the words are for people; what frees the lock is to close it
                _say(self._descriptor, "")
            self._close()

    def __enter__(self) -> StudyLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def lock_holder(directory: Path) -> str | None:
    """Words for whoever writes into this folder now, or None when nobody does."""
    try:
        descriptor = open_plain(directory / LOCK_NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {directory / LOCK_NAME}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _text(descriptor)
    finally:
        os.close(descriptor)


def _who() -> str:
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"host {socket.gethostname()}, pid {os.getpid()}, since {since}"


def _is_ours(words: bytes) -> bool:
    """Whether a lock file holds what `_who` says or nothing; a crash may leave zeros."""
    return not words.strip(b"\0") or words.startswith(b"host ")


def _say(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _text(descriptor: int) -> str:
    text = os.pread(descriptor, 400, 0).decode(errors="replace").strip()
    return text or "a process that has not said who it is"


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
    atomic_files.write_text(folder / STOP_NAME, holder)


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
            return atomic_files.read_text(self._path)[:_LONGEST]
        except (OSError, UnicodeDecodeError, StoreError):  # no request, or none that can be read
            return ""

    def close(self) -> None:
        """Delete the request: it has been heard, or came too late."""
        with suppress(OSError):  # one that stays names a process that has ended
            self._path.unlink()
