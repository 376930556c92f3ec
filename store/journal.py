"""The journal: a study's record in SQLite, with one transaction per commit.

A rollback journal with full synchronisation makes commits atomic. After a crash the search loop
repeats everything since the last commit, with bitwise equal results.
"""

from __future__ import annotations

import os
import sqlite3
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ..errors import StoreError, not_as_written
from ..files.atomic_files import (
    TEMPORARY_CURE,
    check_readable,
    full_temporary_folder,
    is_plain_file,
)
from . import codec
from .codec import Cells
from .rows import (
    AskRow,
    AttributeRow,
    Commit,
    CommitHead,
    DecisionRow,
    EvaluationRow,
    Part,
    StudyMeta,
    TrialRow,
)

SUMS_TABLE = "CREATE TABLE sums (name TEXT PRIMARY KEY, rows INTEGER NOT NULL, sum TEXT NOT NULL);"
SCHEMA = "schema"  # name of the checksum of the tables' definitions
_BYTES = 16
_MODULUS = 1 << (8 * _BYTES)


@dataclass(frozen=True)
class Sum:
    """A table's checksum: the number of rows, and the sum of their digests modulo 2^128."""

    rows: int = 0
    total: int = 0

    def plus(self, *digests: int) -> Sum:
        return Sum(self.rows + len(digests), (self.total + sum(digests)) % _MODULUS)

    def minus(self, one: int) -> Sum:
        return Sum(self.rows - 1, (self.total - one) % _MODULUS)


def digest(table: str, cells: Sequence[Any]) -> int:
    """Return a row's BLAKE2b digest; cells are converted to text, except for bytes.

    >>> digest("asks", (1, "1")) == digest("asks", ("1", 1))
    False
    """
    # `ascii` gives the same text in every version of Python; `repr` does not.
    plain = [len(cell) if type(cell) is bytes else cell for cell in cells]
    text = ascii(plain).encode() + b"".join(cell for cell in cells if type(cell) is bytes)
    hashed = blake2b(text, digest_size=_BYTES, person=table.encode())
    return int.from_bytes(hashed.digest(), "little")


def sum_of(connection: sqlite3.Connection, table: str) -> Sum:
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
    """Return why a table or one of its indexes is damaged, or "" if all are intact."""
    if table != SCHEMA:
        answer = str(connection.execute(f"PRAGMA integrity_check('{table}')").fetchone()[0])
        if answer != "ok":
            return answer
    return sum_differs(connection, table, sum_of(connection, table))


def sum_differs(connection: sqlite3.Connection, table: str, found: Sum) -> str:
    """Return how a table's checksum differs from the recorded one, or ""."""
    row = connection.execute("SELECT rows, sum FROM sums WHERE name = ?", (table,)).fetchone()
    try:
        written = Sum(int(row[0]), int(row[1], 16))
    except (TypeError, ValueError):  # the row is missing or damaged
        return f"the checksum of table {table} is missing"
    if written.rows != found.rows:
        return f"table {table} has {found.rows} rows, but {written.rows} were written"
    if written != found:
        return f"rows of table {table} have changed since the last commit"
    return ""


JOURNAL_NAME = "journal.sqlite"
JOURNAL_FILES = tuple(f"{JOURNAL_NAME}{suffix}" for suffix in ("", "-journal", "-wal", "-shm"))
FORMAT = 2  # 1 had no checksums; the next writer adds them
APPLICATION = 0x68706F31  # "hpo1", which `file journal.sqlite` shows
_WAIT_SECONDS = 60.0  # a reader locks the file only for milliseconds

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

# Primary result codes for errors of the disk or other processes, not of the content.
_OTHERS = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_CANTOPEN,
}


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open a journal for writing, even to read it: the first opening after a crash rolls back."""
    present = {name for name in JOURNAL_FILES if is_plain_file(path.with_name(name))}
    if not create and path.name not in present:
        raise StoreError(f"there is no study in {path.parent}: {path.name} is missing")
    check_readable(path)
    last: Exception | None = None
    modes = ("rw", "ro")
    if create:
        modes = ("rwc",)
    for mode in modes:
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
            if _sqlite_code(error) not in _OTHERS:
                raise _store_error(path, error) from error
            last = error
    raise StoreError(f"cannot open {path}: {last}")


def in_memory(path: Path, connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy an open journal to memory and close it; writers wait only during the copy."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        with closing(connection), sqlite_errors(path):
            connection.backup(copy)
    except BaseException:
        copy.close()
        raise
    return copy


def is_empty(path: Path) -> bool:
    with closing(connect(path)) as connection, sqlite_errors(path):
        return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0


@contextmanager
def sqlite_errors(path: Path) -> Generator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: a damaged error message
        raise _store_error(path, error) from error


def damaged(path: Path, why: object) -> StoreError:
    words = " ".join(str(why).split())[:300]
    return not_as_written(f"{path} is damaged ({words})")


def _sqlite_code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _store_error(path: Path, error: Exception) -> StoreError:
    code = _sqlite_code(error)
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        place, cure, words = path, "fix that", f"Input/output error ({error})"
        if code == sqlite3.SQLITE_FULL:
            cure, words = "free space", "No space left on device"
            if folder := full_temporary_folder(path):
                place, cure = folder, TEMPORARY_CURE
        return StoreError(
            f"{words} while using {place}; all commits are safe; "
            f"{cure} and run the same command again"
        )
    if code in _OTHERS:
        reader = ""
        if not os.access(path, os.W_OK):
            reader = " (no write permission)"
        return StoreError(f"cannot use {path}: {error}{reader}")
    return damaged(path, error)


_T = TypeVar("_T")

_KEYS: Mapping[str, tuple[str, ...]] = {
    "meta": ("key",),
    "head": ("one",),
    "trials": ("trial",),
    "attributes": ("trial", "name"),
}
"""Table whose rows are replaced -> its primary key."""
_SUMMED = (
    "schema", "meta", "head", "trials", "evaluations", "decisions", "asks", "attributes", "parts",
)  # fmt: skip


class Journal:
    """The journal in a study's folder, opened for reading unless `writable`.

    Writing requires the study's lock (`store.lock`). With `copied`, a copy in memory is read. A
    reader that holds the file at one commit delays the next commit (by a second with thousands of
    trials).
    """

    def __init__(self, directory: Path, *, writable: bool = False, copied: bool = False):
        self.path = Path(directory) / JOURNAL_NAME
        self._connection = connect(self.path)
        if copied:
            self._connection = in_memory(self.path, self._connection)
        self._writable = writable
        self._intact: set[str] = set()  # tables found to match their checksums
        # for a writer: checksums of all tables as of the last commit
        self._sums: dict[str, Sum] = {}
        try:
            with sqlite_errors(self.path):
                self._prepare_connection()
            rows = list(self._verified_rows("meta", "SELECT * FROM meta"))
            self.meta = self._make_row(codec.meta_of_cells, rows)
        except StoreError:
            self._connection.close()
            raise

    @classmethod
    def create(cls, directory: Path, meta: StudyMeta) -> Journal:
        for name, kind in meta.param_kinds.items():
            if kind not in codec.PARAM_KINDS:
                raise StoreError(
                    f"param {name!r} has kind {kind!r}; allowed are {', '.join(codec.PARAM_KINDS)}"
                )
        if cls.exists(directory):
            raise StoreError(f"{directory} already has a study")
        path = Path(directory) / JOURNAL_NAME
        with closing(connect(path, create=True)) as connection, sqlite_errors(path):
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.executescript(
                f"BEGIN IMMEDIATE; {TABLES}"
                f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};"
            )
            connection.executemany("INSERT INTO meta VALUES (?, ?)", codec.meta_cells(meta))
            head = codec.head_cells(CommitHead(at=meta.created_at))
            connection.execute("INSERT INTO head VALUES (?, ?, ?, ?, ?, ?)", head)
            for table in _SUMMED:
                write_sum(connection, table, sum_of(connection, table))
            connection.execute("COMMIT")
        return cls(directory, writable=True)

    @staticmethod
    def exists(directory: Path) -> bool:
        path = Path(directory) / JOURNAL_NAME
        return is_plain_file(path) and not is_empty(path)

    def _prepare_connection(self) -> None:
        run = self._connection.execute
        application = run("PRAGMA application_id").fetchone()[0]
        version = run("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION:
            raise StoreError(f"{self.path} is not an hpo journal")
        if version > FORMAT:
            raise StoreError(
                f"{self.path} has format {version}, but this version of hpo reads {FORMAT}; "
                "upgrade hpo-lanes"
            )
        found = run("SELECT count(*) FROM sqlite_master WHERE name = 'sums'").fetchone()[0]
        if version < 1 or found != version - 1:
            raise damaged(self.path, f"format {version} with {found} checksum tables")
        if not self._writable:
            run("PRAGMA query_only = ON")
            if version == 1:
                self._intact = set(_SUMMED)  # there are no checksums
            return
        # EXTRA is FULL plus a sync of the folder. Parts are deleted after a commit, so the commit
        # must not be lost.
        run("PRAGMA journal_mode = DELETE")
        run("PRAGMA synchronous = EXTRA")
        self._verify_all(version)

    def _verify_all(self, version: int) -> None:
        """Compare everything with its checksums; add checksums to a journal that has none."""
        run = self._connection.execute
        answer = str(run("PRAGMA integrity_check").fetchone()[0])
        if answer != "ok":
            raise damaged(self.path, answer)
        kind = ""
        if version == 1:
            kind = "IMMEDIATE"
        with self._transaction(kind):
            if version == 1:
                run(SUMS_TABLE)
                run(f"PRAGMA user_version = {FORMAT}")
            for table in _SUMMED:
                self._sums[table] = sum_of(self._connection, table)
                if version == 1:
                    write_sum(self._connection, table, self._sums[table])
                elif why := sum_differs(self._connection, table, self._sums[table]):
                    raise damaged(self.path, why)
        self._intact = set(_SUMMED)

    @contextmanager
    def _transaction(self, kind: str = "") -> Generator[None]:
        with sqlite_errors(self.path):
            self._connection.execute(f"BEGIN {kind}")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    try:
                        self._connection.execute("ROLLBACK")
                    # a failing disk; SQLite rolls back when it is next opened
                    except sqlite3.Error:
                        self._connection.close()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------- reading

    def _verify_checksum(self, table: str) -> None:
        """Compare a table with its checksum when it is first read."""
        if table in self._intact:
            return
        with nullcontext() if self._connection.in_transaction else self.at_one_commit():
            why = intact(self._connection, "schema") or intact(self._connection, table)
        if why:
            raise damaged(self.path, why)
        self._intact |= {"schema", table}

    @contextmanager
    def at_one_commit(self) -> Generator[None]:
        """Keep all reads in the context at one commit; writers wait until the context ends."""
        with sqlite_errors(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def _verified_rows(self, table: str, statement: str, *values: object) -> Iterator[Cells]:
        self._verify_checksum(table)
        with sqlite_errors(self.path):
            # Not `yield from`, which would close the cursor of a reader that stopped, perhaps too
            # late.
            for cells in self._connection.execute(statement, values):  # noqa: UP028
                yield cells

    def _read_rows(
        self, make: Callable[..., _T], table: str, statement: str, *values: object
    ) -> Iterator[_T]:
        for cells in self._verified_rows(table, statement, *values):
            yield self._make_row(make, *cells)

    def _make_row(self, make: Callable[..., _T], *cells: Any) -> _T:
        try:
            return make(*cells)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            # Only a journal without checksums can reach this line.
            raise damaged(self.path, f"{type(error).__name__}: {error}") from error

    def head(self) -> CommitHead:
        statement = "SELECT number, at, phase, loop_state, checkpoint FROM head"
        for number, at, phase, loop_state, checkpoint in self._verified_rows("head", statement):
            return CommitHead(number, self._make_row(float, at), phase, loop_state, checkpoint)
        raise damaged(self.path, "the last commit is missing")

    def trials(self) -> list[TrialRow]:
        return self._read_trials("SELECT row FROM trials ORDER BY trial")

    def trial(self, number: int) -> TrialRow | None:
        return next(
            iter(self._read_trials("SELECT row FROM trials WHERE trial = ?", number)), None
        )

    def _read_trials(self, statement: str, *number: int) -> list[TrialRow]:
        rows = list(self._read_rows(codec.trial_from_text, "trials", statement, *number))
        # Earlier versions did not store the env steps of the last rung.
        lack = [n for n, row in enumerate(rows) if row.rung >= 0 and row.rung_env_steps is None]
        if lack:
            found = {(row.trial, row.rung): row.env_steps for row in self.decisions(*number)}
            for n in lack:
                at = found.get((rows[n].trial, rows[n].rung))
                rows[n] = replace(rows[n], rung_env_steps=at)
        return rows

    def count_by_state(self) -> dict[str, int]:
        statement = "SELECT state, count(*) FROM trials WHERE trial >= 0 GROUP BY state"
        return dict(self._verified_rows("trials", statement))

    def evaluations(
        self, trial: int | None = None, without: str | None = None
    ) -> Iterator[EvaluationRow]:
        asked: dict[str, int | str] = {}
        if trial is not None:
            asked["trial = ?"] = trial
        if without is not None:
            asked["stream <> ?"] = str(without)
        statement = (
            f"SELECT * FROM evaluations WHERE {' AND '.join(asked) or '1'} "
            "ORDER BY trial, stream, replicate, env_steps"
        )
        return self._read_rows(
            codec.evaluation_of_cells, "evaluations", statement, *asked.values()
        )

    def last_lengths(self, trial: int, stream: str) -> list[int]:
        """Return the env steps of the episodes in a trial's last evaluation, without numpy."""
        statement = (
            "SELECT lengths FROM evaluations AS e WHERE trial = ? AND stream = ? AND env_steps = ("
            "SELECT max(env_steps) FROM evaluations WHERE trial = e.trial AND stream = e.stream)"
        )
        found = self._read_rows(partial(array, "q"), "evaluations", statement, trial, stream)
        return list(chain.from_iterable(found))

    def evaluation_metrics(self) -> list[str]:
        statement = "SELECT DISTINCT names FROM evaluations"
        found = self._read_rows(codec.names_of_text, "evaluations", statement)
        return sorted({name for names in found for name in names})

    def decisions(self, trial: int | None = None) -> list[DecisionRow]:
        where, values = "1", ()
        if trial is not None:
            where, values = "trial = ?", (trial,)
        statement = f"SELECT row FROM decisions WHERE {where} ORDER BY rowid"
        return list(self._read_rows(codec.decision_from_text, "decisions", statement, *values))

    def asks(self) -> list[AskRow]:
        statement = "SELECT batch, method, trials, told FROM asks ORDER BY batch"
        return list(self._read_rows(codec.ask_of_cells, "asks", statement))

    def attributes(self) -> list[AttributeRow]:
        statement = "SELECT trial, name, value FROM attributes ORDER BY trial, name"
        return list(self._read_rows(codec.attribute_of_cells, "attributes", statement))

    def parts(self) -> list[Part]:
        statement = "SELECT name, checksum, rows, first, level FROM parts ORDER BY first"
        return list(self._read_rows(codec.part_of_cells, "parts", statement))

    # ---------------------------------------------------------------------- writing

    @contextmanager
    def _change_transaction(self) -> Generator[None]:
        before, self._sums = self._sums, dict(self._sums)
        try:
            with self._transaction("IMMEDIATE"):
                yield
                for table, now in self._sums.items():
                    if now != before[table]:
                        write_sum(self._connection, table, now)
        except BaseException:
            self._sums = before
            raise

    def commit(self, commit: Commit) -> None:
        """Write the whole commit in one transaction, or nothing."""
        try:
            with self._change_transaction():
                last = self.head().number
                if commit.number != last + 1:
                    raise StoreError(f"commit {commit.number} does not follow commit {last}")
                self._write_commit(commit)
        except StoreError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise StoreError(
                    f"commit {commit.number} repeats a row of {self.path}: {error.__cause__}"
                ) from error
            raise

    def _write_commit(self, commit: Commit) -> None:
        kinds = self.meta.param_kinds
        texts = ((row, codec.trial_to_text(row, kinds)) for row in commit.trials)
        self._put_rows("trials", ((int(row.trial), str(row.state), text) for row, text in texts))
        for table in ("evaluations", "decisions"):
            self._delete_rows(table, "trial = ?", [(int(number),) for number in commit.restarted])
        self._put_rows("evaluations", map(codec.evaluation_cells, commit.evaluations))
        promoted = [(int(r.trial), int(r.rung)) for r in commit.decisions if r.action == "promote"]
        self._delete_rows(
            "decisions", "trial = ? AND rung = ?", promoted
        )  # the pauses of these trials
        self._put_rows("decisions", map(codec.decision_cells, commit.decisions))
        self._put_rows("asks", map(codec.ask_cells, commit.asks))
        self._put_rows("attributes", map(codec.attribute_cells, commit.attributes))
        self._delete_rows("parts", "name = ?", [(name,) for name in commit.merged])
        self._put_rows("parts", map(codec.part_cells, commit.parts))
        self._put_rows("head", [codec.head_cells(commit)])

    def _put_rows(self, table: str, rows: Iterable[Cells]) -> None:
        keys = _KEYS.get(table, ())
        rows = list(rows)
        if keys:  # of two rows with one key the last stays
            rows = list({row[: len(keys)]: row for row in rows}.values())
        if not rows:
            return
        if keys:
            where = " AND ".join(f"{key} = ?" for key in keys)
            self._delete_rows(table, where, [row[: len(keys)] for row in rows])
        marks = ", ".join("?" * len(rows[0]))
        self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        self._sums[table] = self._sums[table].plus(*(digest(table, cells) for cells in rows))

    def _delete_rows(self, table: str, where: str, keys: Iterable[Cells]) -> None:
        run = self._connection.execute
        for key in keys:
            for old in run(f"SELECT * FROM {table} WHERE {where}", key).fetchall():
                self._sums[table] = self._sums[table].minus(digest(table, old))
            run(f"DELETE FROM {table} WHERE {where}", key)

    def replace_meta(self, meta: StudyMeta) -> None:
        if dict(meta.param_kinds) != dict(self.meta.param_kinds):
            raise StoreError(
                "the searched hyperparameters of a study cannot change; start another study",
                new=True,
            )
        with self._change_transaction():
            self._put_rows("meta", codec.meta_cells(meta))
        self.meta = meta
