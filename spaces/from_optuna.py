"""Studies of Optuna, read from their storage: the space searched and the trials finished.

Optuna keeps the distributions of each trial and no space; what trials had in common becomes one,
and a parameter that only some trials had is searched in all.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from ..errors import ConfigError, HpoError

__all__ = ["OptunaStudy", "open_storage", "read_study", "refusals"]


@dataclass(frozen=True)
class OptunaStudy:
    """What a storage holds of one study.

    Attributes:
        name: of the study.
        directions: `minimize` or `maximize`, one an objective.
        space: parameter -> distribution, as a study file writes it.
        sometimes: parameters that only some trials had.
        trials: (parameters, values) of finished trials, in order.
        metrics: names of the objectives, where it has some.
        exported: what `hpo export optuna` said of a study of ours: `env`, `env_steps`, `fixed`.
        changed: parameter -> the distribution that it had before the last one.
    """

    name: str
    directions: tuple[str, ...]
    space: Mapping[str, Mapping[str, Any]]
    sometimes: tuple[str, ...]
    trials: tuple[tuple[Mapping[str, Any], tuple[float, ...]], ...]
    metrics: tuple[str, ...] = ()
    exported: Mapping[str, Any] = field(default_factory=dict[str, Any])
    changed: Mapping[str, str] = field(default_factory=dict[str, str])


def read_study(storage: str, name: str | None = None) -> OptunaStudy:
    """Read a study.

    Args:
        storage: a URL such as `sqlite:///trials.db`, an SQLite file, or a journal (`.log`).
        name: of the study; may be left out where there is only one.

    Raises:
        ConfigError: no such storage or study, or a parameter whose kind of distribution changed.
    """
    with refusals(storage):
        return _read_study(storage, name)


def _read_study(storage: str, name: str | None) -> OptunaStudy:
    opened = open_storage(storage)
    names = [summary.study_name for summary in optuna.get_all_study_summaries(opened)]
    if name is None:
        if len(names) != 1:
            found = ", ".join(names) or "none"
            raise ConfigError(f"{storage} has {len(names)} studies; name one: {found}", study=True)
        name = names[0]
    elif name not in names:
        raise ConfigError(f"{storage} has no study {name!r}; known: {', '.join(names) or 'none'}")
    study = optuna.load_study(study_name=name, storage=opened)
    trials = study.get_trials(deepcopy=False)
    space: dict[str, BaseDistribution] = {}
    changed: dict[str, str] = {}
    for trial in trials:
        for parameter, distribution in trial.distributions.items():
            was = space.get(parameter, distribution)
            if type(was) is not type(distribution):
                raise ConfigError(
                    f"{storage}: {parameter!r} was searched over {was} and over "
                    f"{distribution}; a study has one kind of distribution for it"
                )
            if was != distribution:
                changed[parameter] = str(was)
            space[parameter] = distribution  # Optuna's samplers go by the last one, too
    finished = [trial for trial in trials if trial.state == optuna.trial.TrialState.COMPLETE]
    return OptunaStudy(
        name=name,
        directions=tuple(direction.name.lower() for direction in study.directions),
        space={parameter: _fields(parameter, theirs) for parameter, theirs in space.items()},
        sometimes=tuple(
            parameter for parameter in space if any(parameter not in t.params for t in trials)
        ),
        trials=tuple((dict(trial.params), tuple(trial.values)) for trial in finished),
        metrics=_metrics(study),
        exported=dict(study.user_attrs.get("hpo", {})),
        changed=changed,
    )


def _metrics(study: optuna.Study) -> tuple[str, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna marks names of metrics as experimental
        return tuple(study.metric_names or ())


def open_storage(storage: str, make: bool = False) -> Any:
    """Open a storage.

    Args:
        storage: a URL, an SQLite file, or a journal (`.log`).
        make: it may be new; else Optuna would make one where a path is misspelt.

    Raises:
        ConfigError: it is not there, or not one of Optuna's.
    """
    file = storage.removeprefix("sqlite:///")
    if "://" not in file:
        _check_file(Path(file), make)
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # it tells of damage line by line
    with refusals(storage):
        if file.endswith(".log"):
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend

            return JournalStorage(JournalFileBackend(file))
        return optuna.storages.RDBStorage(storage if "://" in storage else f"sqlite:///{file}")


def _check_file(path: Path, make: bool) -> None:
    """Refuse what Optuna would wait for, or would write its tables into.

    Raises:
        ConfigError: there is no such file, or it is not one of Optuna's.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is not a file; allowed: an SQLite file, a journal, or a URL")
    if not path.exists():
        if not make:
            raise ConfigError(
                f"{path}: no such file; allowed: an SQLite file, a journal, or a URL"
            )
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"{path}: its folder does not exist; create it first")
        return
    if path.suffix == ".log" or (make and path.stat().st_size == 0):
        return
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            found = opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = {str(name) for (name,) in found}
    except sqlite3.Error as error:
        raise ConfigError(f"{path} is not a readable SQLite database: {error}") from error
    if "studies" not in tables or "trials" not in tables:
        raise ConfigError(f"{path} is an SQLite database, but holds no study of Optuna")


@contextmanager
def refusals(storage: str) -> Generator[None]:
    """Turn whatever a database says of a file that is none of its own into one sentence."""
    try:
        yield
    except HpoError:
        raise
    except Exception as error:  # each database has errors of its own
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError(f"{storage}: Optuna cannot read it: {words}") from error


def _fields(name: str, theirs: BaseDistribution) -> dict[str, Any]:
    if isinstance(theirs, CategoricalDistribution):
        return {"values": list(theirs.choices)}
    if not isinstance(theirs, FloatDistribution | IntDistribution):
        raise ConfigError(f"{name!r} is a {type(theirs).__name__}, which has no counterpart")
    kind = "int_uniform" if isinstance(theirs, IntDistribution) else "uniform"
    found: dict[str, Any] = {"min": theirs.low, "max": theirs.high}
    if theirs.low == theirs.high:
        return {"values": [theirs.low]}
    if theirs.step is not None and not (isinstance(theirs, IntDistribution) and theirs.step == 1):
        found["q"] = theirs.step
    return {**found, "distribution": f"log_{kind}" if theirs.log else kind}
