"""Reads a section of the file by its table of fields: keys checked, defaults filled in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError, UnknownNameError, suggestion
from ..files.plain_data import is_list, is_mapping, is_sequence
from ..importers.name_mapping import SEARCH_METHODS
from ..knobs import KNOBS, canonical_name, hint_of
from .field import Field
from .overrides import SET
from .stopping_rules import RULES
from .study_keys import SECTIONS, TOP
from .study_values import amount_meant, count_of, number_of, seconds_of
from .yaml_io import Node, Notes, flow, plain

_POPULATION = ("population", "population_size", "pop_size", "popsize", "members")
"""What elsewhere says how many run side by side; here that is the number of trials."""
_SETTINGS = {"search", "early_terminate", "population"}


def belongs(where: str, key: str, child: Node) -> str:
    """Return where a key belongs that its section does not know; "" if nowhere, or in several.

    Args:
        where: the section it stands in, such as `search` or `search.options`; "" at the top.
        key: as it was written.
        child: what stands behind it.
    """
    section = where.split(".")[0]
    if where and section not in SECTIONS:
        return ""
    if key in _POPULATION and section in _SETTINGS and not (child.is_map or child.is_list):
        return f" the population of pbt and pb2 is all trials:{_typed('budget', 'trials', child)}"
    homes = [
        name for name, fields in SECTIONS.items()
        if name != where and any(field.key == key for field in fields)
    ]  # fmt: skip
    at_top = bool(where) and any(field.key == key for field in TOP)
    if len(homes) + at_top != 1:
        return ""
    if at_top:
        return f" it belongs at the top of the file, not under `{section}`"
    return f" it belongs under `{homes[0]}`:{_typed(homes[0], key, child)}"


def _typed(section: str, key: str, child: Node) -> str:
    """Return what to type, as an override where it was one."""
    value = flow(plain(child))
    if child.origin.startswith(SET):
        return f" type {section}.{key}={value}"
    return f" type `{section}: {{{key}: {value}}}`"


_BAD = object()
_OFF = (None, "off")
_LATER = {
    "method": ("bohb",),
}


def defaults(fields: Sequence[Field]) -> dict[str, Any]:
    """Return target -> default of every field that has one."""
    return {field.target: field.default for field in fields if field.has_default}


def checked_options(
    what: str, fields: Sequence[Field], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Fill in options that were given in Python, where no file was read.

    Args:
        what: they are options of, for messages.
        fields: their table.
        given: name -> value.

    Raises:
        ConfigError: one is not known, or its value is not legal.
    """
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
    """Return target -> value for every field; what is wrong is noted and has its default.

    Args:
        notes: where mistakes go.
        where: the section's name, for messages; empty for the top of the file.
        node: the section, or None when left out.
        fields: its table.
    """
    values = defaults(fields)
    if node is None:
        return values
    if not node.is_map:
        notes.add(
            f"{where} is {node.shown()}; allowed: a mapping such as {_example(fields, node)}", node
        )
        return values
    known = {field.key: field for field in fields}
    for key in node.value:
        if key not in known:
            inside = f" in {where}" if where else ""
            listed = ", ".join(known) or "none"
            hint = "" if where else _knob_place(node, key) or _track_place(node.value[key], key)
            hint = hint or belongs(where, key, node.value[key]) or hint_of(key)
            hint = hint or f"{suggestion(key, known)} Known: {listed}"
            notes.add(f"unknown key {key!r}{inside};{hint}", node, key)
    for field in fields:
        if field.key in node.value:
            value = read_value(notes, where, node, field)
            if value is not _BAD:
                values[field.target] = value
        elif not field.has_default:
            notes.add(f"{where or 'the study'} needs `{field.key}`: {field.meaning}", node)
    return values


def _knob_place(root: Node, key: str) -> str:
    """Return where the knob belongs that stands at the top of the file; nothing if it is none."""
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
    """Return what to type for `track: {every: ..., parts: [...]}`; nothing for another key."""
    if key != "track" or not child.is_map:
        return ""
    given = {name: plain(node) for name, node in child.value.items()}
    wanted = {
        "policies_every": given.get("every", "100k"),
        "parts": given.get("parts", ["trajectories", "losses", "gradients"]),
    }
    return f" write `checkpoint: {flow(wanted)}`"


def read_value(notes: Notes, where: str, node: Node, field: Field) -> Any:
    """Return the value of one field of a section, or note what is wrong with it."""
    child: Node = node.value[field.key]
    if field.off and not child.is_map and not child.is_list and child.value in _OFF:
        return None
    value = _convert(field, child)
    if value is not _BAD:
        return value
    name = f"{where}.{field.key}" if where else field.key
    if field.type == "word" and isinstance(child.value, str):
        hint = suggestion(_here(field.key, child.value), field.words)
        later = " (not available in this version)" if _is_later(field.key, child.value) else ""
        if field.key == "method" and child.value in RULES:
            hint = f" type `early_terminate: {{type: {child.value}}}`;"
        text = f"unknown {field.key} {child.value!r}{later};{hint} Known: {', '.join(field.words)}"
        notes.add(text if not where else f"{where}: {text}", node, field.key)
    else:
        allowed = field.allowed()
        if field.key in SECTIONS:
            example = f"a mapping such as {_example(SECTIONS[field.key], child)}"
            allowed = allowed.replace("a mapping", example)
        meant = amount_meant(child.value) if field.type == "count" else ""
        hint = f" did you mean {meant}?" if meant else ""
        notes.add(f"{name} is {child.shown()};{hint} allowed: {allowed}", node, field.key)
    return _BAD


def _here(key: str, word: str) -> str:
    """Return what a word of another system is here."""
    return SEARCH_METHODS.get(word.lower(), word) if key == "method" else word


def _is_later(key: str, word: str) -> bool:
    return word in _LATER.get(key, ())


def _example(fields: Sequence[Field], given: Node) -> str:
    """Return a section that may be meant: what was given under its first key, if that fits."""
    if fields and given.value is not None and _convert(fields[0], given) is not _BAD:
        return flow({fields[0].key: given.value})
    for field in fields:
        if not field.has_default:
            return f"{{{field.key}: {field.words[0] if field.words else '...'}}}"
    for field in fields:
        if field.type in ("count", "word") and field.has_default and field.default is not None:
            return f"{{{field.key}: {field.default}}}"
    return f"{{{fields[0].key}: ...}}" if fields else "{}"


def _convert(field: Field, child: Node) -> Any:
    if field.type == "map":
        named = field.key == "env" and (isinstance(child.value, str) or child.is_list)
        return child if child.is_map or named else _BAD
    if field.type == "list":
        return child if child.is_list else _BAD
    if field.type == "points":
        return _points(field, child)
    if field.type == "factors":
        return _factors(field, child)
    if field.type == "words":
        return _words(field, child)
    if child.is_map or child.is_list:
        return _BAD
    value = child.value
    if field.type == "flag":
        return value if isinstance(value, bool) else _BAD
    if field.type in ("word", "text"):
        legal = isinstance(value, str) and (field.type == "text" or value in field.words)
        return value if legal else _BAD
    if isinstance(value, str) and value in field.words:
        return value
    return _amount(field, value)


def _amount(field: Field, value: Any) -> Any:
    parse = {"count": count_of, "seconds": seconds_of}.get(field.type, number_of)
    number = parse(value)
    if number is None or not math.isfinite(number):
        return _BAD
    if number < field.low or number > field.high or (field.low_open and number == field.low):
        return _BAD
    return float(number) if field.type != "count" else number


def _factors(field: Field, child: Node) -> Any:
    if not child.is_list or not child.value:
        return _BAD
    given = [_BAD if item.is_map or item.is_list else item.value for item in child.value]
    numbers = [_BAD if item is _BAD else _amount(field, item) for item in given]
    return _BAD if any(number is _BAD for number in numbers) else tuple(numbers)


def _words(field: Field, child: Node) -> Any:
    given = plain(child)
    if not is_list(given) or any(item not in field.words for item in given):
        return _BAD
    return tuple(given) if len(set(given)) == len(given) else _BAD


def _points(field: Field, child: Node) -> Any:
    if not child.is_map:
        return _BAD if child.is_list else _amount_count(field, child.value)
    counts: Mapping[str, Any] = {
        name: _amount_count(field, plain(count)) for name, count in child.value.items()
    }
    return counts if counts and all(count is not _BAD for count in counts.values()) else _BAD


def _amount_count(field: Field, value: Any) -> Any:
    number = count_of(value)
    return number if number is not None and field.low <= number <= field.high else _BAD
