"""Spaces in ConfigSpace's words, on the axes of the distributions, for SMAC and its like.

As with Optuna, a configuration over there holds positions under the keys of `Space.keyed`, of real
axes the share that lies below (ConfigSpace keeps 13 decimals of a real number, so real values come
back to about that precision); `from_configuration` gives ours back. Rules that are mappings go
along; rules written as text have no counterpart: draws must be held against `Space.forbidden`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# ConfigSpace leaves the parameters of its generic classes open.

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ConfigSpace import (
    AndConjunction,
    CategoricalHyperparameter,
    ConfigurationSpace,
    ForbiddenAndConjunction,
    ForbiddenInClause,
    InCondition,
    OrConjunction,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)

from ..errors import ConfigError
from .distributions import same
from .forbid import ValueRule
from .space import Condition, Parameter, Space

__all__ = ["from_configuration", "to_configspace", "to_values"]


def to_configspace(space: Space, seed: int | None = None) -> ConfigurationSpace:
    """Return the space as a ConfigurationSpace; its default configuration is ours.

    Raises:
        ConfigError: a condition wants one value of a real knob, which never comes in a draw.
    """
    theirs = ConfigurationSpace(seed=seed)
    nodes: dict[str, Any] = {}
    for key, parameter in space.keyed:
        nodes[key] = _hyperparameter(key, parameter)
        theirs.add(nodes[key])
    for key, parameter in space.keyed:
        parts = [_condition(space, nodes, nodes[key], c) for c in parameter.when]
        parts = [part for part in parts if part is not None]
        if parts:
            theirs.add(parts[0] if len(parts) == 1 else AndConjunction(*parts))
    for rule in space.forbid:
        if isinstance(rule, ValueRule):
            for clause in _clauses(space, nodes, rule):
                theirs.add(clause)
    return theirs


def from_configuration(space: Space, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that positions under keys stand for."""

    def choose(key: str, parameter: Parameter) -> Any:
        axis, position = parameter.distribution.axis, configuration[key]
        return parameter.distribution.outward(
            axis.at(position) if axis.kind == "real" else axis.clip(position)
        )

    return space.resolve(choose)


def to_values(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a configuration is called over there; `from_configuration` undoes it."""
    values: dict[str, Any] = {}

    def choose(key: str, parameter: Parameter) -> Any:
        axis, value = parameter.distribution.axis, params[parameter.name]
        position = parameter.distribution.inward(value)
        narrow = axis.kind != "real" or axis.low == axis.high
        values[key] = position if narrow else axis.share(position)
        return value

    space.resolve(choose)
    return values


def _hyperparameter(key: str, parameter: Parameter) -> Any:
    distribution = parameter.distribution
    axis, default = distribution.axis, distribution.inward(parameter.default)
    if axis.kind == "choice":
        positions = list(range(int(axis.high) + 1))
        return CategoricalHyperparameter(key, positions, default_value=default)
    if axis.low == axis.high:
        # ConfigSpace has no intervals of one point; a choice of one it has.
        return CategoricalHyperparameter(key, [default])
    if axis.kind == "integer":
        low, high = int(axis.low), int(axis.high)
        return UniformIntegerHyperparameter(key, low, high, int(default), log=axis.log)
    return UniformFloatHyperparameter(key, 0.0, 1.0, axis.share(default))


def _condition(space: Space, nodes: Mapping[str, Any], child: Any, condition: Condition) -> Any:
    """Return the condition, or None where a constant decides that it holds."""
    if condition.name in space.constants and condition.holds(space.constants):
        return None
    parts = [
        InCondition(child, nodes[key], positions)
        for key, positions in _where(space, condition.name, condition.values)
    ]
    return parts[0] if len(parts) == 1 else OrConjunction(*parts)


def _where(space: Space, name: str, values: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """Return (key, positions) for each parameter of a name that can have one of the values."""
    found: list[tuple[str, list[Any]]] = []
    for key, parameter in space.keyed:
        if parameter.name == name:
            distribution = parameter.distribution
            if distribution.axis.kind == "real":
                raise ConfigError(
                    f"a condition or rule on the real knob {name!r} has no counterpart"
                )
            fit = [v for v in values if distribution.why_not(v) is None]
            if fit:
                found.append((key, [p for value in fit for p in distribution.positions(value)]))
    return found


def _clauses(space: Space, nodes: Mapping[str, Any], rule: ValueRule) -> list[Any]:
    """Return the clauses of a rule; none where constants keep it from ever holding."""
    options: list[list[tuple[str, list[Any]]]] = []
    for name, values in rule.wanted:
        if name not in space.constants:
            options.append(_where(space, name, values))
        elif not any(same(space.constants[name], value) for value in values):
            return []
    clauses: list[Any] = []
    for chosen in itertools.product(*options):
        parts = [ForbiddenInClause(nodes[key], positions) for key, positions in chosen]
        if parts:
            clauses.append(parts[0] if len(parts) == 1 else ForbiddenAndConjunction(*parts))
    return clauses
