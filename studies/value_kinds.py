"""The kinds of value in a study file: how each is read, named and described.

A new kind needs one class here, and its name in `field.FieldType`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from ..files.plain_data import is_list
from .field import Field, FieldType
from .study_values import count_of, number_of, seconds_of
from .yaml_io import Node, plain

BAD: Any = object()
"""The result of `read` for a value that the key cannot have."""
AMOUNT: dict[str, Any] = {
    "type": "string",
    "pattern": r"^\s*[0-9]{1,15}(\.[0-9]{1,9})?(k|K|M|G|B)\s*$",
}
TIME: dict[str, Any] = {
    "type": "string",
    "pattern": r"^\s*([0-9]{1,9}(\.[0-9]{1,6})?[dhms]\s*)+$",
}
_NAMED = ("env", "algorithm")
"""Mappings that may be replaced by a name."""


class Kind(Protocol):
    """How one kind of value is read and described."""

    def read(self, field: Field, child: Node) -> Any:
        """Return the value, or BAD."""
        ...

    def schema(self, field: Field) -> list[dict[str, Any]]:
        """Return the alternative JSON schemas, except those for words and `off`."""
        ...


class Mapped:
    def read(self, field: Field, child: Node) -> Any:
        if child.is_map:
            return child
        if field.key in _NAMED and isinstance(child.value, str):
            return child
        if field.key == "env" and child.is_list:
            return child
        return BAD

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return [{"type": "object"}]


class Listed:
    def read(self, field: Field, child: Node) -> Any:
        if child.is_list:
            return child
        return BAD

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return [{"type": "array"}]


class Words:
    """A list of distinct words."""

    def read(self, field: Field, child: Node) -> Any:
        given = plain(child)
        if not is_list(given):
            return BAD
        known = field.words or [item for item in given if isinstance(item, str)]
        if not all(item in known for item in given):
            return BAD
        return _entries_if_distinct(given)

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return [{"type": "array", "items": {"enum": list(field.words)}, "uniqueItems": True}]


class Counts:
    """A list of distinct integers of at least 1."""

    def read(self, field: Field, child: Node) -> Any:
        if not child.is_list or not child.value:
            return BAD
        given = [count_of(item.value) for item in child.value]
        if any(one is None or one <= 0 for one in given):
            return BAD
        return _entries_if_distinct(given)

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return []


class Flag:
    def read(self, field: Field, child: Node) -> Any:
        if isinstance(child.value, bool):
            return child.value
        return BAD

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return [{"type": "boolean"}]


class Text:
    def read(self, field: Field, child: Node) -> Any:
        if isinstance(child.value, str):
            return child.value
        return BAD

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return [{"type": "string"}]


class Word:
    """One of the field's words."""

    def read(self, field: Field, child: Node) -> Any:
        if isinstance(child.value, str) and child.value in field.words:
            return child.value
        return BAD

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return []


class Number:
    """A finite number within the field's range, or one of its words; `auto` is None."""

    def read(self, field: Field, child: Node) -> Any:
        given = child.value
        if isinstance(given, str) and given in field.words:
            if given == "auto":
                return None
            return given
        return self.amount(field, given)

    def amount(self, field: Field, given: Any) -> Any:
        return _checked_number(field, number_of(given), float)

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return [self.number(field), AMOUNT]

    def number(self, field: Field) -> dict[str, Any]:
        return {"type": "number", **range_schema(field)}


class Count(Number):
    """An integer, such as 200M."""

    def amount(self, field: Field, given: Any) -> Any:
        return _checked_number(field, count_of(given), int)

    def number(self, field: Field) -> dict[str, Any]:
        return {"type": "integer", **range_schema(field)}


class Seconds(Number):
    """A time, such as 2h."""

    def amount(self, field: Field, given: Any) -> Any:
        return _checked_number(field, seconds_of(given), float)

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return [self.number(field), TIME]


class Factors(Number):
    """A list of numbers."""

    def read(self, field: Field, child: Node) -> Any:
        if not child.is_list or not child.value:
            return BAD
        found = [self.amount(field, item.value) for item in child.value]
        if BAD in found:
            return BAD
        return tuple(found)

    def schema(self, field: Field) -> list[dict[str, Any]]:
        return [{"type": "array", "items": self.number(field), "minItems": 1}]


class Points(Count):
    """An integer, or a mapping from hyperparameters to integers."""

    def read(self, field: Field, child: Node) -> Any:
        if not child.is_map:
            return super().read(field, child)
        if not child.value:
            return BAD
        found = {key: self.amount(field, item.value) for key, item in child.value.items()}
        if BAD in found.values():
            return BAD
        return found

    def schema(self, field: Field) -> list[dict[str, Any]]:
        one = {"anyOf": [self.number(field), AMOUNT]}
        return [one, {"type": "object", "additionalProperties": one}]


KINDS: Mapping[FieldType, Kind] = {
    "word": Word(),
    "words": Words(),
    "text": Text(),
    "count": Count(),
    "number": Number(),
    "flag": Flag(),
    "seconds": Seconds(),
    "map": Mapped(),
    "list": Listed(),
    "points": Points(),
    "factors": Factors(),
    "counts": Counts(),
}


def kind_of(field: Field) -> Kind:
    return KINDS[field.type]


def read_kind(field: Field, child: Node) -> Any:
    """Return a value as read by the field's kind, or BAD."""
    return kind_of(field).read(field, child)


def range_schema(spec: Any) -> dict[str, Any]:
    """Return the bounds of a field or hyperparameter."""
    body: dict[str, Any] = {}
    if spec.low > -math.inf:
        body["minimum"] = spec.low
        if spec.low_open:
            body["exclusiveMinimum"] = body.pop("minimum")
    if spec.high < math.inf:
        body["maximum"] = spec.high
    return body


def _checked_number(field: Field, number: float | int | None, made: type) -> Any:
    if number is None or not math.isfinite(number) or not field.contains(number):
        return BAD
    return made(number)


def _entries_if_distinct(given: list[Any]) -> Any:
    """Return the entries, or `BAD` if any of them is listed twice."""
    if len(set(given)) < len(given):
        return BAD
    return tuple(given)
