"""The studies of a folder of results, as pages see them: by name, and kept between two commits."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from ...errors import HpoError, StoreError
from ...search.state.loop_state import LoopState
from ...search.state.progress import recorded_progress
from ...store.journal_file import JOURNAL_NAME
from ...store.lock import lock_holder
from ...store.study_folder import StudyFolder, listed, look_inside, may_be_study
from ..charts.snapshot import Snapshot, read_snapshot
from .study_status import ASKED, PIECES, Standing, part_of, read_standing, word_of

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


_VIEWS = 6
"""Studies kept in memory whole, those that were looked at last."""
_LIST_SECONDS = 0.5
_LIST_AGAIN = 1.0


class View:
    """A study at one commit, and the pieces of its page that were asked for.

    Attributes:
        snapshot: of the study.
        standing: what it did then.
    """

    def __init__(self, snapshot: Snapshot, standing: Standing):
        self.snapshot, self.standing = snapshot, standing
        self._locks = {name: threading.Lock() for name, _ in PIECES}
        self._parts: dict[str, str] = {}

    @cached_property
    def version(self) -> str:
        """What tells it from the views of other commits."""
        head = self.snapshot.head
        return f"{head.number}-{head.at!r}-{self.standing.word}"

    def part(self, name: str, spend: Callable[[float], None]) -> str:
        """Return a piece of the page as HTML; a second call finds it.

        Args:
            name: one of `PIECES`.
            spend: told the seconds of the processor that it took, unless it is one of `ASKED`,
                which nobody but who asked should wait for.

        Raises:
            KeyError: there is no such piece.
            HpoError: the study is gone or damaged.
        """
        with self._locks[name]:
            if name not in self._parts:
                began = time.thread_time()
                self._parts[name] = part_of(name, self.snapshot, self.standing)
                if name not in ASKED:
                    spend(time.thread_time() - began)
            return self._parts[name]


def _read_view(folder: Path) -> View:
    snapshot = read_snapshot(StudyFolder(folder))
    head, rows = snapshot.head, snapshot.rows
    progress = None
    if head.number:
        state = LoopState.from_text(head.loop_state)
        progress = recorded_progress(snapshot.study, state, rows.values())
    word, first = word_of(folder, head), snapshot.winner
    meta, study = snapshot.meta, snapshot.study
    standing = Standing(folder.name, word, meta, study, head, progress, first)
    return View(replace(snapshot, standing=word), standing)


def _begin(view: PerCommit[View]) -> None:
    with suppress(HpoError):  # those who ask for a piece are told
        view.get()


class Study:
    """One study: its line in the list, and its page."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.line = PerCommit(folder, read_standing)
        self.view = PerCommit(folder, _read_view)


@dataclass(frozen=True)
class Line:
    """One line of the list.

    Attributes:
        name: of the study.
        standing: None while it is being read, or if it cannot be read.
        error: why it cannot be read.
    """

    name: str
    standing: Standing | None = None
    error: str = ""

    @property
    def is_unread(self) -> bool:
        """Whether it is still being read."""
        return self.standing is None and not self.error


class Library:
    """All studies in a folder of results.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path):
        self.root = root
        self._studies: OrderedDict[str, Study] = OrderedDict()
        self._lock = threading.Lock()
        self._listing = threading.Lock()
        self._listed: tuple[float, list[Line]] = (-_LIST_AGAIN, [])

    def names(self) -> list[str]:
        """Return the names of all studies, the last to change first, then what cannot be entered.

        Raises:
            StoreError: the folder of results cannot be read.
        """
        inside = look_inside(self.root)
        return [*sorted(inside.changed, key=lambda name: -inside.changed[name]),
                *inside.unreadable]  # fmt: skip

    def study(self, name: str) -> Study | None:
        """Return a study of the folder's own listing, None if there is none of that name.

        A folder that cannot be entered is one that cannot be read.

        Raises:
            StoreError: the folder of results cannot be read.
        """
        there = name in listed(self.root) and may_be_study(self.root / name)
        with self._lock:
            if not there:
                self._studies.pop(name, None)
                return None
            return self._studies.setdefault(name, Study(self.root / name))

    def prepare(self, name: str) -> bool:
        """Begin to read a study while a browser loads its page; return whether there is one."""
        study = self.study(name)
        if study is not None and not study.view.is_made:
            threading.Thread(target=_begin, args=(study.view,), daemon=True).start()
        return study is not None

    def view(self, name: str) -> Made[View] | None:
        """Return a study's page, None if there is no such study.

        Raises:
            HpoError: it cannot be read.
        """
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

    def lines(self, most_seconds: float = _LIST_SECONDS) -> list[Line]:
        """Return the list of studies, the last to change first; of a second ago at most.

        Args:
            most_seconds: what is not read by then is left for the next call.
        """
        with self._listing:
            if time.monotonic() - self._listed[0] >= _LIST_AGAIN:
                self._listed = (time.monotonic(), self._read_lines(most_seconds))
            found = self._listed[1]
            if any(line.is_unread for line in found):
                self._listed = (-_LIST_AGAIN, found)  # the next call goes on at once
            return found

    def _read_lines(self, most_seconds: float) -> list[Line]:
        until = time.monotonic() + most_seconds
        found: list[Line] = []
        for name in self.names():
            study = self.study(name)
            if study is None:
                continue
            if not study.line.is_made and time.monotonic() >= until:
                found.append(Line(name))
                continue
            try:
                found.append(Line(name, study.line.get().value))
            except HpoError as error:
                found.append(Line(name, None, str(error)))
        return found
