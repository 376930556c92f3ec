"""What a study does now, in words: running, finished, interrupted, or died."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...search.after.recorded_progress import recorded_progress
from ...search.book.progress import Progress
from ...search.book.state import LoopState
from ...store.commit import Head
from ...store.journal import Journal
from ...store.leaderboard import Entry, leaderboard_of
from ...store.rows import StudyMeta
from ...store.study_folder import state_of, trials_seen
from ...studies.load import recorded
from ...studies.spec import Study

__all__ = ["Standing", "read_standing", "word_of"]

_ALMOST = 0.99


@dataclass(frozen=True)
class Standing:
    """Where a study stood at its last commit.

    Attributes:
        name: of its folder.
        word: `running`, `finished`, `interrupted` (it was told to stop) or `died`.
        meta: what its journal says of it.
        study: as asked.
        head: the last commit.
        progress: then; None before the first commit.
        first: the top of the leaderboard, with a value; None while no trial has one.
    """

    name: str
    word: str
    meta: StudyMeta
    study: Study
    head: Head
    progress: Progress | None
    first: Entry | None

    @property
    def share(self) -> float:
        """How much of it is done, 0 to 1; 1 only once it is finished."""
        if self.word == "finished":
            return 1.0
        return 0.0 if self.progress is None else min(self.progress.share, _ALMOST)


def read_standing(folder: Path) -> Standing:
    """Read where a study stands.

    Raises:
        StoreError: there is no study, its journal is damaged, or another version wrote it.
    """
    with Journal(folder, copied=True) as journal, journal.at_one_commit():
        meta, head = journal.meta, journal.head()
        rows, decisions = trials_seen(journal), journal.decisions()
    study = recorded(meta.study_text)
    progress = None
    if head.number:
        state = LoopState.from_text(head.loop_state)
        progress = recorded_progress(study, state, rows, decisions)
    entries = leaderboard_of(meta, rows)
    first = entries[0] if entries and entries[0].value is not None else None
    return Standing(folder.name, word_of(folder, head), meta, study, head, progress, first)


def word_of(folder: Path, head: Head) -> str:
    """Return what a study does; it died where nobody writes it and nothing told it to stop.

    Whoever is told to stop says so in the last commit.
    """
    found = state_of(folder, head)
    return "died" if found == "interrupted" and head.phase == "running" else found
