"""How to resume a study that is not running, as one sentence with a command."""

from __future__ import annotations

from pathlib import Path

from ..errors import HpoError
from ..store.journal import Journal
from ..store.study_folder import RESULTS, StudyFolder
from ..studies.load import loads_elsewhere, recorded
from ..studies.overrides import Given, given_in
from ..studies.resolved import as_recorded, diff, resolved

_STARTED = "to resume, rerun the command that started the study"


def resuming(folder: Path) -> str:
    """Return `resume it with: hpo run ...`, or other advice if the folder records no command."""
    command = resume_command(StudyFolder(folder))
    return f"resume it with: {command}" if command else _STARTED


def resume_command(folder: StudyFolder) -> str:
    """Return the command that resumes a study; "" if its folder does not record one.

    The kept file contains the command if options changed the study. Without options, the kept file
    itself can be run, unless the study imports files, which are not kept, or Python changed it.
    """
    if not folder.study_file.is_file():
        return ""
    kept = folder.kept_text()
    given = given_in(kept)
    if given is not None:
        return given.command
    try:
        with Journal(folder.path) as journal:
            text = journal.meta.study_text
        study = recorded(text)
        if study.imports or not study.algorithm.is_ppo or not _is_same_study(kept, text):
            return ""
    except HpoError:  # a damaged journal is reported when it is read
        return ""
    out = folder.path.parent
    shown = str(RESULTS) if out.absolute() == RESULTS.absolute() else str(out)
    file = Path(shown) / folder.name / folder.study_file.name
    return Given("run", str(file), name=folder.name, out=shown).command


def _is_same_study(kept: str, recorded_text: str) -> bool:
    """Return whether a kept file would resume the recorded study: not if `hpo.train` ran it."""
    now = resolved(loads_elsewhere(kept, "study.yaml"))
    changes = diff(as_recorded(recorded_text), now)
    return all(change.allowed or change.key == "name" for change in changes)
