"""Runs SQL on one study's tables, with DuckDB on a read-only connection.

Only a single SELECT (or WITH, DESCRIBE, SHOW, SUMMARIZE, FROM) is allowed, and only files in the
study's folder can be read. The configuration is locked before the user's SQL runs.
"""

from __future__ import annotations

import glob
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from ..errors import StoreError
from ..files.atomic_files import TEMPORARY_CURE, full_temporary_folder
from ..files.plain_data import is_dict, is_sequence
from .baselines import BASELINES
from .libraries import duckdb
from .lock import lock_holder
from .tables import COMMIT, PARAM_PREFIX, TABLES, damaged_table, renew_tables

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0
MEMORY_AT_FIRST = "128MB"  # larger sorts and groups spill to disk
MEMORY = "2GB"  # for a second attempt, if spilling to disk was not enough
CELLS = 10_000_000  # largest result in Python: up to a GB as Python numbers
# The tables of a study whose process died still list its trials as running.
_LEFT = " REPLACE (CASE state WHEN 'running' THEN 'interrupted' ELSE state END AS state)"
_THREADS = 4  # each uses memory for a row group: more are too many on a machine with many cores
_SPILL = "16GB"
_CELLS_AT_ONCE = 100_000
_ROWS_AT_ONCE = 10_000
_TIME = "TIMESTAMP WITH TIME ZONE"
_INTERRUPTED = "Query interrupted"  # DuckDB's word for Ctrl-C in the thread that asked
_AGAIN = 0.05  # seconds; an interrupt before the work starts would be lost


class QueryTime:
    """A query's time limit, None for no limit; only the time spent in DuckDB counts."""

    def __init__(self, seconds: float | None):
        self._seconds, self._left = seconds, seconds

    def run(self, connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
        """Run DuckDB work until it is done or times out, or until Ctrl-C is pressed.

        The work runs in a separate thread, because a thread that waits for DuckDB's other threads
        receives no signal (DuckDB 2.0, half of the time on two cores).
        """
        if self._left is not None and self._left <= 0.0:
            raise self._timeout_error()
        start = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            try:
                return future.result(self._left)
            except BaseException as error:
                while not future.done():
                    connection.interrupt()
                    wait([future], _AGAIN)
                if isinstance(error, TimeoutError):
                    raise self._timeout_error() from None
                raise
            finally:
                if self._left is not None:
                    self._left -= time.monotonic() - start

    def _timeout_error(self) -> StoreError:
        return StoreError(
            f"the query was stopped after {self._seconds:g} s; simplify it, or allow more time",
            timeout="SECONDS",
        )


def query(
    directory: Path, sql: str, timeout_seconds: float | None = TIMEOUT_SECONDS
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one SELECT over the views `trials`, `evaluations`, `curves` (and `baselines`).

    The view `trials` also has a struct `param`, so that `param.learning_rate` needs no quotes.
    DuckDB sorts NaN above all numbers: order by `rank`, or filter with `isfinite`. Time-zone-aware
    times are `datetime`s, or text inside lists and structs. Raises `StoreError` if there are no
    tables yet, or if the query is too slow or too large. The text must be a single read-only
    statement that reads no other files.
    """
    with streamed(directory, sql, timeout_seconds) as found:
        rows: list[tuple[Any, ...]] = []
        for some in found:
            rows += some
            if len(rows) * len(found.columns) > CELLS:
                raise StoreError(
                    f"the result has more than {CELLS:,} cells; aggregate, or add LIMIT 1000"
                )
        return found.columns, rows


@contextmanager
def streamed(
    directory: Path, sql: str, timeout_seconds: float | None = TIMEOUT_SECONDS
) -> Generator[Rows]:
    """Run one SELECT like `query`, with any number of rows; reading the rows is not timed."""
    folder = Path(directory).resolve()
    require_tables(folder)
    allowed = QueryTime(timeout_seconds)
    with _readable_errors(folder):
        _check_statement(sql)
    with _spill_folder() as spill:
        try:
            rows = _open_rows(folder, sql, allowed, MEMORY_AT_FIRST, spill)
        except _OutOfMemoryError:
            rows = _open_rows(folder, sql, allowed, MEMORY, spill)
        with closing(rows):
            yield rows


class Rows:
    """A query's rows in batches, to be iterated over once; `columns` are the column names."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, sql: str, folder: Path, allowed: QueryTime
    ):
        self._connection, self._folder, self._allowed = connection, folder, allowed
        self._result = self._run_timed(lambda: connection.execute(sql))
        described = self._result.description or ()
        self.columns = [str(column[0]) for column in described]
        types = [str(column[1]) for column in described]
        self._times = [place for place, kind in enumerate(types) if kind == _TIME]
        if any(_TIME in kind for kind in types):
            self._result = self._run_timed(lambda: connection.execute(_times_as_text(types, sql)))
        most = _CELLS_AT_ONCE // max(1, len(self.columns))
        self._at_once = min(_ROWS_AT_ONCE, max(1, most))
        self._first = self._fetch_rows()

    def __iter__(self) -> Iterator[list[tuple[Any, ...]]]:
        some, self._first = self._first, []
        while some:
            yield some
            some = self._fetch_rows()

    def _fetch_rows(self) -> list[tuple[Any, ...]]:
        rows = self._run_timed(lambda: self._result.fetchmany(self._at_once))
        if not self._times:
            return rows
        return [self._with_times(row) for row in rows]

    def _with_times(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        cells = list(row)
        for at in self._times:
            cells[at] = _parse_time(cells[at])
        return tuple(cells)

    def _run_timed(self, work: Callable[[], T]) -> T:
        with _readable_errors(self._folder):
            return self._allowed.run(self._connection, work)

    def close(self) -> None:
        self._connection.close()


def _times_as_text(types: Sequence[str], sql: str) -> str:
    """Return SQL that casts a query's time-zone-aware times to text, also in lists and structs.

    DuckDB's Python package needs pytz for such times, but does not install it.
    """
    names = [f"c{place}" for place in range(len(types))]
    cells = (
        f"CAST({name} AS {kind.replace(_TIME, 'VARCHAR')})" if _TIME in kind else name
        for name, kind in zip(names, types, strict=True)
    )
    # A view accepts a trailing semicolon and duplicate column names.
    return (
        f"CREATE TEMP VIEW with_times({', '.join(names)}) AS {sql}\n;"
        f"SELECT {', '.join(cells)} FROM with_times"
    )


def _parse_time(text: str | None) -> datetime | str | None:
    try:
        if text is not None:
            return datetime.fromisoformat(text)
        return None
    except ValueError:  # infinity, or a year outside Python's range
        return text


def _open_rows(folder: Path, sql: str, allowed: QueryTime, memory: str, spill: str) -> Rows:
    with _readable_errors(folder):
        connection = _open_connection(folder, memory, spill)
    try:
        return Rows(connection, sql, folder, allowed)
    except BaseException:
        connection.close()
        raise


class _OutOfMemoryError(StoreError):
    """A query needs more memory than it may use."""


@contextmanager
def _readable_errors(folder: Path) -> Generator[None]:
    try:
        yield
    except RuntimeError as error:
        if str(error) != _INTERRUPTED:
            raise
        raise KeyboardInterrupt from None
    except duckdb.OutOfMemoryException as error:
        raise _OutOfMemoryError(
            f"the query needs more than {MEMORY} of memory; aggregate before joining, or read "
            f"{folder}/*.parquet with another tool"
        ) from error
    except duckdb.PermissionException as error:
        first = str(error).strip().partition("\n")[0]
        raise StoreError(
            f"a query can read only the files of its study, in {folder}: {first}"
        ) from error
    except duckdb.Error as error:
        if "No space left on device" in str(error) and (full := full_temporary_folder()):
            words = f"No space left on device while sorting in {full}"
            text = f"{words}; {TEMPORARY_CURE} and run the same command again"
            raise StoreError(text) from error
        raise StoreError(
            f"the query failed: {str(error).strip()}\n"
            f"tables: {', '.join(TABLES)}; their columns: DESCRIBE trials"
        ) from error


@contextmanager
def _spill_folder() -> Generator[str]:
    """Yield a temporary folder for large sorts; "" if there is none (sorts stay in memory)."""
    try:
        made = tempfile.TemporaryDirectory(prefix="hpo-query-", ignore_cleanup_errors=True)
    except OSError:
        yield ""
        return
    with made as path:
        yield path


def _published_commit(folder: Path) -> int | None:
    """Return the commit that the tables contain; -1 without tables, None if it is not known."""
    if not all((folder / f"{name}.parquet").is_file() for name in TABLES):
        return -1
    path = glob.escape(str(folder / "trials.parquet"))
    text = "SELECT decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) = ?"
    try:  # by DuckDB, because pyarrow would start slower
        with _readable_errors(folder), closing(duckdb.connect(":memory:")) as connection:
            found = connection.execute(text, [path, COMMIT]).fetchone()
    except StoreError:  # the query itself reports a damaged table
        return None
    if found is None:  # of an earlier version
        return None
    return int(found[0])


def _renew_tables(folder: Path) -> str:
    """Renew the tables of a killed study; return why they may lack its last commits, or ""."""
    number = _published_commit(folder)
    if number is None:
        return ""
    return renew_tables(folder, number)


def has_column(folder: Path, table: str, column: str) -> bool:
    _renew_tables(folder)
    if not (folder / f"{table}.parquet").is_file():
        return False
    return column in query(folder, f"SELECT * FROM {table} LIMIT 0")[0]


def require_tables(folder: Path) -> None:
    """Require published tables; renew those of a killed study, or warn that they may be old."""
    why = _renew_tables(folder)
    for name in TABLES:
        if not (folder / f"{name}.parquet").is_file():
            when = "run the study file to write it"
            if (holder := lock_holder(folder)) is not None:
                when = f"{holder} is running it: wait a minute for the first commit"
            raise StoreError(f"{folder.name} has no {name}.parquet yet; {when}")
    if why:
        text = (
            f"the tables of {folder.name} may lack its last commits; run the study file to renew"
        )
        warnings.warn(f"{text} them (here: {why})", stacklevel=2)


def rows_as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return a query's result as plain data, one object per row.

    Non-finite numbers become null, and times and other types become text; duplicate column names
    are numbered.

    >>> rows_as_json(["trial", "trial"], [(1, float("nan"))])
    [{'trial': 1, 'trial_2': None}]
    """
    names: list[str] = []
    for column in columns:
        number, name = 1, column
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return [dict(zip(names, map(_to_json, row), strict=True)) for row in rows]


def _to_json(cell: Any) -> Any:
    if isinstance(cell, (float, Decimal)):
        if not math.isfinite(cell):
            return None
        return float(cell)
    if is_dict(cell):
        return {str(key): _to_json(item) for key, item in cell.items()}
    if is_sequence(cell):
        return [_to_json(item) for item in cell]
    if cell is None or isinstance(cell, (bool, int, str)):
        return cell
    return str(cell)


def _check_statement(sql: str) -> None:
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        raise StoreError(
            f"a query must be one statement (here: {len(statements)}); "
            "for example: SELECT * FROM trials ORDER BY rank LIMIT 5"
        )
    if statements[0].type != duckdb.StatementType.SELECT:
        raise StoreError(
            f"a query must be read-only (here: {statements[0].type.name}); "
            "allowed: SELECT, WITH, FROM, DESCRIBE, SHOW and SUMMARIZE"
        )


def _open_connection(folder: Path, memory: str, spill: str) -> duckdb.DuckDBPyConnection:
    options: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,  # a table name must not refer to a Python variable
        "memory_limit": memory,
        "temp_directory": spill,
        "max_temp_directory_size": _SPILL if spill else "0B",
        "threads": min(_THREADS, os.cpu_count() or 1),
    }
    connection = duckdb.connect(":memory:", config=options)
    # In notebooks the progress bar prints to stdout. Without ipywidgets it cannot be configured.
    if connection.sql("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
        connection.execute("SET enable_progress_bar = false")
    there = [*TABLES]
    if (folder / f"{BASELINES}.parquet").is_file():
        there.append(BASELINES)
    files = {name: _quoted_text(glob.escape(f"{folder}/{name}.parquet")) for name in there}
    for name, file in files.items():
        source, changes, extra = f"read_parquet({file})", "", ""
        try:
            if name == "trials":
                described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
                columns = [str(row[0]) for row in described]
                if "state" in columns and lock_holder(folder) is None:
                    changes = _LEFT
                extra = _param_struct(columns)
            connection.execute(f"CREATE VIEW {name} AS SELECT *{changes}{extra} FROM {source}")
        except duckdb.Error as error:
            raise damaged_table(folder / f"{name}.parquet") from error
    connection.execute(f"SET allowed_directories = [{_quoted_text(str(folder))}]")
    # these are also globs
    connection.execute(f"SET allowed_paths = [{', '.join(files.values())}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _param_struct(columns: Sequence[str]) -> str:
    """Return SQL for a struct column `param` of all `param.<name>` columns, nested at dots."""
    names = [name for name in columns if name.startswith(PARAM_PREFIX)]
    tree: dict[str, Any] = {}
    for name in names:
        path = name.removeprefix(PARAM_PREFIX).split(".")
        node = tree
        for step in path[:-1]:
            node = node.setdefault(step.lower(), {})
            if isinstance(node, str):
                return ""  # a struct cannot have both `a` and `a.b`
        if path[-1].lower() in node:
            return ""  # names that differ only by case
        node[path[-1].lower()] = _quoted_name(name)
    if not tree:
        return ""
    return f", {_struct_expression(tree)} AS param"


def _struct_expression(tree: dict[str, Any]) -> str:
    fields = (
        f"{_quoted_name(name)} := {_struct_expression(value) if is_dict(value) else value}"
        for name, value in tree.items()
    )
    return f"struct_pack({', '.join(fields)})"


def _quoted_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted_name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
