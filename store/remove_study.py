"""The results of a study that failed as a whole: the reason, and their removal."""

from __future__ import annotations

import re
from pathlib import Path

from ..files import atomic_files
from .journal import Journal
from .journal_file import JOURNAL_NAME
from .lock import StudyLock
from .rows import TrialState
from .study_folder import OURS, STUDY_FOLDERS, StudyFolder


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
