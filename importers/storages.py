"""Reads spaces and studies saved by other libraries: ConfigSpace files and Optuna storages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, counted
from ..files.plain_data import is_dict, is_list, is_number
from ..foreign_names.name_mapping import NoCounterpart
from ..knobs import KNOBS
from ..spaces.forbid import ValueRule
from ..spaces.make import make_distribution
from ..spaces.space import Parameter, Space
from ..spaces.via_configspace import read_configspace
from ..store.pareto import scores
from .convert import add_defaults, begin, leave_out_asked, named_env, names_given, unset_defaults
from .converted_study import ConvertedStudy, ImportSource
from .formats import is_in_range, plain_value, read_word
from .lost_names import ask_about_the_system, refuse_lost

if TYPE_CHECKING:  # it imports Optuna
    from ..spaces.via_optuna import OptunaStudy, OptunaTrial

_BEST = 10
_LISTED = 8  # values that replace a range
_NOT_EXPORTED = ("name", "env", "fixed", "space", "enqueue", "population", "executor",
                 "checkpoint", "loggers")  # fmt: skip
"""Keys of a study that are not exported: an import sets them, or they concern a single run."""


def _begin_draft(
    draft: ConvertedStudy, searched: Mapping[str, Any], given: Mapping[str, Any]
) -> ImportSource:
    """Recognise a space's system, and set the environment, which affects the meaning of names."""
    flags = names_given(given)
    flags.pop("env", None)
    source = ImportSource(flags, dict(searched))
    begin(draft, source, given)
    draft.read = list(source.searched)
    draft.silent |= {row.name for row in draft.system.rows if row.target in ("env", "seed")}
    for name in named_env(draft, given):
        draft.constant(name, given[name])
    _drop_given(draft, source, flags)
    leave_out_asked(draft, source)
    draft.sought = set(source.searched)
    return source


def _drop_given(draft: ConvertedStudy, source: ImportSource, given: Mapping[str, Any]) -> None:
    """Drop searched names for which the user gives a value under any alias."""
    rows = {name: draft.row(name) for name in (*given, *source.searched)}
    targets = {rows[name].target: name for name in given if rows[name] is not None}  # pyright: ignore
    for name in tuple(source.searched):
        row, by = rows[name], None
        if name in given:
            by = name
        elif row and row.target:
            by = targets.get(row.target)
        if by is None:
            continue
        del source.searched[name]
        draft.read.remove(name)
        if by != name:
            draft.leave_out(name, f"{by} is given")


# -------------------------------------------------------------------------- ConfigSpace


def read_space(path: Path, given: Mapping[str, Any]) -> ConvertedStudy:
    from ..spaces.via_configspace import from_configspace

    draft = ConvertedStudy(str(path))
    space = from_configspace(read_configspace(path))
    source = _begin_draft(draft, {name: {} for name in space.names}, given)
    switches = _unknown_switches(draft, space, source)
    for name in switches:
        source.drop(name)
        draft.sought.discard(name)
    ask_about_the_system(draft, source, given)
    refuse_lost(draft, source)
    wanted = [parameter for parameter in space.parameters if parameter.name in source.searched]
    names = {parameter.name: draft.target(parameter.name) for parameter in wanted}
    for parameter in wanted:
        kept = tuple(one for one in parameter.when if one.name not in switches)
        _add_parameter(draft, replace(parameter, when=kept), names)
    for name, switch in switches.items():
        draft.taken[name] = []
        _add_off(draft, switch)
    draft.rest["forbid"] = _translate_rules(draft, space, names)
    add_defaults(draft, source)
    return draft


@dataclass(frozen=True)
class _Switch:
    """A parameter with two values that does nothing but switch one hyperparameter on or off."""

    parameter: Parameter
    child: Parameter  # the parameter that it switches off

    @property
    def on(self) -> tuple[Any, ...]:
        """The parameter's values at which the other parameter is active."""
        return next(one.values for one in self.child.when if one.name == self.parameter.name)


def _unknown_switches(
    draft: ConvertedStudy, space: Space, source: ImportSource
) -> dict[str, _Switch]:
    """Return the unknown parameters that are switches, by name."""
    found = dict[str, _Switch]()
    for parameter in space.parameters:
        name = parameter.name
        if name not in source.searched or draft.row(name) is not None or parameter.when:
            continue
        switch = _switch_of(parameter, space)
        if switch is not None and _can_be_off(draft.target(switch.child.name)):
            found[name] = switch
    return found


def _switch_of(parameter: Parameter, space: Space) -> _Switch | None:
    """Return a parameter as a switch if one of its two values activates exactly one parameter."""
    values = parameter.distribution.as_mapping().get("values", ())
    children = [one for one in space.parameters if _depends_on(one, parameter.name)]
    if len(values) != 2 or len(children) != 1:
        return None
    switch = _Switch(parameter, children[0])
    if len(switch.on) != 1:
        return None
    return switch


def _depends_on(parameter: Parameter, name: str) -> bool:
    return any(condition.name == name for condition in parameter.when)


def _can_be_off(target: str | None) -> bool:
    return target is not None and target in KNOBS and KNOBS[target].off


def _add_off(draft: ConvertedStudy, switch: _Switch) -> None:
    """List `off` among a hyperparameter's values, in place of its switch."""
    target = draft.target(switch.child.name) or ""
    fields = draft.space.get(target)
    if fields is None:
        return
    default = fields.get("default")
    values, how = fields.get("values"), ""
    if values is None:
        plain = {key: one for key, one in fields.items() if key not in ("default", "when")}
        values = set(make_distribution(plain).grid(_LISTED))
        if default is not None:
            values.add(default)
        values = sorted(values)
        how = f"; the range of {target} was converted to {len(values)} listed values"
    if switch.parameter.default not in switch.on:
        default = None
    draft.space[target] = {"values": [None, *values], "default": default}
    if "when" in fields:
        draft.space[target]["when"] = fields["when"]
    name = switch.parameter.name
    draft.note(f"{name} was replaced: {target} is null when {name} is off{how}")


def _add_parameter(
    draft: ConvertedStudy, parameter: Parameter, names: Mapping[str, str | None]
) -> None:
    distribution = parameter.distribution.as_mapping()
    values = distribution.get("values")
    if values is not None and len(values) == 1 and not parameter.when:
        draft.constant(parameter.name, values[0])
        return
    if distribution.get("distribution") == "categorical":
        del distribution["distribution"]
    distribution["default"] = parameter.default
    when: dict[str, Any] = {}
    for condition in parameter.when:
        ours = names.get(condition.name)
        if ours is None:
            words = f"{parameter.name} depends on {condition.name}"
            raise ConfigError(f"{words}, which has no counterpart here")
        when[ours] = _translate_values(draft, condition.name, condition.values)
    if when:
        distribution["when"] = when
    draft.searched(parameter.name, distribution)


def _translate_rules(
    draft: ConvertedStudy, space: Space, names: Mapping[str, str | None]
) -> list[Any]:
    rules: list[Any] = []
    for rule in space.forbid:
        lost = [name for name in rule.names if names.get(name) is None]
        if lost:
            raise ConfigError(f"the rule {rule} names {lost[0]!r}, which has no counterpart here")
        if isinstance(rule, ValueRule):
            rules.append(
                {
                    names[name]: _translate_values(draft, name, values)
                    for name, values in rule.wanted
                }
            )
        elif any(names[name] != name for name in rule.names):
            raise ConfigError(
                f"the rule {rule} names hyperparameters that have different names here"
            )
        else:
            rules.append(rule.as_data())
    return rules


def _translate_values(draft: ConvertedStudy, name: str, values: Iterable[Any]) -> list[Any]:
    row = draft.row(name)
    if row is None:
        return list(values)
    found = list[Any]()
    for value in values:
        try:
            ours = row.settings(read_word(value))
        except NoCounterpart as reason:
            raise ConfigError(f"a condition or rule uses {name} = {value!r}: {reason}") from None
        found.append(plain_value(row.target, ours.get(row.target)))
    return found


# ------------------------------------------------------------------------------- Optuna


def read_storage(storage: str, name: str | None, given: Mapping[str, Any]) -> ConvertedStudy:
    """Read a study from an Optuna storage, with its best and its waiting trials enqueued."""
    from ..spaces.via_optuna import read_study

    study = read_study(storage, name)
    draft = ConvertedStudy(f"{storage} ({study.name})")
    if study.exported:
        return _read_exported(draft, study)
    if len(study.directions) != 1:
        count = f"{len(study.directions)} objectives"
        raise ConfigError(
            f"{storage}: {study.name!r} has {count}; only single-objective studies are imported"
        )
    source = _begin_draft(draft, study.space, given)
    ask_about_the_system(draft, source, given)
    refuse_lost(draft, source)
    for parameter, fields in source.searched.items():
        if len(fields.get("values", ())) == 1:
            draft.constant(parameter, fields["values"][0])
        else:
            draft.searched(parameter, fields)
        if draft.unwanted(parameter):
            continue
        if parameter in study.sometimes:
            draft.note(
                f"{parameter}: only some trials have it, but here all trials have it unless "
                "you add a `when`"
            )
        if parameter in study.changed:
            draft.note(
                f"{parameter}: its range changed from {study.changed[parameter]}; the last "
                "range is used"
            )
    add_defaults(draft, source)
    _set_metric(draft, study.directions[0], study.metrics, given)
    _enqueue_trials(draft, study)
    draft.section("search")["method"] = "tpe"
    return draft


def _best_first(study: OptunaStudy) -> list[OptunaTrial]:
    """Return the finished trials by constraints, then by value, infinite ones last.

    With several objectives they are ordered by front, as a study's own trials.
    """
    if len(study.directions) > 1:
        losses = [_losses(study, trial) for trial in study.trials]
        keys = scores(losses, [trial.violation for trial in study.trials])
        return [study.trials[at] for at in sorted(range(len(keys)), key=keys.__getitem__)]
    return sorted(study.trials, key=lambda trial: _value_key(study, trial))


def _value_key(study: OptunaStudy, trial: OptunaTrial) -> tuple[float, bool, float]:
    loss = _losses(study, trial)[0]
    return trial.violation, not math.isfinite(loss), loss


def _losses(study: OptunaStudy, trial: OptunaTrial) -> tuple[float, ...]:
    """Return a trial's values with signs that make smaller ones better."""
    goals = zip(study.directions, trial.values, strict=True)
    return tuple({"maximize": -value}.get(goal, value) for goal, value in goals)


def _read_exported(draft: ConvertedStudy, study: OptunaStudy) -> ConvertedStudy:
    """Read a study from `hpo export optuna`, with its best and its waiting trials enqueued."""
    exported = study.exported.get("study")
    if exported is None:
        text = "the study was exported by an earlier version of hpo, which omitted conditions and "
        raise draft.fault(f"{text}rules; export it again", export="optuna")
    draft.whole, first = True, exported["env"]
    if is_list(first) and first:
        draft.envs, first = first, first[0]
    draft.env = {"id": first}
    if is_dict(first):
        draft.env = dict(first)
    draft.fixed, draft.space = dict(exported["fixed"]), dict(exported["space"])
    draft.rest = {
        key: value
        for key, value in exported.items()
        if key not in _NOT_EXPORTED and value not in (None, {}, [])
    }
    draft.taken = {key: [] for key in (*draft.rest, "env", "fixed", "space")}
    best = list[dict[str, Any]]()
    for trial in _best_first(study):
        if trial.ours and trial.ours not in best and len(best) < _BEST:
            best.append(dict(trial.ours))
    if best:
        how = ", non-dominated ones first" * (len(study.directions) > 1)
        draft.note(f"enqueue: the best finished trials{how} ({len(best)} of {len(study.trials)})")
    found = _Enqueued(list(best))
    for trial in study.waiting:
        found.add_own(draft, trial)
    draft.rest["enqueue"] = found.kept
    _note_waiting(draft, found, len(study.waiting), len(best))
    return draft


def _set_metric(
    draft: ConvertedStudy, goal: str, metrics: tuple[str, ...], given: Mapping[str, Any]
) -> None:
    if goal not in ("minimize", "maximize"):
        raise draft.fault("it has no direction")
    named = next((name for name in metrics[:1] if name.startswith("eval/")), None)
    if "metric" not in given and named is None and goal == "minimize":
        text = "the study minimises an unnamed metric; name it, such as "
        text += "eval/service_blocking_probability, or maximise returns"
        raise draft.fault(text, flags={"metric": "eval/return_mean", "metric.goal": "maximize"})
    name = str(given.get("metric", named or "eval/return_mean"))
    draft.rest["metric"] = {"name": name, "goal": goal}
    if "metric" not in given and named is None:
        draft.note("metric: Optuna stores no name; eval/return_mean is hpo's default")


@dataclass
class _Enqueued:
    """Trials of a study that fit into the converted space."""

    kept: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    outside: int = 0  # number of trials with values outside the space
    equal: int = 0  # number of trials that would repeat a kept one
    moved: dict[str, int] = field(default_factory=dict[str, int])  # names -> trials moved

    def add_own(self, draft: ConvertedStudy, trial: OptunaTrial) -> None:
        """Add a trial that has our names: an exported one, or one enqueued after the export."""
        found = {name: read_word(value) for name, value in trial.params.items()}
        fits = found.keys() <= draft.space.keys() and _is_in_space(draft, found)
        if trial.ours:
            found, fits = dict(trial.ours), True
        self._keep(found, {}, fits)

    def add(self, draft: ConvertedStudy, params: Mapping[str, Any]) -> None:
        found = _translate_configuration(draft, params)
        if found is None:
            self.outside += 1
            return
        near = _listed_values(draft, found)
        self._keep(found | near, near, _is_in_space(draft, found | near))

    def skipped(self) -> str:
        """Return how many trials were not kept, to be added to a note; "" if none."""
        text = ""
        if self.outside:
            text += f"; skips {counted(self.outside, 'trial')} with values outside the space"
        if self.equal:
            text += f"; skips {counted(self.equal, 'duplicate trial')}"
        return text

    def _keep(self, config: dict[str, Any], near: Mapping[str, Any], fits: bool) -> None:
        if not fits:
            self.outside += 1
        elif not config or config in self.kept:
            self.equal += 1
        else:
            self.kept.append(config)
            for name in near:
                self.moved[name] = self.moved.get(name, 0) + 1


def _enqueue_trials(draft: ConvertedStudy, study: OptunaStudy) -> None:
    """Enqueue the best trials whose values are in the space, then those that still wait."""
    finite = [trial for trial in _best_first(study) if math.isfinite(trial.values[0])]
    found = _Enqueued()
    for trial in finite:
        if len(found.kept) == _BEST:
            break
        found.add(draft, trial.params)
    if finite:
        text = f"enqueue: the best finished trials ({len(found.kept)} of {len(finite)})"
        draft.note(text + found.skipped())
    best, found.outside, found.equal = len(found.kept), 0, 0
    for trial in study.waiting:
        found.add(draft, trial.params)
    draft.rest["enqueue"] = found.kept
    _note_waiting(draft, found, len(study.waiting), best)
    for name, count in sorted(found.moved.items()):
        draft.note(
            f"enqueue: {name} was moved to the nearest listed value in {counted(count, 'trial')}"
        )
    if len(study.trials) > len(finite):
        skipped = counted(len(study.trials) - len(finite), "trial")
        draft.note(f"enqueue: skips {skipped} with an infinite value")


def _note_waiting(draft: ConvertedStudy, found: _Enqueued, waiting: int, best: int) -> None:
    if waiting:
        text = f"enqueue: the waiting trials ({len(found.kept) - best} of {waiting})"
        draft.note(text + found.skipped())


def _translate_configuration(
    draft: ConvertedStudy, params: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return a trial's configuration in our names and values; None if any has no counterpart."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        row = draft.row(name)
        if row is None or row.fate != "taken" or draft.unwanted(name):
            continue
        try:
            settings = row.settings(read_word(value))
        except NoCounterpart:
            return None
        for target, one in settings.items():
            if target in draft.space:
                found[target] = plain_value(target, one)
    defaults = unset_defaults(draft, found)
    if any(one is None and "values" not in draft.space[name] for name, one in defaults.items()):
        return None
    return found | defaults


def _listed_values(draft: ConvertedStudy, config: Mapping[str, Any]) -> dict[str, Any]:
    """Round values to the nearest listed ones where a range was reduced to a list."""
    near = dict[str, Any]()
    for name, value in config.items():
        values = draft.space[name].get("values", ())
        if name in draft.thinned and value not in values and is_number(value):
            near[name] = min(values, key=lambda one: abs(math.log(one / max(1, value))))
    return near


def _is_in_space(draft: ConvertedStudy, config: Mapping[str, Any]) -> bool:
    return all(is_in_range(draft.space[name], value) for name, value in config.items())
