"""The journal: the one true record of a study, in SQLite, one transaction a commit.

Rollback journal and full synchronisation make a commit survive a crash whole or not at all;
whatever was in memory after the last commit is replayed by the search loop, to the same bits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import StoreError
from .codec import (
    PARAM_KINDS,
    PackedEvaluation,
    decision_from_text,
    decision_to_text,
    pack_evaluations,
    plain_json,
    trial_from_text,
    trial_to_text,
    unpack_evaluation,
)
from .commit import Commit, Head, Part
from .rows import AskRow, AttributeRow, DecisionRow, EvaluationRow, StudyMeta, TrialRow

__all__ = ["JOURNAL_NAME", "Journal"]

JOURNAL_NAME = "journal.sqlite"
FORMAT = 1
_APPLICATION = 0x68706F31  # "hpo1", so that `file journal.sqlite` and we can tell it apart
_WAIT_SECONDS = 60.0  # a reader holds the file for milliseconds

_TABLES = """
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
"""
_STUDY = -1  # the `trial` of an attribute that belongs to the study


class Journal:
    """The journal of one study folder, opened for reading unless `writable`.

    Writing needs the study's lock (`store.lock`), which the caller holds.

    Raises:
        StoreError: there is no journal, it is damaged, or a newer version of `hpo` made it.
    """

    def __init__(self, directory: Path, *, writable: bool = False):
        self.path = Path(directory) / JOURNAL_NAME
        if not self.path.is_file():
            raise StoreError(f"{directory} holds no study: {JOURNAL_NAME} is missing")
        self._connection = _connect(self.path)
        try:
            with self._errors():
                self._prepare(writable)
            self.meta = self._read_meta()
        except StoreError:
            self._connection.close()
            raise

    @classmethod
    def create(cls, directory: Path, meta: StudyMeta) -> Journal:
        """Make the journal of a new study, whole or not at all, and open it for writing."""
        for name, kind in meta.param_kinds.items():
            if kind not in PARAM_KINDS:
                raise StoreError(
                    f"param {name!r} has kind {kind!r}; allowed are {', '.join(PARAM_KINDS)}"
                )
        if cls.exists(directory):
            raise StoreError(f"{directory} already holds a study")
        path = Path(directory) / JOURNAL_NAME
        connection = _connect(path, create=True)
        try:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {_APPLICATION};"
                f"PRAGMA user_version = {FORMAT};"
            )
            _write_meta(connection, meta)
            _write_head(connection, Head(at=meta.created_at))
            connection.execute("COMMIT")
        except sqlite3.Error as error:  # the disk is full
            raise StoreError(f"cannot make {path}: {error}") from error
        finally:
            connection.close()
        return cls(directory, writable=True)

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether a journal was ever created here; one cut off at its creation was not."""
        path = Path(directory) / JOURNAL_NAME
        if not path.is_file():
            return False
        connection = _connect(path)
        try:
            return bool(connection.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.DatabaseError as error:
            raise _damaged(path, error) from error
        finally:
            connection.close()

    def _prepare(self, writable: bool) -> None:
        run = self._connection.execute
        application = run("PRAGMA application_id").fetchone()[0]
        version = run("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION:
            raise StoreError(f"{self.path} is no journal of hpo")
        if version > FORMAT:
            raise StoreError(
                f"{self.path} has format {version}, this hpo knows {FORMAT}; upgrade hpo-lanes"
            )
        if writable:
            # EXTRA is FULL plus a sync of the folder: parts are deleted after a commit, so the
            # commit must not come undone.
            run("PRAGMA journal_mode = DELETE")
            run("PRAGMA synchronous = EXTRA")
        else:
            run("PRAGMA query_only = ON")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # busy, full, read-only: not damage
            raise StoreError(f"cannot use {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise _damaged(self.path, error) from error

    def close(self) -> None:
        """Close the file; nothing is pending, since a commit is whole."""
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ writing

    def commit(self, commit: Commit) -> None:
        """Write everything in one transaction.

        Raises:
            StoreError: the number does not follow the last one, an appended row is there
                already, a row has the wrong type, or the disk refuses; nothing is written then.
        """
        run = self._connection.execute
        with self._errors():
            run("BEGIN IMMEDIATE")
        try:
            last = self.head().number
            if commit.number != last + 1:
                raise StoreError(f"commit {commit.number} does not follow commit {last}")
            self._write(commit)
            run("COMMIT")
        except sqlite3.IntegrityError as error:
            raise StoreError(
                f"commit {commit.number} repeats a row of {self.path}: {error}"
            ) from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"cannot write {self.path}: {error}") from error
        finally:
            if self._connection.in_transaction:
                run("ROLLBACK")

    def _write(self, commit: Commit) -> None:
        many = self._connection.executemany
        kinds = self.meta.param_kinds
        many(
            "INSERT INTO trials VALUES (?, ?, ?) ON CONFLICT (trial) DO UPDATE "
            "SET state = excluded.state, row = excluded.row",
            ((int(row.trial), str(row.state), trial_to_text(row, kinds)) for row in commit.trials),
        )
        many(
            "INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            map(_evaluation_cells, pack_evaluations(commit.evaluations)),
        )
        many(
            "INSERT INTO decisions VALUES (?, ?, ?)",
            ((int(row.trial), int(row.rung), decision_to_text(row)) for row in commit.decisions),
        )
        many(
            "INSERT INTO asks VALUES (?, ?, ?, ?)",
            (
                (row.batch, row.method, json.dumps(row.trials), json.dumps(row.told))
                for row in commit.asks
            ),
        )
        many(
            "INSERT INTO attributes VALUES (?, ?, ?) ON CONFLICT (trial, name) DO UPDATE "
            "SET value = excluded.value",
            (
                (
                    _STUDY if row.trial is None else row.trial,
                    row.name,
                    json.dumps(plain_json(row.value)),
                )
                for row in commit.attributes
            ),
        )
        many("DELETE FROM parts WHERE name = ?", ((name,) for name in commit.merged))
        many(
            "INSERT INTO parts VALUES (?, ?, ?, ?, ?)",
            (
                (part.name, part.first, part.rows, part.level, part.checksum)
                for part in commit.parts
            ),
        )
        head = Head(commit.number, commit.at, commit.phase, commit.loop_state, commit.checkpoint)
        _write_head(self._connection, head)

    def replace_meta(self, meta: StudyMeta) -> None:
        """Write what a continued study may change: its file, versions, devices.

        Raises:
            StoreError: the declared params differ; their columns are fixed.
        """
        if dict(meta.param_kinds) != dict(self.meta.param_kinds):
            raise StoreError("the searched params of a study cannot change; start with --new")
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            _write_meta(self._connection, meta)
            self._connection.execute("COMMIT")
        self.meta = meta

    # ------------------------------------------------------------------ reading

    @contextmanager
    def at_one_commit(self) -> Iterator[None]:
        """Let everything that is read inside be of one commit; a writer waits until then."""
        with self._errors():
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def _rows(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with self._errors():
            yield from self._connection.execute(statement, values)

    def _read_meta(self) -> StudyMeta:
        values = {key: json.loads(text) for key, text in self._rows("SELECT * FROM meta")}
        known = {entry.name for entry in fields(StudyMeta)}
        for name in ("objectives", "constraints"):
            values[name] = tuple(values.get(name, ()))
        return StudyMeta(**{key: value for key, value in values.items() if key in known})

    def head(self) -> Head:
        """Give the last commit: its number, loop state and checkpoint."""
        statement = "SELECT number, at, phase, loop_state, checkpoint FROM head"
        (number, at, phase, loop_state, checkpoint) = next(self._rows(statement))
        return Head(number, float(at), phase, loop_state, checkpoint)

    def trials(self) -> list[TrialRow]:
        """All trials, by number."""
        found = self._rows("SELECT row FROM trials ORDER BY trial")
        return [trial_from_text(text) for (text,) in found]

    def trial(self, number: int) -> TrialRow | None:
        """One trial, None when there is none of that number."""
        found = self._rows("SELECT row FROM trials WHERE trial = ?", number)
        return next((trial_from_text(text) for (text,) in found), None)

    def count_by_state(self) -> dict[str, int]:
        """State -> number of trials in it."""
        return dict(self._rows("SELECT state, count(*) FROM trials GROUP BY state"))

    def packed_evaluations(
        self, trial: int | None = None, without: str | None = None
    ) -> Iterator[PackedEvaluation]:
        """Evaluations by (trial, stream, replicate, env_steps).

        Args:
            trial: whose; None gives those of all trials.
            without: a stream to leave out.
        """
        asked = [("trial = ?", trial), ("stream <> ?", None if without is None else str(without))]
        asked = [(clause, value) for clause, value in asked if value is not None]
        where = f"WHERE {' AND '.join(clause for clause, _ in asked)}" if asked else ""
        found = self._rows(
            f"SELECT * FROM evaluations {where} ORDER BY trial, stream, replicate, env_steps",
            *(value for _, value in asked),
        )
        for cells in found:
            yield _evaluation_of_cells(*cells)

    def evaluations(self, trial: int | None = None) -> Iterator[EvaluationRow]:
        """Episodes in the order of `packed_evaluations`."""
        for packed in self.packed_evaluations(trial):
            yield from unpack_evaluation(packed)

    def evaluation_metrics(self) -> list[str]:
        """Names of all environment metrics that any evaluation has, sorted."""
        found = self._rows("SELECT DISTINCT names FROM evaluations")
        return sorted({name for (names,) in found for name in json.loads(names)})

    def decisions(self, trial: int | None = None) -> list[DecisionRow]:
        """Decisions in the order they were taken, of one trial or of all."""
        where, values = ("WHERE trial = ?", (trial,)) if trial is not None else ("", ())
        found = self._rows(f"SELECT row FROM decisions {where} ORDER BY rowid", *values)
        return [decision_from_text(text) for (text,) in found]

    def asks(self) -> list[AskRow]:
        """Ask batches by number."""
        found = self._rows("SELECT batch, method, trials, told FROM asks ORDER BY batch")
        return [
            AskRow(batch, method, tuple(json.loads(trials)), tuple(json.loads(told)))
            for batch, method, trials, told in found
        ]

    def attributes(self) -> list[AttributeRow]:
        """System attributes, the study's own first, then by trial and name."""
        found = self._rows("SELECT trial, name, value FROM attributes ORDER BY trial, name")
        return [
            AttributeRow(None if trial == _STUDY else trial, name, json.loads(value))
            for trial, name, value in found
        ]

    def parts(self) -> list[Part]:
        """The live curve parts, in the order of their rows."""
        found = self._rows("SELECT name, checksum, rows, first, level FROM parts ORDER BY first")
        return [Part(*cells) for cells in found]


def _connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open for reading and writing even to read: after a crash the first to open rolls back."""
    last: sqlite3.Error | None = None
    for mode in ("rwc",) if create else ("rw", "ro"):
        try:
            uri = f"{path.absolute().as_uri()}?mode={mode}"
            connection = sqlite3.connect(
                uri, uri=True, timeout=_WAIT_SECONDS, isolation_level=None
            )
            connection.execute("PRAGMA user_version").fetchone()
            return connection
        except sqlite3.OperationalError as error:
            last = error
        except sqlite3.DatabaseError as error:
            raise _damaged(path, error) from error
    raise StoreError(f"cannot open {path}: {last}")


def _damaged(path: Path, error: sqlite3.Error) -> StoreError:
    return StoreError(
        f"{path} is damaged ({error}); its study cannot go on: restore the file, or start "
        "again with --new"
    )


def _write_meta(connection: sqlite3.Connection, meta: StudyMeta) -> None:
    cells = (
        (entry.name, json.dumps(_mapping(getattr(meta, entry.name)))) for entry in fields(meta)
    )
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", cells)


def _mapping(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _write_head(connection: sqlite3.Connection, head: Head) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO head VALUES (1, ?, ?, ?, ?, ?)",
        (head.number, repr(float(head.at)), head.phase, head.loop_state, head.checkpoint),
    )


def _evaluation_cells(packed: PackedEvaluation) -> tuple[Any, ...]:
    return (
        packed.trial,
        packed.stream,
        packed.replicate,
        packed.env_steps,
        packed.episodes,
        packed.returns,
        packed.lengths,
        json.dumps(packed.names),
        packed.metrics,
    )


def _evaluation_of_cells(*cells: Any) -> PackedEvaluation:
    *key, names, metrics = cells
    return PackedEvaluation(*key, names=_names(names), metrics=metrics)


@lru_cache(maxsize=256)
def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
