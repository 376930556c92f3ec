"""What one commit holds and what the journal remembers of the last one: plain data.

A commit is a transaction: all of it is there after a crash, or none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .rows import AskRow, AttributeRow, DecisionRow, EvaluationRow, TrialRow

__all__ = ["Commit", "Head", "Part", "Phase", "is_part_name", "part_name"]

Phase = Literal["running", "interrupted", "finished"]
_PART = re.compile(r"\d{6,}\.parquet")


def part_name(number: int) -> str:
    """Return the name of the file of a curve part."""
    return f"{number:06d}.parquet"


def is_part_name(name: str) -> bool:
    """Whether a file of that name can be a curve part."""
    return _PART.fullmatch(name) is not None


@dataclass(frozen=True)
class Part:
    """One file of curve rows.

    Attributes:
        name: of the file in `parts/`.
        checksum: sha256 of its bytes, in hex.
        rows: how many.
        first: index of its first row among all curve rows of the study; the order of parts.
        level: how often its rows were merged.
    """

    name: str
    checksum: str
    rows: int
    first: int = 0
    level: int = 0


@dataclass(frozen=True)
class Commit:
    """Everything one transaction writes.

    Attributes:
        number: one more than the last commit's.
        loop_state: the search loop's own state as JSON text; comes back with `Journal.head`.
        checkpoint: name of the lane checkpoint that belongs to this commit, None without one.
        at: when, seconds since the epoch.
        trials: inserted, or replaced by number.
        evaluations: appended; all episodes of an evaluation in one commit.
        decisions: appended; a promotion takes the place of the judgement that paused its trial.
        asks: appended.
        attributes: inserted, or replaced by (trial, name).
        parts: added to the list of live curve parts.
        merged: names taken off that list (their rows are in one of `parts`).
        phase: `finished` when there is nothing left to do.
    """

    number: int
    loop_state: str
    checkpoint: str | None
    at: float
    trials: Sequence[TrialRow] = ()
    evaluations: Sequence[EvaluationRow] = ()
    decisions: Sequence[DecisionRow] = ()
    asks: Sequence[AskRow] = ()
    attributes: Sequence[AttributeRow] = ()
    parts: Sequence[Part] = ()
    merged: Sequence[str] = ()
    phase: Phase = "running"


@dataclass(frozen=True)
class Head:
    """The last commit; number 0 means that the study was created and nothing committed yet."""

    number: int = 0
    at: float = 0.0
    phase: Phase = "running"
    loop_state: str = "{}"
    checkpoint: str | None = None
