"""The studies of a folder of results, as pages see them: by name, and kept between two commits."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ...errors import HpoError
from ...search.after.recorded_progress import recorded_progress
from ...search.book.state import LoopState
from ...store.study_folder import StudyFolder, listed, look_inside, may_be_study
from ..charts.snapshot import Snapshot, read_snapshot
from .parts import ASKED, PIECES, part_of
from .per_commit import Made, PerCommit
from .standing import Standing, read_standing, word_of

__all__ = ["Library", "Line", "Study", "View"]

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
        progress = recorded_progress(snapshot.study, state, rows.values(), snapshot.decisions)
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
