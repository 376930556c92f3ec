"""SQL over one study's tables, by DuckDB, on a connection that can read and do nothing else.

Only a single SELECT (or WITH, DESCRIBE, SHOW, SUMMARIZE, FROM) is taken, only files in the
study's folder can be read, and the configuration is locked before the user's text is run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import StoreError
from ..plain_data import is_dict, is_sequence
from .baselines import BASELINES
from .lock import lock_holder
from .tables import PARAM_PREFIX, TABLES, damaged_table

if TYPE_CHECKING:  # loaded on use: duckdb costs 0.12 s
    import duckdb

__all__ = ["TIMEOUT_SECONDS", "has_column", "query", "require_tables", "rows_as_json"]


TIMEOUT_SECONDS = 60.0
MEMORY = "2GB"
CELLS = 10_000_000
"""Of a result, at most: as Python's numbers they take up to a GB."""
_ROWS_AT_ONCE = 10_000


def query(
    directory: Path, sql: str, timeout_seconds: float | None = TIMEOUT_SECONDS
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one SELECT over the views `trials`, `evaluations` and `curves` (and `baselines`).

    The view `trials` has, besides the columns of the file, a struct `param`, so that
    `param.learning_rate` needs no quotes. DuckDB sorts NaN above every number: order by `rank`,
    or filter with `isfinite`.

    Args:
        directory: the study's folder.
        sql: one statement that reads.
        timeout_seconds: after which it is ended; None lets it run.

    Returns:
        The names of the columns, and the rows.

    Raises:
        StoreError: nothing is published yet, the text is not one reading statement, reads files
            elsewhere, takes too long or too much memory, or does not run.
    """
    import duckdb

    folder = Path(directory).resolve()
    require_tables(folder)
    try:
        _check(sql)
        with _connection(folder) as connection, _ended_after(connection, timeout_seconds):
            return _fetched(connection.execute(sql))
    except duckdb.InterruptException as error:
        raise StoreError(
            f"the query was ended after {timeout_seconds:g} s; ask for less, or for longer with "
            "--timeout SECONDS (0: no end)"
        ) from error
    except duckdb.OutOfMemoryException as error:
        raise StoreError(
            f"the query needs more than {MEMORY} of memory; aggregate before joining, or read "
            f"{folder}/*.parquet with a tool of your own"
        ) from error
    except RuntimeError as error:  # DuckDB's word for Ctrl-C
        if "interrupted" in str(error):
            raise KeyboardInterrupt from error
        raise
    except duckdb.PermissionException as error:
        raise StoreError(
            f"a query may read files of its study only, in {folder}: {_first_line(error)}"
        ) from error
    except duckdb.Error as error:
        raise StoreError(
            f"the query does not run: {str(error).strip()}\n"
            f"tables: {', '.join(TABLES)}; their columns: DESCRIBE trials"
        ) from error


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


@contextmanager
def _ended_after(connection: duckdb.DuckDBPyConnection, seconds: float | None) -> Generator[None]:
    """Interrupt what runs on a connection when its time is over."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _fetched(
    result: duckdb.DuckDBPyConnection,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Take the rows in turns, so that a result without end is noticed before memory is full."""
    columns = [str(column[0]) for column in result.description or ()]
    rows: list[tuple[Any, ...]] = []
    while some := result.fetchmany(_ROWS_AT_ONCE):
        rows += some
        if len(rows) * len(columns) > CELLS:
            raise StoreError(
                f"the result has more than {CELLS:,} cells; aggregate, or add LIMIT 1000"
            )
    return columns, rows


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
            'for example: hpo query "SELECT * FROM trials ORDER BY rank LIMIT 5"'
        )
    if statements[0].type != duckdb.StatementType.SELECT:
        raise StoreError(
            f"a query only reads, got a {statements[0].type.name} statement; "
            "allowed are SELECT, WITH, FROM, DESCRIBE, SHOW and SUMMARIZE"
        )


def _connection(folder: Path) -> duckdb.DuckDBPyConnection:
    """An empty database with the views, shut off from everything but the folder."""
    import duckdb

    options: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,  # a table name must not find a Python variable
        "memory_limit": MEMORY,
        "temp_directory": "",  # a large sort must not leave files in the working directory
    }
    connection = duckdb.connect(":memory:", config=options)
    there = [*TABLES, BASELINES] if (folder / f"{BASELINES}.parquet").is_file() else TABLES
    files = {name: _text(_without_globs(folder / f"{name}.parquet")) for name in there}
    for name, file in files.items():
        source = f"read_parquet({file})"
        try:
            extra = _param_struct(connection, source) if name == "trials" else ""
            connection.execute(f"CREATE VIEW {name} AS SELECT *{extra} FROM {source}")
        except duckdb.Error as error:
            raise damaged_table(folder / f"{name}.parquet") from error
    connection.execute(f"SET allowed_directories = [{_text(str(folder))}]")
    connection.execute(f"SET allowed_paths = [{', '.join(files.values())}]")  # as globs, too
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


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
