"""The published tables, generated from the journal and its parts (docs/reference/tables.md)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import StoreError
from ..files.atomic_files import check_readable
from . import environment_columns as envs
from . import parquet
from .baselines import BASELINES, baselines_of
from .codec import strict_json
from .journal import Journal
from .leaderboard import Entry, leaderboard_of
from .libraries import np, pa, pq
from .lock import StudyLock, lock_holder
from .rows import BaselineRow, EvaluationRow, StudyMeta, TrialRow, as_left

TABLES = ("trials", "evaluations", "curves")
PARAM_PREFIX = "param."
COMMIT = "hpo.commit"  # key of the metadata of `trials.parquet`: the number of its commit
_SHARE = 20.0  # publishing takes at most 1/20 of the time, for any size of study
_EVALUATIONS_AT_ONCE = 4_096

_BASELINE_COLUMNS = ("baseline", "stream", "replicate", "value")
_CURVE_COLUMNS = ("trial", "stream", "replicate", "env_steps")
_EPISODE_COLUMNS = (*_CURVE_COLUMNS, "episode", "episode_return", "episode_length")
_ENTRY_COLUMNS = (
    *("rank", "trial", "state", "value", "ci_low", "ci_high", "ci_kind", "value_from"),
    *("confirmed", "seeds", "search_value", "choose_value", "report_value"),
    *("measured_value", "measured_from", "measured_seeds"),
)
_ROW_COLUMNS = (
    *("rung", "rung_value", "rung_env_steps", "stop_rule", "audited", "env_steps"),
    *("eval_env_steps", "warmup_env_steps", "seed_values", "choose_values", "report_values"),
    *("report_diverged", "proposed_by", "batch", "bucket", "bits", "error", "started_at"),
    *("ended_at", "train_seconds"),
)


def damaged_table(path: Path) -> StoreError:
    check_readable(path)
    return StoreError(
        f"{path} cannot be read; run the study file again to rewrite it from the journal"
    )


@dataclass(frozen=True, eq=False)
class RankedTrials:
    """A study's trials as published in its tables, and their leaderboard, at one commit."""

    rows: Sequence[TrialRow]
    entries: Sequence[Entry]

    @classmethod
    def of(cls, journal: Journal, left: bool = False) -> RankedTrials:
        """Rank trials; running ones are interrupted if the study is, or was `left` by a kill."""
        rows = journal.trials()
        if left or journal.head().phase == "interrupted":
            rows = as_left(rows)
        return cls(rows, leaderboard_of(journal.meta, rows))


class Publisher:
    """Publishes one study's tables at intervals; `seconds` is the last publication's duration."""

    def __init__(
        self,
        directory: Path,
        journal: Journal,
        every_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.directory, self.seconds = Path(directory), 0.0
        self._journal, self._every, self._clock = journal, every_seconds, clock
        self._published: int | None = None
        self._at = -float("inf")
        if all((self.directory / f"{name}.parquet").is_file() for name in TABLES):
            self._at = clock()  # tables of a resumed study are those of its last commit, or nearly

    def publish(self, *, force: bool = False, ranked: RankedTrials | None = None) -> bool:
        """Write all tables if there is a new commit and publication is due or forced.

        Returns whether they were written. `ranked` are the trials of the last commit, if known.
        """
        number, now = self._journal.head().number, self._clock()
        due = now - self._at >= max(self._every, _SHARE * self.seconds)
        if number == self._published or not (force or due):
            return False
        write_baselines(self.directory, self._journal)
        write_evaluations(self.directory, self._journal)
        write_curves(self.directory, self._journal)
        write_trials(self.directory, self._journal, ranked)
        self._published, self._at = number, self._clock()
        self.seconds = self._at - now
        return True


def renew_tables(directory: Path, number: int) -> str:
    """Publish the tables of a killed study if they lack commits after this number.

    Return why they still lack them, or "". A running study publishes its own tables.
    """
    try:
        if lock_holder(directory) is not None or not Journal.exists(directory):
            return ""
        with Journal(directory) as journal:
            if journal.head().number in (0, number):
                return ""
        with StudyLock(directory), Journal(directory) as journal:
            ranked = RankedTrials.of(journal, left=True)
            Publisher(directory, journal).publish(force=True, ranked=ranked)
    except (StoreError, OSError) as error:
        return str(error)
    return ""


def sql_names(names: Iterable[str], taken: Sequence[str]) -> dict[str, str]:
    """Return a column name for each metric that SQL accepts unquoted and in any case.

    Invalid characters become `_`; a name that is taken or starts with a digit gets the prefix
    `metric_`.

    >>> sql_names(["loss/policy", "trial"], taken=["trial"])
    {'loss/policy': 'loss_policy', 'trial': 'metric_trial'}
    """
    columns: dict[str, str] = {}
    owners: dict[str, str] = {}
    reserved = {name.casefold() for name in taken}
    for name in sorted(names):
        column = re.sub(r"[^0-9A-Za-z_]+", "_", name)
        if column.casefold() in reserved or not re.match(r"[A-Za-z_]", column):
            column = f"metric_{column}"
        other = owners.setdefault(column.casefold(), name)
        if other != name or column.casefold() in reserved:
            raise StoreError(
                f"the metrics {other!r} and {name!r} would share the column {column!r}; "
                "rename one of them"
            )
        columns[name] = column
    return columns


def _param_column(name: str, kind: str, rows: Sequence[TrialRow]) -> pa.Array:
    values = [row.params.get(name) for row in rows]
    if kind == "json":
        values = [None if value is None else strict_json(value) for value in values]
    kinds = {"float": pa.float64(), "int": pa.int64(), "bool": pa.bool_()}
    return pa.array(values, kinds.get(kind, pa.string()))


def write_trials(directory: Path, journal: Journal, ranked: RankedTrials | None = None) -> None:
    ranked = ranked or RankedTrials.of(journal)
    meta, entries = journal.meta, ranked.entries
    by_number = {row.trial: row for row in ranked.rows}
    ordered = [by_number[entry.trial] for entry in entries]
    columns: dict[str, Any] = {}
    for names, source in ((_ENTRY_COLUMNS, entries), (_ROW_COLUMNS, ordered)):
        for name in names:
            columns[name] = pa.array([getattr(one, name) for one in source], _column_type(name))
    columns["params"] = pa.array([strict_json(row.params) for row in ordered], pa.string())
    columns["schedule"] = pa.array(
        [strict_json(row.schedule) if row.schedule else None for row in ordered], pa.string()
    )
    for name, kind in sorted(meta.param_kinds.items()):
        columns[PARAM_PREFIX + name] = _param_column(name, kind, ordered)
    columns |= envs.environment_columns([entry.scores for entry in entries], meta.environments)
    columns |= _measured_columns(entries, meta, taken=list(columns))
    commit = {COMMIT.encode(): str(journal.head().number).encode()}
    table = pa.table(columns).replace_schema_metadata(commit)
    parquet.write_table(directory / "trials.parquet", table)


def _measured_columns(
    entries: Sequence[Entry], meta: StudyMeta, taken: Sequence[str]
) -> dict[str, Any]:
    """Return the columns for objectives, constraints (without costs), fronts and feasibility."""
    found: dict[str, list[float | None]] = {}
    for index, name in enumerate(meta.objective_names):
        found[name] = [_value_at(entry.objectives, index) for entry in entries]
    for index, limit in enumerate(meta.constraints):
        values = [_value_at(entry.constraints, index) for entry in entries]
        found.setdefault(str(limit["metric"]), values)
    # names of costs have no "/"
    measured = {name: cells for name, cells in found.items() if "/" in name}
    names = sql_names(measured, taken)
    columns = {names[name]: pa.array(cells, pa.float64()) for name, cells in measured.items()}
    if meta.objectives:
        columns["front"] = pa.array([entry.front for entry in entries], pa.int64())
        columns["hypervolume"] = pa.array([entry.hypervolume for entry in entries], pa.float64())
    if meta.constraints:
        columns["feasible"] = pa.array([entry.feasible for entry in entries], pa.bool_())
    return columns


def _value_at(values: Sequence[float], index: int) -> float | None:
    if index >= len(values):
        return None
    return values[index]


@cache
def _column_type(column: str) -> pa.DataType:
    found = {one.name: str(one.type) for kind in (TrialRow, Entry) for one in fields(kind)}
    found |= {"measured_value": "float", "measured_seeds": "int"}
    kinds = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    kinds |= {f"tuple[{one}, ...]": pa.list_(kinds[one]) for one in ("int", "float")}
    return kinds.get(found.get(column, "").removesuffix(" | None"), pa.string())


def write_evaluations(directory: Path, journal: Journal) -> None:
    labels = envs.environment_names(journal.meta.environments)
    names = episode_columns(journal)
    integer, number = pa.int64(), pa.float64()
    types = [integer, pa.string(), integer, integer, integer, number, integer]
    metrics = [(column, number) for column in names.values()]
    schema = pa.schema([*zip(_EPISODE_COLUMNS, types, strict=True), *metrics])
    found = journal.evaluations()
    pieces = iter(lambda: list(islice(found, _EVALUATIONS_AT_ONCE)), [])
    tables = (_episode_table(some, names, schema, labels) for some in pieces)
    shown = schema
    if labels:
        before = schema.get_field_index("episode")
        shown = schema.insert(before, pa.field(envs.ENVIRONMENT, pa.string()))
    with parquet.replacing(directory / "evaluations.parquet", shown) as writer:
        parquet.write_grouped(writer, tables)


def episode_columns(journal: Journal) -> dict[str, str]:
    taken = [*_EPISODE_COLUMNS]
    if journal.meta.environments:
        taken.append(envs.ENVIRONMENT)
    return sql_names(journal.evaluation_metrics(), taken)


def _episode_table(
    some: list[EvaluationRow], names: dict[str, str], schema: pa.Schema, labels: Sequence[str]
) -> pa.Table:
    counts = np.array([len(row.returns) for row in some])
    owner = np.repeat(np.arange(len(some)), counts)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    columns: list[Any] = [
        np.array([row.trial for row in some])[owner],
        pa.array([str(row.stream) for row in some]).take(pa.array(owner)),
        np.array([row.replicate for row in some])[owner],
        np.array([row.env_steps for row in some])[owner],
        np.arange(len(owner)) - starts,
        np.concatenate([row.returns for row in some]),
        np.concatenate([row.lengths for row in some]),
    ]
    for name in names:  # null for an evaluation without the metric
        values: Any = np.concatenate([row.metrics.get(name, row.returns) for row in some])
        absent = np.array([name not in row.metrics for row in some])[owner]
        columns.append(pa.array(values, mask=absent))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    table = pa.table(arrays, schema=schema)
    if not labels:
        return table
    return envs.long_episodes(table, counts, labels)


def write_curves(directory: Path, journal: Journal) -> None:
    parts, folder = journal.parts(), directory / parquet.PARTS_NAME
    stored = parquet.unified_schema(folder, parts)
    metrics = [
        name.removeprefix(parquet.METRIC_PREFIX) for name in stored.names[len(_CURVE_COLUMNS) :]
    ]
    plain = [*_CURVE_COLUMNS, *metrics]
    tables = (t.rename_columns(plain) for t in parquet.part_batches(folder, parts, stored))
    labels = envs.environment_names(journal.meta.environments)
    keys = [stored.field(name) for name in _CURVE_COLUMNS]
    if labels:
        metrics = sorted({envs.split_metric(name)[1] for name in metrics})
        keys.append(pa.field(envs.ENVIRONMENT, pa.string()))
    names = sql_names(metrics, [key.name for key in keys])
    schema = pa.schema(keys + [pa.field(names[name], pa.float64()) for name in metrics])
    if labels:
        tables = envs.long_curves(tables, _CURVE_COLUMNS, names, labels)
    else:
        tables = (table.rename_columns(schema.names) for table in tables)
    with parquet.replacing(directory / "curves.parquet", schema) as writer:
        parquet.write_grouped(writer, tables)


def write_baselines(directory: Path, journal: Journal) -> None:
    if rows := baselines_of(journal):
        parquet.write_table(directory / f"{BASELINES}.parquet", baselines_table(rows))


def baselines_table(rows: Sequence[BaselineRow]) -> pa.Table:
    metrics = {name for row in rows for by_name in row.metrics.values() for name in by_name}
    columns = sql_names(metrics, _BASELINE_COLUMNS)
    cells: list[dict[str, Any]] = []
    for row in rows:
        for stream, values in row.values.items():
            for replicate, value in enumerate(values):
                key = (row.baseline, stream, replicate, value)
                named_values = row.metrics.get(stream, {}).items()
                more = {columns[name]: values[replicate] for name, values in named_values}
                cells.append(dict(zip(_BASELINE_COLUMNS, key, strict=True)) | more)
    kinds = (pa.string(), pa.string(), pa.int64(), pa.float64())
    metric_fields = [(name, pa.float64()) for name in columns.values()]
    schema = pa.schema([*zip(_BASELINE_COLUMNS, kinds, strict=True), *metric_fields])
    return pa.Table.from_pylist(cells, schema)


_KEYS = {
    "trials": ("trial",),
    "evaluations": (*_CURVE_COLUMNS, "episode", envs.ENVIRONMENT),
    "curves": (*_CURVE_COLUMNS, envs.ENVIRONMENT),
}
_SHOWN = 3
_TIMES = ("_seconds", "_per_second", "_at")


def tables_equal(directory_a: Path, directory_b: Path) -> list[str]:
    """Return the differences between two studies' published tables, without times.

    Rows are matched by key, in any order. NaN equals NaN; 0.0 and -0.0 differ.
    """
    differences: list[str] = []
    for name in TABLES:
        paths = [Path(folder) / f"{name}.parquet" for folder in (directory_a, directory_b)]
        if missing := [str(path) for path in paths if not path.is_file()]:
            differences.append(f"{name}: missing {' and '.join(missing)}")
            continue
        first, second = map(_read_without_times, paths)
        keys = tuple(key for key in _KEYS[name] if key in first.column_names)
        differences += [f"{name}: {text}" for text in _table_differences(first, second, keys)]
    return differences


def _read_without_times(path: Path) -> pa.Table:
    table = pq.ParquetFile(path).read()
    return table.select([name for name in table.column_names if not name.endswith(_TIMES)])


def _typed_field_names(table: pa.Table) -> set[str]:
    return {f"{field.name} {field.type}" for field in table.schema}


def _table_differences(first: pa.Table, second: pa.Table, keys: tuple[str, ...]) -> list[str]:
    if first.schema != second.schema:
        fields = sorted(_typed_field_names(first) ^ _typed_field_names(second))
        return [f"columns differ: {fields or 'in their order'}"]
    if first.num_rows != second.num_rows:
        return [f"row counts differ: {first.num_rows} and {second.num_rows}"]
    order = [(name, "ascending") for name in keys]
    first, second = first.sort_by(order), second.sort_by(order)
    found: list[str] = []
    for name in first.column_names:
        texts = (map(repr, table[name].to_pylist()) for table in (first, second))  # exact
        rows = [row for row, (a, b) in enumerate(zip(*texts, strict=True)) if a != b]
        for row in rows[:_SHOWN]:
            key = ", ".join(f"{key} {first[key][row].as_py()}" for key in keys)
            values = (repr(table[name][row].as_py()) for table in (first, second))
            found.append(f"{name} at {key}: {' and '.join(values)}")
        if len(rows) > _SHOWN:
            found.append(f"{name}: {len(rows) - _SHOWN} more rows differ")
    return found
