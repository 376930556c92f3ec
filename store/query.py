"""SQL over one study's tables, by DuckDB, on a connection that can read and do nothing else.

Only a single SELECT (or WITH, DESCRIBE, SHOW, SUMMARIZE, FROM) is taken, only files in the
study's folder can be read, and the configuration is locked before the user's text is run.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import StoreError
from ..files.plain_data import is_dict, is_sequence
from .baselines import BASELINES
from .lock import lock_holder
from .tables import PARAM_PREFIX, TABLES, damaged_table

if TYPE_CHECKING:  # loaded on use: duckdb costs 0.12 s
    import duckdb

_AGAIN = 0.05  # seconds: an interrupt that comes before the work begins is lost


class QueryTime:
    """What a query may take of time: it runs only while DuckDB works.

    Args:
        seconds: all of it; None sets no end.
    """

    def __init__(self, seconds: float | None):
        self._seconds, self._left = seconds, seconds

    def run(self, connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
        """Let DuckDB work, until it is done, its time is over, or somebody presses Ctrl-C.

        It works in a thread of its own: while DuckDB's other threads do the work, the one that
        called it waits and hears no signal (DuckDB 2.0: half of all times on two cores).

        Raises:
            StoreError: the time is over.
            duckdb.Error: whatever the work raises.
        """
        if self._left is not None and self._left <= 0.0:
            raise self._over()
        begun = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            try:
                return future.result(self._left)
            except BaseException as error:
                while not future.done():
                    connection.interrupt()
                    wait([future], _AGAIN)
                if isinstance(error, TimeoutError):
                    raise self._over() from None
                raise
            finally:
                if self._left is not None:
                    self._left -= time.monotonic() - begun

    def _over(self) -> StoreError:
        return StoreError(
            f"the query was ended after {self._seconds:g} s; ask for less, or allow more time",
            timeout="SECONDS",
        )


if TYPE_CHECKING:  # loaded on use: duckdb costs 0.12 s
    import duckdb

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0
MEMORY = "2GB"
MEMORY_AT_FIRST = "128MB"
"""Sorts and large groups go to disk beyond it; what cannot runs again with `MEMORY`."""
CELLS = 10_000_000
"""Of a result in Python, at most: as Python's numbers they take up to a GB."""
# What a study that died has published last says of its trials that they run.
_LEFT = " REPLACE (CASE state WHEN 'running' THEN 'interrupted' ELSE state END AS state)"
_THREADS = 4  # each holds a row group of its own, on a machine with many cores too many
_SPILL = "16GB"
_CELLS_AT_ONCE = 100_000
_ROWS_AT_ONCE = 10_000
_TIME = "TIMESTAMP WITH TIME ZONE"


def query(
    directory: Path, sql: str, timeout_seconds: float | None = TIMEOUT_SECONDS
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one SELECT over the views `trials`, `evaluations` and `curves` (and `baselines`).

    The view `trials` has, besides the columns of the file, a struct `param`, so that
    `param.learning_rate` needs no quotes. DuckDB sorts NaN above every number: order by `rank`,
    or filter with `isfinite`. Times with a zone are `datetime` with their offset from UTC, or text
    inside of lists and structs.

    Args:
        directory: the study's folder.
        sql: one statement that reads.
        timeout_seconds: after which it is ended; None lets it run.

    Returns:
        The names of the columns, and the rows.

    Raises:
        StoreError: nothing is published yet, the text is not one reading statement, reads files
            elsewhere, takes too long or too much memory, does not run, or has more than `CELLS`.
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
    """Run one SELECT as `query` does, for rows that are taken in turns and may be any number.

    Args:
        directory: the study's folder.
        sql: one statement that reads.
        timeout_seconds: after which it is ended, not counting what is done with its rows.

    Raises:
        StoreError: see `query`; once rows have been taken, too.
    """
    folder = Path(directory).resolve()
    require_tables(folder)
    allowed = QueryTime(timeout_seconds)
    with _in_words(folder):
        _check(sql)
    with _spill_folder() as spill:
        rows = _begun(folder, sql, allowed, MEMORY_AT_FIRST, spill)
        if rows is None:
            rows = _begun(folder, sql, allowed, MEMORY, spill)
        assert rows is not None
        try:
            yield rows
        finally:
            rows.close()


class Rows:
    """The rows of a query, some at a time; iterate over it once.

    Attributes:
        columns: their names.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, sql: str, folder: Path, allowed: QueryTime
    ):
        self._connection, self._folder, self._allowed = connection, folder, allowed
        self._result = self._run(lambda: connection.execute(sql))
        described = self._result.description or ()
        self.columns = [str(column[0]) for column in described]
        types = [str(column[1]) for column in described]
        self._times = [place for place, kind in enumerate(types) if kind == _TIME]
        if any(_TIME in kind for kind in types):
            self._result = self._run(lambda: connection.execute(_times_as_text(types, sql)))
        most = _CELLS_AT_ONCE // max(1, len(self.columns))
        self._at_once = min(_ROWS_AT_ONCE, max(1, most))
        self._first = self._fetched()

    def __iter__(self) -> Iterator[list[tuple[Any, ...]]]:
        some, self._first = self._first, []
        while some:
            yield some
            some = self._fetched()

    def _fetched(self) -> list[tuple[Any, ...]]:
        rows = self._run(lambda: self._result.fetchmany(self._at_once))
        return [self._with_times(row) for row in rows] if self._times else rows

    def _with_times(self, row: Sequence[Any]) -> tuple[Any, ...]:
        cells = list(row)
        for place in self._times:
            cells[place] = _time(cells[place])
        return tuple(cells)

    def _run(self, work: Callable[[], T]) -> T:
        with _in_words(self._folder):
            return self._allowed.run(self._connection, work)

    def close(self) -> None:
        """End the query, wherever it is."""
        self._connection.close()


def _times_as_text(types: Sequence[str], sql: str) -> str:
    """Return what gives a query's times with a zone as text, inside of lists and structs too.

    DuckDB's Python package makes them with pytz, which it does not install.
    """
    names = [f"c{place}" for place in range(len(types))]
    cells = (
        f"CAST({name} AS {kind.replace(_TIME, 'VARCHAR')})" if _TIME in kind else name
        for name, kind in zip(names, types, strict=True)
    )
    # A view takes the text with whatever follows its semicolon, and columns of one name.
    return (
        f"CREATE TEMP VIEW with_times({', '.join(names)}) AS {sql}\n;"
        f"SELECT {', '.join(cells)} FROM with_times"
    )


def _time(text: str | None) -> datetime | str | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:  # infinity, or a year that Python's times do not have
        return text


def _begun(folder: Path, sql: str, allowed: QueryTime, memory: str, spill: str) -> Rows | None:
    """Return a query that has its first rows; None where it needs more memory than at first."""
    with _in_words(folder):
        connection = _connection(folder, memory, spill)
    try:
        return Rows(connection, sql, folder, allowed)
    except _OutOfMemoryError:
        connection.close()
        if memory == MEMORY:
            raise
        return None
    except BaseException:
        connection.close()
        raise


class _OutOfMemoryError(StoreError):
    """A query needs more memory than it has."""


@contextmanager
def _in_words(folder: Path) -> Generator[None]:
    """Say in words what fails in DuckDB."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise _OutOfMemoryError(
            f"the query needs more than {MEMORY} of memory; aggregate before joining, or read "
            f"{folder}/*.parquet with a tool of your own"
        ) from error
    except duckdb.PermissionException as error:
        raise StoreError(
            f"a query may read files of its study only, in {folder}: {_first_line(error)}"
        ) from error
    except duckdb.Error as error:
        raise StoreError(
            f"the query does not run: {str(error).strip()}\n"
            f"tables: {', '.join(TABLES)}; their columns: DESCRIBE trials"
        ) from error


@contextmanager
def _spill_folder() -> Generator[str]:
    """Yield where a large sort may leave its files for a while; DuckDB makes it when it must."""
    try:
        root = tempfile.gettempdir()
    except FileNotFoundError:  # nowhere: then sorts have their memory alone
        yield ""
        return
    path = Path(root) / f"hpo-query-{os.getpid()}-{os.urandom(8).hex()}"
    try:
        yield str(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def has_column(folder: Path, table: str, column: str) -> bool:
    """Return whether a study has published a table with that column."""
    if not (folder / f"{table}.parquet").is_file():
        return False
    return column in query(folder, f"SELECT * FROM {table} LIMIT 0")[0]


def require_tables(folder: Path) -> None:
    """Refuse a study that has published no tables yet.

    Raises:
        StoreError: it has not; says whether to wait or to run it.
    """
    for name in TABLES:
        if not (folder / f"{name}.parquet").is_file():
            holder = lock_holder(folder)
            when = "run the study's file to write it"
            if holder is not None:
                when = (
                    f"{holder} is running it: tables come with the first commit, within a minute"
                )
            raise StoreError(f"{folder.name} has no {name}.parquet yet; {when}")


def rows_as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """The result of a query as plain data: one object a row.

    Numbers that are not finite become null, times and all else JSON lacks become text, and a
    column that comes twice is numbered.

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
    return [{name: _jsonable(cell) for name, cell in zip(names, row, strict=True)} for row in rows]


def _jsonable(cell: Any) -> Any:
    if isinstance(cell, (float, Decimal)):
        return float(cell) if math.isfinite(cell) else None
    if is_dict(cell):
        return {str(key): _jsonable(item) for key, item in cell.items()}
    if is_sequence(cell):
        return [_jsonable(item) for item in cell]
    return cell if cell is None or isinstance(cell, (bool, int, str)) else str(cell)


def _check(sql: str) -> None:
    """Refuse all but one statement that reads."""
    import duckdb

    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        raise StoreError(
            f"a query is one statement, got {len(statements)}; "
            "for example: SELECT * FROM trials ORDER BY rank LIMIT 5"
        )
    if statements[0].type != duckdb.StatementType.SELECT:
        raise StoreError(
            f"a query only reads, got a {statements[0].type.name} statement; "
            "allowed are SELECT, WITH, FROM, DESCRIBE, SHOW and SUMMARIZE"
        )


def _connection(folder: Path, memory: str, spill: str) -> duckdb.DuckDBPyConnection:
    """An empty database with the views, shut off from everything but the folder.

    Args:
        folder: of the study.
        memory: that it may take.
        spill: the folder for what does not fit; not in the working directory.
    """
    import duckdb

    options: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,  # a table name must not find a Python variable
        "memory_limit": memory,
        "temp_directory": spill,
        "max_temp_directory_size": _SPILL if spill else "0B",
        "threads": min(_THREADS, os.cpu_count() or 1),
    }
    connection = duckdb.connect(":memory:", config=options)
    _hide_progress(connection)
    there = [*TABLES, BASELINES] if (folder / f"{BASELINES}.parquet").is_file() else TABLES
    files = {name: _text(_without_globs(folder / f"{name}.parquet")) for name in there}
    for name, file in files.items():
        source = f"read_parquet({file})"
        try:
            extra = _param_struct(connection, source) if name == "trials" else ""
            left = _LEFT if name == "trials" and _was_left(connection, folder, source) else ""
            connection.execute(f"CREATE VIEW {name} AS SELECT *{left}{extra} FROM {source}")
        except duckdb.Error as error:
            raise damaged_table(folder / f"{name}.parquet") from error
    connection.execute(f"SET allowed_directories = [{_text(str(folder))}]")
    connection.execute(f"SET allowed_paths = [{', '.join(files.values())}]")  # as globs, too
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _hide_progress(connection: duckdb.DuckDBPyConnection) -> None:
    """Switch the progress bar off where it is on: in notebooks it prints on stdout.

    In notebooks without ipywidgets it is off, and DuckDB refuses to set it.
    """
    if connection.sql("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
        connection.execute("SET enable_progress_bar = false")


def _was_left(connection: duckdb.DuckDBPyConnection, folder: Path, source: str) -> bool:
    """Return whether no process writes a study any more; other tables have no states."""
    columns = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    return any(column[0] == "state" for column in columns) and lock_holder(folder) is None


def _param_struct(connection: duckdb.DuckDBPyConnection, source: str) -> str:
    """A column `param` that holds all `param.<name>` columns as one struct, dots as nesting."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    names = [str(row[0]) for row in described if str(row[0]).startswith(PARAM_PREFIX)]
    tree: dict[str, Any] = {}
    for name in names:
        path = name.removeprefix(PARAM_PREFIX).split(".")
        node = tree
        for step in path[:-1]:
            node = node.setdefault(step.lower(), {})
            if isinstance(node, str):
                return ""  # `a` and `a.b` are both knobs: no struct can hold them
        if path[-1].lower() in node:
            return ""  # names that differ in case only
        node[path[-1].lower()] = _name(name)
    return f", {_struct(tree)} AS param" if tree else ""


def _struct(tree: dict[str, Any]) -> str:
    fields = (
        f"{_name(name)} := {_struct(value) if is_dict(value) else value}"
        for name, value in tree.items()
    )
    return f"struct_pack({', '.join(fields)})"


def _without_globs(path: Path) -> str:
    """The path with DuckDB's wildcards taken literally."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    lines: Sequence[str] = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
