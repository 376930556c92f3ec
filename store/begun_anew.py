"""A study whose trials all failed for one reason has nothing to keep: mended, it begins anew."""

from __future__ import annotations

import re
from pathlib import Path

from .. import disk
from .journal import JOURNAL_NAME, Journal
from .lock import StudyLock
from .rows import TrialState
from .study_folder import OURS, STUDY_FOLDERS, StudyFolder

__all__ = ["begin_anew", "common_failure"]


def common_failure(folder: Path) -> str:
    """Return what every trial of a study failed of, "" where any did not, or of something else.

    Trials that wait, or have not trained, count as nothing. Numbers in a reason may differ.

    Raises:
        StoreError: the journal is damaged.
    """
    if not Journal.exists(folder):
        return ""
    with Journal(folder) as journal:
        rows = journal.trials()
    waits = (TrialState.WAITING, TrialState.RUNNING)
    begun = [row for row in rows if row.state not in waits or row.env_steps]
    reasons = {re.sub(r"\d+", "", row.error) for row in begun if row.state is TrialState.FAILED}
    if len(reasons) != 1 or any(row.state is not TrialState.FAILED for row in begun):
        return ""
    return begun[-1].error


def begin_anew(folder: Path) -> None:
    """Delete what a study wrote, the journal last; files of others in its folder stay.

    Raises:
        StoreError: another process writes the study, or the disk refuses.
    """
    place = StudyFolder(folder)
    with StudyLock(folder):
        place.check_plain()
        for name in STUDY_FOLDERS:
            disk.delete_folder(folder / name)
        for name in (*OURS, JOURNAL_NAME):
            disk.delete_file(folder / name)
