"""A study from a file or from Python to its results: everything but words.

The command line and `hpo.run` are this function; jax is imported when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..store.begun_anew import common_failure
from ..store.study_folder import RESULTS, checked_name, free_name
from ..studies.given import Given
from ..studies.load import load
from ..studies.own_evaluation import own_evaluation_note
from ..studies.single import single
from ..studies.spec import Study
from ..studies.user_code import check_registered
from .book.progress import Observer
from .book.warm_start import warm_start
from .cluster.executors import factory_of
from .engine.callbacks import Callback
from .engine.growth import as_begun, single_as_begun, words_of_growth
from .loggers import sinks_of
from .own_code import run_own_code
from .run import Results, Settings
from .run import run as run_study

__all__ = ["run", "run_in", "train"]


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
