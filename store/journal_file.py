"""The file of a journal: how it is made and opened, and SQLite's errors in one sentence each."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ..disk import is_plain_file
from ..errors import StoreError, not_as_written
from .sums import SUMS_TABLE

__all__ = [
    "APPLICATION",
    "FORMAT",
    "JOURNAL_NAME",
    "TABLES",
    "connect",
    "damaged",
    "in_memory",
    "is_empty",
    "sqlite_errors",
]

JOURNAL_NAME = "journal.sqlite"
FORMAT = 2
"""1: without checksums, which the first to write adds."""
APPLICATION = 0x68706F31  # "hpo1", so that `file journal.sqlite` and we can tell it apart
_WAIT_SECONDS = 60.0  # a reader holds the file for milliseconds
_BESIDE = ("", "-journal", "-wal", "-shm")

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

# Primary result codes that say something of the disk or of other processes, not of the content.
_FULL, _FAILING = {sqlite3.SQLITE_FULL}, {sqlite3.SQLITE_IOERR}
_OTHERS = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open for reading and writing even to read: after a crash the first to open rolls back.

    Raises:
        StoreError: it cannot be opened, is damaged, or is a link or a pipe.
    """
    for suffix in _BESIDE:
        is_plain_file(path.with_name(f"{path.name}{suffix}"))
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
                raise _told(path, error) from error
            last = error
    raise StoreError(f"cannot open {path}: {last}")


def in_memory(path: Path, connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return a copy of an open journal, and close that: a writer waits for the copying alone.

    Raises:
        StoreError: see `sqlite_errors`.
    """
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
    """Whether a journal has nothing in it, which is what a crash at its creation leaves."""
    connection = connect(path)
    try:
        with sqlite_errors(path):
            return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    finally:
        connection.close()


@contextmanager
def sqlite_errors(path: Path) -> Generator[None]:
    """Turn what SQLite raises inside into one sentence.

    Raises:
        StoreError: the file is damaged, in use, or the disk refuses.
    """
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of damage in a message
        raise _told(path, error) from error


def damaged(path: Path, why: object) -> StoreError:
    """Return the error of a journal whose content is not what was written."""
    words = " ".join(str(why).split())[:300]
    return not_as_written(f"{path} is damaged ({words})")


def _code(error: Exception) -> int:
    """Return the primary result code; 0 of errors that Python makes, such as text that is none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _told(path: Path, error: Exception) -> StoreError:
    code = _code(error)
    if code in _FULL | _FAILING:
        words, cure = ("No space left on device", "free space")
        if code in _FAILING:
            words, cure = (f"Input/output error ({error})", "mend that")
        return StoreError(
            f"{words} while using {path}; what was committed is safe; {cure} and run the same "
            "command again"
        )
    if code in _OTHERS:
        reader = "" if os.access(path, os.W_OK) else " (it cannot be written by you)"
        return StoreError(f"cannot use {path}: {error}{reader}")
    return damaged(path, error)
