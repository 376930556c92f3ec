"""Converts a finished study to a table of recorded runs: three small Parquet files.

`trials` has one row per configuration. `evaluations` and `curves` (training metrics) have one row
per configuration, seed and evaluation, with float32 values. The metadata of `trials` contains the
study file, versions and cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow

from ...errors import ConfigError
from ...store.journal import Journal
from ...store.parquet import replacing, write_grouped
from ...store.query import has_column, query
from ...store.tables import PARAM_PREFIX, sql_names
from ...studies.load import recorded
from .tables import ABOUT

pa: Any = pyarrow  # the stubs lack most names
TABLES = ("trials", "evaluations", "curves")
_TRIALS = ("rank", "trial", "state", "value", "ci_low", "ci_high", "seeds", "env_steps",
           "eval_env_steps", "proposed_by", "params")  # fmt: skip
_CURVES = ("episode_return_100", "entropy", "approx_kl", "explained_variance")
_EPISODE_COLUMNS = {"return_mean": "episode_return", "length_mean": "episode_length"}
_KEYS = ("trial", "stream", "replicate", "env_steps", "episode")


def reduce_study(study: Path, folder: Path, about: Mapping[str, Any]) -> None:
    """Write a finished study's tables to a folder; identical studies produce identical files.

    Args:
        study: the study's folder.
        folder: created if missing; other files in it are kept.
        about: commit and cost, for the metadata.

    Raises:
        ConfigError: the study has not finished. StoreError: its journal is damaged, or the files
            cannot be written.
    """
    with Journal(study) as journal, journal.at_one_commit():
        meta, phase = journal.meta, journal.head().phase
    if phase != "finished":
        raise ConfigError(f"{study} has not finished; resume it first")
    asked = recorded(meta.study_text)
    metadata = {**about, "study": meta.study_text, "metric": asked.metric.name}
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        "trials": _trials_table(study).replace_schema_metadata(
            {ABOUT: json.dumps(metadata, sort_keys=True).encode()}
        ),
        "evaluations": _evaluations_table(study, asked.metric.name),
        "curves": _curves_table(study),
    }
    for name, table in made.items():
        with replacing(folder / f"{name}.parquet", table.schema) as writer:
            write_grouped(writer, [table])


def _trials_table(study: Path) -> Any:
    columns = [name for name, *_ in _describe_columns(study, "trials")]
    kept = [name for name in columns if name in _TRIALS or name.startswith(PARAM_PREFIX)]
    kept.remove("params")
    return _query_table(study, [f'"{name}"' for name in [*kept, "params"]], "trials", "trial")


def made_with(study: Path) -> dict[str, Any]:
    """Return a table's provenance: versions, machine, cost and code files."""
    with Journal(study) as journal, journal.at_one_commit():
        meta = journal.meta
    cost = query(study, "SELECT sum(env_steps), sum(eval_env_steps) FROM trials", None)[1][0]
    return {
        "versions": dict(meta.versions),
        "backend": meta.backend,
        "files": dict(meta.files),
        "env_steps": cost[0],
        "eval_env_steps": cost[1],
    }


def _evaluations_table(study: Path, metric: str) -> Any:
    """Return the mean over episodes for every evaluation of the search."""
    name = metric.removeprefix("eval/")
    column = _EPISODE_COLUMNS.get(name) or sql_names([name], _KEYS)[name]
    return _query_table(
        study,
        [*_SHORT_KEYS, f'avg("{column}")::FLOAT AS value', "count(*)::SMALLINT AS episodes"],
        "evaluations",
        "trial, replicate, env_steps",
        grouped="trial, replicate, env_steps",
    )


def _curves_table(study: Path) -> Any:
    """Return the training metrics from `_CURVES` that the study recorded."""
    there = [name for name in _CURVES if has_column(study, "curves", name)]
    picked = [f'"{name}"::FLOAT AS "{name}"' for name in there]
    return _query_table(study, [*_SHORT_KEYS, *picked], "curves", "trial, replicate, env_steps")


_SHORT_KEYS = (
    "trial::SMALLINT AS trial",
    "replicate::TINYINT AS replicate",
    "env_steps::INTEGER AS env_steps",
)
_TYPES = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "VARCHAR": pa.string(),
}


def _query_table(study: Path, picked: list[str], table: str, order: str, grouped: str = "") -> Any:
    sql = f"SELECT {', '.join(picked)} FROM {table} "
    if table != "trials":
        sql += "WHERE stream = 'search' "
    if grouped:
        sql += f"GROUP BY {grouped} "
    sql += f"ORDER BY {order}"
    kinds = [str(kind) for _, kind, *_ in query(study, f"DESCRIBE {sql}", None)[1]]
    names, rows = query(study, sql, None)
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in names]
    arrays = [pa.array(cells, _TYPES[kind]) for cells, kind in zip(columns, kinds, strict=True)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def _describe_columns(study: Path, table: str) -> list[tuple[Any, ...]]:
    return query(study, f"DESCRIBE {table}", None)[1]
