"""The store of a running search: the study's lock, journal, curve parts and tables.

A commit writes curve rows to a part, syncs the lane checkpoint, runs one transaction in the
journal, and then deletes obsolete files. A crash between any two of these steps loses nothing that
was committed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ..errors import StoreError, not_as_written
from ..files import atomic_files
from .journal import Journal
from .lock import StudyLock
from .parquet import CurveParts
from .rows import (
    AskRow,
    AttributeRow,
    Commit,
    CommitHead,
    DecisionRow,
    EvaluationRow,
    Phase,
    StudyMeta,
    TrialRow,
)
from .sinks import Sinks
from .study_folder import OURS, StudyFolder
from .tables import Publisher, RankedTrials


class CommitClock:
    """A clock in seconds since the epoch that never runs backwards or starts before `earliest`."""

    def __init__(self, earliest: float):
        self._began, self._at = time.monotonic(), max(earliest, time.time())

    def __call__(self) -> float:
        return self._at + max(0.0, time.monotonic() - self._began)


_LANES = re.compile(r"lanes-\d{6,}")


class StudyStore:
    """The store of one study, opened for writing; a context manager.

    `curves` collects curve rows until the next commit. `created` is true for a new study. `clock`
    provides the times in rows. Raises `StoreError` if another process is writing the study, or if
    files are damaged.
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
        self._sinks = sinks or Sinks([])
        if not folder.path.is_dir():  # it may be a link, because users keep results on other disks
            atomic_files.make_folder(folder.path, kept="")
        with ExitStack() as opened:
            self._lock = opened.enter_context(StudyLock(folder.path))
            folder.check_plain()
            self.created = not Journal.exists(folder.path)
            if self.created:
                folder.check_journal(new=True)
                journal = Journal.create(folder.path, meta)
            else:
                journal = Journal(folder.path, writable=True)
            self.journal = opened.enter_context(journal)
            self._number = self.head.number
            self.clock = CommitClock(self.head.at)
            self._require_checkpoint()
            self.curves = CurveParts(folder.path, self.journal.parts())
            for name in OURS:  # incomplete ones were left by a crash
                atomic_files.delete_file(folder.path / f"{name}{atomic_files.PARTIAL}")
            self._delete_checkpoints()
            self._publisher = Publisher(folder.path, self.journal, publish_seconds)
            self._opened = opened.pop_all()  # no failure: stays open until `close`

    @property
    def meta(self) -> StudyMeta:
        return self.journal.meta

    @property
    def holder(self) -> str:
        return self._lock.words

    @property
    def head(self) -> CommitHead:
        return self.journal.head()

    # ------------------------------------------------------------------ checkpoints

    def new_checkpoint(self) -> Path:
        path = self.folder.checkpoints / f"lanes-{self._number + 1:06d}"
        atomic_files.delete_folder(path)
        atomic_files.make_folder(path.parent)
        return path

    def checkpoint(self) -> Path | None:
        name = self.head.checkpoint
        if name is None:
            return None
        return self.folder.checkpoints / name

    def _require_checkpoint(self) -> None:
        path = self.checkpoint()
        if path is None or (_LANES.fullmatch(path.name) and atomic_files.is_plain_folder(path)):
            return
        gone = not path.exists() and not path.is_symlink()
        if not (gone and self.head.phase == "finished"):
            raise not_as_written(f"the lane checkpoint {path} of the last commit is missing")

    def _delete_checkpoints(self) -> None:
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
        restarted: Sequence[int] = (),
    ) -> int:
        """Commit everything since the last commit (see `Commit`); return its number."""
        if checkpoint is not None:
            path = self.folder.checkpoints / checkpoint
            if not path.is_dir():
                raise StoreError(f"the lane checkpoint {path} of this commit is missing")
            atomic_files.sync_tree(path)
        parts, merged = self.curves.flush()
        number, at = self._number + 1, self.clock()
        self.journal.commit(
            Commit(
                number,
                loop_state,
                checkpoint,
                at,
                trials,
                evaluations,
                decisions,
                asks,
                attributes,
                parts,
                merged,
                phase,
                restarted,
            )
        )
        self._number = number
        self.curves.committed()
        self._delete_checkpoints()
        return number

    def publish(self, *, force: bool = False, ranked: RankedTrials | None = None) -> bool:
        """Publish tables and notify sinks, if due or forced; return whether this was done."""
        done = self._publisher.publish(force=force, ranked=ranked)
        if done:
            self._sinks.published(self.folder.path)
        return done

    def close(self) -> None:
        self._sinks.close()
        self._opened.close()

    def __enter__(self) -> StudyStore:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if error is not None and atomic_files.has_refused(error):  # not yet reported as a sentence
            with atomic_files.telling(self.folder.path):
                raise error
