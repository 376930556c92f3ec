"""How a run is cut into chunks: how many updates a chunk has, and where rungs and ends fall.

Everything that happens to a lane happens between two chunks, so rungs, evaluation points and the
length of a run round up to whole chunks (quanta).

The rule for K, the updates of a chunk. Let U be the updates of a full run (of the horizon, where
`schedule_env_steps` gives another one, so that a run may grow and keep its chunks), and the marks
be the rungs, the evaluation points asked for by number, and U, all rounded up to whole updates. A
chunk should be long (each one costs a dispatch and a look at the metrics) but short enough for
control: about 16 to 64 chunks a run. Rounding up to chunks should move no mark by more than 5 % of
itself, and the first rung, on which most decisions fall, not at all. So, of all K that leave at
least 16 chunks and are no longer than the first mark, take the largest for which

1. the first mark is a whole number of chunks and no mark moves by more than 5 %; but if that means
   more than 64 chunks a run, because the first mark has no good divisor,
2. no mark, the first included, moves by more than 5 %.

K = 1 moves nothing, so there always is one. Without rungs and evaluation points the first mark is
a sixteenth of the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .spec import Study
from .stopping_rules import RULES


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


_FEWEST_CHUNKS = 16
_MOST_CHUNKS = 64
_TOLERANCE = 0.05
_MOST_CANDIDATES = 100_000


@dataclass(frozen=True)
class Quanta:
    """A run of one bucket, cut into chunks.

    Attributes:
        steps_per_update: env steps of one update of one lane (num_envs x rollout_length).
        updates_per_chunk: K.
        chunks: of a full run.
        rung_chunks: chunks done at each rung, strictly rising, all below `chunks`.
        evaluation_chunks: chunks done at each evaluation: points asked for, rungs, the end.
        schedule_chunks: chunks that schedules are counted over.
    """

    steps_per_update: int
    updates_per_chunk: int
    chunks: int
    rung_chunks: tuple[int, ...]
    evaluation_chunks: tuple[int, ...]
    schedule_chunks: int

    @property
    def steps_per_chunk(self) -> int:
        """Env steps of one chunk of one lane: the quantum."""
        return self.steps_per_update * self.updates_per_chunk

    @property
    def env_steps(self) -> int:
        """Env steps of a full run, rounded up to whole chunks."""
        return self.chunks * self.steps_per_chunk

    @property
    def rungs(self) -> tuple[int, ...]:
        """Env steps of each rung."""
        return tuple(chunks * self.steps_per_chunk for chunks in self.rung_chunks)


def rung_steps(study: Study) -> tuple[int, ...]:
    """Return the env steps of the rungs as the study asks for them, below the length of a run.

    They are min x eta^i; of a rule with even rungs the multiples of min; where a population
    evolves those of `every`; where Ray Tune decides those of `evaluation.every`.
    """
    early = study.early_terminate
    if study.search.driver == "ray_tune":
        return tuple(_points(study))
    if early is None:
        return ()
    if early.evolves:
        return tuple(range(early.every, study.env_steps, early.every))
    rule = RULES.get(early.type)
    if rule is not None and rule.even:
        return tuple(range(early.min, study.env_steps, early.min))
    steps: list[int] = []
    while (rung := round(early.min * early.eta ** len(steps))) < study.env_steps:
        steps.append(rung)
    return tuple(steps)


def rungs(study: Study, steps_per_chunk: int) -> tuple[int, ...]:
    """Return the env steps of the rungs, rounded up to whole chunks of `steps_per_chunk`."""
    end = _ceil(study.env_steps, steps_per_chunk)
    return tuple(
        chunks * steps_per_chunk for chunks in _chunks(rung_steps(study), steps_per_chunk, end)
    )


def updates_per_chunk(study: Study, steps_per_update: int) -> int:
    """Choose K for a bucket; the module says how.

    Args:
        study: with the length of a run, the rungs and the evaluation points.
        steps_per_update: env steps of one update of one lane.
    """
    study = replace(study, env_steps=study.horizon)
    length = _ceil(study.env_steps, steps_per_update)
    asked = sorted({*rung_steps(study), *_points(study)})
    first = _ceil(asked[0] if asked else study.env_steps / _FEWEST_CHUNKS, steps_per_update)
    marks = [_ceil(mark, steps_per_update) for mark in _thinned([*asked, study.env_steps])]
    longest = max(1, min((length - 1) // (_FEWEST_CHUNKS - 1), first, _MOST_CANDIDATES))
    near = [k for k in range(longest, 0, -1) if _moved(marks, k) <= _TOLERANCE]
    exact = next(k for k in near if first % k == 0)
    return exact if _ceil(length, exact) <= _MOST_CHUNKS else near[0]


def quanta_of(study: Study, steps_per_update: int) -> Quanta:
    """Cut the runs of a bucket into chunks."""
    k = updates_per_chunk(study, steps_per_update)
    quantum = k * steps_per_update
    end = _ceil(study.env_steps, quantum)
    rung_chunks = _chunks(rung_steps(study), quantum, end)
    points = _chunks(_points(study), quantum, end)
    evaluations = tuple(sorted({*rung_chunks, *points, end}))
    schedule = _ceil(study.horizon, quantum)
    return Quanta(steps_per_update, k, end, rung_chunks, evaluations, schedule)


def _points(study: Study) -> Sequence[int]:
    every = study.evaluation.every
    return range(every, study.env_steps, every) if isinstance(every, int) else ()


def _chunks(steps: Iterable[int], quantum: int, end: int) -> tuple[int, ...]:
    """Round up to chunks; what falls together is one, what falls on the end is none."""
    rounded = (_ceil(step, quantum) for step in steps)
    return tuple(sorted({chunks for chunks in rounded if chunks < end}))


def _ceil(steps: float, quantum: int) -> int:
    return math.ceil(steps / quantum) if isinstance(steps, float) else -(-steps // quantum)


def _thinned(marks: Sequence[int]) -> Sequence[int]:
    """Keep the first marks and the last: the relative error of later ones is smaller."""
    return [*marks[:20], marks[-1]] if len(marks) > 21 else marks


def _moved(marks: Sequence[int], k: int) -> float:
    """Return the largest share by which rounding up to whole chunks moves a mark."""
    return max(_ceil(mark, k) * k / mark for mark in marks) - 1.0
