"""Studies of Optuna, read from their storage: the space searched and the trials finished.

Optuna keeps the distributions of each trial and no space; what trials had in common becomes one,
and a parameter that only some trials had is searched in all.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
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

from ..errors import ConfigError

__all__ = ["OptunaStudy", "open_storage", "read_study"]


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
    """

    name: str
    directions: tuple[str, ...]
    space: Mapping[str, Mapping[str, Any]]
    sometimes: tuple[str, ...]
    trials: tuple[tuple[Mapping[str, Any], tuple[float, ...]], ...]
    metrics: tuple[str, ...] = ()
    exported: Mapping[str, Any] = field(default_factory=dict)


def read_study(storage: str, name: str | None = None) -> OptunaStudy:
    """Read a study.

    Args:
        storage: a URL such as `sqlite:///trials.db`, an SQLite file, or a journal (`.log`).
        name: of the study; may be left out where there is only one.

    Raises:
        ConfigError: no such storage or study, or a parameter whose distribution changed.
    """
    opened = open_storage(storage)
    names = [summary.study_name for summary in optuna.get_all_study_summaries(opened)]
    if name is None:
        if len(names) != 1:
            raise ConfigError(f"{storage} holds {len(names)} studies; choose one with --study: "
                              f"{', '.join(names) or 'none'}")  # fmt: skip
        name = names[0]
    elif name not in names:
        raise ConfigError(f"{storage} has no study {name!r}; known: {', '.join(names) or 'none'}")
    study = optuna.load_study(study_name=name, storage=opened)
    trials = study.get_trials(deepcopy=False)
    space: dict[str, BaseDistribution] = {}
    for trial in trials:
        for parameter, distribution in trial.distributions.items():
            if space.setdefault(parameter, distribution) != distribution:
                raise ConfigError(
                    f"{storage}: {parameter!r} was searched over {space[parameter]} and over "
                    f"{distribution}; a study has one distribution for it"
                )
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
    if "://" not in file and not Path(file).is_file() and not make:
        raise ConfigError(f"{file}: no such file; allowed: an SQLite file, a journal, or a URL")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        if file.endswith(".log"):
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend

            return JournalStorage(JournalFileBackend(file))
        return optuna.storages.RDBStorage(storage if "://" in storage else f"sqlite:///{file}")
    except Exception as error:  # whatever the database says about a file that is none of its own
        words = " ".join(str(error).split())[:200]
        raise ConfigError(f"{storage}: Optuna cannot open it: {words}") from error


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
