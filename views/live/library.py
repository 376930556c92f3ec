"""The studies in a results folder by name, for the live pages; their data is cached."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from ...errors import HpoError, StoreError
from ...store.journal import JOURNAL_NAME
from ...store.lock import lock_holder
from ...store.study_folder import StudyFolder, listed, look_inside, may_be_study
from ..charts.snapshot import Snapshot, read_snapshot
from .study_status import ASKED, PIECES, StudyStatus, part_of, read_standing, standing_of

SHARE = min(0.5, 0.01 * (os.cpu_count() or 1))
"""Share of the time spent on reading and drawing a running study: 1 % of the machine."""
_SOONEST = 1.0
_SETTLED_NS = 50_000_000
"""Age after which a file's next change gets a new timestamp, because file clocks are coarse."""

_T = TypeVar("_T")
_VIEWS = 6  # studies that are kept in memory, those viewed last
_LIST_SECONDS = 0.5
_LIST_AGAIN = 1.0


@dataclass(frozen=True)
class CommitMark:
    """Identifies a study's commit without opening the journal."""

    file: tuple[int, int, int]  # inode, size and modification time of the journal
    runs: bool
    settled: bool = True  # whether a further change would get a different time


def mark_of(folder: Path) -> CommitMark:
    """Return a study's commit mark; take it before the data, so that it is never newer."""
    # Not opened: closing a file releases all of this process's locks on it, including SQLite's.
    try:
        file_status = (folder / JOURNAL_NAME).stat()
    except OSError as error:
        raise StoreError(f"{folder.name} cannot be read: {error.strerror}") from error
    words = (file_status.st_ino, file_status.st_size, file_status.st_mtime_ns)
    settled = not 0 <= time.time_ns() - file_status.st_mtime_ns < _SETTLED_NS
    return CommitMark(words, lock_holder(folder) is not None, settled)


@dataclass
class CachedValue(Generic[_T]):
    value: _T
    mark: CommitMark
    at: float  # time by the monotonic clock
    seconds: float  # processor time, including later work on it
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def spend(self, seconds: float) -> None:
        with self._lock:
            self.seconds += seconds


class PerCommit(Generic[_T]):
    """Caches a value until its study changes.

    While a study runs, the old value is kept until enough time has passed to justify the cost of
    computing a new one. When the study has ended, the final value is computed at once. During a
    computation, callers get the old value, and wait only if there is none yet.
    """

    def __init__(
        self,
        folder: Path,
        make: Callable[[Path], _T],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._folder, self._make, self._clock = folder, make, clock
        self._lock = threading.Lock()
        self._made: CachedValue[_T] | None = None

    def get(self) -> CachedValue[_T]:
        made = self._made
        if not self._lock.acquire(blocking=made is None):
            assert made is not None
            return made
        try:
            made, mark = self._made, mark_of(self._folder)
            if made is not None and self._is_good_enough(made, mark):
                return made
            began = time.process_time()
            value = self._make(self._folder)
            self._made = CachedValue(value, mark, self._clock(), time.process_time() - began)
            return self._made
        finally:
            self._lock.release()

    def _is_good_enough(self, made: CachedValue[_T], mark: CommitMark) -> bool:
        old = made.mark
        if old.settled and (old.file, old.runs) == (mark.file, mark.runs):
            return True  # nothing has changed
        if old.file[0] != mark.file[0] or not (mark.runs and old.runs):
            return False  # the study was restarted, or has ended
        return self._clock() - made.at < max(_SOONEST, made.seconds / SHARE)

    @property
    def is_made(self) -> bool:
        return self._made is not None

    def forget(self) -> None:
        self._made = None


class View:
    def __init__(self, snapshot: Snapshot, standing: StudyStatus):
        self.snapshot, self.standing = snapshot, standing
        self._locks = {name: threading.Lock() for name, _ in PIECES}
        self._parts: dict[str, str] = {}
        head = snapshot.head
        self.version = f"{head.number}-{head.at!r}-{standing.word}"

    def part(self, name: str, spend: Callable[[float], None]) -> str:
        with self._locks[name]:
            if name not in self._parts:
                began = time.thread_time()
                self._parts[name] = part_of(name, self.snapshot, self.standing)
                if name not in ASKED:  # only its own reader waits for it
                    spend(time.thread_time() - began)
            return self._parts[name]


def _read_view(folder: Path) -> View:
    one = read_snapshot(StudyFolder(folder))
    standing = standing_of(
        folder, one.meta, one.head, study=one.study, rows=one.rows.values(), first=one.winner
    )
    return View(replace(one, standing=standing.word), standing)


class LiveStudy:
    def __init__(self, folder: Path):
        self.line = PerCommit(folder, read_standing)
        self.view = PerCommit(folder, _read_view)


@dataclass(frozen=True)
class StudyLine:
    name: str
    standing: StudyStatus | None = None
    error: str = ""

    @property
    def word(self) -> str:
        """The study's state (`reading` while it is unknown), or why the study cannot be read."""
        return self.error or ("reading" if self.standing is None else self.standing.word)


class Library:
    def __init__(self, root: Path):
        self.root = root
        self._studies: OrderedDict[str, LiveStudy] = OrderedDict()
        self._lock = threading.Lock()
        self._listing = threading.Lock()
        self._listed: tuple[float, list[StudyLine]] = (-_LIST_AGAIN, [])

    def names(self) -> list[str]:
        inside = look_inside(self.root)
        return [
            *sorted(inside.changed, key=lambda name: -inside.changed[name]),
            *inside.unreadable,
        ]

    def study(self, name: str) -> LiveStudy | None:
        there = name in listed(self.root) and may_be_study(self.root / name)
        with self._lock:
            if not there:
                self._studies.pop(name, None)
                return None
            return self._studies.setdefault(name, LiveStudy(self.root / name))

    def prepare(self, name: str) -> bool:
        def read(view: PerCommit[View]) -> None:
            with suppress(HpoError):  # requests for pieces report it
                view.get()

        study = self.study(name)
        if study is not None and not study.view.is_made:
            threading.Thread(target=read, args=(study.view,), daemon=True).start()
        return study is not None

    def view(self, name: str) -> CachedValue[View] | None:
        study = self.study(name)
        if study is None:
            return None
        made = study.view.get()
        with self._lock:
            if name in self._studies:
                self._studies.move_to_end(name)
            kept = [other for other in self._studies.values() if other.view.is_made]
            for other in kept[:-_VIEWS]:
                other.view.forget()
        return made

    def lines(self, most_seconds: float = _LIST_SECONDS) -> list[StudyLine]:
        """Return all studies, at most a second old; each call reads more of the unread ones."""
        with self._listing:
            if time.monotonic() - self._listed[0] >= _LIST_AGAIN:
                self._listed = (time.monotonic(), self._read_lines(most_seconds))
            found = self._listed[1]
            if any(line.word == "reading" for line in found):
                self._listed = (-_LIST_AGAIN, found)  # the next call reads more at once
            return found

    def _read_lines(self, most_seconds: float) -> list[StudyLine]:
        until = time.monotonic() + most_seconds
        found: list[StudyLine] = []
        for name in self.names():
            if (study := self.study(name)) is None:
                continue
            line = StudyLine(name)
            if study.line.is_made or time.monotonic() < until:
                try:
                    line = StudyLine(name, study.line.get().value)
                except HpoError as error:
                    line = StudyLine(name, error=str(error))
            found.append(line)
        return found
