"""The chunks after which a bucket's replicates are evaluated, judged and finished.

Rungs, evaluation points and run ends are rounded up to whole chunks, so that buckets with
different chunk sizes are compared at nearly the same env steps. A rung has the same index in every
bucket, even if two rungs are rounded up to the same chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...store.environment_columns import by_environment, environment_metric
from ...studies.chunk_sizes import rung_steps
from ...studies.spec import Study
from ..lanes.contract import ChunkResult, ChunkRow
from .trials import Replicate


@dataclass(frozen=True)
class EventSchedule:
    """The events of one bucket."""

    quantum: int  # training env steps of one lane per chunk
    length: int  # training chunks of a full run
    rungs: tuple[int, ...]  # in training chunks, all below `length`
    evaluations: frozenset[int]  # in training chunks; includes rungs and the end

    @property
    def env_steps(self) -> int:
        return self.quantum * self.length

    def env_steps_at(self, rung: int) -> int:
        return self.rungs[rung] * self.quantum

    def rungs_at(self, chunks: int) -> list[int]:
        return [index for index, rung in enumerate(self.rungs) if rung == chunks]


def schedule_of(study: Study, quantum: int) -> EventSchedule:
    def chunks(env_steps: float) -> int:
        return -(-round(env_steps) // quantum)

    length = chunks(study.env_steps)
    rungs = tuple(entry for entry in map(chunks, rung_steps(study)) if entry < length)
    every = study.evaluation.every
    points = set(rungs) | {length}
    if isinstance(every, int):
        points |= {chunks(steps) for steps in range(every, study.env_steps, every)}
    return EventSchedule(quantum, length, rungs, frozenset(points))


_MEANS = ("episode_return", "episode_length")


@dataclass(frozen=True)
class CurveRows:
    """Curve rows for some replicates, as columns."""

    runs: Sequence[Replicate]
    env_steps: Sequence[int]  # of each replicate at the end of its row
    metrics: dict[str, np.ndarray]  # name -> float64 [runs]


def chunks_of_row(log_every: int | None, quantum: int) -> int:
    """Return how many chunks of `quantum` env steps form one row; 1 if chunks are split."""
    if log_every is None:
        return 1
    return max(1, log_every // quantum)


def ends_row(schedule: EventSchedule, trained: int, chunks: int) -> bool:
    """Return whether a row of `chunks` chunks ends after `trained` chunks."""
    return trained % chunks == 0 or trained in schedule.rungs or trained == schedule.length


def rows_of(
    log_every: int | None,
    schedule: EventSchedule,
    shown: Mapping[int, Replicate],
    trained: Sequence[int],
    result: ChunkResult,
) -> Iterator[CurveRows]:
    """Yield the rows that a chunk completes, ordered by env steps."""
    chunks = chunks_of_row(log_every, schedule.quantum)
    if chunks == 1:
        yield from _part_rows(schedule.quantum, shown, trained, result)
    else:
        yield _joined_row(schedule, shown, trained, result, chunks)


def _part_rows(
    quantum: int, shown: Mapping[int, Replicate], trained: Sequence[int], result: ChunkResult
) -> Iterator[CurveRows]:
    """Yield one row per part of a chunk, or a single one if it has no parts."""
    runs, before = list(shown.values()), 0
    parts = result.rows or (ChunkRow(quantum, result.metrics),)
    copies = runs
    if len(parts) > 1:
        copies = [run.copied_means() for run in runs]
    for part in parts:
        is_last = part.env_steps == quantum
        rolled, metrics = copies, _of_lanes(shown, part.metrics)
        whole = metrics
        if is_last:
            rolled = runs
        if is_last and len(parts) > 1:
            # Returns used for selection are those of whole chunks, whichever rows are written.
            whole = _of_lanes(shown, result.metrics)
        metrics |= _rolling_means(rolled, whole)
        steps, before = part.env_steps - before, part.env_steps
        _spend_seconds(runs, result, steps, quantum)
        behind = quantum - part.env_steps
        env_steps = [done * quantum - behind for done in trained]
        yield CurveRows(runs, env_steps, metrics | _time_columns(runs, [steps] * len(runs)))


def _joined_row(
    schedule: EventSchedule,
    shown: Mapping[int, Replicate],
    trained: Sequence[int],
    result: ChunkResult,
    chunks: int,
) -> CurveRows:
    """Return the rows that end with this chunk, each over several chunks."""
    runs, quantum = list(shown.values()), schedule.quantum
    metrics = _of_lanes(shown, result.metrics)
    metrics |= _rolling_means(runs, metrics)
    _spend_seconds(runs, result, quantum, quantum)
    ended = _join_half_rows(runs, metrics)
    made = [at for at, done in enumerate(trained) if ends_row(schedule, done, chunks)]
    columns = {name: _metric_column(ended, made, name) for name in metrics}
    since = [runs[at].half_row_chunks * quantum for at in made]
    columns |= _time_columns([runs[at] for at in made], since)
    for at in made:
        runs[at].end_row()
    return CurveRows([runs[at] for at in made], [trained[at] * quantum for at in made], columns)


def _metric_column(
    ended: Sequence[Mapping[str, float]], made: Sequence[int], name: str
) -> np.ndarray:
    return np.array([ended[at][name] for at in made])


def _of_lanes(
    shown: Mapping[int, Replicate], metrics: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    lanes = list(shown)
    return {name: values[lanes] for name, values in metrics.items()}


def _spend_seconds(
    runs: Sequence[Replicate], result: ChunkResult, env_steps: int, quantum: int
) -> None:
    """Divide a chunk's time evenly among its parts, because a chunk is a single program."""
    seconds = max(0.0, result.seconds) * env_steps / quantum
    for run in runs:
        run.spend(seconds)


def _time_columns(runs: Sequence[Replicate], env_steps: Sequence[int]) -> dict[str, np.ndarray]:
    """Return training seconds, and the speed since the last row (`env_steps` steps ago)."""
    took = np.array([run.take_row_seconds() for run in runs])
    speed = np.divide(env_steps, took, out=np.full(len(runs), np.nan), where=took > 0)
    return {
        "elapsed_seconds": np.array([run.seconds for run in runs]),
        "env_steps_per_second": speed,
    }


def _join_half_rows(
    runs: Sequence[Replicate], metrics: Mapping[str, np.ndarray]
) -> list[dict[str, float]]:
    from ...core.metrics import joined  # imported on use: analytic lanes need no jax

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


def _rolling_means(
    runs: Sequence[Replicate], metrics: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for number, own in by_environment(metrics).items():
        if not {"episodes", "episode_return"} <= set(own):
            continue
        # without lengths, as in a custom training, 0 is averaged and there is no column
        known = {"episode_length": np.zeros(len(runs)), **own}
        columns = (known[name].tolist() for name in ("episodes", *_MEANS))
        rolled = [
            run.roll(*ended) if number is None else run.roll_on(number, *ended)
            for run, *ended in zip(runs, *columns, strict=True)
        ]
        for place, name in enumerate(name for name in _MEANS if name in own):
            column = f"{name}_100" if number is None else environment_metric(number, f"{name}_100")
            found[column] = np.array([means[place] for means in rolled])
    return found


CLEARLY_BELOW = "racing: clearly below"
BUDGET_ENDED = "racing: the budget"  # start of the text, which earlier versions ended otherwise
"""The start of `TrialRow.stop_rule` for a finished trial that did not run on all seeds."""


def stages(start: int, most: int) -> list[int]:
    """Return the seed counts at which racing tests a trial.

    >>> stages(3, 20)
    [3, 6, 12, 20]
    """
    sizes = [min(start, most)]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return sizes
