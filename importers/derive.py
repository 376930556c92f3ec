"""Evaluates the tables' formulas, which compute a name's value from several other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..foreign_names.derived import OFF, Derived
from .converted_study import ConvertedStudy, ImportSource


def apply_derived(draft: ConvertedStudy, source: ImportSource) -> None:
    """Set the derived names of the draft's system, in the order of its table."""
    for one in draft.system.derived:
        if _applies_to(one, source):
            _derive_value(draft, source, one)


def _applies_to(one: Derived, source: ImportSource) -> bool:
    if one.in_python and not source.calls:
        return False
    if one.name in source.searched and one.searched in ("leave out", "first"):
        return False
    return one.always or one.name in source.names()


def _derive_value(draft: ConvertedStudy, source: ImportSource, one: Derived) -> None:
    listed = {name: source.values(name, _default_of(draft, one, name)) for name in one.from_}
    several = [name for name, values in listed.items() if len(values) != 1]
    if several and one.searched == "skip":
        return
    if several and one.searched == "refuse":
        raise _searched_fault(draft, one, several[0], listed)
    values = {name: found[0] for name, found in listed.items()}
    value = _value_of(draft, one, values)
    if value is None:
        return
    if value is OFF:
        source.drop(one.name)
        draft.idle.append(f"{one.name} (off)")
    elif several and one.searched == "leave out":
        source.drop(one.name)
        draft.leave_out(one.name, one.because)
    else:
        _set_values(draft, source, one, values, value)


def _set_values(
    draft: ConvertedStudy,
    source: ImportSource,
    one: Derived,
    values: Mapping[str, Any],
    value: Any,
) -> None:
    found = value
    if not isinstance(value, Mapping):
        found = {one.name: value}
    source.drop(*one.drops)
    source.constants |= found
    if one.note and found:
        draft.note(one.said(values, found[one.name]))


def _default_of(draft: ConvertedStudy, one: Derived, name: str) -> Any:
    return one.defaults.get(name, draft.system.defaults.get(name))


def _value_of(draft: ConvertedStudy, one: Derived, values: Mapping[str, Any]) -> Any:
    try:
        return one.formula(*values.values())
    except ConfigError as error:
        raise draft.fault(str(error), **error.remedies) from None


def _searched_fault(
    draft: ConvertedStudy, one: Derived, name: str, listed: Mapping[str, list[Any]]
) -> ConfigError:
    others = ", ".join(other for other in one.from_ if other != name)
    because = one.because.format(others=others)
    text = f"{name} is searched, {because}; import the sweep once per value"
    return draft.fault(text, flags={name: listed[name][0]})
