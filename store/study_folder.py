"""A study's folder, `results/<study>/`: its files, and how commands find it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import StoreError, UnreadableError, clause, suggestion
from ..files import atomic_files
from .journal import JOURNAL_NAME, Journal
from .leaderboard import Entry, leaderboard_of
from .lock import StudyLock, lock_holder
from .parquet import PARTS_NAME
from .rows import LIVE, CommitHead, TrialRow, TrialState, as_left

RESULTS = Path("results")
REPORT_NAME = "report.html"
TENSORBOARD_NAME = "tensorboard"  # folder of a study's TensorBoard runs
WARM_START_NAME = "warm_start.json"
_TABLES = ("trials.parquet", "evaluations.parquet", "curves.parquet", "baselines.parquet")
OURS = (
    *("study.yaml", "study.resolved.yaml", WARM_START_NAME, REPORT_NAME),
    *(*_TABLES, "trials.csv", "evaluations.csv", "curves.csv"),
)  # files that a study replaces
STUDY_FOLDERS = (PARTS_NAME, "checkpoints", "policies", "processes", "sinks")
"""Folders in which a study deletes files."""
PROCESS = "process.json"
"""The file that describes a kept process, in the folder where other studies keep a policy."""
_MOST_NAMED = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or ".." in name or name.endswith("."):
        raise StoreError(
            f"{name[:120]!r} is not a valid study name; use 1 to 100 letters, digits, '.', '_' "
            "or '-', starting with a letter or digit, for example cartpole-asha"
        )
    return name


def first_of(names: Sequence[str]) -> str:
    more = clause(" and {} more", len(names[_MOST_NAMED:]))
    return ", ".join(names[:_MOST_NAMED]) + more


def free_name(root: Path, name: str) -> str:
    checked_name(name)
    number, candidate = 1, name
    while os.path.lexists(root / candidate):  # including broken links
        number += 1
        candidate = checked_name(f"{name}-{number}")
    return candidate


@dataclass(frozen=True)
class StudyFolder:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def study_file(self) -> Path:
        return self.path / "study.yaml"

    def kept_text(self) -> str:
        """Return the original text of the study file, or "" if the folder has none."""
        if not self.study_file.is_file():
            return ""
        return self.study_file.read_text(encoding="utf-8", errors="replace")

    @property
    def resolved_file(self) -> Path:
        return self.path / "study.resolved.yaml"

    @property
    def checkpoints(self) -> Path:
        """Lane checkpoints (`lanes-000012`, one per commit) and kept policies."""
        return self.path / "checkpoints"

    @property
    def policies(self) -> Path:
        return self.path / "policies"

    @property
    def report(self) -> Path:
        return self.path / REPORT_NAME

    def table(self, name: str) -> Path:
        return self.path / f"{name}.parquet"

    def check_plain(self) -> None:
        """Raise `StoreError` if a study's file or folder is a link, or of the wrong type."""
        for name in STUDY_FOLDERS:
            atomic_files.is_plain_folder(self.path / name)
        for name in OURS:
            atomic_files.is_plain_file(self.path / name)
            atomic_files.is_plain_file(self.path / f"{name}{atomic_files.PARTIAL}")

    def check_journal(self, new: bool = False) -> None:
        """Raise `StoreError` if the folder has results but no journal; `new` adds advice."""
        folders = [self.path / name for name in (PARTS_NAME, "checkpoints", "policies")]
        there = [
            p for f in folders if atomic_files.is_plain_folder(f) for p in sorted(f.iterdir())
        ]
        there += [self.path / name for name in _TABLES if (self.path / name).exists()]
        if there:
            journal = self.path / JOURNAL_NAME
            state = "empty" if journal.exists() else "missing"
            text = f"{journal} is {state}, but {there[0]} exists; restore the "
            text += "journal from a copy"
            if new:
                raise StoreError(f"{text}, or start another study", new=True)
            raise StoreError(f"{text}; other tools can read the Parquet tables")

    def write_study(self, given: str, resolved: str) -> None:
        atomic_files.write_text(self.study_file, given)
        atomic_files.write_text(self.resolved_file, resolved)


@dataclass(frozen=True)
class StudySummary:
    name: str
    state: str  # `running`, `interrupted`, `finished`, `damaged` or `unreadable`
    trials: int
    done: int  # number of trials that have finished, stopped or failed
    best: float | None  # value of the first trial on the leaderboard
    metric: str
    updated_at: float | None  # time of its last commit, seconds since the epoch; None if unknown
    path: Path
    error: str = ""  # why it is damaged or unreadable

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path)}


@dataclass(frozen=True)
class Inside:
    root: Path
    # study -> time of its journal's last change, nanoseconds since the epoch
    changed: dict[str, int]
    unreadable: dict[str, str]  # folder that may be a study -> why it cannot be read

    @property
    def skipped(self) -> str:
        named = [f"{name} ({why})" for name, why in self.unreadable.items()]
        if not named:
            return ""
        return f"skipped in {self.root}/: {first_of(named)}"


def listed(root: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(root) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"{root}/ cannot be read: {error.strerror}") from error


def look_inside(root: Path, skipped: Callable[[str], None] | None = None) -> Inside:
    """Return the contents of a results folder; pass all unreadable folders to `skipped`."""
    found = Inside(root, {}, {})
    for name in listed(root):
        try:
            journal = _journal_of(root / name)
        # another user's folder, `lost+found`, a link to itself, a failing disk
        except OSError as error:
            found.unreadable[name] = error.strerror or type(error).__name__
            continue
        if journal is not None:
            found.changed[name] = journal.st_mtime_ns
    if skipped is not None and found.skipped:
        skipped(found.skipped)
    return found


def list_studies(
    root: Path = RESULTS, skipped: Callable[[str], None] | None = None
) -> list[StudySummary]:
    found = [summary_of(root / name) for name in look_inside(root, skipped).changed]
    return sorted(found, key=lambda summary: -(summary.updated_at or 0.0))


def _journal_of(path: Path) -> os.stat_result | None:
    try:
        file_status = os.stat(path / JOURNAL_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(file_status.st_mode):
        return None
    return file_status


def may_be_study(path: Path) -> bool:
    try:
        return _journal_of(path) is not None
    except OSError:
        return True


def summary_of(path: Path) -> StudySummary:
    try:
        with Journal(path) as journal, journal.at_one_commit():
            meta, head, counts = journal.meta, journal.head(), journal.count_by_state()
            entries = leaderboard_of(meta, trials_seen(journal))
        state = state_of(path, head)
    except (StoreError, OSError) as error:  # must not hide other studies
        state = "damaged"
        if isinstance(error, UnreadableError | PermissionError):
            state = "unreadable"
        return StudySummary(path.name, state, 0, 0, None, "", None, path, str(error))
    total = sum(counts.values())
    best = None
    if entries:
        best = entries[0].value
    done = total - counts.get("waiting", 0) - counts.get("running", 0)
    return StudySummary(path.name, state, total, done, best, meta.metric, head.at, path)


def state_of(folder: Path, head: CommitHead) -> str:
    """Return `running` if a process writes the study, otherwise `finished` or `interrupted`."""
    if lock_holder(folder) is not None:
        return "running"
    if head.phase == "finished":
        return "finished"
    return "interrupted"


def trials_seen(journal: Journal, read: Iterable[TrialRow] | None = None) -> list[TrialRow]:
    """Return a study's trials; running ones become interrupted if no process writes the study."""
    if read is None:
        read = journal.trials()
    rows = list(read)
    if lock_holder(journal.path.parent) is None:
        return as_left(rows)
    return rows


def one_policy(folder: Path) -> Path:
    own = sorted(folder.glob("*/policy.json"))
    if own and not (folder / "policy.json").exists():
        return own[0].parent
    return folder


def find_study(
    study: str | Path | None = None,
    root: Path = RESULTS,
    skipped: Callable[[str], None] | None = None,
) -> StudyFolder:
    """Find a study by name in `root` or by path; None means the only study in `root`."""
    if study is not None:
        for path in (root / study, Path(study)):
            try:
                if os.path.lexists(path) and _journal_of(path) is not None:
                    return StudyFolder(path)
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    known = list(look_inside(root, skipped).changed)
    if study is None:
        if len(known) == 1:
            return StudyFolder(root / known[0])
        if not known:
            raise StoreError(f"there is no study in {root}/; start one", run="study.yaml")
        raise StoreError(
            f"there are {len(known)} studies in {root}/; name one: {', '.join(known)}", study=True
        )
    new = root / study
    if new.is_dir() and (holder := lock_holder(new)) is not None:
        raise StoreError(f"{new} is being created by {holder}; try again in a moment")
    for path in (new, Path(study)):
        if path.is_dir():
            StudyFolder(path).check_journal()
    listed = f" {root}/ has no study."
    if known:
        listed = f" Known: {', '.join(known)}"
    raise StoreError(f"there is no study {str(study)!r};{suggestion(str(study), known)}{listed}")


def find_tables(
    study: str | Path | None,
    root: Path,
    more: Mapping[str, Path],
    skipped: Callable[[str], None] | None = None,
) -> Path:
    """Return the folder whose tables a query reads: a study, or a folder with only the tables."""
    if study is not None:
        paths = [root / study, Path(study)]
        if str(study) in more:
            paths.append(more[str(study)])
        for path in paths:
            if _has_only_tables(path):
                return path
    return find_study(study, root, skipped).path


def _has_only_tables(path: Path) -> bool:
    # os.path's functions return False for unreadable folders, which `find_study` then names
    tables = all(os.path.isfile(path / name) for name in _TABLES[:3])
    study = (JOURNAL_NAME, PARTS_NAME, "study.yaml", "checkpoints")
    return tables and not any(os.path.exists(path / name) for name in study)


def read_leaderboard(folder: StudyFolder) -> list[Entry]:
    with Journal(folder.path) as journal:
        return leaderboard_of(journal.meta, trials_seen(journal))


def common_failure(folder: Path) -> str:
    """Return the common reason why all trials of a study failed, or "" if there is none."""
    if not Journal.exists(folder):
        return ""
    with Journal(folder) as journal:
        if not set(journal.count_by_state()) <= {*LIVE, TrialState.FAILED}:
            return ""
        rows = journal.trials()
    started = [row for row in rows if row.state not in LIVE or row.env_steps]
    reasons = {re.sub(r"\d+", "", row.error) for row in started}
    if len(reasons) != 1 or any(row.state is not TrialState.FAILED for row in started):
        return ""
    return started[-1].error


def delete_results(folder: Path) -> None:
    """Delete a study's files, the journal last; other files in its folder are kept."""
    place = StudyFolder(folder)
    with StudyLock(folder):
        place.check_plain()
        for name in STUDY_FOLDERS:
            atomic_files.delete_folder(folder / name)
        if not (folder / TENSORBOARD_NAME).is_symlink():  # links lead to the user's own folders
            atomic_files.delete_folder(folder / TENSORBOARD_NAME)
        for name in (*OURS, JOURNAL_NAME):
            atomic_files.delete_file(folder / name)
