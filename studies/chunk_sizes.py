"""Divides a run into chunks, and finds the chunks that end at a rung or an evaluation.

A lane is stopped, evaluated or ended only between two chunks, so rungs, evaluation points and run
lengths are rounded up to whole chunks.

K, the number of updates per chunk, follows from this rule. Let U be the number of updates in a
full run. If `schedule_env_steps` is given, U counts the updates in the horizon, so that a run can
be extended without changing its chunks. The marks are the rungs, the evaluation points (if
`evaluation.every` is a number) and U, all rounded up to whole updates. Long chunks save
dispatches, and short ones give control: 16 to 64 chunks per run are a good compromise. Rounding
should move no mark by more than 5 %. The first rung, where most decisions are made, should not
move at all. Of all K that give at least 16 chunks and are at most the first mark, take the largest
for which

1. the first mark is a whole number of chunks, and no mark moves by more than 5 %; but if that
   gives more than 64 chunks per run, because the first mark has no good divisor,
2. no mark, including the first, moves by more than 5 %.

K = 1 always qualifies. If there are no rungs and no evaluation points, the first mark is U / 16.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .spec import Study
from .stopping_rules import RULES

_FEWEST_CHUNKS = 16
_MOST_CHUNKS = 64
_TOLERANCE = 0.05
_MOST_CANDIDATES = 100_000


def rows_per_chunk(log_every: int | None, steps_per_update: int, updates_per_chunk: int) -> int:
    """Return the number of rows in a chunk's curve, at most `log_every` env steps apart.

    >>> rows_per_chunk(2_000, 512, 10), rows_per_chunk(20_000, 512, 10)
    (3, 1)
    """
    if log_every is None:
        return 1
    return max(1, -(-updates_per_chunk // -(-log_every // steps_per_update)))


def row_ends(updates: int, rows: int) -> tuple[int, ...]:
    """Return the number of updates at the end of each row of a chunk; () for a single row.

    >>> row_ends(10, 3), row_ends(10, 1)
    ((3, 6, 10), ())
    """
    if rows <= 1:
        return ()
    return tuple(updates * (row + 1) // rows for row in range(rows))


@dataclass(frozen=True)
class ChunkSizes:
    """How a run in one bucket is divided into chunks."""

    steps_per_update: int  # for one lane: num_envs x rollout_length
    updates_per_chunk: int  # K
    chunks: int  # number in a full run
    rung_chunks: tuple[int, ...]  # number before each rung; ascending, below `chunks`
    schedule_chunks: int  # length of the schedules

    @property
    def steps_per_chunk(self) -> int:
        return self.steps_per_update * self.updates_per_chunk

    @property
    def env_steps(self) -> int:
        """Env steps of a full run, rounded up to whole chunks."""
        return self.chunks * self.steps_per_chunk

    @property
    def rungs(self) -> tuple[int, ...]:
        return tuple(chunks * self.steps_per_chunk for chunks in self.rung_chunks)


def rung_steps(study: Study, end: int | None = None) -> tuple[int, ...]:
    """Return the env steps of the rungs below the run length, before rounding.

    `end` replaces the study's run length.
    """
    early = study.early_terminate
    if end is None:
        end = study.env_steps
    if study.search.driver == "ray_tune":
        return tuple(_evaluation_points(study, end))
    if early is None:
        return ()
    if early.evolves:
        return tuple(range(early.every, end, early.every))
    rule = RULES.get(early.type)
    if rule is not None and rule.even:
        return tuple(range(early.min, end, early.min))
    steps: list[int] = []
    while (rung := round(early.min * early.eta ** len(steps))) < end:
        steps.append(rung)
    return tuple(steps)


def rungs(study: Study, steps_per_chunk: int) -> tuple[int, ...]:
    """Return the env steps of the rungs, rounded up to whole chunks."""
    end = _ceil_div(study.env_steps, steps_per_chunk)
    chunks = _round_to_chunks(rung_steps(study), steps_per_chunk, end)
    return tuple(done * steps_per_chunk for done in chunks)


def updates_per_chunk(study: Study, steps_per_update: int) -> int:
    """Return K for a bucket; the module docstring gives the rule."""
    end = study.horizon
    asked = sorted({*rung_steps(study, end), *_evaluation_points(study, end)})
    return _updates_per_chunk(end, tuple(asked), steps_per_update)


def _worst_excess(marks: Sequence[int], k: int) -> float:
    """Return the largest relative shift of any mark that is rounded up to chunks of `k`."""
    return max(_ceil_div(mark, k) * k / mark for mark in marks) - 1.0


@lru_cache(maxsize=1024)  # called for each of a study's trials
def _updates_per_chunk(end: int, asked: tuple[int, ...], steps_per_update: int) -> int:
    length = _ceil_div(end, steps_per_update)
    first = _ceil_div(next(iter(asked), end / _FEWEST_CHUNKS), steps_per_update)
    # The first marks and the last: the relative error of all others is smaller.
    marks = [_ceil_div(mark, steps_per_update) for mark in (*asked[:20], end)]
    longest = max(1, min((length - 1) // (_FEWEST_CHUNKS - 1), first, _MOST_CANDIDATES))
    near = [k for k in range(longest, 0, -1) if _worst_excess(marks, k) <= _TOLERANCE]
    exact = next(k for k in near if first % k == 0)
    if _ceil_div(length, exact) > _MOST_CHUNKS:
        return near[0]
    return exact


def chunk_sizes_of(study: Study, steps_per_update: int) -> ChunkSizes:
    k = updates_per_chunk(study, steps_per_update)
    quantum = k * steps_per_update
    end = _ceil_div(study.env_steps, quantum)
    rung_chunks = _round_to_chunks(rung_steps(study), quantum, end)
    return ChunkSizes(steps_per_update, k, end, rung_chunks, _ceil_div(study.horizon, quantum))


def full_run(study: Study) -> int:
    """Return the env steps of one seed of the default, on all environments, in whole chunks."""
    steps = study.steps_per_update(study.default())
    return chunk_sizes_of(study, steps).env_steps * study.spread


def budget_fault(study: Study, run: int, seeds: int) -> str:
    """Return why `budget.env_steps` does not cover confirm and one trial, or "".

    `run` is the length of a seed's run on all environments; `seeds` is the number in a trial.
    """
    given, reserved, one = study.budget.env_steps, study.confirming * run, seeds * run
    if given is None or given >= reserved + one:
        return ""
    text = f"is {given}, which is not enough for one trial of {one} {study.algorithm.unit}"
    if reserved:
        text += f" after the {reserved} reserved for confirm"
    return f"{text}; allowed: at least {reserved + one}"


def _evaluation_points(study: Study, end: int) -> Sequence[int]:
    every = study.evaluation.every
    if not isinstance(every, int):
        return ()
    return range(every, end, every)


def _round_to_chunks(steps: Iterable[int], quantum: int, end: int) -> tuple[int, ...]:
    """Round up to whole chunks; merge equal results, and drop those at the end of the run."""
    rounded = (_ceil_div(step, quantum) for step in steps)
    return tuple(sorted({chunks for chunks in rounded if chunks < end}))


def _ceil_div(steps: float, quantum: int) -> int:
    if isinstance(steps, float):
        return math.ceil(steps / quantum)
    return -(-steps // quantum)
