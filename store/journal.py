"""The journal: the record of a study in SQLite, one transaction per commit.

A rollback journal and full synchronisation make a commit atomic. After a crash the search loop
repeats everything since the last commit, bitwise.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..errors import StoreError
from ..files.atomic_files import is_plain_file
from . import codec, journal_file
from .codec import Cells, PackedEvaluation
from .journal_file import (
    APPLICATION,
    FORMAT,
    JOURNAL_NAME,
    Sum,
    connect,
    damaged,
    digest,
    intact,
    sqlite_errors,
    write_sum,
)
from .rows import (
    AskRow,
    AttributeRow,
    Commit,
    DecisionRow,
    EvaluationRow,
    Head,
    Part,
    StudyMeta,
    TrialRow,
)

_T = TypeVar("_T")

_KEYS: Mapping[str, tuple[str, ...]] = {
    "meta": ("key",),
    "head": ("one",),
    "trials": ("trial",),
    "attributes": ("trial", "name"),
}
"""Primary keys of the tables whose rows are replaced."""
_SUMMED = (
    "schema", "meta", "head", "trials", "evaluations", "decisions", "asks", "attributes", "parts",
)  # fmt: skip


class Journal:
    """The journal of one study folder, opened for reading unless `writable`.

    Writing needs the study's lock (`store.lock`). `copied` reads a copy in memory: a reader of the
    file at one commit delays the next commit, by a second for thousands of trials.
    """

    def __init__(self, directory: Path, *, writable: bool = False, copied: bool = False):
        self.path = Path(directory) / JOURNAL_NAME
        if not is_plain_file(self.path):
            raise StoreError(f"there is no study in {directory}: {JOURNAL_NAME} is missing")
        self._connection = connect(self.path)
        if copied:
            self._connection = journal_file.in_memory(self.path, self._connection)
        self._writable = writable
        self._intact: set[str] = set()  # tables that match their checksums
        self._sums: dict[str, Sum] = {}  # for a writer: all tables, as of the last commit
        try:
            with sqlite_errors(self.path):
                self._prepare()
            rows = list(self._rows("meta", "SELECT * FROM meta"))
            self.meta = self._made(codec.meta_of_cells, rows)
        except StoreError:
            self._connection.close()
            raise

    @classmethod
    def create(cls, directory: Path, meta: StudyMeta) -> Journal:
        """Create the journal of a new study atomically, and open it for writing."""
        for name, kind in meta.param_kinds.items():
            if kind not in codec.PARAM_KINDS:
                raise StoreError(
                    f"param {name!r} has kind {kind!r}; allowed are {', '.join(codec.PARAM_KINDS)}"
                )
        if cls.exists(directory):
            raise StoreError(f"{directory} already has a study")
        path = Path(directory) / JOURNAL_NAME
        connection = connect(path, create=True)
        try:
            with sqlite_errors(path):
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.executescript(
                    f"BEGIN IMMEDIATE; {journal_file.TABLES}"
                    f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};"
                )
                connection.executemany("INSERT INTO meta VALUES (?, ?)", codec.meta_cells(meta))
                head = codec.head_cells(Head(at=meta.created_at))
                connection.execute("INSERT INTO head VALUES (?, ?, ?, ?, ?, ?)", head)
                for table in _SUMMED:
                    write_sum(connection, table, journal_file.sum_of(connection, table))
                connection.execute("COMMIT")
        finally:
            connection.close()
        return cls(directory, writable=True)

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether a journal was created here completely."""
        path = Path(directory) / JOURNAL_NAME
        return is_plain_file(path) and not journal_file.is_empty(path)

    def _prepare(self) -> None:
        run = self._connection.execute
        application = run("PRAGMA application_id").fetchone()[0]
        version = run("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION:
            raise StoreError(f"{self.path} is not a journal of hpo")
        if version > FORMAT:
            raise StoreError(
                f"{self.path} has format {version}, this hpo knows {FORMAT}; upgrade hpo-lanes"
            )
        found = run("SELECT count(*) FROM sqlite_master WHERE name = 'sums'").fetchone()[0]
        if version < 1 or found != version - 1:
            raise damaged(self.path, f"format {version} with {found} tables of checksums")
        if not self._writable:
            run("PRAGMA query_only = ON")
            if version == 1:
                self._intact = set(_SUMMED)  # without checksums
            return
        # EXTRA is FULL plus a sync of the folder: parts are deleted after a commit, so the
        # commit must not come undone.
        run("PRAGMA journal_mode = DELETE")
        run("PRAGMA synchronous = EXTRA")
        self._verify_all(version)

    def _verify_all(self, version: int) -> None:
        """Compare everything with its checksums; add them to a journal without."""
        run = self._connection.execute
        answer = str(run("PRAGMA integrity_check").fetchone()[0])
        if answer != "ok":
            raise damaged(self.path, answer)
        with self._transaction("IMMEDIATE" if version == 1 else ""):
            if version == 1:
                run(journal_file.SUMS_TABLE)
                run(f"PRAGMA user_version = {FORMAT}")
            for table in _SUMMED:
                self._sums[table] = journal_file.sum_of(self._connection, table)
                if version == 1:
                    write_sum(self._connection, table, self._sums[table])
                elif why := journal_file.difference(self._connection, table, self._sums[table]):
                    raise damaged(self.path, why)
        self._intact = set(_SUMMED)

    @contextmanager
    def _transaction(self, kind: str = "") -> Generator[None]:
        """Run a transaction; an error in it rolls it back."""
        with sqlite_errors(self.path):
            self._connection.execute(f"BEGIN {kind}")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    try:
                        self._connection.execute("ROLLBACK")
                    except sqlite3.Error:  # a failing disk; SQLite rolls back at the next opening
                        self._connection.close()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------- reading

    def _compare(self, table: str) -> None:
        """Compare a table with its checksum, the first time it is read."""
        if table in self._intact:
            return
        with nullcontext() if self._connection.in_transaction else self.at_one_commit():
            why = intact(self._connection, "schema") or intact(self._connection, table)
        if why:
            raise damaged(self.path, why)
        self._intact |= {"schema", table}

    @contextmanager
    def at_one_commit(self) -> Generator[None]:
        """Read everything inside at one commit; a writer waits until then."""
        with sqlite_errors(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def _rows(self, table: str, statement: str, *values: object) -> Iterator[Cells]:
        self._compare(table)
        with sqlite_errors(self.path):
            # Not `yield from`: it would close the cursor of a reader that stopped, maybe too late.
            for cells in self._connection.execute(statement, values):  # noqa: UP028
                yield cells

    def _read(
        self, make: Callable[..., _T], table: str, statement: str, *values: object
    ) -> Iterator[_T]:
        for cells in self._rows(table, statement, *values):
            yield self._made(make, *cells)

    def _made(self, make: Callable[..., _T], *cells: Any) -> _T:
        try:
            return make(*cells)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            # Only a journal without checksums gets here.
            raise damaged(self.path, f"{type(error).__name__}: {error}") from error

    def head(self) -> Head:
        """Return the last commit: its number, loop state and checkpoint."""
        statement = "SELECT number, at, phase, loop_state, checkpoint FROM head"
        for number, at, phase, loop_state, checkpoint in self._rows("head", statement):
            return Head(number, self._made(float, at), phase, loop_state, checkpoint)
        raise damaged(self.path, "it has no last commit")

    def trials(self) -> list[TrialRow]:
        """Return all trials, by number."""
        statement = "SELECT row FROM trials ORDER BY trial"
        return self._with_rungs(list(self._read(codec.trial_from_text, "trials", statement)))

    def trial(self, number: int) -> TrialRow | None:
        statement = "SELECT row FROM trials WHERE trial = ?"
        rows = list(self._read(codec.trial_from_text, "trials", statement, number))
        return next(iter(self._with_rungs(rows)), None)

    def _with_rungs(self, rows: list[TrialRow]) -> list[TrialRow]:
        """Add the env steps of the last rung, which earlier versions omitted."""
        lack = {row.trial for row in rows if row.rung >= 0 and row.rung_env_steps is None}
        if not lack:
            return rows
        one = next(iter(lack)) if len(lack) == 1 else None
        at = {(found.trial, found.rung): found.env_steps for found in self.decisions(one)}
        return [
            replace(row, rung_env_steps=at.get((row.trial, row.rung)))
            if row.trial in lack
            else row
            for row in rows
        ]

    def count_by_state(self) -> dict[str, int]:
        """Return state -> number of trials of the search in it."""
        statement = "SELECT state, count(*) FROM trials WHERE trial >= 0 GROUP BY state"
        return dict(self._rows("trials", statement))

    def packed_evaluations(
        self, trial: int | None = None, without: str | None = None
    ) -> Iterator[PackedEvaluation]:
        """Yield evaluations by (trial, stream, replicate, env_steps)."""
        asked = {"trial = ?": trial, "stream <> ?": without if without is None else str(without)}
        asked = {clause: value for clause, value in asked.items() if value is not None}
        statement = (
            f"SELECT * FROM evaluations WHERE {' AND '.join(asked) or '1'} "
            "ORDER BY trial, stream, replicate, env_steps"
        )
        return self._read(codec.evaluation_of_cells, "evaluations", statement, *asked.values())

    def evaluations(self, trial: int | None = None) -> Iterator[EvaluationRow]:
        """Yield episodes in the order of `packed_evaluations`."""
        for packed in self.packed_evaluations(trial):
            yield from codec.unpack_evaluation(packed)

    def evaluation_metrics(self) -> list[str]:
        """Return the sorted names of all environment metrics of any evaluation."""
        statement = "SELECT DISTINCT names FROM evaluations"
        found = self._read(codec.names_of_text, "evaluations", statement)
        return sorted({name for names in found for name in names})

    def decisions(self, trial: int | None = None) -> list[DecisionRow]:
        """Return decisions in the order they were taken, of one trial or of all."""
        where, values = ("1", ()) if trial is None else ("trial = ?", (trial,))
        statement = f"SELECT row FROM decisions WHERE {where} ORDER BY rowid"
        return list(self._read(codec.decision_from_text, "decisions", statement, *values))

    def asks(self) -> list[AskRow]:
        """Return batches of proposals by number."""
        statement = "SELECT batch, method, trials, told FROM asks ORDER BY batch"
        return list(self._read(codec.ask_of_cells, "asks", statement))

    def attributes(self) -> list[AttributeRow]:
        """Return system attributes, those of the study first, then by trial and name."""
        statement = "SELECT trial, name, value FROM attributes ORDER BY trial, name"
        return list(self._read(codec.attribute_of_cells, "attributes", statement))

    def parts(self) -> list[Part]:
        """Return the live curve parts, in the order of their rows."""
        statement = "SELECT name, checksum, rows, first, level FROM parts ORDER BY first"
        return list(self._read(codec.part_of_cells, "parts", statement))

    # ---------------------------------------------------------------------- writing

    @contextmanager
    def _changes(self) -> Generator[None]:
        """Change rows in one transaction with their checksums."""
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
        """Write everything in one transaction, or nothing.

        `StoreError`: the number does not follow the last one, an appended row exists, a row has
        the wrong type, or the disk refuses.
        """
        try:
            with self._changes():
                last = self.head().number
                if commit.number != last + 1:
                    raise StoreError(f"commit {commit.number} does not follow commit {last}")
                self._write(commit)
        except StoreError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise StoreError(
                    f"commit {commit.number} repeats a row of {self.path}: {error.__cause__}"
                ) from error
            raise

    def _write(self, commit: Commit) -> None:
        kinds = self.meta.param_kinds
        texts = ((row, codec.trial_to_text(row, kinds)) for row in commit.trials)
        self._put("trials", ((int(row.trial), str(row.state), text) for row, text in texts))
        evaluations = codec.pack_evaluations(commit.evaluations)
        self._put("evaluations", map(codec.evaluation_cells, evaluations))
        promoted = [(int(r.trial), int(r.rung)) for r in commit.decisions if r.action == "promote"]
        self._delete("decisions", "trial = ? AND rung = ?", promoted)  # what paused these trials
        self._put("decisions", map(codec.decision_cells, commit.decisions))
        self._put("asks", map(codec.ask_cells, commit.asks))
        self._put("attributes", map(codec.attribute_cells, commit.attributes))
        self._delete("parts", "name = ?", [(name,) for name in commit.merged])
        self._put("parts", map(codec.part_cells, commit.parts))
        last = (commit.number, commit.at, commit.phase, commit.loop_state, commit.checkpoint)
        self._put("head", [codec.head_cells(Head(*last))])

    def _put(self, table: str, rows: Iterable[Cells]) -> None:
        """Insert rows; replace those with the same key where a table has keys."""
        keys = _KEYS.get(table, ())
        # Of two rows with one key the last stays.
        rows = list({row[: len(keys)]: row for row in rows}.values()) if keys else list(rows)
        if not rows:
            return
        if keys:
            where = " AND ".join(f"{key} = ?" for key in keys)
            self._delete(table, where, [row[: len(keys)] for row in rows])
        marks = ", ".join("?" * len(rows[0]))
        self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        self._sums[table] = self._sums[table].plus(*(digest(table, cells) for cells in rows))

    def _delete(self, table: str, where: str, keys: Iterable[Cells]) -> None:
        run = self._connection.execute
        for key in keys:
            for old in run(f"SELECT * FROM {table} WHERE {where}", key).fetchall():
                self._sums[table] = self._sums[table].minus(digest(table, old))
            run(f"DELETE FROM {table} WHERE {where}", key)

    def replace_meta(self, meta: StudyMeta) -> None:
        """Write the changes of a resumed study: its file, versions, devices."""
        if dict(meta.param_kinds) != dict(self.meta.param_kinds):
            raise StoreError(
                "the searched hyperparameters of a study cannot change; start another study",
                new=True,
            )
        with self._changes():
            self._put("meta", codec.meta_cells(meta))
        self.meta = meta
