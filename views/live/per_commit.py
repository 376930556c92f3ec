"""What is made of a study: at most once a commit, whoever asks, and at a bounded rate.

Many open pages so cost what one costs, and a study that is slow to read is read less often.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from ...errors import StoreError
from ...store.journal import JOURNAL_NAME
from ...store.lock import lock_holder

__all__ = ["SHARE", "Made", "Mark", "PerCommit", "mark_of"]

SHARE = min(0.5, 0.01 * (os.cpu_count() or 1))
"""Of the time, for reading and drawing one study while it runs: a hundredth of the machine."""
_SOONEST = 1.0
_SETTLED_NS = 50_000_000
"""How old a file's time of change must be, in nanoseconds, so that the next change has another.

A clock of the kernel's gives these times, a few milliseconds a tick.
"""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Mark:
    """What tells one commit of a study from the next without opening its journal.

    Attributes:
        file: inode, size and time of change of its journal.
        runs: a process writes the study.
        settled: another change would have another time; if not, the mark tells nothing.
    """

    file: tuple[int, int, int]
    runs: bool
    settled: bool = True

    def tells_the_same(self, now: Mark) -> bool:
        """Return whether nothing has changed since this mark was taken."""
        return self.settled and (self.file, self.runs) == (now.file, now.runs)

    def is_of_another(self, now: Mark) -> bool:
        """Return whether the study was begun anew since: its journal is another file."""
        return self.file[0] != now.file[0]


def mark_of(folder: Path) -> Mark:
    """Return the mark of a study; taken before it is read, it is never too new.

    The journal is not opened for it: to close a file frees all locks that this process has on it,
    those included under which SQLite reads it in another thread.

    Raises:
        StoreError: the journal is gone or cannot be read.
    """
    try:
        seen = (folder / JOURNAL_NAME).stat()
    except OSError as error:
        raise StoreError(f"{folder.name} cannot be read: {error.strerror}") from error
    words = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
    settled = not 0 <= time.time_ns() - seen.st_mtime_ns < _SETTLED_NS
    return Mark(words, lock_holder(folder) is not None, settled)


@dataclass
class Made(Generic[_T]):
    """Something made of a commit.

    Attributes:
        value: what was made.
        mark: of the study as it was then.
        at: when, on the monotonic clock.
        seconds: of the processor that it has taken, later work on it included.
    """

    value: _T
    mark: Mark
    at: float
    seconds: float
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def spend(self, seconds: float) -> None:
        """Count more work on it."""
        with self._lock:
            self.seconds += seconds

    def may_be_replaced(self, now: float) -> bool:
        """Return whether its share of the time since then has paid for it."""
        return now - self.at >= max(_SOONEST, self.seconds / SHARE)


class PerCommit(Generic[_T]):
    """Makes something of a study when it is asked for and its study has changed.

    While a study runs, what is there is good enough until the time since has paid for a new one;
    when it has ended, the last state comes at once. Those who ask while it is made get what is
    there; only the first of all wait.

    Args:
        folder: of the study.
        make: reads it.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        folder: Path,
        make: Callable[[Path], _T],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._folder, self._make, self._clock = folder, make, clock
        self._lock = threading.Lock()
        self._made: Made[_T] | None = None

    def get(self) -> Made[_T]:
        """Return what there is to show.

        Raises:
            StoreError: the study is gone or damaged.
        """
        made = self._made
        if not self._lock.acquire(blocking=made is None):
            assert made is not None
            return made
        try:
            made, mark = self._made, mark_of(self._folder)
            if made is not None and (made.mark.tells_the_same(mark) or self._waits(made, mark)):
                return made
            began = time.process_time()
            value = self._make(self._folder)
            self._made = Made(value, mark, self._clock(), time.process_time() - began)
            return self._made
        finally:
            self._lock.release()

    def _waits(self, made: Made[_T], mark: Mark) -> bool:
        if made.mark.is_of_another(mark):
            return False
        return mark.runs and made.mark.runs and not made.may_be_replaced(self._clock())

    @property
    def is_made(self) -> bool:
        """Whether there is anything to show without reading."""
        return self._made is not None

    def forget(self) -> None:
        """Free the memory."""
        self._made = None
