"""Reading a journal: everything that is in it, each table compared with its checksum once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from .cells import (
    Cells,
    ask_of_cells,
    attribute_of_cells,
    evaluation_of_cells,
    meta_of_cells,
    names_of_text,
    part_of_cells,
)
from .codec import PackedEvaluation, decision_from_text, trial_from_text, unpack_evaluation
from .commit import Head, Part
from .journal_file import damaged, sqlite_errors
from .rows import AskRow, AttributeRow, DecisionRow, EvaluationRow, StudyMeta, TrialRow
from .sums import intact

__all__ = ["JournalReader"]

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
