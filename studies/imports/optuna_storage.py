"""Studies of Optuna as studies of ours: the same space, their best trials tried first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...elsewhere import Settings
from ...elsewhere.values import NoCounterpart
from ...errors import ConfigError
from ...plain_data import is_list
from ...spaces.from_optuna import OptunaStudy, read_study
from .draft import Draft
from .ranges import plain_value
from .spaces import begin
from .take import settle

__all__ = ["read_storage"]

_BEST = 10


def read_storage(storage: str, name: str | None, given: Mapping[str, Any]) -> Draft:
    """Read a study from Optuna's storage; its ten best trials are enqueued.

    Raises:
        ConfigError: no such study, several objectives, or an objective we cannot name.
    """
    theirs = read_study(storage, name)
    if len(theirs.directions) != 1:
        raise ConfigError(f"{storage}: {theirs.name!r} has {len(theirs.directions)} objectives; "
                          "a study is imported with one")  # fmt: skip
    draft = Draft(f"{storage} ({theirs.name})")
    ours = {"system": "none"} if theirs.exported else {}
    source = begin(draft, theirs.space, {**ours, **{k: v for k, v in given.items() if k != "env"}})
    _constants(draft, theirs, given)
    for parameter, fields in theirs.space.items():
        if len(fields.get("values", ())) == 1:
            draft.constant(parameter, _list_of(fields["values"][0]))
        else:
            draft.searched(parameter, _with_lists(fields))
        if parameter in theirs.sometimes:
            draft.note(f"{parameter}: only some trials had it; here all do, or add a `when`")
    settle(draft, source)
    _objective(draft, theirs, given)
    _enqueue(draft, theirs)
    draft.section("search")["method"] = "tpe"
    return draft


def _constants(draft: Draft, theirs: OptunaStudy, given: Mapping[str, Any]) -> None:
    """Put what is not searched: the environment given, and what a study of ours was begun with."""
    env = theirs.exported.get("env", {})
    if "env" in given:
        draft.constant("env", given["env"])
    elif is_list(env):
        names = ", ".join(str(one["id"]) for one in env)
        raise ConfigError(
            f"{draft.source}: its trials were scored over {len(env)} environments ({names}); "
            "`hpo import` makes a study of one: name it, as in --env "
            f"{env[0]['id']} -- --metric eval/return_mean"
        )
    elif "id" in env:
        draft.constant("env", env["id"])
        draft.env.update({key: value for key, value in env.items() if key != "id"})
        draft.rest["env_steps"] = theirs.exported["env_steps"]
    for name, value in theirs.exported.get("fixed", {}).items():
        draft.constant(name, value)


def _with_lists(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a distribution whose values may be lists, which Optuna keeps as JSON texts."""
    if "values" not in fields:
        return dict(fields)
    return {**fields, "values": [_list_of(value) for value in fields["values"]]}


def _list_of(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith("["):
        return value
    try:
        found = json.loads(value)
    except json.JSONDecodeError:  # a text that only begins like a list
        return value
    return found if is_list(found) else value


def _objective(draft: Draft, theirs: OptunaStudy, given: Mapping[str, Any]) -> None:
    goal = theirs.directions[0]
    if goal not in ("minimize", "maximize"):
        raise ConfigError(f"{draft.source}: it has no direction")
    named = theirs.metrics[0] if theirs.metrics and theirs.metrics[0].startswith("eval/") else None
    if "metric" not in given and named is None and goal == "minimize":
        raise ConfigError(
            f"{draft.source}: it minimises what Optuna has no name for; say which metric is "
            "meant, such as -- --metric eval/service_blocking_probability"
        )
    name = str(given.get("metric", named or "eval/return_mean"))
    draft.rest["metric"] = {"name": name, "goal": goal}
    if "metric" not in given and named is None:
        draft.note("metric: Optuna names none; eval/return_mean is ours")


def _enqueue(draft: Draft, theirs: OptunaStudy) -> None:
    sign = -1.0 if theirs.directions[0] == "maximize" else 1.0
    best = sorted(theirs.trials, key=lambda trial: sign * trial[1][0])[:_BEST]
    tried = [_ours(draft, params) for params, _ in best]
    draft.rest["enqueue"] = [config for config in tried if config is not None]
    if best:
        draft.note(f"enqueue: its {len(best)} best of {len(theirs.trials)} finished trials")
    if None in tried:
        draft.note(
            f"enqueue: {tried.count(None)} of them left out, as the space has not all their values"
        )


def _ours(draft: Draft, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a trial's configuration in our names and values; None if the space lacks one."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        row = draft.row(name)
        if row is None or row.fate != "taken":
            continue
        try:
            ours = row.values.of(_list_of(value))
        except NoCounterpart:
            return None
        settings = ours if isinstance(ours, Settings) else {row.target: ours}
        for target, one in settings.items():
            if target in draft.space:
                found[target] = plain_value(target, one)
    listed = {name: draft.space[name].get("values") for name in found}
    inside = all(values is None or found[name] in values for name, values in listed.items())
    return found if inside else None
