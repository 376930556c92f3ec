"""Rows to what SQLite keeps and back: JSON text for small rows, packed numbers for episodes.

SQLite turns NaN into NULL, so no float is ever bound to a column: floats live in JSON text (with
Python's `NaN` and `Infinity`, shortest repr, hence exact) or as little-endian float64 in blobs.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, NamedTuple

from ..errors import StoreError
from ..files.plain_data import is_dict, is_list, is_mapping, is_sequence
from .rows import (
    AskRow,
    AttributeRow,
    DecisionRow,
    EvaluationRow,
    Head,
    Part,
    Stream,
    StudyMeta,
    TrialRow,
    TrialState,
    is_part_name,
)

_PLAIN = frozenset({str, int, float, bool, type(None)})
PARAM_KINDS = ("float", "int", "bool", "text", "json")


def param_kind(values: Iterable[Any]) -> str:
    """The column type that holds every value a knob may take; None (switched off) fits any.

    >>> param_kind([1e-4, 1]), param_kind([32, 64]), param_kind(["relu", None]), param_kind([[64]])
    ('float', 'int', 'text', 'json')
    """
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"int", "float"}:
        return "float"
    return kinds.pop() if len(kinds) == 1 else "json"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Integral):
        return "int"
    if isinstance(value, Real):
        return "float"
    return "text" if isinstance(value, str) else "json"


def checked_param(name: str, kind: str, value: Any) -> Any:
    """The value as plain Python of the declared kind.

    Raises:
        StoreError: the value is of another kind; the column's type cannot change.
    """
    if value is None:
        return None
    seen = _kind(value)
    if kind == "json":
        return plain_json(value)
    if kind == "float" and seen in ("float", "int"):
        return float(value)
    if seen != kind:
        raise StoreError(
            f"param {name!r} is declared {kind}, but a trial gave {value!r} ({seen}); "
            "the type of a column cannot change within a study"
        )
    return int(value) if kind == "int" else value


def plain_json(value: Any) -> Any:
    """Tuples as lists and other packages' numbers as Python's, so that JSON takes them."""
    if type(value) in _PLAIN:
        return value
    if is_mapping(value):
        return {str(key): plain_json(item) for key, item in value.items()}
    if is_sequence(value):
        return [plain_json(item) for item in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise StoreError(f"cannot store {value!r} of type {type(value).__name__}")


def strict_json(value: Any) -> str:
    """JSON text that every reader takes: non-finite numbers become the texts `nan`, `inf`, `-inf`.

    >>> strict_json({"clip": float("inf"), "sizes": (64, 64)})
    '{"clip": "inf", "sizes": [64, 64]}'
    """
    return json.dumps(finite_json(value), allow_nan=False)


def finite_json(value: Any) -> Any:
    """The value as plain data without numbers that are not finite: those become texts."""
    return _finite(plain_json(value))


def _finite(value: Any) -> Any:
    if is_dict(value):
        return {key: _finite(item) for key, item in value.items()}
    if is_list(value):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


_FLOATS = frozenset({"value", "rung_value", "started_at", "ended_at", "cutoff", "train_seconds"})
_FLOAT_LISTS = frozenset(
    {"seed_values", "choose_values", "report_values", "extras"}
    | {"objectives", "constraints", "choose_objectives", "choose_constraints"}
    | {"scores", "choose_scores", "report_scores"}
)
_INTEGER_LISTS = frozenset({"report_diverged"})
_TUPLES = _FLOAT_LISTS | _INTEGER_LISTS | {"schedule"}
_INTEGERS = frozenset(
    {"trial", "batch", "rung", "env_steps", "eval_env_steps", "warmup_env_steps", "bits"}
    | {"rank", "judged"}
)
_MAYBE_INTEGERS = frozenset({"rung_env_steps"})


def _checked(row: TrialRow | DecisionRow, name: str) -> Any:
    """A row's field as plain Python, its type checked by its name."""
    value = getattr(row, name)
    try:
        if name in _FLOAT_LISTS:
            return [_real(item) for item in value]
        if name in _INTEGER_LISTS:
            return [_integer(item) for item in value]
        if name in _FLOATS:
            return None if value is None else _real(value)
        if name in _MAYBE_INTEGERS:
            return None if value is None else _integer(value)
        return _integer(value) if name in _INTEGERS else plain_json(value)
    except TypeError as error:
        raise StoreError(
            f"{name} of trial {row.trial} must be a number of its type, got {value!r}"
        ) from error


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(value)
    return float(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(value)
    return int(value)


def trial_to_text(row: TrialRow, param_kinds: Mapping[str, str]) -> str:
    """A trial as JSON text.

    Raises:
        StoreError: a param is not declared or of another kind, or a number is none.
    """
    if unknown := sorted(set(row.params) - set(param_kinds)):
        raise StoreError(
            f"trial {row.trial} has params the study does not declare: {', '.join(unknown)}; "
            f"declared are: {', '.join(sorted(param_kinds))}"
        )
    cells = {entry.name: _checked(row, entry.name) for entry in fields(TrialRow)}
    cells["params"] = {
        name: checked_param(name, param_kinds[name], value) for name, value in row.params.items()
    }
    return json.dumps(cells)


def trial_from_text(text: str) -> TrialRow:
    """The trial that `trial_to_text` wrote; list values of params come back as lists."""
    values = json.loads(text)
    values["state"] = TrialState(values["state"])
    return TrialRow(**_with_tuples(values))


def decision_to_text(row: DecisionRow) -> str:
    """A decision as JSON text."""
    return json.dumps({entry.name: _checked(row, entry.name) for entry in fields(row)})


def decision_from_text(text: str) -> DecisionRow:
    """The decision that `decision_to_text` wrote."""
    return DecisionRow(**_with_tuples(json.loads(text)))


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    for name in _TUPLES & values.keys():
        values[name] = tuple(values[name])
    return values


class PackedEvaluation(NamedTuple):
    """All episodes of one evaluation of one replicate, as the journal keeps them.

    Attributes:
        trial, stream, replicate, env_steps: the key; one evaluation each.
        episodes: how many.
        returns: float64, little-endian, one an episode.
        lengths: int64, likewise.
        names: the environment's own metrics, sorted.
        metrics: float64 [names, episodes], likewise.
    """

    trial: int
    stream: str
    replicate: int
    env_steps: int
    episodes: int
    returns: bytes
    lengths: bytes
    names: tuple[str, ...]
    metrics: bytes


def pack_evaluations(rows: Iterable[EvaluationRow]) -> Iterator[PackedEvaluation]:
    """Episodes grouped into evaluations, in the order they first appear.

    Raises:
        StoreError: the episodes of one evaluation are not 0, 1, 2, ..., or name other metrics.
    """
    groups: dict[tuple[int, str, int, int], list[EvaluationRow]] = {}
    for row in rows:
        key = (int(row.trial), str(row.stream), int(row.replicate), int(row.env_steps))
        groups.setdefault(key, []).append(row)
    for key, group in groups.items():
        yield _packed(key, group)


def _packed(key: tuple[int, str, int, int], group: Sequence[EvaluationRow]) -> PackedEvaluation:
    names, count = tuple(sorted(group[0].metrics)), len(group)
    ordered = [row.episode for row in group] == list(range(count))
    if not ordered or any(row.metrics.keys() != group[0].metrics.keys() for row in group):
        raise StoreError(
            f"the evaluation of trial {key[0]}, {key[1]} replicate {key[2]} at {key[3]} env steps "
            "must hold the episodes 0, 1, 2, ... in order, all with the same metrics"
        )
    try:
        returns = struct.pack(f"<{count}d", *(row.episode_return for row in group))
        lengths = struct.pack(f"<{count}q", *(row.episode_length for row in group))
        values = [row.metrics[name] for name in names for row in group]
        metrics = struct.pack(f"<{len(values)}d", *values)
    except struct.error as error:
        raise StoreError(f"an evaluation of trial {key[0]} holds no numbers: {error}") from error
    return PackedEvaluation(*key, count, returns, lengths, names, metrics)


def unpack_evaluation(packed: PackedEvaluation) -> list[EvaluationRow]:
    """The episodes of one evaluation, in order."""
    count = packed.episodes
    returns = struct.unpack(f"<{count}d", packed.returns)
    lengths = struct.unpack(f"<{count}q", packed.lengths)
    values = struct.unpack(f"<{count * len(packed.names)}d", packed.metrics)
    return [
        EvaluationRow(
            trial=packed.trial,
            stream=Stream(packed.stream),
            replicate=packed.replicate,
            env_steps=packed.env_steps,
            episode=episode,
            episode_return=returns[episode],
            episode_length=lengths[episode],
            metrics={
                name: values[index * count + episode] for index, name in enumerate(packed.names)
            },
        )
        for episode in range(count)
    ]


Cells = tuple[Any, ...]
"""One row of a table: integers, texts, bytes, None."""
_STUDY = -1  # the `trial` of an attribute that belongs to the study


def meta_cells(meta: StudyMeta) -> list[Cells]:
    """What a journal knows of its study, one row a field."""
    return [
        (entry.name, json.dumps(_mapping(getattr(meta, entry.name)))) for entry in fields(meta)
    ]


def meta_of_cells(rows: Iterable[Cells]) -> StudyMeta:
    """What `meta_cells` was given; what older versions did not write has its default."""
    values = {key: json.loads(text) for key, text in rows}
    known = {entry.name for entry in fields(StudyMeta)}
    for name in ("objectives", "constraints", "environments"):
        values[name] = tuple(values.get(name, ()))
    return StudyMeta(**{key: value for key, value in values.items() if key in known})


def _mapping(value: Any) -> Any:
    return dict(value) if is_mapping(value) else value


def head_cells(head: Head) -> Cells:
    """The row of the last commit."""
    return (
        1,
        int(head.number),
        repr(float(head.at)),
        str(head.phase),
        head.loop_state,
        head.checkpoint,
    )


def ask_cells(row: AskRow) -> Cells:
    """The row of a batch of proposals."""
    return (int(row.batch), str(row.method), json.dumps(row.trials), json.dumps(row.told))


def ask_of_cells(batch: int, method: str, trials: str, told: str) -> AskRow:
    """The batch that `ask_cells` was given."""
    return AskRow(batch, method, tuple(json.loads(trials)), tuple(json.loads(told)))


def attribute_cells(row: AttributeRow) -> Cells:
    """The row of a system attribute."""
    trial = _STUDY if row.trial is None else int(row.trial)
    return (trial, str(row.name), json.dumps(plain_json(row.value)))


def attribute_of_cells(trial: int, name: str, value: str) -> AttributeRow:
    """The row that `attribute_cells` was given."""
    return AttributeRow(None if trial == _STUDY else trial, name, json.loads(value))


def part_cells(part: Part) -> Cells:
    """The row of a curve part."""
    return (part.name, part.first, part.rows, part.level, part.checksum)


def part_of_cells(name: str, checksum: str, rows: int, first: int, level: int) -> Part:
    """The part that `part_cells` was given, whose name never leaves its folder."""
    if not is_part_name(name):
        raise ValueError(f"{name!r} is not a curve part")
    return Part(name, checksum, rows, first, level)


def evaluation_cells(packed: PackedEvaluation) -> Cells:
    """The row of an evaluation."""
    return (
        packed.trial,
        packed.stream,
        packed.replicate,
        packed.env_steps,
        packed.episodes,
        packed.returns,
        packed.lengths,
        json.dumps(packed.names),
        packed.metrics,
    )


def evaluation_of_cells(*cells: Any) -> PackedEvaluation:
    """The evaluation that `evaluation_cells` was given, its sizes checked."""
    *key, names, metrics = cells
    packed = PackedEvaluation._make((*key, names_of_text(names), metrics))
    size = 8 * packed.episodes
    sizes = (len(packed.returns), len(packed.lengths), len(metrics))
    if sizes != (size, size, size * len(packed.names)):
        raise ValueError(f"the evaluation of trial {packed.trial} has {sizes} bytes")
    return packed


@lru_cache(maxsize=256)
def names_of_text(text: str) -> tuple[str, ...]:
    """The names of an evaluation's metrics."""
    return tuple(json.loads(text))
