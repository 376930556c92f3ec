"""Reads a ConfigurationSpace of somebody else as a `Space`."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# ConfigSpace leaves the parameters of its generic classes open.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ConfigSpace import (
    AndConjunction,
    CategoricalHyperparameter,
    ConfigurationSpace,
    Constant,
    EqualsCondition,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
    ForbiddenGreaterThanRelation,
    ForbiddenInClause,
    ForbiddenLessThanRelation,
    InCondition,
    NormalFloatHyperparameter,
    OrdinalHyperparameter,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)

from ..errors import ConfigError
from ..plain_data import is_mapping
from .as_configspace import META, shown_value
from .distributions import Categorical, Distribution, Ordinal, freeze
from .forbid import Rule, ValueRule, parse_rule
from .make import make_distribution
from .space import Condition, Parameter, Space

__all__ = ["from_configspace"]


def from_configspace(theirs: ConfigurationSpace) -> Space:
    """Return a ConfigurationSpace as a space.

    Raises:
        ConfigError: it has something that ours cannot say; names it.
    """
    conditions: dict[str, list[Condition]] = {}
    for entry in theirs.conditions:
        for part in entry.components if isinstance(entry, AndConjunction) else (entry,):
            conditions.setdefault(part.child.name, []).append(_condition(part))
    parameters = [
        _parameter(hyperparameter, tuple(conditions.get(name, ())))
        for name, hyperparameter in theirs.items()
    ]
    rules = [_rule(clause) for clause in theirs.forbidden_clauses]
    for hyperparameter in theirs.values():
        rules += [parse_rule(text) for text in _ours(hyperparameter.meta).get("forbid", ())]
    return Space(tuple(parameters), tuple(rules))


def _ours(meta: Any) -> Mapping[str, Any]:
    """Return what `as_configspace` kept in a `meta`."""
    kept = meta.get(META) if is_mapping(meta) else None
    return kept if is_mapping(kept) else {}


def _parameter(theirs: Any, when: tuple[Condition, ...]) -> Parameter:
    default = _ours(theirs.meta).get("default", theirs.default_value)
    distribution = _distribution(theirs)
    default = distribution.canonical(_told(distribution, default))
    return Parameter(theirs.name, distribution, default, when)


def _distribution(theirs: Any) -> Distribution:
    kept = {k: v for k, v in _ours(theirs.meta).items() if k not in ("default", "forbid")}
    return make_distribution(kept or _fields(theirs))


def _told(distribution: Distribution, value: Any) -> Any:
    """Return a value of the distribution, which ConfigSpace may hold as a JSON text."""
    value = _value(value)
    if distribution.why_not(value) is not None and isinstance(value, str):
        for own in distribution.values if isinstance(distribution, Categorical | Ordinal) else ():
            if shown_value(own) == value:
                return own
    return value


def _fields(theirs: Any) -> Mapping[str, Any]:
    if isinstance(theirs, UniformFloatHyperparameter | UniformIntegerHyperparameter):
        kind = "int_uniform" if isinstance(theirs, UniformIntegerHyperparameter) else "uniform"
        kind = f"log_{kind}" if theirs.log else kind
        return {"min": _value(theirs.lower), "max": _value(theirs.upper), "distribution": kind}
    if isinstance(theirs, NormalFloatHyperparameter) and not theirs.log:
        return {
            "mu": _value(theirs.mu),
            "sigma": _value(theirs.sigma),
            "min": _value(theirs.lower),
            "max": _value(theirs.upper),
        }
    if isinstance(theirs, CategoricalHyperparameter):
        if theirs.weights is not None and len(set(theirs.weights)) > 1:
            raise ConfigError(f"{theirs.name!r} has weights; here all values are equally likely")
        return {"values": [_value(value) for value in theirs.choices]}
    if isinstance(theirs, OrdinalHyperparameter):
        values = [_value(value) for value in theirs.sequence]
        return {"values": values, "distribution": "ordinal"}
    if isinstance(theirs, Constant):
        return {"values": [_value(theirs.value)]}
    raise ConfigError(f"{theirs.name!r} is a {type(theirs).__name__}, which has no counterpart")


def _condition(theirs: Any) -> Condition:
    if isinstance(theirs, EqualsCondition):
        return Condition(theirs.parent.name, _values(theirs.parent, (theirs.value,)))
    if isinstance(theirs, InCondition):
        return Condition(theirs.parent.name, _values(theirs.parent, theirs.values))
    raise ConfigError(f"the condition {theirs} has no counterpart; allowed: equals, in, and")


def _rule(theirs: Any) -> Rule:
    if isinstance(theirs, ForbiddenLessThanRelation):
        return parse_rule(f"{theirs.left.name} < {theirs.right.name}")
    if isinstance(theirs, ForbiddenGreaterThanRelation):
        return parse_rule(f"{theirs.left.name} > {theirs.right.name}")
    parts = theirs.components if isinstance(theirs, ForbiddenAndConjunction) else (theirs,)
    return ValueRule(tuple(_wanted(part) for part in parts))


def _wanted(theirs: Any) -> tuple[str, tuple[Any, ...]]:
    if isinstance(theirs, ForbiddenEqualsClause):
        return theirs.hyperparameter.name, _values(theirs.hyperparameter, (theirs.value,))
    if isinstance(theirs, ForbiddenInClause):
        return theirs.hyperparameter.name, _values(theirs.hyperparameter, theirs.values)
    raise ConfigError(f"the forbidden clause {theirs} has no counterpart")


def _values(parent: Any, values: Any) -> tuple[Any, ...]:
    distribution = _distribution(parent)
    return tuple(_told(distribution, value) for value in values)


def _value(theirs: Any) -> Any:
    """Return a plain Python value; theirs may be NumPy's."""
    return freeze(theirs.item() if hasattr(theirs, "item") else theirs)
