"""A study written out in full: every default, every amount a number; its hash and its changes.

The written form loads to a study of the same form, and two studies are the same when their forms
are. Knobs whose defaults were others once stand in it even where the study leaves them alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..files.plain_data import as_lists, is_mapping
from ..knobs import DEFAULTS_OF_OLD, KNOBS
from ..spaces.space import Parameter, Space
from .several_environments import environments_of
from .spec import Checkpoint, Confirm, EarlyTerminate, Executor, SearchSpec, Study
from .stopping_rules import foreign_keys
from .study_keys import DRIVEN_KEYS, SEARCHER_KEYS
from .train_study import LENGTH_KEYS, why_not_longer
from .yaml_io import plain, read_text, to_yaml

_MAY_CHANGE = ("loggers", "confirm", "checkpoint", "baselines")
_CHANGES_NO_RESULT = (
    "population.workers",
    "population.step_timeout",
    "executor.address",
    "executor.cpus",
)
_RESOLVED_BY_RULE = ("population.lanes", "population.device")
_ABSENT = "absent"


@dataclass(frozen=True)
class Change:
    """One key that differs between the study that ran and the one given now.

    Attributes:
        key: its path, joined by dots.
        old: what it was; `absent` if it was not there.
        new: what it is.
        allowed: a resume is possible in spite of it.
        why: what keeps it from being allowed, else "".
    """

    key: str
    old: Any
    new: Any
    allowed: bool
    why: str = ""

    def __str__(self) -> str:
        reason = f" ({self.why})" if self.why else ""
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}{reason}"


def resolved(study: Study) -> dict[str, Any]:
    """Return the study as the data of a file, nothing left out."""
    evaluation = asdict(study.evaluation)
    eval_env = evaluation.pop("env")
    population = asdict(study.population)
    for key in ("lanes", "workers"):
        population[key] = "auto" if population[key] is None else population[key]
    if population["step_timeout"] is None:  # as in studies from before there was such a limit
        del population["step_timeout"]
    budget = asdict(study.budget)
    early, confirm, init = study.early_terminate, study.confirm, study.init
    data = {
        "name": study.name,
        "seed": study.seed,
        "imports": list(study.imports),
        "env": _environments(study),
        **({"over_environments": study.over_environments} if study.more_envs else {}),
        "env_steps": study.env_steps,
        **_horizon(study),
        "fixed": _by_key({**_unsaid(study), **study.fixed}),
        "space": _space(study.space),
        "forbid": [rule.as_data() for rule in study.space.forbid],
        "enqueue": [dict(entry) for entry in study.enqueue],
        **_what_is_optimised(study),
        "evaluation": evaluation,
        "eval_env": _by_key(eval_env),
        "baselines": list(study.baselines),
        "search": _search(study.search),
        "early_terminate": None if early is None else _early(early),
        "seeds": asdict(study.seeds),
        "confirm": None if confirm is None else _confirm(confirm),
        "population": population,
        "budget": {"wall" if k == "wall_seconds" else k: v for k, v in budget.items()},
        "executor": _executor(study.executor),
        "checkpoint": _checkpoint(study.checkpoint),
        "init": None if init is None else _from(asdict(init)),
        **({} if study.log_every is None else {"log_every": study.log_every}),
        "loggers": [{"type": logger.type, **logger.options} for logger in study.loggers],
    }
    return as_lists(data)


def _unsaid(study: Study) -> dict[str, Any]:
    """Return the knobs that a study leaves to defaults which were others once."""
    said = {*study.fixed, *study.space.names, *study.space.constants}
    return {name: KNOBS[name].default for name in DEFAULTS_OF_OLD if name not in said}


def as_recorded(text: str, shown: str = "study.resolved.yaml") -> dict[str, Any]:
    """Return a recorded study as data, in which what it left to defaults of its day is said.

    >>> as_recorded("{fixed: {learning_rate: 0.01}, space: {}}")["fixed"]
    {'learning_rate': 0.01, 'normalise_rewards': False}
    """
    data = plain(read_text(text, shown))
    data["fixed"] = _by_key({**dict(defaults_of_old(data)), **data.get("fixed", {})})
    return data


def defaults_of_old(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return (knob, default then) of a recorded study that says nothing about the knob."""
    said = {*(data.get("fixed") or ()), *(data.get("space") or ())}
    return [(name, value) for name, value in DEFAULTS_OF_OLD.items() if name not in said]


def _environments(study: Study) -> Any:
    """Return one environment as a mapping, or several as a list, with what scores 0 and 1."""
    written: list[dict[str, Any]] = []
    for one in environments_of(study):
        written.append({"id": one.id, **_by_key(one.values)})
        if study.more_envs and one.scale is not None:
            scores = {"random": one.scale.random, "reference": one.scale.reference}
            written[-1]["scores"] = scores
    return written if study.more_envs else written[0]


def _horizon(study: Study) -> dict[str, Any]:
    """Leave out a horizon that is the length of a run, as it is in every study of old."""
    over = study.schedule_env_steps
    return {} if over is None else {"schedule_env_steps": over}


def _confirm(confirm: Confirm) -> dict[str, Any]:
    """Leave out `also` where no trial is asked for, as in studies of old."""
    data = asdict(confirm)
    also = {str(trial): seeds for trial, seeds in data.pop("also")}
    return {**data, "also": also} if also else data


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """Leave out what is as it was in studies of old, which do not name it."""
    data, usual = asdict(checkpoint), asdict(Checkpoint())
    for key in ("policies_every", "best_of_each"):
        if data[key] == usual[key]:
            del data[key]
    pace = data.pop("commit_seconds")
    return data if pace == Checkpoint().commit_seconds else {**data, "commit_every": pace}


def _what_is_optimised(study: Study) -> dict[str, Any]:
    written: dict[str, Any]
    if study.objectives:
        written = {"objectives": [asdict(metric) for metric in study.objectives]}
    else:
        written = {"metric": asdict(study.metric)}
    if study.constraints:
        written["constraints"] = [asdict(constraint) for constraint in study.constraints]
    return written


def resolved_yaml(study: Study) -> str:
    """Return the text of `study.resolved.yaml`."""
    head = f"# Every default written out. hash: {study_hash(study)}\n"
    return head + to_yaml(resolved(study))


def study_hash(study: Study) -> str:
    """Return 16 hex digits that two studies share when they are equal."""
    text = json.dumps(resolved(study), separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Compare two resolved studies; a resume is possible when every change is allowed.

    Args:
        old: what ran; its `auto` values may have been replaced by what the rules gave.
        new: what is asked for now.
    """
    before, after = _flat(old), _flat(new)
    changes: list[Change] = []
    for key in dict.fromkeys([*before, *after]):
        one, other = before.get(key, _ABSENT), after.get(key, _ABSENT)
        same = one == other and isinstance(one, bool) == isinstance(other, bool)
        if not same and not (key in _RESOLVED_BY_RULE and other == "auto"):
            why = why_not_longer(old, new) if key in LENGTH_KEYS else _why_not(key, one, other)
            changes.append(Change(key, one, other, not why, why))
    orders = [list(data.get("space", {})) for data in (old, new)]
    if orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]):
        why = "the order of parameters decides what is drawn"
        changes.append(Change("space (order)", orders[0], orders[1], False, why))
    return changes


def _why_not(key: str, old: Any, new: Any) -> str:
    section = key.partition(".")[0]
    if section in _MAY_CHANGE or key in _CHANGES_NO_RESULT:
        return ""
    if section != "budget":
        moved = _moved_default(key, old, new) or _moved_kind(key, old, new)
        return moved or "fixed once a study has started"
    grows = new is None or (old is not None and old != _ABSENT and new >= old)
    return "" if grows else "a budget may only grow"


def _moved_default(key: str, old: Any, new: Any) -> str:
    """Return what to type where not the file but a knob's default has changed, else ""."""
    section, _, rest = key.partition(".")
    name = rest.removesuffix(".default")
    known = name in DEFAULTS_OF_OLD and (old, new) == (DEFAULTS_OF_OLD[name], KNOBS[name].default)
    if not known or section not in ("fixed", "space"):
        return ""
    return f"the default has changed since; to go on, type {_shown(old)} for it under {section}"


def _moved_kind(key: str, old: Any, new: Any) -> str:
    """Return what to type where whole bounds of a real number made it whole once, else ""."""
    if not key.startswith("space.") or not key.endswith(".distribution"):
        return ""
    if (old, new) != ("int_uniform", "uniform"):
        return ""
    return "whole bounds of a real number now mean real numbers; to resume, type int_uniform"


def _search(search: SearchSpec) -> dict[str, Any]:
    """Leave out what only the other driver has."""
    others = SEARCHER_KEYS if search.driver == "ray_tune" else ("driver", *DRIVEN_KEYS)
    return {key: value for key, value in asdict(search).items() if key not in others}


def _executor(executor: Executor) -> dict[str, Any]:
    """Leave out what only a cluster has."""
    local = ("type", "workers")
    keys = local if executor.type == "local" else tuple(asdict(executor))
    return {key: value for key, value in asdict(executor).items() if key in keys}


def _early(early: EarlyTerminate) -> dict[str, Any]:
    """Leave out the keys that a rule of this kind does not have, and `pause` where it is off."""
    others = ("options", *foreign_keys(early.type), *(() if early.pause else ("pause",)))
    own = {key: value for key, value in asdict(early).items() if key not in others}
    return {**own, **early.options}


def _from(init: dict[str, Any]) -> dict[str, Any]:
    return {"from" if key == "folder" else key: value for key, value in init.items()}


def _space(space: Space) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for name in space.names:
        branches = [_parameter(p) for p in space.parameters if p.name == name]
        written[name] = branches[0] if len(branches) == 1 else branches
    return written


def _parameter(parameter: Parameter) -> dict[str, Any]:
    data = {**parameter.distribution.as_mapping(), "default": parameter.default}
    if parameter.when:
        data["when"] = {condition.name: list(condition.values) for condition in parameter.when}
    return data


def _by_key(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: values[key] for key in sorted(values)}


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if is_mapping(value) and value:
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _shown(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
