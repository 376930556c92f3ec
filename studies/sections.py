"""Reads a section of the file by its table of fields: keys checked, defaults filled in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError, UnknownNameError, suggestion
from ..files.plain_data import is_list, is_mapping, is_sequence
from ..importers.name_mapping import SEARCH_METHODS
from ..knobs import KNOBS, canonical_name, hint_of
from .field import Field, keys_of
from .overrides import SET
from .stopping_rules import RULES
from .study_keys import SECTIONS, TOP
from .study_values import amount_meant, count_of, number_of, seconds_of
from .yaml_io import Node, Notes, flow, plain

_POPULATION = ("population", "population_size", "pop_size", "popsize", "members")
"""Names elsewhere for the number of trials that run at the same time; here all trials do."""
_BAD = object()
_OFF = (None, "off")


def belongs(where: str, key: str, child: Node) -> str:
    """Return the section that accepts this misplaced key, in words; "" if none or several do."""
    section = where.split(".")[0]
    if where and section not in SECTIONS:
        return ""
    scalar = not (child.is_map or child.is_list)
    if key in _POPULATION and section in ("search", "early_terminate", "population") and scalar:
        return f" the population of pbt and pb2 is all trials:{_typed('budget', 'trials', child)}"
    homes = [
        name
        for name, fields in SECTIONS.items()
        if name != where and any(field.key == key for field in fields)
    ]
    at_top = bool(where) and any(field.key == key for field in TOP)
    if len(homes) + at_top != 1:
        return ""
    if at_top:
        return f" it belongs at the top of the file, not under `{section}`"
    return f" it belongs under `{homes[0]}`:{_typed(homes[0], key, child)}"


def _typed(section: str, key: str, child: Node) -> str:
    """Return the words to type, as an override if it was one."""
    value = flow(plain(child))
    if child.origin.startswith(SET):
        return f" type {section}.{key}={value}"
    return f" type `{section}: {{{key}: {value}}}`"


def defaults(fields: Sequence[Field]) -> dict[str, Any]:
    return {field.target: field.default for field in fields if field.has_default}


def checked_options(
    what: str, fields: Sequence[Field], given: Mapping[str, Any]
) -> dict[str, Any]:
    known = {field.key: field for field in fields}
    for key, value in given.items():
        if key not in known:
            raise UnknownNameError(f"option of {what}", key, known)
        if _convert(known[key], _node(value)) is _BAD:
            raise ConfigError(f"{what}: {key} is {value!r}; allowed: {known[key].allowed()}")
    return {**defaults(fields), **{k: _convert(known[k], _node(v)) for k, v in given.items()}}


def _node(value: Any) -> Node:
    if is_mapping(value):
        return Node(None, {key: _node(item) for key, item in value.items()})
    if is_sequence(value):
        return Node(None, [_node(item) for item in value])
    return Node(None, value)


def read_section(
    notes: Notes, where: str, node: Node | None, fields: Sequence[Field]
) -> dict[str, Any]:
    """Return target -> value for every field; wrong values are noted and have their defaults.

    `where` is the section's name in messages, "" at the top of the file.
    """
    values = defaults(fields)
    if node is None:
        return values
    if not node.is_map:
        example = _example(fields, node)
        notes.add(f"{where} is {node.shown()}; allowed: a mapping such as {example}", node)
        return values
    known = {field.key: field for field in fields}
    for key, child in node.value.items():
        if key not in known:
            hint = "" if where else _knob_place(node, key) or _track_place(child, key)
            hint = hint or belongs(where, key, child) or hint_of(key)
            hint = hint or f"{suggestion(key, known)} Known: {', '.join(known) or 'none'}"
            notes.add(f"unknown key {key!r}{where and f' in {where}'};{hint}", node, key)
    for field in fields:
        if field.key in node.value:
            value = _read_value(notes, where, node, field)
            if where and field.section is not None and isinstance(value, Node):
                keys = keys_of(field.section)
                inner = read_section(notes, f"{where}.{field.key}", value, keys)
                whole = all(one.target in inner for one in keys)
                value = field.section(**inner) if whole else None
            if value is not _BAD:
                values[field.target] = value
        elif not field.has_default:
            notes.add(f"{where or 'the study'} needs `{field.key}`: {field.meaning}", node)
    return values


def _knob_place(root: Node, key: str) -> str:
    """Return the section of a knob that is at the top of the file; "" for other keys."""
    name = canonical_name(key)
    if name is None:
        return ""
    child, space = root.value[key], root.value.get("space")
    searched = space is not None and space.is_map and key in space.value
    several = child.is_map or (child.is_list and KNOBS[name].type != "widths")
    section = "space" if several or searched else "fixed"
    given = child.origin.removeprefix(SET).removesuffix(": ")
    if given == child.origin:  # in the file
        return f" it is a knob: write it under `{section}`"
    if searched and not several:
        one = flow({"value": plain(child)})
        return f" it is a knob that is searched: type 'space.{key}={one}'"
    return f" it is a knob: type {section}.{given}"


def _track_place(child: Node, key: str) -> str:
    """Return the replacement of `track: {every: ..., parts: [...]}`; "" for other keys."""
    if key != "track" or not child.is_map:
        return ""
    given = {"every": "100k", "parts": ["trajectories", "losses", "gradients"], **plain(child)}
    wanted = {"policies_every": given["every"], "parts": given["parts"]}
    return f" write `checkpoint: {flow(wanted)}`"


def _read_value(notes: Notes, where: str, node: Node, field: Field) -> Any:
    """Return the value of one field of a section, or note the mistake and return `_BAD`."""
    child: Node = node.value[field.key]
    given = child.value
    if field.off and not child.is_map and not child.is_list and given in _OFF:
        return None
    value = _convert(field, child)
    if value is not _BAD:
        return value
    if field.type == "word" and isinstance(given, str):
        meant, later = given, ""
        if field.key == "method":
            meant = SEARCH_METHODS.get(given.lower(), given)
            later = " (not available in this version)" if given == "bohb" else ""
        hint = suggestion(meant, field.words)
        if field.key == "method" and given in RULES:
            hint = f" type `early_terminate: {{type: {given}}}`;"
        text = f"unknown {field.key} {given!r}{later};{hint} Known: {', '.join(field.words)}"
        notes.add(f"{where}: {text}" if where else text, node, field.key)
        return _BAD
    allowed = field.allowed()
    if field.key in SECTIONS:
        example = f"a mapping such as {_example(SECTIONS[field.key], child)}"
        allowed = allowed.replace("a mapping", example)
    meant = amount_meant(given) if field.type == "count" else ""
    hint = f" did you mean {meant}?" if meant else ""
    name = f"{where}.{field.key}" if where else field.key
    notes.add(f"{name} is {child.shown()};{hint} allowed: {allowed}", node, field.key)
    return _BAD


def _example(fields: Sequence[Field], given: Node) -> str:
    """Return a section that may be meant: the given value under the first key, if that fits."""
    if fields and given.value is not None and _convert(fields[0], given) is not _BAD:
        return flow({fields[0].key: given.value})
    for field in fields:
        if not field.has_default:
            return f"{{{field.key}: {field.words[0] if field.words else '...'}}}"
    for field in fields:
        if field.type in ("count", "word") and field.default is not None:
            return f"{{{field.key}: {field.default}}}"
    return f"{{{fields[0].key}: ...}}" if fields else "{}"


def _convert(field: Field, child: Node) -> Any:
    value = child.value
    if field.type == "map":
        named = field.key == "env" and (isinstance(value, str) or child.is_list)
        return child if child.is_map or named else _BAD
    if field.type == "list":
        return child if child.is_list else _BAD
    if field.type == "words":
        given = plain(child)
        legal = is_list(given) and all(item in field.words for item in given)
        return tuple(given) if legal and len(set(given)) == len(given) else _BAD
    if field.type == "factors" or (field.type == "points" and child.is_map):
        points = field.type == "points"
        items = value.values() if points else value if child.is_list else ()
        numbers = [_amount(field, item.value) for item in items]
        if not numbers or any(number is _BAD for number in numbers):
            return _BAD
        return dict(zip(value, numbers, strict=True)) if points else tuple(numbers)
    if field.type == "flag":
        return value if isinstance(value, bool) else _BAD
    if field.type in ("word", "text"):
        legal = isinstance(value, str) and (field.type == "text" or value in field.words)
        return value if legal else _BAD
    if isinstance(value, str) and value in field.words:
        return None if value == "auto" else value
    return _amount(field, value)


def _amount(field: Field, value: Any) -> Any:
    whole = field.type in ("count", "points")
    number = count_of(value) if whole else number_of(value)
    if field.type == "seconds":
        number = seconds_of(value)
    if number is None or not math.isfinite(number) or not field.contains(number):
        return _BAD
    return number if whole else float(number)
