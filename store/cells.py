"""Rows to the cells of the journal's tables and back.

What comes back is not checked beyond its shape: the journal compares checksums before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from typing import Any

from ..plain_data import is_mapping
from .codec import PackedEvaluation, plain_json
from .commit import Head, Part, is_part_name
from .rows import AskRow, AttributeRow, StudyMeta

__all__ = [
    "Cells",
    "ask_cells",
    "ask_of_cells",
    "attribute_cells",
    "attribute_of_cells",
    "evaluation_cells",
    "evaluation_of_cells",
    "head_cells",
    "meta_cells",
    "meta_of_cells",
    "names_of_text",
    "part_cells",
    "part_of_cells",
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
