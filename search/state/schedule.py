"""When a replicate of one bucket is evaluated, judged and done, counted in training chunks.

Every event falls on a chunk boundary: rungs, evaluation points and the length of a run round up to
whole quanta, so buckets with other quanta are compared at nearly the same env steps. A rung keeps
its index in every bucket, also where two of them round up to the same chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...store.environment_columns import by_environment, environment_metric
from ...studies.chunk_sizes import rung_steps
from ...studies.spec import Study
from ..lanes.contract import ChunkResult, ChunkRow
from .trials import Run


@dataclass(frozen=True)
class Schedule:
    """The events of one bucket.

    Attributes:
        quantum: training env steps of one lane in one chunk.
        length: training chunks of a full run.
        rungs: training chunks of each rung, in order, all below `length`.
        evaluations: training chunks after which a search replicate is evaluated; rungs and the
            end included.
    """

    quantum: int
    length: int
    rungs: tuple[int, ...]
    evaluations: frozenset[int]

    @property
    def env_steps(self) -> int:
        """Training env steps of a full run."""
        return self.quantum * self.length

    def env_steps_at(self, rung: int) -> int:
        """Training env steps of one replicate at a rung."""
        return self.rungs[rung] * self.quantum

    def rungs_at(self, chunks: int) -> list[int]:
        """Return the indices of the rungs that stand at this many training chunks."""
        return [index for index, rung in enumerate(self.rungs) if rung == chunks]


def schedule_of(study: Study, quantum: int) -> Schedule:
    """Lay out the events of a bucket whose lanes do `quantum` env steps a chunk."""

    def chunks(env_steps: float) -> int:
        return -(-round(env_steps) // quantum)

    length = chunks(study.env_steps)
    rungs = tuple(entry for entry in map(chunks, rung_steps(study)) if entry < length)
    every = study.evaluation.every
    points = set(rungs) | {length}
    if isinstance(every, int):
        points |= {chunks(steps) for steps in range(every, study.env_steps, every)}
    return Schedule(quantum, length, rungs, frozenset(points))


_MEANS = ("episode_return", "episode_length")


@dataclass(frozen=True)
class Rows:
    """Rows of some replicates, by columns.

    Attributes:
        runs: whose.
        env_steps: training env steps of each at the end of its row.
        metrics: name -> float64 [runs].
    """

    runs: Sequence[Run]
    env_steps: Sequence[int]
    metrics: dict[str, np.ndarray]


def chunks_of_row(log_every: int | None, quantum: int) -> int:
    """Return how many chunks of `quantum` env steps one row joins; 1 where chunks are split."""
    return 1 if log_every is None else max(1, log_every // quantum)


def ends_row(schedule: Schedule, trained: int, chunks: int) -> bool:
    """Return whether a row ends after so many training chunks, of which `chunks` make one.

    No row joins what lies before and behind a rung, where trials end and copy each other.
    """
    return trained % chunks == 0 or trained in schedule.rungs or trained == schedule.length


def rows_of(
    log_every: int | None,
    schedule: Schedule,
    shown: Mapping[int, Run],
    trained: Sequence[int],
    result: ChunkResult,
) -> Iterator[Rows]:
    """Yield the rows that a chunk completes, in the order of their env steps.

    Args:
        log_every: env steps between two rows; None: a chunk's.
        schedule: of the bucket.
        shown: lane -> the replicate that trained in it.
        trained: chunks that each of them has trained, this one included.
        result: of the chunk.
    """
    lanes, runs, quantum = list(shown), list(shown.values()), schedule.quantum
    chunks, before = chunks_of_row(log_every, quantum), 0
    parts = result.rows if chunks == 1 else ()  # what is joined needs no parts
    for part in parts or (ChunkRow(quantum, result.metrics),):
        metrics = {name: values[lanes] for name, values in part.metrics.items()}
        metrics |= _rolling(runs, metrics)
        steps, before = part.env_steps - before, part.env_steps
        seconds = max(0.0, result.seconds) * steps / quantum  # a chunk is one program: even parts
        for run in runs:
            run.spend(seconds)
        behind = quantum - part.env_steps
        env_steps = [done * quantum - behind for done in trained]
        if chunks == 1:
            yield Rows(runs, env_steps, metrics | _pace(runs, [steps] * len(runs)))
            continue
        ended = _join(runs, metrics)
        made = [at for at, done in enumerate(trained) if ends_row(schedule, done, chunks)]
        columns = {name: np.array([ended[at][name] for at in made]) for name in metrics}
        since = [runs[at].half_row_chunks * quantum for at in made]
        columns |= _pace([runs[at] for at in made], since)
        for at in made:
            runs[at].end_row()
        yield Rows([runs[at] for at in made], [env_steps[at] for at in made], columns)


def _pace(runs: Sequence[Run], env_steps: Sequence[int]) -> dict[str, np.ndarray]:
    """Return how long replicates have trained, and how fast they were since their last rows.

    Args:
        runs: whose rows end here.
        env_steps: of each since its last row.
    """
    took = np.array([run.take_row_seconds() for run in runs])
    speed = np.divide(env_steps, took, out=np.full(len(runs), np.nan), where=took > 0)
    return {
        "elapsed_seconds": np.array([run.seconds for run in runs]),
        "env_steps_per_second": speed,
    }


def _join(runs: Sequence[Run], metrics: Mapping[str, np.ndarray]) -> list[dict[str, float]]:
    """Add a chunk to the half-made row of each replicate; return these."""
    from ...core.metrics import joined  # on use: analytic lanes need no jax

    columns = {name: values.tolist() for name, values in metrics.items()}
    for place, run in enumerate(runs):
        now = {name: values[place] for name, values in columns.items()}
        before = float(run.half_row_chunks)
        if before:
            known = by_environment(run.half_row)
            now = {
                name if number is None else environment_metric(number, name): value
                for number, own in by_environment(now).items()
                for name, value in joined(known.get(number, {}), own, before).items()
            }
        run.join_row(now)
    return [run.half_row for run in runs]


def _rolling(runs: Sequence[Run], metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the rolling means of the returns and lengths of episodes, where there are such."""
    found: dict[str, np.ndarray] = {}
    for number, own in by_environment(metrics).items():
        if not {"episodes", *_MEANS} <= set(own):
            continue
        columns = (own[name].tolist() for name in ("episodes", *_MEANS))
        rolled = [
            run.roll(*ended) if number is None else run.roll_on(number, *ended)
            for run, *ended in zip(runs, *columns, strict=True)
        ]
        for place, name in enumerate(_MEANS):
            column = f"{name}_100" if number is None else environment_metric(number, f"{name}_100")
            found[column] = np.array([means[place] for means in rolled])
    return found


CLEARLY_BELOW = "racing: clearly below"
BUDGET_ENDED = "racing: the budget ended before further seeds"
"""How `TrialRow.stop_rule` begins of a finished trial that did not get all seeds."""


def stages(start: int, most: int) -> list[int]:
    """Return how many seeds a trial has had at each look, the last of all it may have.

    >>> stages(3, 20)
    [3, 6, 12, 20]
    """
    sizes = [min(start, most)]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return sizes
