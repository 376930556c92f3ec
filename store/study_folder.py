"""Where a study lives: `results/<study>/`, its files, and how a reading verb finds it.

Only names are decided here; what is in the files is the journal's and the tables' business.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import StoreError, suggestion
from ..files import atomic_files
from .journal import Journal, JournalReader
from .journal_file import JOURNAL_NAME
from .leaderboard import Entry, leaderboard_of
from .lock import lock_holder
from .parquet import PARTS_NAME
from .rows import Head, TrialRow, as_left

RESULTS = Path("results")
REPORT_NAME = "report.html"
WARM_START_NAME = "warm_start.json"
_QUERIED = ("trials", "evaluations", "curves")
_TABLES = ("trials.parquet", "evaluations.parquet", "curves.parquet", "baselines.parquet")
OURS = (
    *("study.yaml", "study.resolved.yaml", WARM_START_NAME, REPORT_NAME),
    *(*_TABLES, "trials.csv", "evaluations.csv", "curves.csv"),
)
"""Files that a study replaces in its folder."""
STUDY_FOLDERS = (PARTS_NAME, "checkpoints", "policies", "sinks")
"""Folders in which a study deletes."""
_MOST_NAMED = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def checked_name(name: str) -> str:
    """The name, if it can name a folder of results.

    Raises:
        StoreError: it could leave the folder it belongs in, or needs quoting in a shell.
    """
    if not _NAME.fullmatch(name) or ".." in name or name.endswith("."):
        raise StoreError(
            f"{name[:120]!r} cannot name a study; use 1 to 100 letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit, for example cartpole-asha"
        )
    return name


def first_of(names: Sequence[str]) -> str:
    """The first three of names in words, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def free_name(root: Path, name: str) -> str:
    """The name itself, or `name-2`, `name-3`, ... whichever no study has yet."""
    checked_name(name)
    number, candidate = 1, name
    while os.path.lexists(root / candidate):  # a link that leads nowhere has the name, too
        number += 1
        candidate = checked_name(f"{name}-{number}")
    return candidate


@dataclass(frozen=True)
class StudyFolder:
    """The folder of one study and the places in it; nothing is created by looking."""

    path: Path

    @property
    def name(self) -> str:
        """The study's name, which is the folder's."""
        return self.path.name

    @property
    def study_file(self) -> Path:
        """The study file as it was given."""
        return self.path / "study.yaml"

    @property
    def resolved_file(self) -> Path:
        """The study file with every default written out."""
        return self.path / "study.resolved.yaml"

    @property
    def checkpoints(self) -> Path:
        """Lane checkpoints (`lanes-000012`, one a commit) and kept policies."""
        return self.path / "checkpoints"

    @property
    def policies(self) -> Path:
        """The best policies, exported."""
        return self.path / "policies"

    @property
    def report(self) -> Path:
        """Everything about the study as one page."""
        return self.path / REPORT_NAME

    def table(self, name: str) -> Path:
        """The published table of that name: `trials`, `evaluations` or `curves`."""
        return self.path / f"{name}.parquet"

    def check_plain(self) -> None:
        """Refuse links and all that is no file or folder in the places of a study's own.

        Raises:
            StoreError: naming the first.
        """
        for name in STUDY_FOLDERS:
            atomic_files.is_plain_folder(self.path / name)
        for name in OURS:
            atomic_files.is_plain_file(self.path / name)
            atomic_files.is_plain_file(self.path / f"{name}{atomic_files.PARTIAL}")

    def check_new(self) -> None:
        """Refuse to begin where a study was begun whose journal is lost: its files would go.

        Raises:
            StoreError: naming what is there.
        """
        self._check_found("restore the journal from a copy, or start another study", new=True)

    def check_journal(self) -> None:
        """Refuse to read where a study was begun whose journal is lost.

        Raises:
            StoreError: naming what is there.
        """
        self._check_found(
            "restore the journal from a copy; other tools read the tables that are there"
        )

    def _check_found(self, cure: str, **remedies: bool) -> None:
        there = [*self._files(PARTS_NAME), *self._files("checkpoints"), *self._files("policies")]
        there += [self.path / name for name in _TABLES if (self.path / name).exists()]
        if there:
            journal = self.path / JOURNAL_NAME
            state = "empty" if journal.exists() else "missing"
            raise StoreError(
                f"{journal} is {state}, but {there[0]} of its study is there; {cure}", **remedies
            )

    def _files(self, name: str) -> list[Path]:
        folder = self.path / name
        return sorted(folder.iterdir())[:1] if atomic_files.is_plain_folder(folder) else []

    def write_study(self, given: str, resolved: str) -> None:
        """Write both study files, each whole or not at all."""
        atomic_files.write_text(self.study_file, given)
        atomic_files.write_text(self.resolved_file, resolved)


@dataclass(frozen=True)
class StudySummary:
    """One line of `hpo list`.

    Attributes:
        name: of the study.
        state: `running` (somebody writes now), `interrupted`, `finished`, or `damaged`.
        trials: how many it has.
        done: how many of them have ended.
        best: the value at the top of its leaderboard, None without one.
        metric: what the value measures.
        updated_at: time of its last commit, seconds since the epoch; None if damaged.
        path: its folder.
        error: why it is damaged.
    """

    name: str
    state: str
    trials: int
    done: int
    best: float | None
    metric: str
    updated_at: float | None
    path: Path
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain data for a JSON document."""
        return {**vars(self), "path": str(self.path)}


@dataclass(frozen=True)
class Inside:
    """What is in a folder of results.

    Attributes:
        root: the folder.
        changed: study -> when its journal last changed, in nanoseconds since the epoch.
        unreadable: folder -> why it cannot be entered; whether it is a study is not known.
    """

    root: Path
    changed: dict[str, int]
    unreadable: dict[str, str]

    @property
    def skipped(self) -> str:
        """One line that names the folders that cannot be entered; "" if there are none."""
        named = [f"{name} ({why})" for name, why in self.unreadable.items()]
        return f"skipped in {self.root}/: {first_of(named)}" if named else ""


def listed(root: Path) -> list[str]:
    """Return the names in a folder of results but hidden ones, which are being removed.

    Raises:
        StoreError: the folder cannot be read.
    """
    try:
        return sorted(name for name in os.listdir(root) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"{root}/ cannot be read: {error.strerror}") from error


def look_inside(root: Path) -> Inside:
    """Return the studies in a folder of results, and what cannot be entered, by name.

    Raises:
        StoreError: the folder itself cannot be read.
    """
    found = Inside(root, {}, {})
    for name in listed(root):
        try:
            journal = _journal_of(root / name)
        except OSError as error:  # another user's, `lost+found`, a link to itself, a failing disk
            found.unreadable[name] = error.strerror or type(error).__name__
            continue
        if journal is not None:
            found.changed[name] = journal.st_mtime_ns
    return found


def list_studies(
    root: Path = RESULTS, skipped: Callable[[str], None] | None = None
) -> list[StudySummary]:
    """All studies in a folder of results, the last to change first.

    Args:
        root: the folder.
        skipped: called once with a line that names the folders that cannot be entered.

    Raises:
        StoreError: the folder itself cannot be read.
    """
    inside = look_inside(root)
    if skipped is not None and inside.skipped:
        skipped(inside.skipped)
    found = [summary_of(root / name) for name in inside.changed]
    return sorted(found, key=lambda summary: -(summary.updated_at or 0.0))


def _journal_of(path: Path) -> os.stat_result | None:
    """Return what the disk says of a study's journal; None if the folder is not a study.

    Raises:
        OSError: the folder cannot be entered.
    """
    try:
        seen = os.stat(path / JOURNAL_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen if stat.S_ISREG(seen.st_mode) else None


def may_be_study(path: Path) -> bool:
    """Whether a folder is a study, or cannot be entered, so that nobody knows."""
    try:
        return _journal_of(path) is not None
    except OSError:  # who reads it is told why
        return True


def _is_study(path: Path) -> bool:
    try:
        return _journal_of(path) is not None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def summary_of(path: Path) -> StudySummary:
    """Return what `hpo list` shows of one study; its error, where it cannot be read."""
    try:
        with Journal(path) as journal, journal.at_one_commit():
            meta, head, counts = journal.meta, journal.head(), journal.count_by_state()
            entries = leaderboard_of(meta, trials_seen(journal))
        state = state_of(path, head)
    except (StoreError, OSError) as error:  # of one study, which must not hide the others
        return StudySummary(path.name, "damaged", 0, 0, None, "", None, path, str(error))
    waiting = sum(counts.get(state, 0) for state in ("waiting", "running"))
    return StudySummary(
        name=path.name,
        state=state,
        trials=sum(counts.values()),
        done=sum(counts.values()) - waiting,
        best=entries[0].value if entries else None,
        metric=meta.metric,
        updated_at=head.at,
        path=path,
    )


def state_of(folder: Path, head: Head) -> str:
    """Return `running` while a process writes the study, else `finished` or `interrupted`."""
    if lock_holder(folder) is not None:
        return "running"
    return "finished" if head.phase == "finished" else "interrupted"


def trials_seen(journal: JournalReader, read: Iterable[TrialRow] | None = None) -> list[TrialRow]:
    """Return the trials of a study as whoever reads it is to see them.

    Where no process writes it any more, those that ran are interrupted.

    Args:
        journal: of the study.
        read: its trials, where they were read at the same commit; None reads them.
    """
    rows = journal.trials() if read is None else list(read)
    return rows if lock_holder(journal.path.parent) is not None else as_left(rows)


def one_policy(folder: Path) -> Path:
    """Return the policy in a folder: of several environments that of the first by name."""
    own = sorted(folder.glob("*/policy.json"))
    return own[0].parent if own and not (folder / "policy.json").exists() else folder


def find_study(
    study: str | Path | None = None,
    root: Path = RESULTS,
    skipped: Callable[[str], None] | None = None,
) -> StudyFolder:
    """The study a reading verb means.

    Args:
        study: the name of a study in `root`, or the path of its folder; None means the only one.
        root: the folder of results.
        skipped: called once with a line that names the folders in `root` that cannot be entered,
            if `root` had to be listed.

    Raises:
        StoreError: there is none, or none of that name, or several and no name was given.
    """
    if study is not None:
        for path in (root / study, Path(study)):
            if os.path.lexists(path) and _is_study(path):
                return StudyFolder(path)
    inside = look_inside(root)
    known = list(inside.changed)
    if skipped is not None and inside.skipped:
        skipped(inside.skipped)
    if study is None:
        if len(known) == 1:
            return StudyFolder(root / known[0])
        if not known:
            raise StoreError(f"there is no study in {root}/; start one", run="study.yaml")
        raise StoreError(
            f"there are {len(known)} studies in {root}/; name one: {', '.join(known)}", study=True
        )
    begun = root / study
    if begun.is_dir() and (holder := lock_holder(begun)) is not None:
        raise StoreError(f"{begun} is being begun by {holder}; look again in a moment")
    for path in (begun, Path(study)):
        if path.is_dir():
            StudyFolder(path).check_journal()
    listed = f" Known: {', '.join(known)}" if known else f" {root}/ holds no study."
    raise StoreError(f"there is no study {str(study)!r};{suggestion(str(study), known)}{listed}")


def find_tables(
    study: str | Path | None,
    root: Path,
    more: Mapping[str, Path],
    skipped: Callable[[str], None] | None = None,
) -> Path:
    """Return the folder whose tables a query reads: of a study, or of tables alone.

    A folder of tables alone has the three tables and nothing that a study leaves besides.

    Args:
        study: as of `find_study`.
        root: as of `find_study`.
        more: name -> a folder of tables that ships.
        skipped: as of `find_study`.

    Raises:
        StoreError: as `find_study` does.
    """
    if study is not None:
        shipped = [more[str(study)]] if str(study) in more else []
        for path in (root / study, Path(study), *shipped):
            if _is_tables_alone(path):
                return path
    return find_study(study, root, skipped).path


def _is_tables_alone(path: Path) -> bool:
    # os.path's are False of a folder that cannot be entered, which `find_study` then names
    there = all(os.path.isfile(path / f"{name}.parquet") for name in _QUERIED)
    study = (JOURNAL_NAME, PARTS_NAME, "study.yaml", "checkpoints")
    return there and not any(os.path.exists(path / name) for name in study)


def read_leaderboard(folder: StudyFolder) -> list[Entry]:
    """The leaderboard of the last commit, from the journal."""
    with Journal(folder.path) as journal:
        return leaderboard_of(journal.meta, trials_seen(journal))
