"""One writer per study: an advisory lock on the file `lock`, released when the process dies.

The file is never removed; otherwise two processes could lock two different files.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ..errors import StoreError
from ..files import atomic_files
from ..files.atomic_files import open_plain

LOCK_NAME, STOP_NAME = "lock", "stop"
_ATTEMPTS, _PAUSE_SECONDS = 10, 0.05
_LOOK_SECONDS = 0.2
_LONGEST = 400


class StudyLock:
    """The exclusive right to write to a study's folder; a context manager."""

    def __init__(self, directory: Path):
        self.path = directory / LOCK_NAME
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        self.words = f"host {socket.gethostname()}, pid {os.getpid()}, since {since}"
        self._descriptor: int | None = None
        try:
            self._descriptor = open_plain(self.path, os.O_RDWR | os.O_CREAT)
            self._acquire_lock(self._descriptor)
        except OSError as error:
            self._close_descriptor()
            raise StoreError(
                f"cannot lock {self.path}: {error.strerror}; results need a writable folder "
                "on a file system that supports locks; choose another folder",
                out="DIR",
            ) from error
        except StoreError:
            self._close_descriptor()
            raise

    def _acquire_lock(self, descriptor: int) -> None:
        # `lock_holder` briefly takes the lock, so a busy lock is tried again.
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt + 1 == _ATTEMPTS:
                    raise StoreError(
                        f"{self.path.parent} is being written by "
                        f"{_read_holder(descriptor)}; wait for it "
                        "or stop it, or start another study",
                        new=True,
                    ) from None
                time.sleep(_PAUSE_SECONDS)
        words = os.pread(descriptor, _LONGEST, 0)
        if words.strip(b"\0") and not words.startswith(b"host "):  # a crash may leave zero bytes
            raise StoreError(
                f"{self.path} was not written by hpo, but the study's lock needs this path; "
                "move the file away"
            )
        _write_holder(descriptor, self.words)

    def _close_descriptor(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def release(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):  # closing releases the lock, whatever the text
                _write_holder(self._descriptor, "")
            self._close_descriptor()

    def __enter__(self) -> StudyLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_holder(directory: Path) -> str | None:
    """Describe the process that is writing to a folder; None if there is none."""
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
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)


def _write_holder(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _read_holder(descriptor: int) -> str:
    text = os.pread(descriptor, _LONGEST, 0).decode(errors="replace").strip()
    return text or "an unnamed process"


def ask_to_stop(folder: Path, holder: str) -> None:
    atomic_files.write_text(folder / STOP_NAME, holder)


class StopRequest:
    """Checks, at most every 0.2 s, whether the process with the lock text `holder` must stop."""

    def __init__(self, folder: Path, holder: str):
        self._path, self._holder = folder / STOP_NAME, holder
        self._next, self._asked = 0.0, False

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self._asked and now >= self._next:
            self._next = now + _LOOK_SECONDS
            # no request, or it is unreadable
            with suppress(OSError, UnicodeDecodeError, StoreError):
                self._asked = atomic_files.read_text(self._path)[:_LONGEST] == self._holder
        return self._asked

    def close(self) -> None:
        with suppress(OSError):  # a leftover request names a process that has ended
            self._path.unlink()
