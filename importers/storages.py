"""Spaces and studies that other libraries store: ConfigSpace's files, Optuna's storages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..files.plain_data import is_list, is_number
from ..spaces.forbid import ValueRule
from ..spaces.space import Parameter, Space
from ..spaces.via_configspace import read_configspace
from .convert import add_defaults, begin, leave_out_asked
from .converted_study import Draft, Source
from .formats import plain_value, read_word
from .name_mapping import NoCounterpart

_NO_NAMES = ("env", "system", "without", "metric", "name")
_BEST = 10


def _begin(draft: Draft, names: Iterable[str], given: Mapping[str, Any]) -> Source:
    """Recognise a space's system, and name the environment, which decides what names mean."""
    flags = {name: value for name, value in given.items() if name not in _NO_NAMES}
    source = Source(flags, {name: {} for name in names})
    begin(draft, source, given)
    draft.silent |= {row.name for row in draft.system.rows if row.target in ("env", "seed")}
    if "env" in given:
        draft.constant("env", given["env"])
    leave_out_asked(draft, source)
    return source


# -------------------------------------------------------------------------- ConfigSpace


def read_space(path: Path, given: Mapping[str, Any]) -> Draft:
    from ..spaces.via_configspace import from_configspace

    draft = Draft(str(path))
    space = from_configspace(read_configspace(path))
    source = _begin(draft, space.names, given)
    wanted = [parameter for parameter in space.parameters if parameter.name in source.searched]
    names = {parameter.name: draft.target(parameter.name) for parameter in wanted}
    for parameter in wanted:
        _add_parameter(draft, parameter, names)
    draft.rest["forbid"] = _rules(draft, space, names)
    add_defaults(draft, source)
    return draft


def _add_parameter(draft: Draft, parameter: Parameter, names: Mapping[str, str | None]) -> None:
    distribution = parameter.distribution.as_mapping()
    values = distribution.get("values")
    if values is not None and len(values) == 1 and not parameter.when:
        draft.constant(parameter.name, values[0])
        return
    if values is not None:
        distribution.pop("distribution", None)
    distribution["default"] = parameter.default
    when: dict[str, Any] = {}
    for condition in parameter.when:
        ours = names.get(condition.name)
        if ours is None:
            words = f"{parameter.name} depends on {condition.name}"
            raise ConfigError(f"{words}, which has no counterpart here")
        when[ours] = _ours(draft, condition.name, condition.values)
    draft.searched(parameter.name, distribution | ({"when": when} if when else {}))


def _rules(draft: Draft, space: Space, names: Mapping[str, str | None]) -> list[Any]:
    rules: list[Any] = []
    for rule in space.forbid:
        lost = [name for name in rule.names if names.get(name) is None]
        if lost:
            raise ConfigError(f"the rule {rule} names {lost[0]!r}, which has no counterpart here")
        if isinstance(rule, ValueRule):
            rules.append({names[name]: _ours(draft, name, values) for name, values in rule.wanted})
        elif any(names[name] != name for name in rule.names):
            raise ConfigError(f"the rule {rule} names hyperparameters with other names here")
        else:
            rules.append(rule.as_data())
    return rules


def _ours(draft: Draft, name: str, values: Iterable[Any]) -> list[Any]:
    row = draft.row(name)
    if row is None:
        return list(values)
    found = list[Any]()
    for value in values:
        try:
            ours = row.settings(read_word(value))
        except NoCounterpart as reason:
            raise ConfigError(f"a condition or rule names {name} {value!r}: {reason}") from None
        found.append(plain_value(row.target, ours.get(row.target)))
    return found


# ------------------------------------------------------------------------------- Optuna


def read_storage(storage: str, name: str | None, given: Mapping[str, Any]) -> Draft:
    """Read a study from Optuna's storage; its ten best trials are enqueued."""
    from ..spaces.via_optuna import read_study

    theirs = read_study(storage, name)
    if len(theirs.directions) != 1:
        count = f"{len(theirs.directions)} objectives"
        raise ConfigError(f"{storage}: {theirs.name!r} has {count}; a study is imported with one")
    draft = Draft(f"{storage} ({theirs.name})")
    ours = {"system": "none"} if theirs.exported else {}
    rest = {name: value for name, value in given.items() if name != "env"}
    source = _begin(draft, theirs.space, {**ours, **rest})
    _add_constants(draft, theirs.exported, given)
    for parameter in source.searched:
        fields = theirs.space[parameter]
        if len(fields.get("values", ())) == 1:
            draft.constant(parameter, fields["values"][0])
        else:
            draft.searched(parameter, fields)
        if parameter in theirs.sometimes:
            draft.note(f"{parameter}: only some trials had it; here all do, or add a `when`")
        if parameter in theirs.changed:
            draft.note(f"{parameter}: its range changed from {theirs.changed[parameter]} to "
                       "the last one, which is taken")  # fmt: skip
    add_defaults(draft, source)
    _set_metric(draft, theirs.directions[0], theirs.metrics, given)
    _enqueue(draft, theirs.trials, -1.0 if theirs.directions[0] == "maximize" else 1.0)
    draft.section("search")["method"] = "tpe"
    return draft


def _add_constants(draft: Draft, exported: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Put the given environment, and the constants of a study that we exported."""
    env = exported.get("env", {})
    if "env" in given:
        draft.constant("env", given["env"])
    elif is_list(env):
        names = ", ".join(str(one["id"]) for one in env)
        text = f"its trials were scored over {names}; an imported study has one of them: name it"
        raise draft.fault(text, flags={"env": env[0]["id"], "metric": "eval/return_mean"})
    elif "id" in env:
        draft.constant("env", env["id"])
        draft.env.update({key: value for key, value in env.items() if key != "id"})
        draft.rest["env_steps"] = exported["env_steps"]
    for name, value in exported.get("fixed", {}).items():
        draft.constant(name, value)


def _set_metric(
    draft: Draft, goal: str, metrics: tuple[str, ...], given: Mapping[str, Any]
) -> None:
    if goal not in ("minimize", "maximize"):
        raise draft.fault("it has no direction")
    named = metrics[0] if metrics and metrics[0].startswith("eval/") else None
    if "metric" not in given and named is None and goal == "minimize":
        text = "it minimises a metric without a name; name it, such as "
        text += "eval/service_blocking_probability; for returns, which are maximised"
        raise draft.fault(text, flags={"metric": "eval/return_mean", "metric.goal": "maximize"})
    name = str(given.get("metric", named or "eval/return_mean"))
    draft.rest["metric"] = {"name": name, "goal": goal}
    if "metric" not in given and named is None:
        draft.note("metric: Optuna names none; eval/return_mean is ours")


def _enqueue(draft: Draft, trials: Iterable[Any], sign: float) -> None:
    finite = [one for one in trials if math.isfinite(one[1][0])]
    total = len(list(trials))
    best = sorted(finite, key=lambda trial: sign * trial[1][0])[:_BEST]
    tried = [_configuration(draft, params) for params, _ in best]
    draft.rest["enqueue"] = [config for config in tried if config is not None]
    if best:
        draft.note(f"enqueue: its {len(best)} best of {total} finished trials")
    if total > len(finite):
        draft.note(f"enqueue: {total - len(finite)} trials with an infinite value are skipped")
    if None in tried:
        draft.note(f"enqueue: {tried.count(None)} of them left out, whose values the space lacks")


def _configuration(draft: Draft, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a trial's configuration in our names and values; None if the space lacks one."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        row = draft.row(name)
        if row is None or row.fate != "taken" or name in draft.without:
            continue
        try:
            settings = row.settings(read_word(value))
        except NoCounterpart:
            return None
        for target, one in settings.items():
            if target in draft.space:
                found[target] = plain_value(target, one)
    inside = all(_contains(draft.space[name], value) for name, value in found.items())
    return found if inside else None


def _contains(fields: Mapping[str, Any], value: Any) -> bool:
    if "values" in fields:
        return value in fields["values"]
    if "min" not in fields or not is_number(value):
        return True
    room = 1e-9 * (fields["max"] - fields["min"])
    return fields["min"] - room <= value <= fields["max"] + room
