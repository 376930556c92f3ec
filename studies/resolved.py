"""Resolved studies (all defaults filled in, amounts as numbers), and their hashes and changes.

Loading a resolved study gives a study with the same resolved form, and studies with equal resolved
forms are equal. Hyperparameters whose defaults have changed are always included.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from ..files.plain_data import as_lists, is_mapping, is_sequence, shortened
from ..knobs import AVERAGE_REWARD, DEFAULTS_OF_OLD, KNOBS
from ..spaces.space import Parameter, Space
from .execution_spec import Executor
from .field import keys_of
from .search_spec import Confirm, EarlyTerminate, SearchSpec
from .spec import Study
from .stopping_rules import foreign_keys
from .study_environments import environments_of
from .study_keys import DRIVEN_KEYS, EXECUTOR_KEYS, SEARCHER_KEYS, TOP
from .train_study import LENGTH_KEYS, why_not_longer
from .yaml_io import recorded_data, to_yaml

ABSENT = "absent"


@dataclass(frozen=True)
class ChangedKey:
    """One key that differs between the recorded study and the given one."""

    key: str  # path of keys, separated by dots
    old: Any  # or `absent`
    new: Any
    allowed: bool  # whether resuming is possible
    why: str = ""

    def __str__(self) -> str:
        text = f"{self.key}: {_short_text(self.old)} -> {_short_text(self.new)}"
        if self.why:
            text += f" ({self.why})"
        return text


def resolved(study: Study) -> dict[str, Any]:
    space = study.space
    special: dict[str, Any] = {
        "env": _environments_data(study),
        "fixed": dict(sorted({**_unset_changed_defaults(study), **study.fixed}.items())),
        "space": _space_data(space),
        "forbid": [rule.as_data() for rule in space.forbid],
        "eval_env": dict(sorted(study.evaluation.env.items())),
        "loggers": [{"type": logger.type, **logger.options} for logger in study.loggers],
    }
    if not study.algorithm.is_ppo:
        special["algorithm"] = study.algorithm.as_data()
    written, left_out = {**_section_data(study), **special}, _left_out(study)
    order = [field.key for field in TOP]
    data = {key: written[key] for key in order if key in written and key not in left_out}
    return as_lists(data)


def _unset_changed_defaults(study: Study) -> dict[str, Any]:
    """Return PPO hyperparameters whose defaults have changed and that the study does not set."""
    if not study.algorithm.is_ppo:
        return {}
    said = {*study.fixed, *study.space.names, *study.space.constants}
    return {name: KNOBS[name].default for name in DEFAULTS_OF_OLD if name not in said}


def _space_data(space: Space) -> dict[str, Any]:
    """Return the distributions by parameter name; several branches become a list."""
    branches: dict[str, list[Any]] = {name: [] for name in space.names}
    for parameter in space.parameters:
        branches[parameter.name].append(_parameter_data(parameter))
    return {name: _one_or_list(entries) for name, entries in branches.items()}


def _one_or_list(entries: list[Any]) -> Any:
    if len(entries) == 1:
        return entries[0]
    return entries


def _left_out(study: Study) -> set[str]:
    """Return the keys that do not apply to this study."""
    is_said = {
        "metric": not study.objectives,
        "objectives": bool(study.objectives),
        "algorithm": not study.algorithm.is_ppo,
        "over_environments": bool(study.more_envs),
        "constraints": bool(study.constraints),
    }
    return {key for key, said in is_said.items() if not said}


def _section_data(section: Any) -> dict[str, Any]:
    """Return a section as in a file; some keys appear only if they differ from their defaults."""
    data: dict[str, Any] = {}
    for field in keys_of(section.__class__):
        value = getattr(section, field.target, None)
        if field.late and value == field.default:
            continue
        if value is None and "auto" in field.words:
            value = "auto"
        data[field.key] = _plain_data(value)
    if isinstance(section, SearchSpec):
        others = ("driver", *DRIVEN_KEYS)
        if section.driver == "ray_tune":
            others = SEARCHER_KEYS
        return {key: value for key, value in data.items() if key not in others}
    if isinstance(section, Executor):
        return {key: data[key] for key in EXECUTOR_KEYS[section.type] if key in data}
    return data


def _plain_data(value: Any) -> Any:
    # without the keys of other rules, and without `pause: 0`
    if isinstance(value, EarlyTerminate):
        others = {"options", *foreign_keys(value.type)}
        if not value.pause:
            others.add("pause")
        own = {key: one for key, one in asdict(value).items() if key not in others}
        return {**own, **value.options}
    if isinstance(value, Confirm) and value.also:
        return {**_section_data(value), "also": {str(trial): seeds for trial, seeds in value.also}}
    if is_dataclass(value) and not isinstance(value, type):
        return _section_data(value)
    if is_sequence(value):
        return [_plain_data(item) for item in value]
    return value


def as_recorded(text: str, shown: str = "study.resolved.yaml") -> dict[str, Any]:
    """Return a recorded study as data, with the defaults that were valid when it ran.

    >>> as_recorded("{fixed: {learning_rate: 0.01}, space: {}}")["fixed"]
    {'learning_rate': 0.01, 'normalise_rewards': False}
    """
    data = recorded_data(text, shown)
    fixed = {**dict(defaults_of_old(data)), **data.get("fixed", {}), **meanings_of_old(data)}
    data["fixed"] = dict(sorted(fixed.items()))
    if searched := _searched_of_old(data):
        data["space"][AVERAGE_REWARD] |= searched
    if lanes := lanes_of_old(data):
        data["population"] |= lanes
    for metric in (data.get("metric", {}), *data.get("objectives", ())):
        # records from 2026-11-27 and 28 contain this default
        if metric.get("training_weight") == 0.0:
            del metric["training_weight"]
    return data


def defaults_of_old(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return (name, former default) for each hyperparameter that a recorded study omits."""
    if data.get("algorithm"):
        return []
    said = {*(data.get("fixed") or ()), *(data.get("space") or ())}
    return [(name, value) for name, value in DEFAULTS_OF_OLD.items() if name not in said]


def meanings_of_old(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's fixed values whose meaning has changed, in their current form.

    With `reward_centering`, `average_reward_initial: 0` used to mean the first rollout's mean.
    """
    fixed: Mapping[str, Any] = data.get("fixed") or {}
    if fixed.get(AVERAGE_REWARD) == 0 and _centres_of_old(data):
        return {AVERAGE_REWARD: None}
    return {}


def _searched_of_old(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's searched values whose meaning has changed, in their current form."""
    space: Mapping[str, Any] = data.get("space") or {}
    given: Any = space.get(AVERAGE_REWARD)
    if not (_centres_of_old(data) and is_mapping(given) and 0 in given.get("values", ())):
        return {}
    values = [value or None for value in given["values"]]
    return {"values": values, "default": given.get("default") or None}


def _centres_of_old(data: Mapping[str, Any]) -> bool:
    """Return whether a record uses reward centring and predates the literal reading of 0."""
    said: dict[str, Any] = {**(data.get("space") or {}), **(data.get("fixed") or {})}
    return bool(lanes_of_old(data)) and bool(said.get("reward_centering"))


def lanes_of_old(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the `population` keys that old records lack; their tiles always fitted the lanes."""
    population: dict[str, Any] = data.get("population") or {}
    if not population or "tiles" in population:
        return {}
    return {"tiles": "narrow"}


def _environments_data(study: Study) -> Any:
    written: list[dict[str, Any]] = []
    for one in environments_of(study):
        written.append({"id": one.id, **dict(sorted(one.values.items()))})
        if study.more_envs and one.scale is not None:
            scores = {"random": one.scale.random, "reference": one.scale.reference}
            written[-1]["scores"] = scores
    return _one_or_list(written)


def resolved_yaml(study: Study) -> str:
    return f"# Every default written out. hash: {study_hash(study)}\n{to_yaml(resolved(study))}"


def study_hash(study: Study) -> str:
    """Return a hash of 16 hex digits that is equal for equal studies."""
    text = json.dumps(resolved(study), separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[ChangedKey]:
    """Compare two resolved studies; resuming is possible if every change is allowed."""
    before, after = _flatten_keys(old), _flatten_keys(new)
    changes: list[ChangedKey] = []
    for key in dict.fromkeys([*before, *after]):
        one, other = before.get(key, ABSENT), after.get(key, ABSENT)
        same = one == other and isinstance(one, bool) == isinstance(other, bool)
        if same or (key in _RESOLVED_BY_RULE and other == "auto"):
            continue
        why = _rule_of(key)(_Changed(key, one, other, old, new))
        changes.append(ChangedKey(key, one, other, not why, why))
    orders = [list(data.get("space", {})) for data in (old, new)]
    if orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]):
        why = "the order of parameters determines the samples"
        changes.append(ChangedKey("space (order)", orders[0], orders[1], False, why))
    return changes


@dataclass(frozen=True)
class _Changed:
    """A key that differs between two resolved studies."""

    key: str
    old: Any  # or `absent`
    new: Any
    before: Mapping[str, Any]  # the two studies
    after: Mapping[str, Any]


def _is_free(changed: _Changed) -> str:
    return ""


def _only_grows(changed: _Changed) -> str:
    old, new = changed.old, changed.new
    if new is None or (old is not None and old != ABSENT and new >= old):
        return ""
    return "a budget can only be raised"


def _only_longer(changed: _Changed) -> str:
    return why_not_longer(changed.before, changed.after)


def _as_declared(changed: _Changed) -> str:
    return "the class declaration has changed since the study started; undo the change"


def _is_fixed(changed: _Changed) -> str:
    return "fixed once a study has started"


def _free_for_processes(changed: _Changed) -> str:
    """Return why an executor may not change; "" for a command, which runs the same everywhere."""
    if "command" in changed.after:
        return ""
    return _is_fixed(changed)


def _keeps_value(changed: _Changed) -> str:
    """Return why a hyperparameter may not change, and the value to set if its meaning changed."""
    section, _, rest = changed.key.partition(".")
    name, old, new = rest.removesuffix(".default"), changed.old, changed.new
    moved = name in DEFAULTS_OF_OLD and (old, new) == (DEFAULTS_OF_OLD[name], KNOBS[name].default)
    if moved:
        value = _short_text(old)
        text = "the default has changed since the study started; to resume, give "
        return f"{text}{value} under {section}"
    if name.partition(".")[0] == AVERAGE_REWARD and _has_zero(new):
        text = "0 meant the average of the first rollout when the study started; to resume, set"
        return f"{text} it to off under {section}"
    # integer bounds of a real-valued hyperparameter, as they were and are read
    kinds = ("int_uniform", "uniform")
    if section == "space" and rest.endswith(".distribution") and (old, new) == kinds:
        return (
            "integer bounds of a real-valued knob now mean real values; to resume, use int_uniform"
        )
    return _is_fixed(changed)


RESUMING: Mapping[str, Callable[[_Changed], str]] = {
    "loggers": _is_free,
    "confirm": _is_free,
    "checkpoint": _is_free,
    "baselines": _is_free,
    "name": _is_free,
    "population.workers": _is_free,
    "population.step_timeout": _is_free,
    "executor": _free_for_processes,
    "executor.address": _is_free,
    "executor.cpus": _is_free,
    "processes.gpus": _is_free,
    "processes.threads": _is_free,
    "processes.timeout": _is_free,
    "processes.grace": _is_free,
    "budget": _only_grows,
    **dict.fromkeys(LENGTH_KEYS, _only_longer),
    "algorithm.hyperparameters": _as_declared,
    "fixed": _keeps_value,
    "space": _keeps_value,
}
"""A key or its section -> why it may not change when a study is resumed; "" if it may.

All other keys are fixed. A larger `budget` and another `confirm` reopen a finished study
(`LoopState.reopens`); more `env_steps` extend its runs (`search.engine.extend_run`).
"""
_RESOLVED_BY_RULE = ("population.lanes", "population.device")
"""Keys that may become `auto`: the study keeps its value."""


def _rule_of(key: str) -> Callable[[_Changed], str]:
    """Return the rule for a key, or for the nearest enclosing section that has one."""
    while key:
        if key in RESUMING:
            return RESUMING[key]
        key = key.rpartition(".")[0]
    return _is_fixed


def _has_zero(value: Any) -> bool:
    return value == 0 or (is_sequence(value) and 0 in value)


def _parameter_data(parameter: Parameter) -> dict[str, Any]:
    data = {**parameter.distribution.as_mapping(), "default": parameter.default}
    if parameter.when:
        data["when"] = {condition.name: list(condition.values) for condition in parameter.when}
    return data


def _flatten_keys(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if is_mapping(value) and value:
            flat.update(_flatten_keys(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _short_text(value: Any) -> str:
    if value is None:
        return "null"
    return shortened(str(value))
