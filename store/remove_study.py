"""Remove a study: its folder is renamed first, then deleted, so none is ever half removed.

A folder with any file that a study does not write is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import StoreError
from ..files import atomic_files
from .journal import Journal
from .journal_file import JOURNAL_FILES, JOURNAL_NAME
from .lock import LOCK_NAME, STOP_NAME, StudyLock, lock_holder
from .rows import TrialState
from .study_folder import OURS, STUDY_FOLDERS, StudyFolder, first_of


def common_failure(folder: Path) -> str:
    """Return the reason for which all trials of a study failed, "" if they did not.

    Trials that wait or have not trained are ignored. Numbers in the reason may differ.
    """
    if not Journal.exists(folder):
        return ""
    with Journal(folder) as journal:
        rows = journal.trials()
    waits = (TrialState.WAITING, TrialState.RUNNING)
    started = [row for row in rows if row.state not in waits or row.env_steps]
    reasons = {re.sub(r"\d+", "", row.error) for row in started}
    if len(reasons) != 1 or any(row.state is not TrialState.FAILED for row in started):
        return ""
    return started[-1].error


def delete_results(folder: Path) -> None:
    """Delete the files of a study, the journal last; other files in its folder stay."""
    place = StudyFolder(folder)
    with StudyLock(folder):
        place.check_plain()
        for name in STUDY_FOLDERS:
            atomic_files.delete_folder(folder / name)
        for name in (*OURS, JOURNAL_NAME):
            atomic_files.delete_file(folder / name)


_FILES = (*OURS, LOCK_NAME, STOP_NAME, "training.png", *JOURNAL_FILES)
_FOLDERS = (*STUDY_FOLDERS, "tensorboard", "wandb")
_REMOVED = re.compile(r"\.[A-Za-z0-9][A-Za-z0-9._-]*\.removed")


def check_removable(folder: StudyFolder) -> None:
    """Raise `StoreError` if a study runs, is a link, or has other files."""
    path = folder.path
    if path.is_symlink():
        raise StoreError(f"{path} is a link; remove the folder it points to: {path.resolve()}")
    if (holder := lock_holder(path)) is not None:
        raise StoreError(f"{folder.name} is running ({holder}); stop it first", stop=folder.name)
    if others := _others(path):
        raise StoreError(
            f"{path} has files that are not the study's: {first_of(others)}; move them away first"
        )


def _others(path: Path) -> list[str]:
    """Return the names in a study's folder that a study does not write."""
    found: list[str] = []
    for inside in sorted(path.iterdir()):
        name = inside.name.removesuffix(atomic_files.PARTIAL)
        is_folder = inside.is_dir() and not inside.is_symlink()
        if name not in (_FOLDERS if is_folder else _FILES):
            found.append(inside.name)
    return found


def remove_studies(folders: Sequence[StudyFolder]) -> None:
    """Remove studies, or none if `check_removable` refuses any; also leftovers of removals."""
    for folder in folders:
        check_removable(folder)
    for folder in folders:
        with StudyLock(folder.path):
            hidden = folder.path.with_name(f".{folder.name}.removed")
            atomic_files.delete_folder(hidden)
            with atomic_files.telling(folder.path, "removing", kept=""):
                atomic_files.rename(folder.path, hidden)
            atomic_files.delete_folder(hidden)
    for root in {folder.path.parent for folder in folders}:
        for path in root.iterdir():
            with suppress(OSError):  # another user's, or being deleted
                left_over = _REMOVED.fullmatch(path.name) and not path.is_symlink()
                if left_over and path.is_dir() and not _others(path):
                    atomic_files.delete_folder(path)
