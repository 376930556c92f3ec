"""Checksums of the journal: for each table the number of its rows and the sum of their digests.

A sum over rows changes by what a commit changes, so that keeping it costs one short hash a row
written, and a row lost, doubled or altered by a flipped bit is noticed by whoever reads the table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

__all__ = [
    "SCHEMA",
    "SUMS_TABLE",
    "Sum",
    "difference",
    "digest",
    "intact",
    "read_sum",
    "sum_of",
    "write_sum",
]

SUMS_TABLE = "CREATE TABLE sums (name TEXT PRIMARY KEY, rows INTEGER NOT NULL, sum TEXT NOT NULL);"
SCHEMA = "schema"
"""The name under which the definitions of the tables are summed, as if they were one."""

_BYTES = 16
_MODULUS = 1 << (8 * _BYTES)


@dataclass(frozen=True)
class Sum:
    """The rows of a table.

    Attributes:
        rows: how many.
        total: the sum of their digests, modulo 2^128.
    """

    rows: int = 0
    total: int = 0

    def plus(self, *digests: int) -> Sum:
        """Return the sum with more rows."""
        return Sum(self.rows + len(digests), (self.total + sum(digests)) % _MODULUS)

    def minus(self, one: int) -> Sum:
        """Return the sum without a row."""
        return Sum(self.rows - 1, (self.total - one) % _MODULUS)


def digest(table: str, cells: Sequence[Any]) -> int:
    """Return the BLAKE2b digest of a row: of its cells as text, and of bytes as they are.

    >>> digest("asks", (1, "1")) == digest("asks", ("1", 1))
    False
    """
    # `ascii` is the same text in every version of Python, `repr` is not.
    plain: list[Any] = []
    data = b""
    for cell in cells:
        if type(cell) is bytes:
            plain.append(len(cell))
            data += cell
        else:
            plain.append(cell)
    text = ascii(plain).encode() + data
    hashed = blake2b(text, digest_size=_BYTES, person=table.encode())
    return int.from_bytes(hashed.digest(), "little")


def sum_of(connection: sqlite3.Connection, table: str) -> Sum:
    """Return the sum of a table as it is, read without its indexes."""
    statement = f"SELECT * FROM {table} NOT INDEXED"
    if table == SCHEMA:
        statement = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    digests = [digest(table, cells) for cells in connection.execute(statement)]
    return Sum(len(digests), sum(digests) % _MODULUS)


def read_sum(connection: sqlite3.Connection, table: str) -> Sum | None:
    """Return the sum that was written, None if there is none that can be read."""
    found = connection.execute("SELECT rows, sum FROM sums WHERE name = ?", (table,)).fetchone()
    try:
        return None if found is None else Sum(int(found[0]), int(found[1], 16))
    except (TypeError, ValueError):  # its own row is damaged
        return None


def write_sum(connection: sqlite3.Connection, table: str, of: Sum) -> None:
    """Write the sum of a table."""
    connection.execute(
        "INSERT OR REPLACE INTO sums VALUES (?, ?, ?)",
        (table, of.rows, f"{of.total:0{2 * _BYTES}x}"),
    )


def intact(connection: sqlite3.Connection, table: str) -> str:
    """Return what is wrong with a table or with an index of it, nothing if it is as written."""
    if table != SCHEMA:
        told = str(connection.execute(f"PRAGMA integrity_check('{table}')").fetchone()[0])
        if told != "ok":
            return told
    return difference(connection, table, sum_of(connection, table))


def difference(connection: sqlite3.Connection, table: str, found: Sum) -> str:
    """Return how the sum of a table differs from the one that was written, nothing if not."""
    written = read_sum(connection, table)
    if written is None:
        return f"the checksum of its table {table} is missing"
    if written.rows != found.rows:
        return f"its table {table} has {found.rows} rows, {written.rows} were written"
    return "" if written == found else f"rows of its table {table} are not those that were written"
