"""Reads the searched space and the finished trials of an Optuna study from its storage.

Optuna stores the distributions of each trial, but no space. The distributions are merged into one
space; a parameter that only some trials had is searched in all of them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
import warnings
from collections.abc import Generator, Mapping, Sequence
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
from optuna.trial import BaseTrial

from ..errors import ConfigError, HpoError
from ..files.plain_data import is_dict
from .distributions import (
    Axis,
    Categorical,
    Distribution,
    IntUniform,
    LogIntUniform,
    LogUniform,
    Normal,
    Ordinal,
    Pow2,
    Uniform,
)
from .make import range_kind
from .space import Parameter, Space


@dataclass(frozen=True)
class OptunaTrial:
    """A finished trial in a storage."""

    params: Mapping[str, Any]
    values: tuple[float, ...]  # one per objective
    # from `hpo export optuna`: the configuration in our names, with what Optuna cannot express
    ours: Mapping[str, Any] = field(default_factory=dict[str, Any])
    violation: float = 0.0  # sum over violated constraints


@dataclass(frozen=True)
class OptunaStudy:
    """One study in a storage."""

    name: str
    directions: tuple[str, ...]  # `minimize` or `maximize`, one per objective
    space: Mapping[str, Mapping[str, Any]]  # parameter -> distribution, in study-file form
    sometimes: tuple[str, ...]  # parameters that only some trials had
    trials: tuple[OptunaTrial, ...]  # the finished ones, in order
    waiting: tuple[OptunaTrial, ...]  # from `enqueue_trial`, with the parameters given there
    metrics: tuple[str, ...] = ()  # names of the objectives, if they have names
    # from `hpo export optuna`: `study`, the keys of the study file, and versions
    exported: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # parameter -> the distribution before the last one
    changed: Mapping[str, str] = field(default_factory=dict[str, str])


def read_study(storage: str, name: str | None = None) -> OptunaStudy:
    """Read a study.

    Args:
        storage: a URL such as `sqlite:///trials.db`, an SQLite file, or a journal (`.log`).
        name: name of the study; may be omitted if there is only one.

    Raises:
        ConfigError: no such storage or study, or a parameter changed its kind of distribution.
    """
    with refusals(storage):
        return _read_study(storage, name)


def _read_study(storage: str, name: str | None) -> OptunaStudy:
    opened = open_storage(storage)
    name = _chosen_study(storage, opened, name)
    study = optuna.load_study(study_name=name, storage=opened)
    trials = study.get_trials(deepcopy=False)
    space, changed = _last_distributions(storage, trials)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna marks metric names as experimental
        metrics = tuple(study.metric_names or ())
    states = optuna.trial.TrialState
    finished = [trial for trial in trials if trial.state == states.COMPLETE]
    # others may end, or wait, before they have all of their parameters
    ended = [trial for trial in trials if trial.state in (states.COMPLETE, states.PRUNED)]
    return OptunaStudy(
        name=name,
        directions=tuple(direction.name.lower() for direction in study.directions),
        space={
            parameter: _our_fields(parameter, distribution)
            for parameter, distribution in space.items()
        },
        sometimes=tuple(name for name in space if not _always_has(ended, name)),
        trials=tuple(_our_trial(trial) for trial in finished),
        waiting=tuple(_our_trial(trial) for trial in trials if trial.state == states.WAITING),
        metrics=metrics,
        exported=dict(study.user_attrs.get("hpo", {})),
        changed=changed,
    )


def study_names(opened: optuna.storages.BaseStorage) -> list[str]:
    return [summary.study_name for summary in optuna.get_all_study_summaries(opened)]


def _chosen_study(storage: str, opened: optuna.storages.BaseStorage, name: str | None) -> str:
    """Return the name of the study to read: the given one, or the only one."""
    names = study_names(opened)
    known = ", ".join(names) or "none"
    if name is None and len(names) != 1:
        raise ConfigError(f"{storage} has {len(names)} studies; name one: {known}", study=True)
    if name is not None and name not in names:
        raise ConfigError(f"{storage} has no study {name!r}; known: {known}")
    if name is None:
        return names[0]
    return name


def _last_distributions(
    storage: str, trials: Sequence[optuna.trial.FrozenTrial]
) -> tuple[dict[str, BaseDistribution], dict[str, str]]:
    """Return each parameter's last distribution, and the one before its last change as text."""
    space: dict[str, BaseDistribution] = {}
    changed: dict[str, str] = {}
    for trial in trials:
        for parameter, distribution in trial.distributions.items():
            was = space.get(parameter, distribution)
            if type(was) is not type(distribution):
                text = f"{storage}: {parameter!r} was searched over {was} and over {distribution}"
                raise ConfigError(f"{text}; a study can have only one kind of distribution for it")
            if was != distribution:
                changed[parameter] = str(was)
            space[parameter] = distribution  # Optuna's samplers also use the last one
    return space, changed


def _always_has(trials: Sequence[optuna.trial.FrozenTrial], name: str) -> bool:
    return all(name in trial.params for trial in trials)


def _our_trial(trial: optuna.trial.FrozenTrial) -> OptunaTrial:
    ours = trial.user_attrs.get("params")
    if not is_dict(ours):
        ours = {}
    params = {**trial.params, **trial.system_attrs.get("fixed_params", {})}
    violated = (max(0.0, one) for one in trial.system_attrs.get("constraints") or ())
    if trial.state == optuna.trial.TrialState.COMPLETE:
        params = dict(trial.params)
    return OptunaTrial(params, tuple(trial.values or ()), ours, math.fsum(violated))


def open_storage(storage: str, make: bool = False) -> Any:
    """Open a storage: a URL, an SQLite file, or a journal (`.log`).

    With `make`, it is created if it does not exist. Without `make` it must exist, because Optuna
    would create one at a misspelt path.

    Raises:
        ConfigError: it does not exist, or is not an Optuna storage.
    """
    file = storage.removeprefix("sqlite:///")
    if "://" not in file:
        _check_file(Path(file), make)
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # it reports damage line by line
    with refusals(storage):
        if file.endswith(".log"):
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend

            return JournalStorage(JournalFileBackend(file))
        if "://" not in storage:
            storage = f"sqlite:///{file}"
        return optuna.storages.RDBStorage(storage)


def _check_file(path: Path, make: bool) -> None:
    """Reject files that would make Optuna wait, or in which it would create its tables."""
    if not path.is_file() and (path.exists() or not make):
        what = "no such file"
        if path.exists():
            what = "is not a file"
        raise ConfigError(f"{path}: {what}; allowed: an SQLite file, a journal, or a URL")
    if not path.exists():
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
        raise ConfigError(f"{path} is an SQLite database, but has no Optuna study")


@contextmanager
def refusals(storage: str) -> Generator[None]:
    """Turn any error that a database raises for an unreadable storage into one sentence."""
    try:
        yield
    except HpoError:
        raise
    except Exception as error:  # each database has its own errors
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError(f"{storage}: Optuna cannot read it: {words}") from error


def _our_fields(name: str, distribution: BaseDistribution) -> dict[str, Any]:
    if isinstance(distribution, CategoricalDistribution):
        return {"values": list(distribution.choices)}
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        raise ConfigError(f"{name!r} is a {type(distribution).__name__}, which has no counterpart")
    if distribution.low == distribution.high:
        return {"values": [distribution.low]}
    whole = isinstance(distribution, IntDistribution)
    found: dict[str, Any] = {"min": distribution.low, "max": distribution.high}
    if distribution.step is not None and not (whole and distribution.step == 1):
        found["q"] = distribution.step
    return {**found, "distribution": range_kind(whole, distribution.log)}


_SCALAR = (str, int, float, bool, type(None))


def written_params(
    space: Space, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return the arguments of `optuna.trial.create_trial`: values by key, and distributions.

    A zero outside its range is omitted, as if the parameter were inactive.
    """
    values: dict[str, Any] = {}
    spread: dict[str, BaseDistribution] = {}
    for key, parameter, value in space.active(params):
        if not (value == 0 and _zero_is_outside(parameter.distribution)):
            values[key] = _plain_choice(value)
            spread[key] = _value_distribution(parameter.distribution)
    return values, spread


def told_changes(space: Space) -> list[str]:
    """Describe the parts of parameters that Optuna cannot express."""
    changes = ((key, _export_change(key, parameter)) for key, parameter in space.keyed)
    return [f"{key}: {change}" for key, change in changes if change]


def _export_change(key: str, parameter: Parameter) -> str:
    ours, values = parameter.distribution, ()
    if isinstance(ours, Categorical):
        values = ours.values
    changes = {
        f"{ours.kind} becomes uniform": not isinstance(ours, _KNOWN),
        "the step is lost": isinstance(ours, LogUniform | LogIntUniform) and ours.q,
        "Optuna stores it as an unordered list": isinstance(ours, Pow2 | Ordinal),
        "Optuna stores lists as JSON text": any(
            not isinstance(value, _SCALAR) for value in values
        ),
        "Optuna trials omit the value 0": _zero_is_outside(ours),
        "one of several distributions for this name": "#" in key,
    }
    return ", ".join(words for words, applies in changes.items() if applies)


_KNOWN = (Uniform, LogUniform, IntUniform, LogIntUniform, Pow2, Categorical, Ordinal)


def _zero_is_outside(ours: Distribution) -> bool:
    if not ours.zero or isinstance(ours, Pow2):
        return False
    low, high = _range_bounds(ours)
    return not low <= 0 <= high


def _range_bounds(ours: Distribution) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a range, ignoring an extra zero."""
    if isinstance(ours, Normal):
        return ours.bounds
    own = dataclasses.replace(ours, zero=0.0).ends()
    return min(own), max(own)


def _plain_choice(value: Any) -> Any:
    if isinstance(value, _SCALAR):
        return value
    return json.dumps(value)


def _value_distribution(ours: Distribution) -> BaseDistribution:
    if isinstance(ours, Categorical | Ordinal):
        return CategoricalDistribution([_plain_choice(value) for value in ours.values])
    if isinstance(ours, Pow2):
        return CategoricalDistribution(list(ours.grid(64)))
    low, high = _range_bounds(ours)
    if isinstance(ours, LogIntUniform):
        return IntDistribution(int(low), int(high), log=True)
    if isinstance(ours, IntUniform):
        return IntDistribution(int(low), int(high), step=int(ours.q or 1))
    if isinstance(ours, LogUniform):
        return FloatDistribution(float(low), float(high), log=True)
    step = None
    if isinstance(ours, Uniform):
        step = ours.q
    return FloatDistribution(float(low), float(high), step=step)


def suggest(trial: BaseTrial, space: Space) -> dict[str, Any]:
    """Suggest a configuration for a trial: active parameters only; rules are not checked."""

    def choose(key: str, parameter: Parameter) -> Any:
        return parameter.distribution.outward(
            _suggest_position(trial, key, parameter.distribution.axis)
        )

    return space.resolve(choose)


def internal_params(
    space: Space, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return the arguments of `optuna.trial.create_trial` for a configuration of the space."""
    active = {key: (one.distribution, value) for key, one, value in space.active(params)}
    values = {key: ours.inward(value) for key, (ours, value) in active.items()}
    return values, {key: _on_axis(ours.axis) for key, (ours, _) in active.items()}


def from_internal(space: Space, positions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration for Optuna's stored positions (`trial.params`)."""
    return space.resolve(lambda key, parameter: parameter.distribution.outward(positions[key]))


def _on_axis(axis: Axis) -> BaseDistribution:
    if axis.kind == "choice":
        return CategoricalDistribution(tuple(range(int(axis.high) + 1)))
    if axis.kind == "integer":
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _suggest_position(trial: BaseTrial, key: str, axis: Axis) -> float | int:
    if axis.kind == "choice":
        return trial.suggest_categorical(key, tuple(range(int(axis.high) + 1)))
    if axis.kind == "integer":
        return trial.suggest_int(key, int(axis.low), int(axis.high), log=axis.log)
    return trial.suggest_float(key, axis.low, axis.high, log=axis.log)
