"""Rows of studies over several environments: kept side by side, published one an environment.

While a study runs a row of a curve holds the metrics of all environments, each under its
environment's number, and an evaluation the episodes of all, those of the first one first. In the
published tables each environment has rows of its own and its name in the column `environment`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # loaded on use: pyarrow costs 0.15 s
    import pyarrow as pa

ENVIRONMENT = "environment"
"""The column that names the environment of a row."""
SCORE_PREFIX, RAW_PREFIX = "score.", "raw."
"""Columns of trials: the normalised score on an environment, and the metric as it is."""
_NUMBERED = re.compile(r"(\d+):(.+)")
_T = TypeVar("_T")


def environment_metric(number: int, name: str) -> str:
    """Return the name of one environment's metric beside those of others.

    >>> environment_metric(1, "loss")
    '1:loss'
    """
    return f"{number}:{name}"


def split_metric(name: str) -> tuple[int | None, str]:
    """Return the environment's number and the metric; no number where it is of all.

    >>> split_metric("1:loss"), split_metric("loss")
    ((1, 'loss'), (None, 'loss'))
    """
    found = _NUMBERED.fullmatch(name)
    return (None, name) if found is None else (int(found[1]), found[2])


def by_environment(metrics: Mapping[str, _T]) -> dict[int | None, dict[str, _T]]:
    """Return environment -> its metrics; under None those of all together.

    >>> by_environment({"0:loss": 1, "1:loss": 2, "seconds": 3})
    {0: {'loss': 1}, 1: {'loss': 2}, None: {'seconds': 3}}
    """
    found: dict[int | None, dict[str, _T]] = {}
    for name, value in metrics.items():
        number, own = split_metric(name)
        found.setdefault(number, {})[own] = value
    return found


def environment_names(environments: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of the environments of a study, none where there is one alone."""
    return tuple(str(one["name"]) for one in environments)


def environment_columns(
    scores: Sequence[Sequence[float]], environments: Sequence[Mapping[str, Any]]
) -> dict[str, pa.Array]:
    """Return two columns an environment: trials' scores, and the metric that these are made of.

    Args:
        scores: of each trial, one an environment; none where a trial has none yet.
        environments: as `StudyMeta` has them.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for prefix in (SCORE_PREFIX, RAW_PREFIX):
        for at, one in enumerate(environments):
            cells: list[float | None] = [row[at] if row else None for row in scores]
            if prefix == RAW_PREFIX:
                low, width = float(one["random"]), float(one["reference"]) - float(one["random"])
                cells = [None if cell is None else low + cell * width for cell in cells]
            columns[f"{prefix}{one['name']}"] = pa.array(cells, pa.float64())
    return columns


def with_environment(schema: pa.Schema, before: str) -> pa.Schema:
    """Return a schema with the column that names environments, before another one."""
    import pyarrow as pa

    fields = {name: schema.field(name) for name in schema.names}
    at = schema.names.index(before)
    named = pa.field(ENVIRONMENT, pa.string())
    ordered = list(fields.values())
    return pa.schema([*ordered[:at], named, *ordered[at:]])


def long_curves(
    tables: Iterator[pa.Table],
    keys: Sequence[str],
    metrics: Mapping[str, str],
    names: Sequence[str],
) -> Iterator[pa.Table]:
    """Yield rows of curves, those of one environment after those of another.

    Args:
        tables: of all environments side by side.
        keys: columns to keep as they are.
        metrics: metric -> its column in what is yielded.
        names: of the environments.
    """
    import pyarrow as pa

    for table in tables:
        there = by_environment({name: name for name in table.column_names if name not in keys})
        shared = there.get(None, {})
        for number, label in enumerate(names):
            own = {**shared, **there.get(number, {})}
            columns: dict[str, pa.Array | pa.ChunkedArray] = {key: table[key] for key in keys}
            columns[ENVIRONMENT] = pa.array([label] * table.num_rows, pa.string())
            for metric, column in metrics.items():
                empty = pa.nulls(table.num_rows, pa.float64())
                columns[column] = table[own[metric]] if metric in own else empty
            yield pa.table(columns)


def long_episodes(table: pa.Table, counts: Sequence[int], names: Sequence[str]) -> pa.Table:
    """Return episodes with the name of their environment, counted anew in each.

    Args:
        table: episodes of some evaluations, one after the other, with a column `episode`.
        counts: episodes of each evaluation, as many on each environment.
        names: of the environments.
    """
    import numpy as np
    import pyarrow as pa

    episode = table["episode"].to_numpy()
    each = np.repeat(np.asarray(counts) // len(names), counts)
    labels = pa.array(names, pa.string()).take(pa.array(episode // each))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name in table.column_names:
        if name == "episode":
            columns[ENVIRONMENT] = labels
            columns[name] = pa.array(episode % each, pa.int64())
        else:
            columns[name] = table[name]
    return pa.table(columns)
