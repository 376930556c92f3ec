"""The journal: the one true record of a study, in SQLite, one transaction a commit.

Rollback journal and full synchronisation make a commit survive a crash whole or not at all;
whatever was in memory after the last commit is replayed by the search loop, to the same bits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..errors import StoreError
from ..files.atomic_files import is_plain_file
from . import journal_file
from .codec import (
    PARAM_KINDS,
    Cells,
    PackedEvaluation,
    ask_cells,
    ask_of_cells,
    attribute_cells,
    attribute_of_cells,
    decision_from_text,
    decision_to_text,
    evaluation_cells,
    evaluation_of_cells,
    head_cells,
    meta_cells,
    meta_of_cells,
    names_of_text,
    pack_evaluations,
    part_cells,
    part_of_cells,
    trial_from_text,
    trial_to_text,
    unpack_evaluation,
)
from .journal_file import (
    APPLICATION,
    FORMAT,
    JOURNAL_NAME,
    SUMS_TABLE,
    Sum,
    connect,
    damaged,
    difference,
    digest,
    in_memory,
    intact,
    sqlite_errors,
    sum_of,
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


class JournalReader:
    """An open journal, to be read.

    Attributes:
        path: of the file.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection):
        self.path, self._connection = path, connection
        self._intact: set[str] = set()  # tables that were found as they were written

    def _compare(self, table: str) -> None:
        """Compare a table with its checksum, the first time it is read.

        Raises:
            StoreError: it is not as it was written.
        """
        if table in self._intact:
            return
        with nullcontext() if self._connection.in_transaction else self.at_one_commit():
            why = intact(self._connection, "schema") or intact(self._connection, table)
        if why:
            raise damaged(self.path, why)
        self._intact |= {"schema", table}

    @contextmanager
    def at_one_commit(self) -> Generator[None]:
        """Let everything that is read inside be of one commit; a writer waits until then."""
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

    def _made(self, make: Callable[..., _T], *cells: Any) -> _T:
        """Return what some cells hold.

        Raises:
            StoreError: they hold something else; only a journal without checksums comes here.
        """
        try:
            return make(*cells)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise damaged(self.path, f"{type(error).__name__}: {error}") from error

    def _read_meta(self) -> StudyMeta:
        rows = list(self._rows("meta", "SELECT * FROM meta"))
        return self._made(meta_of_cells, rows)

    def head(self) -> Head:
        """Return the last commit: its number, loop state and checkpoint."""
        statement = "SELECT number, at, phase, loop_state, checkpoint FROM head"
        for number, at, phase, loop_state, checkpoint in self._rows("head", statement):
            return Head(number, self._made(float, at), phase, loop_state, checkpoint)
        raise damaged(self.path, "it has no last commit")

    def trials(self) -> list[TrialRow]:
        """All trials, by number."""
        found = self._rows("trials", "SELECT row FROM trials ORDER BY trial")
        return self._with_rungs([self._made(trial_from_text, text) for (text,) in found])

    def trial(self, number: int) -> TrialRow | None:
        """One trial, None when there is none of that number."""
        found = self._rows("trials", "SELECT row FROM trials WHERE trial = ?", number)
        rows = self._with_rungs([self._made(trial_from_text, text) for (text,) in found])
        return next(iter(rows), None)

    def _with_rungs(self, rows: list[TrialRow]) -> list[TrialRow]:
        """Return trials with the env steps of their last rung, which earlier versions left out."""
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
        """State -> number of trials of the search in it."""
        found = self._rows(
            "trials", "SELECT state, count(*) FROM trials WHERE trial >= 0 GROUP BY state"
        )
        return dict(found)

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
            "evaluations",
            f"SELECT * FROM evaluations {where} ORDER BY trial, stream, replicate, env_steps",
            *(value for _, value in asked),
        )
        for cells in found:
            yield self._made(evaluation_of_cells, *cells)

    def evaluations(self, trial: int | None = None) -> Iterator[EvaluationRow]:
        """Episodes in the order of `packed_evaluations`."""
        for packed in self.packed_evaluations(trial):
            yield from unpack_evaluation(packed)

    def evaluation_metrics(self) -> list[str]:
        """Names of all environment metrics that any evaluation has, sorted."""
        found = self._rows("evaluations", "SELECT DISTINCT names FROM evaluations")
        return sorted({name for (names,) in found for name in self._made(names_of_text, names)})

    def decisions(self, trial: int | None = None) -> list[DecisionRow]:
        """Decisions in the order they were taken, of one trial or of all."""
        where, values = ("WHERE trial = ?", (trial,)) if trial is not None else ("", ())
        statement = f"SELECT row FROM decisions {where} ORDER BY rowid"
        found = self._rows("decisions", statement, *values)
        return [self._made(decision_from_text, text) for (text,) in found]

    def asks(self) -> list[AskRow]:
        """Ask batches by number."""
        statement = "SELECT batch, method, trials, told FROM asks ORDER BY batch"
        return [self._made(ask_of_cells, *cells) for cells in self._rows("asks", statement)]

    def attributes(self) -> list[AttributeRow]:
        """System attributes, the study's own first, then by trial and name."""
        statement = "SELECT trial, name, value FROM attributes ORDER BY trial, name"
        found = self._rows("attributes", statement)
        return [self._made(attribute_of_cells, *cells) for cells in found]

    def parts(self) -> list[Part]:
        """The live curve parts, in the order of their rows."""
        statement = "SELECT name, checksum, rows, first, level FROM parts ORDER BY first"
        return [self._made(part_of_cells, *cells) for cells in self._rows("parts", statement)]


_KEYS: Mapping[str, tuple[str, ...]] = {
    "meta": ("key",),
    "head": ("one",),
    "trials": ("trial",),
    "attributes": ("trial", "name"),
}
"""Tables whose rows are replaced -> the columns that say which."""
_SUMMED = (
    "schema", "meta", "head", "trials", "evaluations", "decisions", "asks", "attributes", "parts",
)  # fmt: skip


class Journal(JournalReader):
    """The journal of one study folder, opened for reading unless `writable`.

    Writing needs the study's lock (`store.lock`), which the caller holds.

    Args:
        directory: of the study.
        writable: open it to write.
        copied: read a copy in memory. Whoever reads the file itself at one commit holds up the
            next commit for as long, which is a second where there are thousands of trials.

    Raises:
        StoreError: there is no journal, it is damaged, or a newer version of `hpo` made it.
    """

    def __init__(self, directory: Path, *, writable: bool = False, copied: bool = False):
        path = Path(directory) / JOURNAL_NAME
        if not is_plain_file(path):
            raise StoreError(f"{directory} holds no study: {JOURNAL_NAME} is missing")
        connection = connect(path)
        super().__init__(path, in_memory(path, connection) if copied else connection)
        self._writable = writable
        self._sums: dict[str, Sum] = {}  # of a writer: of every table, as of the last commit
        try:
            with sqlite_errors(self.path):
                self._prepare()
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
        connection = connect(path, create=True)
        try:
            with sqlite_errors(path):
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.executescript(
                    f"BEGIN IMMEDIATE; {journal_file.TABLES}"
                    f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};"
                )
                connection.executemany("INSERT INTO meta VALUES (?, ?)", meta_cells(meta))
                head = head_cells(Head(at=meta.created_at))
                connection.execute("INSERT INTO head VALUES (?, ?, ?, ?, ?, ?)", head)
                for table in _SUMMED:
                    write_sum(connection, table, sum_of(connection, table))
                connection.execute("COMMIT")
        finally:
            connection.close()
        return cls(directory, writable=True)

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether a journal was ever created here; one cut off at its creation was not.

        Raises:
            StoreError: it is damaged, or no file.
        """
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
                self._intact = set(_SUMMED)  # there is nothing to compare with
            return
        # EXTRA is FULL plus a sync of the folder: parts are deleted after a commit, so the
        # commit must not come undone.
        run("PRAGMA journal_mode = DELETE")
        run("PRAGMA synchronous = EXTRA")
        self._open_whole(version)

    def _open_whole(self, version: int) -> None:
        """Compare everything with its checksums; give them to a journal that has none."""
        run = self._connection.execute
        told = str(run("PRAGMA integrity_check").fetchone()[0])
        if told != "ok":
            raise damaged(self.path, told)
        with self._transaction("IMMEDIATE" if version == 1 else ""):
            if version == 1:
                run(SUMS_TABLE)
                run(f"PRAGMA user_version = {FORMAT}")
            for table in _SUMMED:
                self._sums[table] = sum_of(self._connection, table)
                if version == 1:
                    write_sum(self._connection, table, self._sums[table])
                elif why := difference(self._connection, table, self._sums[table]):
                    raise damaged(self.path, why)
        self._intact = set(_SUMMED)

    @contextmanager
    def _transaction(self, kind: str = "") -> Generator[None]:
        """Be inside a transaction; what fails in it leaves nothing."""
        with sqlite_errors(self.path):
            self._connection.execute(f"BEGIN {kind}")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._roll_back()

    def _roll_back(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except sqlite3.Error:  # a failing disk; SQLite rolls back when the file is opened again
            self._connection.close()

    def close(self) -> None:
        """Close the file; nothing is pending, since a commit is whole."""
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def commit(self, commit: Commit) -> None:
        """Write everything in one transaction.

        Raises:
            StoreError: the number does not follow the last one, an appended row is there
                already, a row has the wrong type, or the disk refuses; nothing is written then.
        """
        before, self._sums = self._sums, dict(self._sums)
        try:
            with self._transaction("IMMEDIATE"):
                last = self.head().number
                if commit.number != last + 1:
                    raise StoreError(f"commit {commit.number} does not follow commit {last}")
                self._write(commit)
        except BaseException as error:
            self._sums = before
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise StoreError(
                    f"commit {commit.number} repeats a row of {self.path}: {error.__cause__}"
                ) from error
            raise

    def _write(self, commit: Commit) -> None:
        kinds = self.meta.param_kinds
        changed = [
            self._put(
                "trials",
                ((int(r.trial), str(r.state), trial_to_text(r, kinds)) for r in commit.trials),
            ),
            self._put("evaluations", map(evaluation_cells, pack_evaluations(commit.evaluations))),
            self._drop_decisions(commit.decisions),
            self._put(
                "decisions",
                ((int(r.trial), int(r.rung), decision_to_text(r)) for r in commit.decisions),
            ),
            self._put("asks", map(ask_cells, commit.asks)),
            self._put("attributes", map(attribute_cells, commit.attributes)),
            self._drop_parts(commit.merged),
            self._put("parts", map(part_cells, commit.parts)),
            self._put(
                "head",
                [
                    head_cells(
                        Head(
                            commit.number,
                            commit.at,
                            commit.phase,
                            commit.loop_state,
                            commit.checkpoint,
                        )
                    )
                ],
            ),
        ]
        for table in {table for table in changed if table}:
            write_sum(self._connection, table, self._sums[table])

    def _put(self, table: str, rows: Iterable[Cells]) -> str:
        """Insert rows, or replace them where a table has keys; return what changed."""
        keys, run = _KEYS.get(table, ()), self._connection.execute
        # Of two rows with one key the last stays.
        rows = list({row[: len(keys)]: row for row in rows}.values()) if keys else list(rows)
        if not rows:
            return ""
        found, marks = self._sums.get(table, Sum()), ", ".join("?" * len(rows[0]))
        where = " AND ".join(f"{key} = ?" for key in keys)
        for cells in rows if keys else ():
            old = run(f"SELECT * FROM {table} WHERE {where}", cells[: len(keys)]).fetchone()
            found = found if old is None else found.minus(digest(table, old))
        how = "INSERT OR REPLACE" if keys else "INSERT"
        self._connection.executemany(f"{how} INTO {table} VALUES ({marks})", rows)
        self._sums[table] = found.plus(*(digest(table, cells) for cells in rows))
        return table

    def _drop_decisions(self, new: Sequence[DecisionRow]) -> str:
        """Take off the judgements whose place a promotion takes; return what changed."""
        run, where = self._connection.execute, "WHERE trial = ? AND rung = ?"
        places = [(int(row.trial), int(row.rung)) for row in new if row.action == "promote"]
        for place in places:
            for old in run(f"SELECT * FROM decisions {where}", place).fetchall():
                self._sums["decisions"] = self._sums["decisions"].minus(digest("decisions", old))
            run(f"DELETE FROM decisions {where}", place)
        return "decisions" if places else ""

    def _drop_parts(self, names: Sequence[str]) -> str:
        """Take parts off the list; return what changed."""
        run = self._connection.execute
        for name in names:
            for old in run("SELECT * FROM parts WHERE name = ?", (name,)).fetchall():
                self._sums["parts"] = self._sums["parts"].minus(digest("parts", old))
            run("DELETE FROM parts WHERE name = ?", (name,))
        return "parts" if names else ""

    def replace_meta(self, meta: StudyMeta) -> None:
        """Write what a continued study may change: its file, versions, devices.

        Raises:
            StoreError: the declared params differ; their columns are fixed.
        """
        if dict(meta.param_kinds) != dict(self.meta.param_kinds):
            raise StoreError(
                "the searched hyperparameters of a study cannot change; start another study",
                new=True,
            )
        before, self._sums = self._sums, dict(self._sums)
        try:
            with self._transaction("IMMEDIATE"):
                self._put("meta", meta_cells(meta))
                write_sum(self._connection, "meta", self._sums["meta"])
        except BaseException:
            self._sums = before
            raise
        self.meta = meta
