"""A study from a file or from Python to its results: everything but words.

The command line and `hpo.run` are this function; jax is imported when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, StoreError
from ..store.journal import Journal
from ..store.leaderboard import default_of
from ..store.lock import lock_holder
from ..store.remove_study import common_failure
from ..store.rows import REFERENCE_TRIAL, StudyMeta, TrialRow, TrialState
from ..store.study_folder import RESULTS, StudyFolder, checked_name, free_name
from ..studies.evaluation import own_evaluation_note
from ..studies.load import load, loads, of_its_day
from ..studies.overrides import Given, given_in
from ..studies.spec import Confirm, Study
from ..studies.train_study import single
from ..studies.user_code import check_registered, run_own_code
from ..studies.yaml_io import read_text
from .cluster.executors import factory_of
from .engine.callbacks import Callback
from .engine.extend_run import as_begun, asked_for, single_as_begun, words_of_growth
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
    study_text: str = "",
    given: Given | None = None,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    warn: Callable[[str], None] = lambda text: None,
) -> Results:
    """Run a study where it asks to, or go on with it; a finished one gives its results at once.

    One whose trials all failed for the same reason begins anew: there is nothing to go on with.

    Args:
        study: loaded, or the path of its file.
        out: the folder of results; the study gets a folder of its name in it.
        observers: told of everything that happens.
        callbacks: called between chunks, see `hpo.search.engine.callbacks`.
        new: begin another study `name-2` beside the one that is there.
        accept_new_bits: go on although this machine gives other bits than the one before.
        accept_changed_files: go on although a file that the study names has changed since.
        study_text: the file as it was given, if `study` is loaded.
        given: the command that runs it, if one does.
        compiling: entered around each compile, with words for what is compiled.
        warn: takes a line about a logger that failed, about environments, one that is searched
            and evaluates too, or a warm start; from any thread.

    Raises:
        StudyError: the file is wrong.
        ConfigError: the study cannot run here.
        StoreError: its folder is locked, damaged, or of another study.
        SearchError: it cannot go on; what was done is kept.
        CallbackError: a callback raised; what was done is kept.
        MissingExtraError: a logger's package is not installed.
    """
    if not isinstance(study, Study):
        path = Path(study)
        study, study_text = load(path), path.read_text(encoding="utf-8")
    out = Path(out)
    name = free_name(out, study.name) if new else checked_name(study.name)
    study = replace(study, name=name)
    run_own_code(study)
    check_registered(study)
    failure = "" if new else common_failure(out / name)
    if failure:
        warn(f"every trial of {name} failed, so it begins anew; the last error was: {failure}")
    else:
        study = as_begun(study, out / name)
        if grown := words_of_growth(study, out / name):
            warn(grown)
    if note := own_evaluation_note(study):
        warn(note)
    earlier = warm_start(study, None if failure else out / name)
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
    )
    with factory_of(study, compiling, warn) as factory:
        return run_study(study, out / name, factory, observers, settings, earlier)


def run_in(
    folder: Path,
    study: Study,
    observers: Sequence[Observer] = (),
    *,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    warn: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> Results:
    """Go on with the study in a folder as it is given here, whatever the folder is called.

    Args:
        folder: of the study.
        study: what it is from here on.
        observers: as of `run`.
        compiling: likewise.
        warn: likewise.
        settings: fields of `Settings`.

    Raises:
        HpoError: as `run` does.
    """
    run_own_code(study)
    check_registered(study)
    earlier = warm_start(study, folder)
    how = Settings(sinks=sinks_of(study, warn), **settings)
    with factory_of(study, compiling, warn) as factory:
        return run_study(study, folder, factory, observers, how, earlier)


def train(
    study: Study | str | Path,
    out: str | Path = RESULTS,
    observers: Sequence[Observer] = (),
    **settings: Any,
) -> Results:
    """Train one configuration, a study's default one, on all its seeds; see `run`.

    Args:
        study: loaded, or the path of its file; what it searches keeps its default.
        out: as of `run`.
        observers: as of `run`.
        settings: the other arguments of `run`.

    Raises:
        HpoError: as `run` does.
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
