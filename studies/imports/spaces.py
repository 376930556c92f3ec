"""Spaces that other libraries hold as objects, as the space of a study.

Parameters come under foreign names; conditions and rules follow them to ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...elsewhere.values import NoCounterpart
from ...errors import ConfigError
from ...spaces.forbid import ValueRule
from ...spaces.space import Parameter, Space
from .draft import Draft
from .ranges import plain_value, settings_of
from .take import Source, recognised, unwanted

_NOT_OF_A_SPACE = ("env", "seed")
_NO_NAMES = ("env", "system", "without", "metric", "name")

__all__ = ["begin", "take_space"]


def begin(draft: Draft, names: Iterable[str], given: Mapping[str, Any]) -> Source:
    """Recognise whose names a space has, and name the environment, which decides what they mean.

    Args:
        draft: gets both.
        names: of the parameters.
        given: flags; `env`, `system` and `without` are used.

    Returns:
        The source, for `take.settle`; without an environment of its own.
    """
    flags = {name: value for name, value in given.items() if name not in _NO_NAMES}
    source = Source(flags, {name: {} for name in names})
    draft.system, draft.without = recognised(draft, source, given), unwanted(given)
    draft.silent |= {row.name for row in draft.system.rows if row.target in _NOT_OF_A_SPACE}
    if "env" in given:
        draft.constant("env", given["env"])
    return source


def take_space(draft: Draft, space: Space) -> None:
    """Put a space into a draft.

    Raises:
        ConfigError: a condition or rule names a parameter without a counterpart, or a rule is an
            expression over renamed parameters.
    """
    names = {parameter.name: draft.target(parameter.name) for parameter in space.parameters}
    for parameter in space.parameters:
        distribution = parameter.distribution.as_mapping()
        values = distribution.get("values")
        if values is not None and len(values) == 1 and not parameter.when:
            draft.constant(parameter.name, values[0])
            continue
        if values is not None:
            distribution.pop("distribution", None)
        distribution["default"] = parameter.default
        when = _when(draft, parameter, names)
        if when:
            distribution["when"] = when
        draft.searched(parameter.name, distribution)
    rules: list[Any] = []
    for rule in space.forbid:
        lost = [name for name in rule.names if names.get(name) is None]
        if lost:
            raise ConfigError(f"the rule {rule} names {lost[0]!r}, which has no counterpart here")
        if isinstance(rule, ValueRule):
            rules.append({names[name]: _ours(draft, name, values) for name, values in rule.wanted})
        elif any(names[name] != name for name in rule.names):
            raise ConfigError(f"the rule {rule} names knobs that are called otherwise here")
        else:
            rules.append(rule.as_data())
    if rules:
        draft.rest["forbid"] = rules


def _when(draft: Draft, parameter: Parameter, names: dict[str, str | None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for condition in parameter.when:
        ours = names.get(condition.name)
        if ours is None:
            raise ConfigError(
                f"{parameter.name} is searched when {condition.name} has some value, "
                f"but {condition.name} has no counterpart here"
            )
        found[ours] = _ours(draft, condition.name, condition.values)
    return found


def _ours(draft: Draft, name: str, values: Iterable[Any]) -> list[Any]:
    """Return values that a condition or a rule names as the parameter's own values became.

    Raises:
        ConfigError: one of them has no counterpart.
    """
    row = draft.row(name)
    if row is None:
        return list(values)
    found = list[Any]()
    for value in values:
        try:
            ours = settings_of(row, value)
        except NoCounterpart as reason:
            raise ConfigError(f"a condition or rule names {name} {value!r}: {reason}") from None
        found.append(plain_value(row.target, ours.get(row.target)))
    return found
