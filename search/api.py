"""Runs a study from a file or from Python, for the command line and for `hpo.run`.

jax is imported on the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import StoreError, ignore
from ..store.journal import Journal
from ..store.leaderboard import default_of
from ..store.lock import lock_holder
from ..store.rows import REFERENCE_TRIAL, StudyMeta, TrialRow, TrialState
from ..store.study_folder import RESULTS, StudyFolder, checked_name, common_failure, free_name
from ..studies.evaluation import goal_note, own_evaluation_note
from ..studies.load import Source, Written, loads, of_its_day, written_study
from ..studies.overrides import Given
from ..studies.resolved import as_recorded, diff, resolved
from ..studies.search_spec import Confirm
from ..studies.spec import Study
from ..studies.train_study import single
from ..studies.user_code import check_registered, run_own_code
from ..studies.yaml_io import read_text
from .checks import check_before_code, check_files_to_resume, source_of, takes_changed_files
from .cluster.executors import factory_of
from .engine.callbacks import Callback
from .engine.extend_run import as_begun, asked_for, resume_note, single_as_begun
from .loggers import sinks_of
from .run import RunOptions, RunResults
from .run import run as run_study
from .state.loop_state import LoopState, Phase
from .state.progress import Observer
from .state.warm_start import WarmStartTrials, warm_start


def run(
    study: Source,
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
    warn: Callable[[str], None] = ignore,
) -> RunResults:
    """Run or resume a study; return the results of a finished one at once.

    A study starts over if all its trials failed for the same reason.

    Args:
        study: a loaded study, or any form that `hpo.run` accepts.
        out: the results folder; the study gets a subfolder with its name.
        observers: notified of every event.
        callbacks: called between chunks, see `hpo.search.engine.callbacks`.
        new: start a separate study `name-2` and do not touch an existing one.
        accept_new_bits: resume even if results on this machine differ in the last digits.
        accept_changed_files: resume even if a file named by the study has changed.
        retry_failed: run failed trials again, with the same hyperparameters.
        study_text: the original text of the file, if `study` is loaded.
        given: the command that runs the study, if there is one.
        compiling: context entered around each compilation, with its name.
        warn: called with one line of text, from any thread.

    Raises:
        StudyError: the file is wrong. ConfigError: the study cannot run here. StoreError: its
            folder is locked, damaged, or belongs to another study. SearchError: the study cannot
            continue; all results so far are kept. CallbackError: a callback raised; all results so
            far are kept. MissingExtraError: a logger's package is not installed.
    """
    options = RunOptions(
        resume=not new,
        accept_new_bits=accept_new_bits,
        accept_changed_files=accept_changed_files,
        study_text=study_text,
        given=given,
        callbacks=tuple(callbacks),
        retry_failed=retry_failed,
        warn=warn,
        compiling=compiling,
    )
    study, shown, options = _load_study(study, Path(out), options)
    place = shown.absolute()  # the study's code, which runs below, may change the folder
    _run_study_code(study, place, options)
    study, starts_over = _resume_study(study, place, options)
    earlier = _read_warm_start(study, place, starts_over, warn)
    options = replace(
        options, delete_existing=starts_over, sinks=sinks_of(study, warn), shown=shown
    )
    with factory_of(study, compiling, warn) as factory:
        return run_study(study, place, factory, observers, options, earlier=earlier)


def _load_study(study: Source, out: Path, options: RunOptions) -> tuple[Study, Path, RunOptions]:
    """Return the loaded study, its folder in `out`, and the options with the study's text."""
    if not isinstance(study, Study):
        study, text = load_to_run(
            study,
            out,
            new=not options.resume,
            accept_changed_files=options.accept_changed_files,
            retry_failed=options.retry_failed,
        )
        options = replace(options, study_text=text)
    if not options.resume:
        study = replace(study, name=free_name(out, study.name))
    return study, out / checked_name(study.name), options


def resume_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `run` that `load_to_run` also accepts."""
    names = ("new", "accept_changed_files", "retry_failed")
    return {name: settings[name] for name in names if name in settings}


def load_to_run(
    given: Written,
    out: Path,
    name: str | None = None,
    *,
    new: bool = False,
    accept_changed_files: bool = False,
    retry_failed: bool = False,
) -> tuple[Study, str]:
    """Load a study to run or resume; return it with its text.

    If the study is resumed in the folder `out`, its Python files run only after a check that they
    are unchanged. The other arguments are those of `run`.
    """
    written = written_study(given)

    def check(name: str) -> None:
        check_before_code(
            out / name,
            written.source,
            written.text,
            accept_changed_files=accept_changed_files,
            retry_failed=retry_failed,
        )

    return written.load(name, None if new else check), written.text


def _check_files(study: Study, place: Path, accept: bool, retry_failed: bool) -> None:
    """Raise if a study would resume with changed files, before any of them runs."""
    asked = resolved(as_begun(study, place))

    def asks_for_the_same(meta: StudyMeta) -> bool:
        return not retry_failed and not diff(as_recorded(meta.study_text), asked)

    check_files_to_resume(place, study.source, accept, asks_for_the_same)


def _run_study_code(study: Study, place: Path, options: RunOptions) -> None:
    """Run the Python files that a study imports; if it resumes, check them for changes first."""
    if options.resume:
        _check_files(study, place, options.accept_changed_files, options.retry_failed)
    run_own_code(study)
    check_registered(study)


def _resume_study(study: Study, place: Path, options: RunOptions) -> tuple[Study, bool]:
    """Return a study with settings from its folder, and whether it starts over; report changes.

    It starts over if all its trials failed for the same reason.
    """
    failure = ""
    if options.resume:
        failure = common_failure(place)
    if note := goal_note(study):
        options.warn(note)
    if failure:
        error = f"the last error was: {failure}"
        options.warn(f"all trials of {study.name} failed, so the study starts over; {error}")
    else:
        study = as_begun(study, place)
        if note := resume_note(study, place):
            options.warn(note)
    if note := own_evaluation_note(study):
        options.warn(note)
    return study, bool(failure)


def _read_warm_start(
    study: Study, place: Path, starts_over: bool, warn: Callable[[str], None]
) -> WarmStartTrials:
    """Return the earlier study's trials that warm-start the search, and report their number."""
    earlier = warm_start(study, None if starts_over else place)
    if earlier.words:
        warn(f"warm start: {earlier.words}")
    return earlier


def train(
    study: Source,
    out: str | Path = RESULTS,
    observers: Sequence[Observer] = (),
    **settings: Any,
) -> RunResults:
    """Train a study's default configuration on all of the study's seeds; see `run`.

    Args:
        study: any form that `run` accepts; searched hyperparameters keep their defaults.
        out: the results folder.
        observers: notified of every event.
        settings: other arguments of `run`.
    """
    if not isinstance(study, Study):
        study, text = load_to_run(study, Path(out), **resume_settings(settings))
        settings.setdefault("study_text", text)
    if not settings.get("new"):
        study = single_as_begun(study, Path(out) / checked_name(study.name))
    return run(single(study), out, observers, **settings)


_RESOLVED = "study.resolved.yaml"


@dataclass(frozen=True)
class TestRequest:
    """A study, and the trials to run on test seeds."""

    folder: StudyFolder
    study: Study  # with these trials in `confirm.also`
    trials: tuple[int, ...]
    seeds: int  # minimum number of test seeds per trial
    text: str  # original text of the study file, or ""


def ask(
    folder: StudyFolder,
    trials: Sequence[int],
    seeds: int | None = None,
    source: Path | None = None,
    accept_changed_files: bool = False,
) -> TestRequest:
    """Return a request to run trials of a study on test seeds; write nothing.

    Trial -1 is the default configuration. `seeds` is the minimum number of test seeds, by default
    the winner's number of test seeds, or 16. `source` is the folder with the study file and the
    files that it names; by default it is their last known folder, or the current one. Changed
    files raise StoreError, unless `accept_changed_files` is set.
    """
    holder = lock_holder(folder.path)
    if holder is not None:
        raise StoreError(
            f"{folder.name} is being written by {holder}; wait for it, or stop it",
            stop=folder.name,
        )
    with Journal(folder.path) as journal, journal.at_one_commit():
        meta, rows, head = journal.meta, journal.trials(), journal.head()
    if not head.number or LoopState.from_text(head.loop_state).phase is Phase.SEARCH:
        raise StoreError(
            f"the search of {folder.name} has not finished, so no trial can be confirmed yet; "
            "resume the study first"
        )
    numbers = tuple(dict.fromkeys(_trial_number(folder, rows, trial) for trial in trials))
    kept = folder.kept_text()
    at = source_of(meta, kept, source)
    takes_changed_files(meta.name, meta.files, at, accept_changed_files)
    of_old = of_its_day(read_text(meta.study_text, _RESOLVED))
    study = loads(meta.study_text, _RESOLVED, at, of_old)
    confirm = study.confirm or Confirm(report=0)
    wanted = seeds or confirm.report or Confirm().report
    return TestRequest(
        folder,
        asked_for(study, dict.fromkeys(numbers, wanted)),
        numbers,
        wanted,
        "" if kept == meta.study_text else kept,
    )


def confirm(
    asked: TestRequest,
    observers: Sequence[Observer] = (),
    *,
    accept_new_bits: bool = False,
    accept_changed_files: bool = False,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    warn: Callable[[str], None] = ignore,
) -> RunResults:
    """Run a request from `ask` on the seeds without results; for the arguments, see `run`.

    `budget` does not limit these runs: they do not count towards its env steps, and its wall time
    does not stop them.
    """
    study, shown = asked.study, asked.folder.path
    place = shown.absolute()
    run_own_code(study)
    check_registered(study)
    settings = RunOptions(
        accept_new_bits=accept_new_bits,
        accept_changed_files=accept_changed_files,
        study_text=asked.text,
        sinks=sinks_of(study, warn),
        compiling=compiling,
        shown=shown,
    )
    with factory_of(study, compiling, warn) as factory:
        return run_study(study, place, factory, observers, settings)


def _trial_number(folder: StudyFolder, rows: Sequence[TrialRow], trial: int) -> int:
    """Return a trial's number; -1 if the default is requested and has not run."""
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
        raise StoreError(
            f"trial {trial} of {folder.name} failed, so it cannot run on new seeds: {why}"
        )
    return trial
