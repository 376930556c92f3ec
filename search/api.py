"""A study from a file or from Python to its results on this machine: everything but words.

The command line and `hpo.run` are this function; jax is imported when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from ..errors import UnknownNameError
from ..knobs import complete
from ..store.csv_sink import CsvSink
from ..store.sinks import Sink, Sinks
from ..store.study_folder import RESULTS, checked_name, free_name
from ..studies.load import load
from ..studies.spec import Study
from .compile_cache import enable_compilation_cache
from .lanes import population_replicates
from .progress import Observer
from .run import Results, Settings
from .run import run as run_study
from .user_code import check_registered, import_user_code
from .warm_start import warm_start

__all__ = ["run"]

_SINKS: dict[str, Callable[[], Sink]] = {"csv": CsvSink}
_VIEWS = ("console",)  # loggers that are observers, not sinks


def run(
    study: Study | str | Path,
    out: str | Path = RESULTS,
    observers: Sequence[Observer] = (),
    *,
    new: bool = False,
    accept_new_bits: bool = False,
    study_text: str = "",
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    warn: Callable[[str], None] = lambda text: None,
) -> Results:
    """Run a study on this machine, or go on with it; a finished one gives its results at once.

    Args:
        study: loaded, or the path of its file.
        out: the folder of results; the study gets a folder of its name in it.
        observers: told of everything that happens.
        new: begin another study `name-2` beside the one that is there.
        accept_new_bits: go on although this machine gives other bits than the one before.
        study_text: the file as it was given, if `study` is loaded.
        compiling: entered around each compile, with words for what is compiled.
        warn: takes a line about a logger that failed, about environments, or a warm start.

    Raises:
        StudyError: the file is wrong.
        ConfigError: the study cannot run here.
        StoreError: its folder is locked, damaged, or of another study.
        SearchError: it cannot go on; what was done is kept.
    """
    if not isinstance(study, Study):
        path = Path(study)
        study, study_text = load(path), path.read_text(encoding="utf-8")
    out = Path(out)
    name = free_name(out, study.name) if new else checked_name(study.name)
    study = replace(study, name=name)
    import_user_code(study.imports, study.source)
    check_registered(study)
    enable_compilation_cache()
    from .local import LocalFactory

    factory = LocalFactory(study, compiling, warn)
    # What only imported code knows has not been checked yet; nothing is on disk so far.
    config = complete({**study.fixed, **study.space.default()})
    factory.hypers(config)
    if population_replicates(study) > 1:  # all of them must have a lane
        factory.program_of(config)
    earlier = warm_start(study, out / name)
    if earlier.words:
        warn(f"warm start: {earlier.words}")
    settings = Settings(
        accept_new_bits=accept_new_bits,
        study_text=study_text,
        sinks=_sinks(study, warn),
        resume=not new,
    )
    return run_study(study, out / name, factory, observers, settings)


def _sinks(study: Study, warn: Callable[[str], None]) -> Sinks | None:
    """Make the copies of the tables that a study asks for.

    Raises:
        UnknownNameError: no logger has this name.
    """
    sinks: list[Sink] = []
    for logger in study.loggers:
        if logger.type in _SINKS:
            sinks.append(_SINKS[logger.type]())
        elif logger.type not in _VIEWS:
            raise UnknownNameError("logger", logger.type, (*_SINKS, *_VIEWS))
    return Sinks(sinks, warn) if sinks else None
