"""Given trials of a study that is there, run on test seeds and added to it: `hpo confirm`.

Which trials were asked for, and on how many seeds, becomes part of the study (`confirm.also`): so
it is resumed when it was interrupted, by the same call or by `hpo run`, and kept when the study
grows. The study is the one that its journal records; the file it came from is not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, StoreError
from ..store.default_trial import default_of
from ..store.journal import Journal
from ..store.lock import lock_holder
from ..store.rows import REFERENCE_TRIAL, StudyMeta, TrialRow, TrialState
from ..store.study_folder import StudyFolder
from ..studies.given import given_in
from ..studies.load import loads, of_its_day
from ..studies.reader import read_text
from ..studies.spec import Confirm, Study
from .api import run_in
from .book.progress import Observer
from .book.state import LoopState, Phase
from .engine.growth import asked_for
from .run import Results

__all__ = ["Asked", "ask", "confirm"]

_RESOLVED = "study.resolved.yaml"


@dataclass(frozen=True)
class Asked:
    """A study and the trials of it that are to run on test seeds.

    Attributes:
        folder: of the study.
        study: with these trials in `confirm.also`.
        trials: their numbers, as the study has them.
        seeds: on how many test seeds they are to have run, at least.
        text: the study file as it was given, "" where there was none.
    """

    folder: StudyFolder
    study: Study
    trials: tuple[int, ...]
    seeds: int
    text: str


def ask(
    folder: StudyFolder,
    trials: Sequence[int],
    seeds: int | None = None,
    source: Path | None = None,
) -> Asked:
    """Return a study that runs some of its trials on test seeds; nothing is written.

    Args:
        folder: of the study.
        trials: their numbers; -1 is the default configuration.
        seeds: on how many test seeds at least; None: as many as its winner, or 16.
        source: the folder of the study file, for the files that it names; None: where it was when
            the study was run last, as far as that is known, or the current one.

    Raises:
        StoreError: the study runs, is still in its search or of another version, or has no such
            trial.
        ConfigError: files that it names are not there.
    """
    holder = lock_holder(folder.path)
    if holder is not None:
        raise StoreError(
            f"{folder.name} is being written by {holder}; wait for it, or stop it",
            stop=folder.name,
        )
    with Journal(folder.path) as journal, journal.at_one_commit():
        meta, rows, head = journal.meta, journal.trials(), journal.head()
    phase = LoopState.from_text(head.loop_state).phase if head.number else Phase.SEARCH
    if phase is Phase.SEARCH:
        raise StoreError(
            f"the search of {folder.name} has not finished, and confirming comes after it; resume "
            "the study first"
        )
    numbers = tuple(dict.fromkeys(_number(folder, rows, trial) for trial in trials))
    kept = _kept_text(folder)
    at = _source(meta, kept, source)
    of_old = of_its_day(read_text(meta.study_text, _RESOLVED))
    study = loads(meta.study_text, _RESOLVED, at, of_old)
    confirm = study.confirm or Confirm(report=0)
    wanted = seeds or confirm.report or Confirm().report
    return Asked(
        folder,
        asked_for(study, dict.fromkeys(numbers, wanted)),
        numbers,
        wanted,
        "" if kept == meta.study_text else kept,
    )


def confirm(
    asked: Asked,
    observers: Sequence[Observer] = (),
    *,
    accept_new_bits: bool = False,
    accept_changed_files: bool = False,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    warn: Callable[[str], None] = lambda text: None,
) -> Results:
    """Run what `ask` gives, from wherever it stands; seeds that ran before do not run again.

    `budget` does not bound these runs, as somebody asked for them: neither its env steps, which
    they do not use up, nor its wall time.

    Args:
        asked: the study and its trials.
        observers: told of everything that happens.
        accept_new_bits: as of `search.api.run`.
        accept_changed_files: likewise.
        compiling: likewise.
        warn: likewise.

    Raises:
        HpoError: as `search.api.run` does.
    """
    return run_in(
        asked.folder.path,
        asked.study,
        observers,
        study_text=asked.text,
        accept_new_bits=accept_new_bits,
        accept_changed_files=accept_changed_files,
        compiling=compiling,
        warn=warn,
    )


def _number(folder: StudyFolder, rows: Sequence[TrialRow], trial: int) -> int:
    """Return the number under which a trial is found; the default may not have run before."""
    if trial == REFERENCE_TRIAL:
        default = default_of(rows)
        if default is None:
            return trial
        trial = default.trial
    row = next((row for row in rows if row.trial == trial), None)
    if row is None:
        raise StoreError(f"study {folder.name!r} has no trial {trial}", trials=folder.name)
    if row.state is TrialState.FAILED:
        why = row.error.partition("\n")[0]
        raise StoreError(f"trial {trial} of {folder.name} failed, so no seed can run it: {why}")
    return trial


def _kept_text(folder: StudyFolder) -> str:
    there = folder.study_file.is_file()
    return folder.study_file.read_text(encoding="utf-8", errors="replace") if there else ""


def _source(meta: StudyMeta, kept: str, given: Path | None) -> Path:
    """Return a folder from which all files that the study names are found.

    Raises:
        ConfigError: there is none.
    """
    command = given_in(kept)
    known = [] if command is None else [Path(command.file).parent]
    places = [given] if given is not None else [*known, Path()]
    for place in places:
        if _missing(meta, place) is None:
            return place
    raise ConfigError(
        f"{_missing(meta, places[-1])}, which the study names, is not in {places[-1]}/; name "
        "the folder of the study file",
        source="DIR",
    )


def _missing(meta: StudyMeta, place: Path) -> str | None:
    """Return the first file that the study names and that is not there."""
    return next((path for path in meta.files if not (place / path).is_file()), None)
