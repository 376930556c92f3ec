"""What the search loop holds while it runs: one study's lock, journal, parts and tables together.

A commit is: curve rows to a part, lane checkpoint to disk, one transaction in the journal, then
the files nobody needs any more are deleted. A crash between any two of these costs nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from ..errors import StoreError, not_as_written
from ..files import atomic_files
from .journal import Journal
from .lock import StudyLock
from .parquet import CurveParts
from .rows import (
    AskRow,
    AttributeRow,
    Commit,
    DecisionRow,
    EvaluationRow,
    Head,
    Phase,
    StudyMeta,
    TrialRow,
)
from .sinks import Sinks
from .study_folder import OURS, StudyFolder
from .tables import Publisher


class Clock:
    """Seconds since the epoch.

    Args:
        earliest: never before this: the time of the last commit.
        wall: the time of day.
        steady: seconds that only grow.

    >>> Clock(earliest=50.0, wall=lambda: 20.0, steady=lambda: 3.0)()
    50.0
    """

    def __init__(
        self,
        earliest: float = 0.0,
        wall: Callable[[], float] | None = None,
        steady: Callable[[], float] = time.monotonic,
    ):
        self._steady, self._began = steady, steady()
        self._at = max(earliest, (wall or time.time)())

    def __call__(self) -> float:
        """Return the time of day, no earlier than any before."""
        return self._at + max(0.0, self._steady() - self._began)


_LANES = re.compile(r"lanes-\d{6,}")


class StudyStore:
    """The store of one study, opened to be written; a context manager.

    Attributes:
        folder: where everything lies.
        journal: for reading what is committed.
        curves: takes curve rows (`add`, `add_chunk`) until the next commit.
        created: the study is new; otherwise it goes on from `head`.
        clock: times of rows, no earlier than the last commit.

    Raises:
        StoreError: another process writes, or what is on disk is damaged.
    """

    def __init__(
        self,
        folder: StudyFolder,
        meta: StudyMeta,
        *,
        sinks: Sinks | None = None,
        publish_seconds: float = 30.0,
    ):
        self.folder = folder
        self._sinks = sinks if sinks is not None else Sinks([])
        _make(folder.path)
        with ExitStack() as opened:
            self._lock = opened.enter_context(StudyLock(folder.path))
            folder.check_plain()
            self.created = not Journal.exists(folder.path)
            if self.created:
                folder.check_new()
            self.journal = opened.enter_context(
                Journal.create(folder.path, meta)
                if self.created
                else Journal(folder.path, writable=True)
            )
            self._number = self.head.number
            self.clock = Clock(self.head.at)
            self._require_checkpoint()
            self.curves = CurveParts(folder.path, self.journal.parts())
            self._delete_leftovers()
            self._publisher = Publisher(folder.path, self.journal, publish_seconds)
            self._opened = opened.pop_all()  # nothing failed: stays open until `close`

    @property
    def meta(self) -> StudyMeta:
        """What the journal knows of its study; compare it with the study that asks to go on."""
        return self.journal.meta

    @property
    def holder(self) -> str:
        """What the lock says of this process."""
        return self._lock.words

    @property
    def head(self) -> Head:
        """The last commit."""
        return self.journal.head()

    # ------------------------------------------------------------------ checkpoints

    def new_checkpoint(self) -> Path:
        """Where to write the lanes that belong to the next commit; the folder does not exist.

        Pass its name as `checkpoint` of that commit.
        """
        path = self._checkpoint_path(f"lanes-{self._number + 1:06d}")
        atomic_files.delete_folder(path)
        atomic_files.make_folder(path.parent)
        return path

    def checkpoint(self) -> Path | None:
        """The lanes of the last commit, None if it has none."""
        name = self.head.checkpoint
        return self._checkpoint_path(name) if name is not None else None

    def _checkpoint_path(self, name: str) -> Path:
        return self.folder.checkpoints / name

    def _require_checkpoint(self) -> None:
        path = self.checkpoint()
        if path is None or (_LANES.fullmatch(path.name) and atomic_files.is_plain_folder(path)):
            return
        gone = not path.exists() and not path.is_symlink()
        if not (gone and self.head.phase == "finished"):
            raise not_as_written(f"the lane checkpoint {path} of the last commit is missing")

    def _delete_leftovers(self) -> None:
        """Delete what a crash left: files half written, checkpoints of no commit."""
        for name in OURS:
            atomic_files.delete_file(self.folder.path / f"{name}{atomic_files.PARTIAL}")
        self._delete_checkpoints()

    def _delete_checkpoints(self) -> None:
        """Delete all lane checkpoints but that of the last commit."""
        kept = self.head.checkpoint
        if atomic_files.is_plain_folder(self.folder.checkpoints):
            for path in self.folder.checkpoints.iterdir():
                if _LANES.fullmatch(path.name) and path.name != kept:
                    atomic_files.delete_folder(path)

    # ------------------------------------------------------------------ writing

    def commit(
        self,
        *,
        loop_state: str,
        checkpoint: str | None,
        trials: Sequence[TrialRow] = (),
        evaluations: Sequence[EvaluationRow] = (),
        decisions: Sequence[DecisionRow] = (),
        asks: Sequence[AskRow] = (),
        attributes: Sequence[AttributeRow] = (),
        phase: Phase = "running",
    ) -> int:
        """Make everything since the last commit durable, and give this commit's number.

        Args:
            loop_state: the loop's own state as JSON text, from which it goes on.
            checkpoint: name of the folder that `new_checkpoint` gave and that now holds the
                lanes; None when no lane is busy.
            trials: those that changed.
            evaluations: new ones, like all that follow.
            decisions: in the order they were taken.
            asks: numbered without gaps.
            attributes: new or changed.
            phase: `finished` when nothing is left to do.

        Raises:
            StoreError: a row is wrong, or the disk refuses; the last commit stays the last.
        """
        if checkpoint is not None:
            self._sync_checkpoint(self._checkpoint_path(checkpoint))
        parts, merged = self.curves.flush()
        number = self._number + 1
        self.journal.commit(
            Commit(
                number=number,
                loop_state=loop_state,
                checkpoint=checkpoint,
                at=self.clock(),
                trials=trials,
                evaluations=evaluations,
                decisions=decisions,
                asks=asks,
                attributes=attributes,
                parts=parts,
                merged=merged,
                phase=phase,
            )
        )
        self._number = number
        self.curves.committed()
        self._delete_checkpoints()
        return number

    def _sync_checkpoint(self, path: Path) -> None:
        """Bring a checkpoint to disk before the commit that needs it."""
        if not path.is_dir():
            raise StoreError(f"there is no lane checkpoint {path} to commit")
        atomic_files.sync_tree(path)

    def publish(self, *, force: bool = False) -> bool:
        """Publish the tables if it is time (or at once), then feed the sinks; tell whether."""
        done = self._publisher.publish(force=force)
        if done:
            self._sinks.published(self.folder.path)
        return done

    def close(self) -> None:
        """Free the study; rows after the last commit are dropped. A second call does nothing."""
        self._sinks.close()
        self._opened.close()

    def __enter__(self) -> StudyStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None and atomic_files.has_refused(error):  # whoever wrote did not tell
            with atomic_files.telling(self.folder.path):
                raise error


def _make(folder: Path) -> None:
    """Make a study's folder, which may be a link: people keep results on another disk."""
    if not folder.is_dir():
        atomic_files.make_folder(folder)
