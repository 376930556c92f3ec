"""The SQLite file of a journal: tables, checksums, opening, and errors as one sentence."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..errors import StoreError, not_as_written
from ..files.atomic_files import is_plain_file

SUMS_TABLE = "CREATE TABLE sums (name TEXT PRIMARY KEY, rows INTEGER NOT NULL, sum TEXT NOT NULL);"
SCHEMA = "schema"  # the checksum of the definitions of the tables has this name
_BYTES = 16
_MODULUS = 1 << (8 * _BYTES)


@dataclass(frozen=True)
class Sum:
    """The checksum of a table: number of rows, and the sum of their digests modulo 2^128."""

    rows: int = 0
    total: int = 0

    def plus(self, *digests: int) -> Sum:
        return Sum(self.rows + len(digests), (self.total + sum(digests)) % _MODULUS)

    def minus(self, one: int) -> Sum:
        return Sum(self.rows - 1, (self.total - one) % _MODULUS)


def digest(table: str, cells: Sequence[Any]) -> int:
    """Return the BLAKE2b digest of a row: its cells as text, and bytes unchanged.

    >>> digest("asks", (1, "1")) == digest("asks", ("1", 1))
    False
    """
    # `ascii` is the same text in every version of Python, `repr` is not.
    plain = [len(cell) if type(cell) is bytes else cell for cell in cells]
    text = ascii(plain).encode() + b"".join(cell for cell in cells if type(cell) is bytes)
    hashed = blake2b(text, digest_size=_BYTES, person=table.encode())
    return int.from_bytes(hashed.digest(), "little")


def sum_of(connection: sqlite3.Connection, table: str) -> Sum:
    """Return the checksum of a table, read without its indexes."""
    statement = f"SELECT * FROM {table} NOT INDEXED"
    if table == SCHEMA:
        statement = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    return Sum().plus(*(digest(table, cells) for cells in connection.execute(statement)))


def write_sum(connection: sqlite3.Connection, table: str, of: Sum) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO sums VALUES (?, ?, ?)",
        (table, of.rows, f"{of.total:0{2 * _BYTES}x}"),
    )


def intact(connection: sqlite3.Connection, table: str) -> str:
    """Return why a table or an index of it is damaged, "" if it is not."""
    if table != SCHEMA:
        answer = str(connection.execute(f"PRAGMA integrity_check('{table}')").fetchone()[0])
        if answer != "ok":
            return answer
    return difference(connection, table, sum_of(connection, table))


def difference(connection: sqlite3.Connection, table: str, found: Sum) -> str:
    """Return how the checksum of a table differs from the written one, "" if it does not."""
    row = connection.execute("SELECT rows, sum FROM sums WHERE name = ?", (table,)).fetchone()
    try:
        written = Sum(int(row[0]), int(row[1], 16))
    except (TypeError, ValueError):  # there is no such row, or it is damaged
        return f"the checksum of its table {table} is missing"
    if written.rows != found.rows:
        return f"its table {table} has {found.rows} rows, {written.rows} were written"
    return "" if written == found else f"rows of its table {table} have changed since then"


JOURNAL_NAME = "journal.sqlite"
JOURNAL_FILES = tuple(f"{JOURNAL_NAME}{suffix}" for suffix in ("", "-journal", "-wal", "-shm"))
FORMAT = 2  # 1: without checksums, which the next writer adds
APPLICATION = 0x68706F31  # "hpo1", as `file journal.sqlite` shows
_WAIT_SECONDS = 60.0  # a reader holds the file for milliseconds

TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL,
    at TEXT NOT NULL, phase TEXT NOT NULL, loop_state TEXT NOT NULL, checkpoint TEXT);
CREATE TABLE trials (trial INTEGER PRIMARY KEY, state TEXT NOT NULL, row TEXT NOT NULL);
CREATE TABLE evaluations (trial INTEGER NOT NULL, stream TEXT NOT NULL,
    replicate INTEGER NOT NULL, env_steps INTEGER NOT NULL, episodes INTEGER NOT NULL,
    returns BLOB NOT NULL, lengths BLOB NOT NULL, names TEXT NOT NULL, metrics BLOB NOT NULL,
    PRIMARY KEY (trial, stream, replicate, env_steps));
CREATE TABLE decisions (trial INTEGER NOT NULL, rung INTEGER NOT NULL, row TEXT NOT NULL,
    PRIMARY KEY (trial, rung));
CREATE TABLE asks (batch INTEGER PRIMARY KEY, method TEXT NOT NULL, trials TEXT NOT NULL,
    told TEXT NOT NULL);
CREATE TABLE attributes (trial INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (trial, name));
CREATE TABLE parts (name TEXT PRIMARY KEY, first INTEGER NOT NULL, rows INTEGER NOT NULL,
    level INTEGER NOT NULL, checksum TEXT NOT NULL);
{SUMS_TABLE}
"""

# Primary result codes about the disk or other processes, not about the content.
_OTHERS = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open for reading and writing even to read: after a crash the first to open rolls back."""
    for name in JOURNAL_FILES:
        is_plain_file(path.with_name(name))
    last: Exception | None = None
    for mode in ("rwc",) if create else ("rw", "ro"):
        connection = None
        try:
            uri = f"{path.absolute().as_uri()}?mode={mode}"
            connection = sqlite3.connect(
                uri, uri=True, timeout=_WAIT_SECONDS, isolation_level=None
            )
            connection.execute("PRAGMA user_version").fetchone()
            return connection
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if connection is not None:
                connection.close()
            if _code(error) not in _OTHERS:
                raise _store_error(path, error) from error
            last = error
    raise StoreError(f"cannot open {path}: {last}")


def in_memory(path: Path, connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return a copy of an open journal and close that; a writer waits only for the copying."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        with sqlite_errors(path):
            connection.backup(copy)
    except BaseException:
        copy.close()
        raise
    finally:
        connection.close()
    return copy


def is_empty(path: Path) -> bool:
    """Whether a journal has no tables, as after a crash at its creation."""
    connection = connect(path)
    try:
        with sqlite_errors(path):
            return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    finally:
        connection.close()


@contextmanager
def sqlite_errors(path: Path) -> Generator[None]:
    """Turn SQLite's errors into one sentence (`StoreError`)."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: damage in a message
        raise _store_error(path, error) from error


def damaged(path: Path, why: object) -> StoreError:
    words = " ".join(str(why).split())[:300]
    return not_as_written(f"{path} is damaged ({words})")


def _code(error: Exception) -> int:
    """Return the primary result code; 0 for Python's errors, such as undecodable text."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _store_error(path: Path, error: Exception) -> StoreError:
    code = _code(error)
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        full = code == sqlite3.SQLITE_FULL
        words = "No space left on device" if full else f"Input/output error ({error})"
        return StoreError(
            f"{words} while using {path}; all commits are safe; "
            f"{'free space' if full else 'mend that'} and run the same command again"
        )
    if code in _OTHERS:
        reader = "" if os.access(path, os.W_OK) else " (it cannot be written by you)"
        return StoreError(f"cannot use {path}: {error}{reader}")
    return damaged(path, error)
