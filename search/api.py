"""Run a study from a file or from Python: the command line and `hpo.run` call this.

jax is imported on the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import StoreError
from ..store.journal import Journal
from ..store.leaderboard import default_of
from ..store.lock import lock_holder
from ..store.rows import REFERENCE_TRIAL, TrialRow, TrialState
from ..store.study_folder import RESULTS, StudyFolder, checked_name, common_failure, free_name
from ..studies.evaluation import own_evaluation_note
from ..studies.load import load, loads, of_its_day
from ..studies.overrides import Given
from ..studies.resolved import as_recorded, diff, resolved
from ..studies.spec import Confirm, Study
from ..studies.train_study import single
from ..studies.user_code import check_registered, run_own_code
from ..studies.yaml_io import read_text
from .checks import check_files_to_resume, kept_text, source_of, takes_changed_files
from .cluster.executors import factory_of
from .engine.callbacks import Callback
from .engine.extend_run import as_begun, asked_for, resume_note, single_as_begun
from .loggers import sinks_of
from .run import Results, Settings
from .run import run as run_study
from .state.loop_state import LoopState, Phase
from .state.progress import Observer
from .state.warm_start import warm_start


def run(
    study: Study | str | Path,
    out: str | Path = RESULTS,
    observers: Sequence[Observer] = (),
    *,
    callbacks: Sequence[Callback] = (),
    new: bool = False,
    accept_new_bits: bool = False,
    accept_changed_files: bool = False,
    retry_failed: bool = False,
    study_text: str = "",
    given: Given | None = None,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    warn: Callable[[str], None] = lambda text: None,
) -> Results:
    """Run a study, or resume it; a finished one returns its results at once.

    A study whose trials all failed for the same reason starts over.

    Args:
        study: loaded, or the path of its file.
        out: the folder of results; the study gets a folder of its name in it.
        observers: notified of every event.
        callbacks: called between chunks, see `hpo.search.engine.callbacks`.
        new: start another study `name-2` and leave an existing one alone.
        accept_new_bits: resume although results on this machine differ in the last digits.
        accept_changed_files: resume although a file that the study names has changed.
        retry_failed: run the trials again that failed, as they were proposed.
        study_text: the file as it was given, if `study` is loaded.
        given: the command that runs it, if one does.
        compiling: entered around each compile, with its name.
        warn: called with one line, from any thread.

    Raises:
        StudyError: the file is wrong.
        ConfigError: the study cannot run here.
        StoreError: its folder is locked, damaged, or of another study.
        SearchError: it cannot continue; everything so far is kept.
        CallbackError: a callback raised; everything so far is kept.
        MissingExtraError: a logger's package is not installed.
    """
    if not isinstance(study, Study):
        path = Path(study)
        study, study_text = load(path), path.read_text(encoding="utf-8")
    out = Path(out)
    name = free_name(out, study.name) if new else checked_name(study.name)
    study = replace(study, name=name)
    shown = out / name
    place = shown.absolute()  # before any code of the study runs, which may change the folder
    if not new:
        asked = resolved(as_begun(study, place))
        check_files_to_resume(
            place,
            study.source,
            accept_changed_files,
            lambda meta: not retry_failed and not diff(as_recorded(meta.study_text), asked),
        )
    run_own_code(study)
    check_registered(study)
    failure = "" if new else common_failure(place)
    if failure:
        warn(f"every trial of {name} failed, so it starts over; the last error was: {failure}")
    else:
        study = as_begun(study, place)
        if note := resume_note(study, place):
            warn(note)
    if note := own_evaluation_note(study):
        warn(note)
    earlier = warm_start(study, None if failure else place)
    if earlier.words:
        warn(f"warm start: {earlier.words}")
    settings = Settings(
        accept_new_bits=accept_new_bits,
        accept_changed_files=accept_changed_files,
        study_text=study_text,
        given=given,
        sinks=sinks_of(study, warn),
        callbacks=tuple(callbacks),
        resume=not new,
        anew=bool(failure),
        retry_failed=retry_failed,
        warn=warn,
        shown=shown,
    )
    with factory_of(study, compiling, warn) as factory:
        return run_study(study, place, factory, observers, settings, earlier)


def train(
    study: Study | str | Path,
    out: str | Path = RESULTS,
    observers: Sequence[Observer] = (),
    **settings: Any,
) -> Results:
    """Train one configuration, a study's default one, on all its seeds; see `run`.

    Args:
        study: loaded, or the path of its file; searched hyperparameters keep their defaults.
        out: the folder of results.
        observers: notified of every event.
        settings: the other arguments of `run`.
    """
    if not isinstance(study, Study):
        path = Path(study)
        study, text = load(path), path.read_text(encoding="utf-8")
        settings.setdefault("study_text", text)
    if not settings.get("new"):
        study = single_as_begun(study, Path(out) / checked_name(study.name))
    return run(single(study), out, observers, **settings)


_RESOLVED = "study.resolved.yaml"


@dataclass(frozen=True)
class Asked:
    """A study and those of its trials that are to run on test seeds."""

    folder: StudyFolder
    study: Study  # with these trials in `confirm.also`
    trials: tuple[int, ...]
    seeds: int  # on how many test seeds each is to have run, at least
    text: str  # the study file as it was given, "" without one


def ask(
    folder: StudyFolder,
    trials: Sequence[int],
    seeds: int | None = None,
    source: Path | None = None,
    accept_changed_files: bool = False,
) -> Asked:
    """Return a study that runs some of its trials on test seeds; nothing is written.

    Trial -1 is the default configuration. `seeds` is the least number of test seeds, by default as
    many as the winner has, or 16. `source` is the folder of the study file and of those it names,
    by default its last known place, or the current folder. None of these files is run before it is
    known to be unchanged, unless changes are accepted.
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
    kept = kept_text(folder)
    at = source_of(meta, kept, source)
    takes_changed_files(meta.name, meta.files, at, accept_changed_files)
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
    """Run what `ask` gives; seeds that ran before do not run again. Arguments are those of `run`.

    `budget` does not bound these runs, neither its env steps, which they do not use up, nor its
    wall time.
    """
    study, shown = asked.study, asked.folder.path
    place = shown.absolute()
    run_own_code(study)
    check_registered(study)
    settings = Settings(
        accept_new_bits=accept_new_bits,
        accept_changed_files=accept_changed_files,
        study_text=asked.text,
        sinks=sinks_of(study, warn),
        shown=shown,
    )
    with factory_of(study, compiling, warn) as factory:
        return run_study(study, place, factory, observers, settings)


def _number(folder: StudyFolder, rows: Sequence[TrialRow], trial: int) -> int:
    """Return the number of a trial; of the default -1 if it has not run."""
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
