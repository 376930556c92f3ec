"""Converts rows to SQLite cells and back: JSON text for small rows, bytes for episodes.

SQLite turns NaN into NULL. Floats are therefore stored as JSON text (with Python's `NaN` and
`Infinity`; the shortest repr is exact) or as little-endian float64 in blobs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from functools import cache, lru_cache
from numbers import Integral, Real
from typing import Any

from ..errors import StoreError
from ..files.plain_data import is_mapping, is_sequence
from .libraries import np
from .rows import (
    AskRow,
    AttributeRow,
    Commit,
    CommitHead,
    DecisionRow,
    EvaluationRow,
    Part,
    Stream,
    StudyMeta,
    TrialRow,
    TrialState,
    is_part_name,
)

Cells = tuple[Any, ...]  # one row of a table: integers, texts, bytes, None
PARAM_KINDS = ("float", "int", "bool", "text", "json")
_PLAIN = {"float": float, "int": int, "bool": bool, "text": str}


def param_kind(values: Iterable[Any]) -> str:
    """Return the column type that fits all values of a hyperparameter; None (off) fits any type.

    >>> param_kind([1e-4, 1]), param_kind([32, 64]), param_kind(["relu", None]), param_kind([[64]])
    ('float', 'int', 'text', 'json')
    """
    kinds = {_kind_of_value(value) for value in values if value is not None}
    if kinds == {"int", "float"}:
        return "float"
    if len(kinds) == 1:
        return kinds.pop()
    return "json"


def _kind_of_value(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Integral):
        return "int"
    if isinstance(value, Real):
        return "float"
    if isinstance(value, str):
        return "text"
    return "json"


def _to_kind(what: str, kind: str, value: Any) -> Any:
    """Convert a value to `kind`, one of the `PARAM_KINDS`."""
    if type(value) is _PLAIN.get(kind):
        return value
    actual_kind = _kind_of_value(value)
    if kind == "json":
        return plain_json(value)
    if kind == "float" and actual_kind in ("float", "int"):
        return float(value)
    if actual_kind != kind:
        raise StoreError(
            f"{what} is declared {kind}, but a trial has {value!r} ({actual_kind}); "
            "the type of a column cannot change within a study"
        )
    if kind == "int":
        return int(value)
    return value


def plain_json(value: Any, finite: bool = False) -> Any:
    """Convert a value to JSON data, with tuples as lists and NumPy numbers as Python numbers."""
    if value is None or type(value) in (bool, str, int) or isinstance(value, str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if finite and not math.isfinite(number):
            return str(number)
        return number
    if is_mapping(value):
        return {str(key): plain_json(item, finite) for key, item in value.items()}
    if is_sequence(value):
        return [plain_json(item, finite) for item in value]
    raise StoreError(f"cannot store {value!r} of type {type(value).__name__}")


def strict_json(value: Any) -> str:
    """Return standard JSON text, with non-finite numbers as the strings `nan`, `inf`, `-inf`.

    >>> strict_json({"clip": float("inf"), "sizes": (64, 64)})
    '{"clip": "inf", "sizes": [64, 64]}'
    """
    return json.dumps(finite_json(value), allow_nan=False)


def finite_json(value: Any) -> Any:
    """Return plain data, with non-finite numbers as strings."""
    return plain_json(value, finite=True)


def _tuple_names(kind: type[TrialRow] | type[DecisionRow]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if str(one.type).startswith("tuple"))


_TRIAL_TUPLES, _DECISION_TUPLES = map(_tuple_names, (TrialRow, DecisionRow))


@dataclass(frozen=True)
class _Column:
    """Describes how a field of a row is stored."""

    name: str
    number: str = ""  # "int" or "float"; "" for other data
    several: bool = False  # a tuple of such numbers
    optional: bool = False


@cache
def _columns_of_row(kind: type[TrialRow] | type[DecisionRow]) -> tuple[_Column, ...]:
    return tuple(map(_column_of_field, fields(kind)))


def _column_of_field(entry: Field[Any]) -> _Column:
    declared = str(entry.type)
    kind = declared.removesuffix(" | None")
    each = kind.removeprefix("tuple[").removesuffix(", ...]")
    if each not in ("int", "float"):
        return _Column(entry.name)
    return _Column(entry.name, each, several=each != kind, optional=kind != declared)


def _checked_cell(row: TrialRow | DecisionRow, column: _Column) -> Any:
    value: Any = getattr(row, column.name)
    if not column.number or (value is None and column.optional):
        return plain_json(value)
    what = f"{column.name} of trial {row.trial}"
    if not column.several:
        return _to_kind(what, column.number, value)
    return [_to_kind(what, column.number, one) for one in getattr(row, column.name)]


def trial_to_text(row: TrialRow, param_kinds: Mapping[str, str]) -> str:
    if unknown := sorted(set(row.params) - set(param_kinds)):
        raise StoreError(
            f"trial {row.trial} has params that the study does not declare: {', '.join(unknown)}; "
            f"declared: {', '.join(sorted(param_kinds))}"
        )
    cells = {column.name: _checked_cell(row, column) for column in _columns_of_row(TrialRow)}
    cells["params"] = {
        name: None if value is None else _to_kind(f"param {name!r}", param_kinds[name], value)
        for name, value in row.params.items()
    }
    return json.dumps(cells)


_STATES = {str(state): state for state in TrialState}


def trial_from_text(text: str) -> TrialRow:
    values = json.loads(text)
    state = values["state"]
    values["state"] = _STATES.get(state) or TrialState(state)
    return TrialRow(**_with_tuples(values, _TRIAL_TUPLES))


def decision_cells(row: DecisionRow) -> Cells:
    text = json.dumps(
        {column.name: _checked_cell(row, column) for column in _columns_of_row(DecisionRow)}
    )
    return (int(row.trial), int(row.rung), text)


def decision_from_text(text: str) -> DecisionRow:
    return DecisionRow(**_with_tuples(json.loads(text), _DECISION_TUPLES))


def _with_tuples(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    for name in names:
        if name in values:
            values[name] = tuple(values[name] or ())
    return values


_STUDY = -1  # `trial` in the row of an attribute of the study


def meta_cells(meta: StudyMeta) -> list[Cells]:
    return [(name, json.dumps(dict(v) if is_mapping(v) else v)) for name, v in vars(meta).items()]


def meta_of_cells(rows: Iterable[Cells]) -> StudyMeta:
    """Return a study's metadata; fields that older versions lack have their defaults."""
    values = {key: json.loads(text) for key, text in rows}
    known = {entry.name for entry in fields(StudyMeta)}
    for name in ("objectives", "constraints", "environments"):
        values[name] = tuple(values.get(name, ()))
    return StudyMeta(**{key: value for key, value in values.items() if key in known})


def head_cells(head: CommitHead | Commit) -> Cells:
    at = repr(float(head.at))
    return (1, int(head.number), at, str(head.phase), head.loop_state, head.checkpoint)


def ask_cells(row: AskRow) -> Cells:
    return (int(row.batch), str(row.method), json.dumps(row.trials), json.dumps(row.told))


def ask_of_cells(batch: int, method: str, trials: str, told: str) -> AskRow:
    return AskRow(batch, method, tuple(json.loads(trials)), tuple(json.loads(told)))


def attribute_cells(row: AttributeRow) -> Cells:
    trial = _STUDY if row.trial is None else int(row.trial)
    return (trial, str(row.name), json.dumps(plain_json(row.value)))


def attribute_of_cells(trial: int, name: str, value: str) -> AttributeRow:
    return AttributeRow(None if trial == _STUDY else trial, name, json.loads(value))


def part_cells(part: Part) -> Cells:
    return (part.name, part.first, part.rows, part.level, part.checksum)


def part_of_cells(name: str, checksum: str, rows: int, first: int, level: int) -> Part:
    if not is_part_name(name):  # otherwise it could lead out of the folder
        raise ValueError(f"{name!r} is not a curve part")
    return Part(name, checksum, rows, first, level)


def evaluation_cells(row: EvaluationRow) -> Cells:
    """Return an evaluation as cells: little-endian numbers, with metrics as [names, episodes]."""
    names = sorted(row.metrics)
    key = (int(row.trial), str(row.stream), int(row.replicate), int(row.env_steps))
    try:
        returns, lengths = np.asarray(row.returns, "<f8"), np.asarray(row.lengths, "<i8")
        metrics = [np.asarray(row.metrics[name], "<f8") for name in names]
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"an evaluation of trial {key[0]} has non-numeric values: {error}"
        ) from error
    if {one.shape for one in (returns, lengths, *metrics)} != {(returns.size,)}:
        raise StoreError(
            f"the evaluation of trial {key[0]}, {key[1]} seed {key[2]}, at {key[3]} env steps "
            "must have one return, one length and one value of each metric per episode"
        )
    blobs = (returns.tobytes(), lengths.tobytes())
    values = b"".join(one.tobytes() for one in metrics)
    return (*key, returns.size, *blobs, json.dumps(names), values)


def evaluation_of_cells(*cells: Any) -> EvaluationRow:
    trial, stream, replicate, env_steps, episodes, returns, lengths, text, metrics = cells
    names = names_of_text(text)
    sizes = (len(returns), len(lengths), len(metrics))
    if sizes != (8 * episodes, 8 * episodes, 8 * episodes * len(names)):
        raise ValueError(f"an evaluation of trial {trial} has wrong sizes: {sizes} bytes")
    values = np.frombuffer(metrics, "<f8").reshape(len(names), episodes)
    return EvaluationRow(
        np.frombuffer(returns, "<f8"),
        np.frombuffer(lengths, "<i8"),
        dict(zip(names, values, strict=True)),
        trial=trial,
        stream=Stream(stream),
        replicate=replicate,
        env_steps=env_steps,
    )


@lru_cache(maxsize=256)
def names_of_text(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
