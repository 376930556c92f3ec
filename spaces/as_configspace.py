"""Spaces as a user of ConfigSpace writes them: values, not positions on an axis.

What ConfigSpace cannot say (a chance of zero, 1 - x on a log scale, rules that are expressions)
goes along as `meta`, which `from_configspace` reads back, so nothing is lost between two of ours.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# ConfigSpace leaves the parameters of its generic classes open.

from __future__ import annotations

import json
from typing import Any

from ConfigSpace import (
    AndConjunction,
    CategoricalHyperparameter,
    ConfigurationSpace,
    Constant,
    EqualsCondition,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
    ForbiddenInClause,
    InCondition,
    NormalFloatHyperparameter,
    OrdinalHyperparameter,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)

from ..errors import ConfigError
from .distributions import Categorical, Ordinal
from .forbid import ValueRule
from .space import Condition, Parameter, Space

__all__ = ["META", "as_configspace", "shown_value"]

META = "hpo"
"""The key of `meta` under which we keep what ConfigSpace cannot say."""


def as_configspace(space: Space, seed: int | None = None) -> ConfigurationSpace:
    """Return the space as a ConfigurationSpace of values, with the same default configuration.

    Values that are lists or null become texts (JSON), as ConfigSpace's files hold neither.

    Raises:
        ConfigError: one knob has several distributions, which one hyperparameter cannot have, or
            bounds that ConfigSpace takes for equal.
    """
    if len(set(space.names)) < len(space.parameters):
        raise ConfigError("a knob with several distributions has no counterpart in ConfigSpace")
    try:
        return _built(space, seed)
    except ValueError as error:
        raise ConfigError(f"ConfigSpace refuses the space: {error.__cause__ or error}") from error


def _built(space: Space, seed: int | None) -> ConfigurationSpace:
    theirs = ConfigurationSpace(seed=seed)
    nodes = {parameter.name: _hyperparameter(parameter) for _, parameter in space.keyed}
    _keep_texts(space, list(nodes.values()))
    theirs.add(*nodes.values())
    for _, parameter in space.keyed:
        parts = [
            _condition(nodes, parameter.name, condition)
            for condition in parameter.when
            if condition.name not in space.constants
        ]
        if parts:
            theirs.add(parts[0] if len(parts) == 1 else AndConjunction(*parts))
    for rule in space.forbid:
        if isinstance(rule, ValueRule) and all(name in nodes for name in rule.names):
            clauses = [_clause(nodes[name], values) for name, values in rule.wanted]
            theirs.add(clauses[0] if len(clauses) == 1 else ForbiddenAndConjunction(*clauses))
    return theirs


def _keep_texts(space: Space, nodes: list[Any]) -> None:
    """Keep rules that are expressions beside the first hyperparameter, as files keep only that."""
    texts = [rule.as_data() for rule in space.forbid if not isinstance(rule, ValueRule)]
    if texts and nodes:
        kept = (nodes[0].meta or {}).get(META, {})
        nodes[0].meta = {META: {**kept, "forbid": texts}}


def shown_value(value: Any) -> Any:
    """Return a value as ConfigSpace can hold it: lists and null as JSON text."""
    if isinstance(value, list | tuple) or value is None:
        return json.dumps(value)
    return value


def _condition(nodes: dict[str, Any], child: str, condition: Condition) -> Any:
    values = [shown_value(value) for value in condition.values]
    if len(values) == 1:
        return EqualsCondition(nodes[child], nodes[condition.name], values[0])
    return InCondition(nodes[child], nodes[condition.name], values)


def _clause(node: Any, values: tuple[Any, ...]) -> Any:
    shown = [shown_value(value) for value in values]
    return (
        ForbiddenEqualsClause(node, shown[0])
        if len(shown) == 1
        else ForbiddenInClause(node, shown)
    )


def _hyperparameter(parameter: Parameter) -> Any:
    distribution, name = parameter.distribution, parameter.name
    default = shown_value(parameter.default)
    kind = distribution.kind
    plain = kind in _PLAIN and not distribution.zero and not getattr(distribution, "q", None)
    meta: Any = (
        None if plain else {META: {**distribution.as_mapping(), "default": parameter.default}}
    )
    if isinstance(distribution, Categorical | Ordinal):
        return _choice(name, distribution, default)
    if kind == "normal":
        return _normal(name, distribution, default, meta)
    if kind == "pow2":
        values = [shown_value(value) for value in distribution.grid(64)]
        return OrdinalHyperparameter(name, values, default_value=default, meta=meta)
    low, high = sorted(distribution.ends()[-2:])
    log = kind in ("log_uniform", "log_int_uniform")
    default = min(max(default, low), high)  # a default of zero lies outside of the range
    if low == high:
        kept: Any = {META: {**distribution.as_mapping(), "default": parameter.default}}
        return Constant(name, low, meta=kept)
    if isinstance(low, int):
        return UniformIntegerHyperparameter(name, low, int(high), int(default), log=log, meta=meta)
    return UniformFloatHyperparameter(name, low, high, default, log=log, meta=meta)


_PLAIN = ("int_uniform", "log_int_uniform")
"""Kinds that ConfigSpace holds exactly; of real numbers it keeps 13 decimals."""


def _choice(name: str, distribution: Categorical | Ordinal, default: Any) -> Any:
    values = [shown_value(value) for value in distribution.values]
    texts = any(isinstance(value, list | tuple) or value is None for value in distribution.values)
    meta: Any = {META: distribution.as_mapping()} if texts else None
    if distribution.kind == "ordinal":
        return OrdinalHyperparameter(name, values, default_value=default, meta=meta)
    return CategoricalHyperparameter(name, values, default_value=default, meta=meta)


def _normal(name: str, distribution: Any, default: float, meta: Any) -> Any:
    low, high = distribution.bounds
    return NormalFloatHyperparameter(
        name, distribution.mu, distribution.sigma, low, high, default, meta=meta
    )
