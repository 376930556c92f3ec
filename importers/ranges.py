"""Distributions of other systems over our targets: values translated, ranges in our terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..env_entry import EnvEntry
from ..errors import ConfigError
from ..knobs import KNOBS
from ..plain_data import as_lists
from ..studies.vocabulary import check_env_value
from .formats import read_word
from .rows import Row
from .transforms import NoCounterpart, Settings, is_number

__all__ = ["Note", "fitted", "plain_value", "settings_of", "switch", "translated"]

Note = Callable[[str], None]
_MOST_PROGRAMS = 16
_INSIDE = 1e-6  # of a range, where its end is not legal itself


def translated(note: Note, name: str, row: Row, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return target -> distribution, or {"value": ...} for what comes with every value."""
    try:
        if "values" in fields:
            return _values(name, row, fields)
        return {row.target: _bounds(note, name, row, dict(fields))}
    except NoCounterpart as reason:
        raise ConfigError(f"{name} is searched over {_shown(fields)}: {reason}") from None


def _values(name: str, row: Row, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Translate listed values; of the targets that they set one may differ among them."""
    sets = [settings_of(row, theirs) for theirs in fields["values"]]
    found: dict[str, Any] = {}
    for target in dict.fromkeys(target for one in sets for target in one):
        needed = target == row.target or not _idles(target)
        given = [one.get(target, _absent(target)) for one in sets if needed or target in one]
        distinct = _distinct(given)
        found[target] = {"value": given[0]} if len(distinct) == 1 else {"values": distinct}
    moving = [target for target, one in found.items() if "values" in one]
    if len(moving) > 1:
        raise NoCounterpart(f"its values move {' and '.join(moving)} together; list one of them")
    for target in moving:
        found[target] = {**fields, **found[target]}
        if fields.get("default") is not None:
            default = settings_of(row, fields["default"])
            found[target]["default"] = default.get(target, _absent(target))
    return found


def settings_of(row: Row, theirs: Any) -> dict[str, Any]:
    """Return target -> value of one value of theirs."""
    value = row.values.of(read_word(theirs))
    return dict(value) if isinstance(value, Settings) else {row.target: value}


def _idles(target: str) -> bool:
    """Return whether a target does nothing beside values that do not mention it."""
    return target.endswith("_end_fraction") or target.startswith("lr_warmup_") or target in (
        "recurrent_size", "raw_reward_deviation",
    )  # fmt: skip


def _absent(target: str) -> Any:
    """Return what a target is where a value does not mention it."""
    return KNOBS[target].default if target in KNOBS else None


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(type(value) is type(seen) and value == seen for seen in found):
            found.append(value)
    return found


def _bounds(note: Note, name: str, row: Row, fields: dict[str, Any]) -> dict[str, Any]:
    for key in ("min", "max", "mu"):
        if key in fields:
            given = fields[key]
            fields[key] = row.values.bound(given)
            if fields[key] != given and key != "mu":
                note(f"{name}: its {key} {given!r} is {fields[key]!r} here")
    if "min" in fields and fields["min"] > fields["max"]:
        fields["min"], fields["max"] = fields["max"], fields["min"]
    if "distribution" in fields:
        fields["distribution"] = row.values.kind(fields["distribution"])
    for key in ("sigma", "q"):
        if fields.get(key) is not None:
            fields[key] = row.values.scaled(fields[key])
    if fields.get("default") is not None:
        fields["default"] = row.values.bound(fields["default"])
    return fields


def fitted(
    note: Note, name: str, target: str, fields: dict[str, Any], entry: EnvEntry | None
) -> dict[str, Any]:
    """Return a distribution in the form that its target takes."""
    if "values" in fields:
        return {**fields, "values": [_one(target, value, entry) for value in fields["values"]]}
    if target.startswith("env."):
        return fields
    knob = KNOBS[target]
    if knob.type == "int" and fields.get("distribution") in ("uniform", "log_uniform"):
        bounds = (fields["min"], fields["max"])
        if all(float(bound).is_integer() for bound in bounds):
            fields |= {"min": int(bounds[0]), "max": int(bounds[1])}
            log = fields["distribution"] == "log_uniform"
            fields["distribution"] = "log_int_uniform" if log else "int_uniform"
            note(f"{name}: whole numbers, as {target} takes no others")
    if not knob.traced and "min" in fields:
        fields = _listed(note, name, target, fields)
    elif knob.low_open and fields.get("min") == knob.low and fields.get("q"):
        first = knob.low + fields["q"]
        fields = {**fields, "min": first}
        if fields.get("default") == knob.low:
            fields["default"] = first
        note(f"{name}: begins at its first step, {first!r}, as {target} is above {knob.low:g}")
    elif knob.low_open and fields.get("min") == knob.low:
        fields = {**fields, "min": float(f"{knob.low + _INSIDE * (fields['max'] - knob.low):.6g}")}
        note(f"{name}: begins at {fields['min']!r}, as {target} is above {knob.low:g}")
    return fields


def _one(target: str, value: Any, entry: EnvEntry | None) -> Any:
    if not target.startswith("env."):
        return plain_value(target, value)
    key = target.removeprefix("env.")
    if entry is None or (key not in entry.keys and key not in entry.params):
        return value
    typed = switch(value) if key in entry.keys and entry.keys[key].type == "bool" else value
    return as_lists(check_env_value(entry, key, typed))


def plain_value(target: str, value: Any) -> Any:
    """Return a value as a knob takes it: 0 and 1 for switches, numbers below the range for off."""
    if target.startswith("env."):
        return value
    knob = KNOBS[target]
    if knob.type == "bool":
        return switch(value)
    return None if knob.off and is_number(value) and value < knob.low else value


def switch(value: Any) -> Any:
    """Return true and false for the other ways in which flags write them."""
    words: Mapping[Any, bool] = {0: False, 1: True, "t": True, "f": False, "yes": True,
                                 "no": False, "on": True, "off": False}  # fmt: skip
    known = isinstance(value, int | str) and not isinstance(value, bool)
    return words.get(value.lower() if isinstance(value, str) else value, value) if known else value


def _listed(note: Note, name: str, target: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """List the values of a range of whole numbers; of a long one the powers of two."""
    low, high, step = fields["min"], fields["max"], fields.get("q") or 1
    rest = {key: fields[key] for key in ("default", "when") if fields.get(key) is not None}
    count = (high - low) // step + 1
    short = isinstance(count, int) and count <= _MOST_PROGRAMS
    if short and fields.get("distribution") != "pow2":
        note(f"{name}: a value of {target} makes a program; listed one by one")
        return {"values": [low + step * i for i in range(count)], **rest}
    powers = [2**i for i in range(64) if low <= 2**i <= high]
    if fields.get("distribution") == "pow2":
        note(f"{name}: a value of {target} makes a program; listed one by one")
        return {"values": powers, **rest}
    if KNOBS[target].type != "int" or len(powers) < 2:
        raise ConfigError(
            f"{name} is searched between {low} and {high}, but every value of {target} is a "
            "program to compile; list the values that matter"
        )
    default = rest.get("default")
    if default is not None and default not in powers:
        rest["default"] = min(powers, key=lambda power: abs(power - default))
    note(
        f"{name}: {low} to {high} is thinned to the powers of two, as every value of {target} "
        "is a program to compile"
    )
    return {"values": powers, **rest}


def _shown(fields: Mapping[str, Any]) -> str:
    return str(fields.get("values", [fields.get("min"), fields.get("max")]))
