"""How often curves get a row: out of parts of a chunk, or of several chunks joined.

The interval `log_every` is rounded up to whole updates. Chunks stay as they are, and so do all
results: where the interval is shorter than a chunk, the updates of each chunk are dealt to the
fewest rows that lie no further apart than the interval, as evenly as whole updates allow; where
it is longer, a row joins as many whole chunks as fit into it. A row also ends at every rung and at
the end of a run, so that no row joins what lies before and behind a decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["CurveRows", "curve_rows", "row_ends", "rows_of_run"]


@dataclass(frozen=True)
class CurveRows:
    """How the chunks of a bucket become rows.

    Attributes:
        per_chunk: rows of one chunk, 1 where chunks are joined.
        chunks: chunks of one row, 1 where chunks are split.
    """

    per_chunk: int = 1
    chunks: int = 1


def curve_rows(log_every: int | None, steps_per_update: int, updates_per_chunk: int) -> CurveRows:
    """Return how chunks become rows.

    Args:
        log_every: env steps between two rows; None: one row a chunk.
        steps_per_update: env steps of one update of one lane.
        updates_per_chunk: of one chunk.

    >>> curve_rows(2_000, 512, 10), curve_rows(20_000, 512, 10)
    (CurveRows(per_chunk=3, chunks=1), CurveRows(per_chunk=1, chunks=3))
    """
    if log_every is None:
        return CurveRows()
    updates = -(-log_every // steps_per_update)
    joined = max(1, log_every // (steps_per_update * updates_per_chunk))
    return CurveRows(max(1, -(-updates_per_chunk // updates)), joined)


def rows_of_run(rows: CurveRows, chunks: int, rungs: Iterable[int]) -> int:
    """Return how many rows the curve of a full run has.

    Args:
        rows: how chunks become rows.
        chunks: of a full run.
        rungs: chunks done at each rung, where a row ends, too.

    >>> rows_of_run(CurveRows(3), 16, (2, 8)), rows_of_run(CurveRows(chunks=5), 16, (2, 8))
    (48, 6)
    """
    joined = {*range(rows.chunks, chunks + 1, rows.chunks), *rungs, chunks}
    return rows.per_chunk * chunks if rows.chunks == 1 else len(joined)


def row_ends(updates: int, rows: int) -> tuple[int, ...]:
    """Return the updates done at the end of each row of a chunk; none where there is one row.

    >>> row_ends(10, 3), row_ends(10, 1)
    ((3, 6, 10), ())
    """
    return tuple(updates * (row + 1) // rows for row in range(rows)) if rows > 1 else ()
