"""Converts spaces to and from ConfigSpace, in terms of values or of axis positions.

Features that ConfigSpace lacks (a probability of zero, 1 - x on a log scale, expression rules) are
stored as `meta`. `from_configspace` reads them back, so nothing is lost in a round trip.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ConfigSpace as CS
import yaml

from ..errors import ConfigError
from ..files.atomic_files import output
from ..files.plain_data import (
    freeze,
    is_among,
    is_dict,
    is_list,
    is_mapping,
    parse_json,
    reading,
)
from ..files.plain_yaml import PlainLoader
from .distributions import Categorical, Distribution, IntUniform, LogIntUniform, Normal, Ordinal
from .forbid import Rule, ValueRule, parse_rule
from .make import make_distribution, range_kind
from .space import Condition, Parameter, Space

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# The type parameters of ConfigSpace's generic classes are not annotated.


META = "hpo"  # key in `meta` for the features that ConfigSpace lacks


def as_configspace(space: Space, seed: int | None = None) -> CS.ConfigurationSpace:
    """Return the space as a ConfigurationSpace of values, with the same default configuration.

    Lists and null become JSON strings, because ConfigSpace files support neither.

    Raises:
        ConfigError: a hyperparameter has several distributions, or bounds that ConfigSpace
            considers equal.
    """
    if len(set(space.names)) < len(space.parameters):
        raise ConfigError("a name with several distributions has no counterpart in ConfigSpace")
    try:
        nodes = {parameter.name: _node_of_values(parameter) for _, parameter in space.keyed}
        texts = [rule.as_data() for rule in space.forbid if not isinstance(rule, ValueRule)]
        if texts and nodes:  # stored with the first hyperparameter, as in files
            first = next(iter(nodes.values()))
            first.meta = {META: {**_our_meta(first.meta), "forbid": texts}}
        conditions = _make_conditions(space, nodes)
        forbidden = _forbidden_clauses(space, nodes)
        return _assemble_space(seed, nodes, conditions, forbidden)
    except ValueError as error:
        raise ConfigError(f"ConfigSpace rejects the space: {error.__cause__ or error}") from error


def _make_conditions(space: Space, nodes: Mapping[str, Any]) -> list[Any]:
    """Return the conditions of all hyperparameters, except those satisfied by constants."""
    kinds = (CS.EqualsCondition, CS.InCondition)
    found = list[Any]()
    for _, one in space.keyed:
        for condition in one.when:
            if condition.name not in space.constants:
                own, other = nodes[one.name], nodes[condition.name]
                found.append(_equals_or_in(kinds, condition.values, own, other))
    return found


def _forbidden_clauses(space: Space, nodes: Mapping[str, Any]) -> list[Any]:
    """Return the rules that list values, each as a single clause or a conjunction."""
    clauses = (CS.ForbiddenEqualsClause, CS.ForbiddenInClause)
    found = list[Any]()
    for rule in space.forbid:
        if isinstance(rule, ValueRule) and all(name in nodes for name, _ in rule.wanted):
            parts = [_equals_or_in(clauses, values, nodes[name]) for name, values in rule.wanted]
            found.append(_join_parts(CS.ForbiddenAndConjunction, parts))
    return found


def _assemble_space(
    seed: int | None, nodes: Mapping[str, Any], conditions: list[Any], forbidden: list[Any]
) -> CS.ConfigurationSpace:
    config_space = CS.ConfigurationSpace(seed=seed)
    config_space.add(*nodes.values())
    for node in nodes.values():
        parts = [part for part in conditions if part.child.name == node.name]
        if parts:
            config_space.add(_join_parts(CS.AndConjunction, parts))
    for clause in forbidden:
        config_space.add(clause)
    return config_space


def _join_parts(kind: Any, parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return kind(*parts)


def shown_value(value: Any) -> Any:
    """Return a value as ConfigSpace stores it, with lists and null as JSON text."""
    if isinstance(value, list | tuple) or value is None:
        return json.dumps(value)
    return value


def _equals_or_in(kinds: tuple[Any, Any], values: Sequence[Any], *nodes: Any) -> Any:
    """Return a condition or clause that holds if a node has one of these values."""
    equals, among = kinds
    shown = [shown_value(value) for value in values]
    if len(shown) == 1:
        return equals(*nodes, shown[0])
    return among(*nodes, shown)


_LISTED = {"categorical": CS.CategoricalHyperparameter, "ordinal": CS.OrdinalHyperparameter}


def _node_of_values(parameter: Parameter) -> Any:
    ours, name = parameter.distribution, parameter.name
    default, kind = shown_value(parameter.default), ours.kind
    kept: Any = {META: {**ours.as_mapping(), "default": parameter.default}}
    if isinstance(ours, Categorical | Ordinal):
        shown: list[Any] = [shown_value(value) for value in ours.values]
        meta: Any = None
        if any(isinstance(value, tuple) or value is None for value in ours.values):
            meta = {META: ours.as_mapping()}
        return _LISTED[kind](name, shown, default_value=default, meta=meta)
    if isinstance(ours, Normal):
        numbers = (ours.mu, ours.sigma, *ours.bounds, default)
        return CS.NormalFloatHyperparameter(name, *numbers, meta=kept)
    if kind == "pow2":
        powers = list(ours.grid(64))
        return CS.OrdinalHyperparameter(name, powers, default_value=default, meta=kept)
    low, high = sorted(ours.ends()[-2:])
    if low == high:
        return CS.Constant(name, low, meta=kept)
    default = min(max(default, low), high)  # a default of zero is outside the range
    log = kind in ("log_uniform", "log_int_uniform")
    if not isinstance(low, int):  # ConfigSpace keeps 13 decimals
        return CS.UniformFloatHyperparameter(name, low, high, default, log=log, meta=kept)
    if isinstance(ours, IntUniform | LogIntUniform) and not ours.zero and not ours.q:
        kept = None
    return CS.UniformIntegerHyperparameter(name, low, high, int(default), log=log, meta=kept)


_ENDINGS = (".json", ".yaml", ".yml")


def write_configspace(space: CS.ConfigurationSpace, path: Path) -> None:
    """Write a space to a file; the file extension selects JSON or YAML.

    Raises:
        ConfigError: the file has a different extension.
    """
    _check_ending(path)
    data = json.loads(json.dumps(space.to_serialized_dict(), default=lambda number: number.item()))
    if path.suffix == ".json":
        text = json.dumps(data, indent=2) + "\n"
    else:
        text = yaml.safe_dump(data, sort_keys=False)
    with output(path) as file:
        file.write(text)


def read_configspace(path: Path) -> CS.ConfigurationSpace:
    """Read a space written by ConfigSpace or `write_configspace`.

    Raises:
        ConfigError: the file does not exist, its format is unknown, or ConfigSpace rejects it.
    """
    _check_ending(path)
    try:
        with reading(path, "space"):
            text = path.read_text(encoding="utf-8")
        data = parse_json(text) if path.suffix == ".json" else yaml.load(text, PlainLoader)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        words = " ".join(str(error).split())
        raise ConfigError(f"{path}: not valid {path.suffix[1:]}: {words}") from None
    if not is_dict(data) or "hyperparameters" not in data:
        raise ConfigError(f"{path}: not a ConfigSpace file; it has no `hyperparameters`")
    try:
        with warnings.catch_warnings():
            # Whatever ConfigSpace warns about is read differently there; no warning should be
            # printed.
            for kind in (UserWarning, RuntimeWarning):
                warnings.simplefilter("error", kind)
            return CS.ConfigurationSpace.from_serialized_dict(_current_format(data))
    except Exception as error:  # any error about a file that ConfigSpace did not write
        words = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{path}: ConfigSpace rejects it: {words}") from error


def _current_format(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved space in the format of ConfigSpace 1."""
    given = data["hyperparameters"]
    if is_list(given):
        return {**data, "hyperparameters": [_modernise_fields(fields) for fields in given]}
    if not is_dict(given):
        return data
    parts = {key: data.get(key, []) for key in ("conditions", "forbiddens")}
    each = [_hyperparameter_in_file(name, fields) for name, fields in given.items()]
    return {
        "name": data.get("name"),
        "hyperparameters": each,
        **parts,
        "python_module_version": "1.2.0",
        "format_version": 0.4,
    }


def _hyperparameter_in_file(name: Any, fields: Any) -> dict[str, Any]:
    if not is_dict(fields):
        raise ValueError(f"hyperparameter {name!r} is {fields!r}; allowed: a mapping")
    whole = _modernise_fields({"name": str(name), "meta": None, **fields})
    default = whole.pop("default_value", None)
    if whole.get("type") == "categorical":
        whole.setdefault("weights", None)
        if default is None:
            default = whole["choices"][0]
    elif whole.get("type") in _RANGES:
        whole.setdefault("log", False)
        middle = _middle_of_range(whole)
        if default is None:
            default = middle
    return {**whole, "default_value": default}


_RANGES = ("uniform_float", "uniform_int")  # types in files


def _middle_of_range(fields: Mapping[str, Any]) -> float:
    """Return the middle of a range, which is ConfigSpace's default value."""
    low, high = fields["lower"], fields["upper"]
    middle = (low + high) / 2
    if fields["log"]:
        middle = math.sqrt(low * high)
    if fields["type"] == "uniform_int":
        return round(middle)
    return middle


def _modernise_fields(fields: Any) -> Any:
    """Return a hyperparameter's fields in the format of ConfigSpace 1."""
    if not is_dict(fields):
        return fields  # which ConfigSpace refuses
    found, step = dict(fields), fields.get("q")
    for old, new in (("default", "default_value"), ("probabilities", "weights")):
        value = found.pop(old, None)
        if value is not None:
            found[new] = value
    found.pop("q", None)
    if step is None or (found.get("type") == "uniform_int" and step == 1):
        return found
    if found.get("type") not in _RANGES:
        raise ValueError(
            f"{found.get('name')!r} has a step (q); only uniform hyperparameters may have one"
        )
    kind = range_kind(found["type"] == "uniform_int", bool(found.get("log")))
    kept = {"min": found["lower"], "max": found["upper"], "q": step, "distribution": kind}
    meta = found.get("meta")
    if not is_dict(meta):
        meta = {}
    return {**found, "meta": {**meta, META: kept}}


def _check_ending(path: Path) -> None:
    if path.suffix not in _ENDINGS:
        raise ConfigError(f"{path}: ConfigSpace files end in {', '.join(_ENDINGS)}")


def from_configspace(config_space: CS.ConfigurationSpace) -> Space:
    """Return a ConfigurationSpace as a space.

    Raises:
        ConfigError: it has a feature that a space cannot express; the error names it.
    """
    conditions: dict[str, list[Condition]] = {}
    for entry in config_space.conditions:
        for part in _conjunction_parts(entry, CS.AndConjunction):
            if not isinstance(part, CS.EqualsCondition | CS.InCondition):
                text = f"the condition {part} has no counterpart"
                raise ConfigError(f"{text}; allowed: equals, in, and")
            condition = Condition(part.parent.name, _our_values(part.parent, part))
            conditions.setdefault(part.child.name, []).append(condition)
    parameters = [
        _our_parameter(one, tuple(conditions.get(name, ()))) for name, one in config_space.items()
    ]
    rules = [_our_rule(clause) for clause in config_space.forbidden_clauses]
    for hyperparameter in config_space.values():
        rules += [parse_rule(text) for text in _our_meta(hyperparameter.meta).get("forbid", ())]
    return Space(tuple(parameters), tuple(rules))


def _conjunction_parts(expression: Any, joined: Any) -> Sequence[Any]:
    """Return the parts of a conjunction; for a single condition or clause, only itself."""
    if isinstance(expression, joined):
        return expression.components
    return (expression,)


def _our_meta(meta: Any) -> Mapping[str, Any]:
    """Return the `meta` that `as_configspace` wrote."""
    if not is_mapping(meta):
        return {}
    kept = meta.get(META)
    if not is_mapping(kept):
        return {}
    return kept


def _our_parameter(hyperparameter: Any, when: tuple[Condition, ...]) -> Parameter:
    default = _our_meta(hyperparameter.meta).get("default", hyperparameter.default_value)
    distribution = _our_distribution(hyperparameter)
    default = distribution.canonical(_own_value(distribution, default))
    return Parameter(hyperparameter.name, distribution, default, when)


def _our_distribution(hyperparameter: Any) -> Distribution:
    kept = {
        k: v for k, v in _our_meta(hyperparameter.meta).items() if k not in ("default", "forbid")
    }
    return make_distribution(kept or _our_fields(hyperparameter))


def _own_value(distribution: Distribution, value: Any) -> Any:
    """Convert a value from ConfigSpace (possibly JSON text) to the distribution's value."""
    value = _plain_value(value)
    if not isinstance(distribution, Categorical | Ordinal) or not isinstance(value, str):
        return value
    if distribution.why_not(value) is None:
        return value
    return next((own for own in distribution.values if shown_value(own) == value), value)


def _our_fields(hyperparameter: Any) -> Mapping[str, Any]:
    if isinstance(hyperparameter, CS.UniformFloatHyperparameter | CS.UniformIntegerHyperparameter):
        kind = range_kind(
            isinstance(hyperparameter, CS.UniformIntegerHyperparameter), bool(hyperparameter.log)
        )
        return {
            "min": _plain_value(hyperparameter.lower),
            "max": _plain_value(hyperparameter.upper),
            "distribution": kind,
        }
    if isinstance(hyperparameter, CS.NormalFloatHyperparameter) and not hyperparameter.log:
        keys = {
            "mu": hyperparameter.mu,
            "sigma": hyperparameter.sigma,
            "min": hyperparameter.lower,
            "max": hyperparameter.upper,
        }
        return {key: _plain_value(value) for key, value in keys.items()}
    if isinstance(hyperparameter, CS.CategoricalHyperparameter):
        if hyperparameter.weights is not None and len(set(hyperparameter.weights)) > 1:
            raise ConfigError(
                f"{hyperparameter.name!r} has weights; here all values are equally likely"
            )
        return {"values": [_plain_value(value) for value in hyperparameter.choices]}
    if isinstance(hyperparameter, CS.OrdinalHyperparameter):
        values = [_plain_value(value) for value in hyperparameter.sequence]
        return {"values": values, "distribution": "ordinal"}
    if isinstance(hyperparameter, CS.Constant):
        return {"values": [_plain_value(hyperparameter.value)]}
    raise ConfigError(
        f"{hyperparameter.name!r} is a {type(hyperparameter).__name__}, which has no counterpart"
    )


def _our_rule(clause: Any) -> Rule:
    if isinstance(clause, CS.ForbiddenLessThanRelation):
        return parse_rule(f"{clause.left.name} < {clause.right.name}")
    if isinstance(clause, CS.ForbiddenGreaterThanRelation):
        return parse_rule(f"{clause.left.name} > {clause.right.name}")
    wanted: list[tuple[str, tuple[Any, ...]]] = []
    for part in _conjunction_parts(clause, CS.ForbiddenAndConjunction):
        if not isinstance(part, CS.ForbiddenEqualsClause | CS.ForbiddenInClause):
            raise ConfigError(f"the forbidden clause {part} has no counterpart")
        wanted.append((part.hyperparameter.name, _our_values(part.hyperparameter, part)))
    return ValueRule(tuple(wanted))


def _our_values(parent: Any, part: Any) -> tuple[Any, ...]:
    distribution = _our_distribution(parent)
    if isinstance(part, CS.InCondition | CS.ForbiddenInClause):
        return tuple(_own_value(distribution, value) for value in part.values)
    return (_own_value(distribution, part.value),)


def _plain_value(value: Any) -> Any:
    """Convert a value, possibly from NumPy, to a plain Python value."""
    if hasattr(value, "item"):
        value = value.item()
    return freeze(value)


def to_configspace(space: Space, seed: int | None = None) -> CS.ConfigurationSpace:
    """Return the axes of a space as a ConfigurationSpace, with the space's default configuration.

    Raises:
        ConfigError: a condition requires one exact value of a real-valued hyperparameter.
    """
    nodes = {key: _hyperparameter_on_axis(key, parameter) for key, parameter in space.keyed}
    conditions: list[Any] = []
    for key, parameter in space.keyed:
        for condition in parameter.when:
            if not condition.holds(space.constants):
                where = _possible_positions(space, condition.name, condition.values)
                parts = [CS.InCondition(nodes[key], nodes[one], at) for one, at in where]
                conditions.append(_join_parts(CS.OrConjunction, parts))
    rules = [rule for rule in space.forbid if isinstance(rule, ValueRule)]
    forbidden = [clause for rule in rules for clause in _clauses_of_rule(space, nodes, rule)]
    return _assemble_space(seed, nodes, conditions, forbidden)


def from_configuration(space: Space, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration at these axis positions, which are given by key."""

    def choose(key: str, parameter: Parameter) -> Any:
        axis, position = parameter.distribution.axis, configuration[key]
        if axis.kind == "real":
            return parameter.distribution.outward(axis.at(position))
        return parameter.distribution.outward(axis.clip(position))

    return space.resolve(choose)


def to_values(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration's axis positions by key; the inverse of `from_configuration`."""
    values: dict[str, Any] = {}
    for key, parameter, value in space.active(params):
        axis, position = parameter.distribution.axis, parameter.distribution.inward(value)
        if axis.kind == "real" and axis.low != axis.high:
            position = axis.share(position)
        values[key] = position
    return values


def _hyperparameter_on_axis(key: str, parameter: Parameter) -> Any:
    distribution = parameter.distribution
    axis, default = distribution.axis, distribution.inward(parameter.default)
    if axis.kind == "choice":
        positions = list(range(int(axis.high) + 1))
        return CS.CategoricalHyperparameter(key, positions, default_value=default)
    if axis.low == axis.high:
        # ConfigSpace has no intervals of one point, but has choices with one value.
        return CS.CategoricalHyperparameter(key, [default])
    if axis.kind == "integer":
        low, high = int(axis.low), int(axis.high)
        return CS.UniformIntegerHyperparameter(key, low, high, int(default), log=axis.log)
    return CS.UniformFloatHyperparameter(key, 0.0, 1.0, axis.share(default))


def _possible_positions(
    space: Space, name: str, values: Sequence[Any]
) -> list[tuple[str, list[Any]]]:
    """Return (key, positions) for each parameter with this name that can have any of `values`."""
    found: list[tuple[str, list[Any]]] = []
    for key, parameter in space.keyed:
        if parameter.name == name:
            distribution = parameter.distribution
            if distribution.axis.kind == "real":
                text = f"a condition or rule on the real-valued {name!r} has no counterpart"
                raise ConfigError(f"{text} in ConfigSpace")
            fit = [v for v in values if distribution.why_not(v) is None]
            if fit:
                found.append((key, [p for value in fit for p in distribution.positions(value)]))
    return found


def _clauses_of_rule(space: Space, nodes: Mapping[str, Any], rule: ValueRule) -> list[Any]:
    """Return the clauses of a rule; none if constants already make it false."""
    options: list[list[tuple[str, list[Any]]]] = []
    for name, values in rule.wanted:
        if name not in space.constants:
            options.append(_possible_positions(space, name, values))
        elif not is_among(space.constants[name], values):
            return []
    found = list[Any]()
    for chosen in filter(None, itertools.product(*options)):
        clauses = [CS.ForbiddenInClause(nodes[key], at) for key, at in chosen]
        found.append(_join_parts(CS.ForbiddenAndConjunction, clauses))
    return found
