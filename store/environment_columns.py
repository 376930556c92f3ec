"""Rows of studies over several environments: stored together, published per environment.

While a study runs, a curve row contains all environments' metrics, prefixed with the environment's
number. An evaluation contains all environments' episodes, in order. The published tables have
separate rows per environment, with its name in the column `environment`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .libraries import np, pa

ENVIRONMENT = "environment"  # the column with the name of a row's environment
_NUMBERED = re.compile(r"(\d+):(.+)")
_T = TypeVar("_T")


def environment_metric(number: int, name: str) -> str:
    """Return the stored name of one environment's metric.

    >>> environment_metric(1, "loss")
    '1:loss'
    """
    return f"{number}:{name}"


def split_metric(name: str) -> tuple[int | None, str]:
    """Return the environment's number (None for all environments) and the metric's name.

    >>> split_metric("1:loss"), split_metric("loss")
    ((1, 'loss'), (None, 'loss'))
    """
    found = _NUMBERED.fullmatch(name)
    if found is None:
        return None, name
    return int(found[1]), found[2]


def by_environment(metrics: Mapping[str, _T]) -> dict[int | None, dict[str, _T]]:
    """Return the metrics by environment; the key None is for metrics of all environments together.

    >>> by_environment({"0:loss": 1, "1:loss": 2, "seconds": 3})
    {0: {'loss': 1}, 1: {'loss': 2}, None: {'seconds': 3}}
    """
    found: dict[int | None, dict[str, _T]] = {}
    for name, value in metrics.items():
        number, own = split_metric(name)
        found.setdefault(number, {})[own] = value
    return found


def environment_names(environments: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(str(one["name"]) for one in environments)


def environment_columns(
    scores: Sequence[Sequence[float]], environments: Sequence[Mapping[str, Any]]
) -> dict[str, pa.Array]:
    columns: dict[str, Any] = {}
    for at, one in enumerate(environments):
        cells = [row[at] if row else None for row in scores]
        columns[f"score.{one['name']}"] = pa.array(cells, pa.float64())
    for at, one in enumerate(environments):
        low, width = float(one["random"]), float(one["reference"]) - float(one["random"])
        cells = [low + row[at] * width if row else None for row in scores]
        columns[f"raw.{one['name']}"] = pa.array(cells, pa.float64())
    return columns


def long_curves(
    tables: Iterator[pa.Table],
    keys: Sequence[str],
    metrics: Mapping[str, str],
    names: Sequence[str],
) -> Iterator[pa.Table]:
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


def long_episodes(table: pa.Table, counts: np.ndarray, names: Sequence[str]) -> pa.Table:
    """Return episodes with their environment's name, numbered within each environment."""
    episode = table["episode"].to_numpy()
    each = np.repeat(counts // len(names), counts)
    labels = pa.array(names, pa.string()).take(pa.array(episode // each))
    at = table.column_names.index("episode")
    table = table.set_column(at, "episode", pa.array(episode % each, pa.int64()))
    return table.add_column(at, ENVIRONMENT, labels)
