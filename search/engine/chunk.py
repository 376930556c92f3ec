"""What a chunk did: counts its env steps, retires what diverged, evaluates who stands there.

Numbers of a lane that diverged mean nothing and are not kept; an evaluation that is not finite
counts as divergence too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ...store.rows import EvaluationRow, Stream, TrialState
from ..book.buckets import Bucket
from ..book.curve_rows import rows_of
from ..book.ledger import Ledger, cut
from ..book.trials import Run, RunState, Trial
from ..lanes.contract import ChunkResult, EvaluationResult
from .failures import fail_replicates

__all__ = ["CurveSink", "count_chunk", "due_for_evaluation", "retire_diverged", "take_evaluations"]


class CurveSink(Protocol):
    """Where curve rows go; `store.parts.CurveParts` is one."""

    def add_chunk(
        self,
        trials: Sequence[int],
        streams: Sequence[Stream],
        replicates: Sequence[int],
        env_steps: Sequence[int],
        metrics: dict[str, np.ndarray],
    ) -> None:
        """Take rows of many lanes by columns: of a chunk, of a part of it, or of several."""
        ...


def count_chunk(
    ledger: Ledger, bucket: Bucket, runs: Sequence[Run], result: ChunkResult, curves: CurveSink
) -> None:
    """Count one chunk for the replicates that it ran, and mark those that diverged."""
    shown: dict[int, Run] = {}
    took = max(0.0, result.seconds)
    ledger.state.usage.chunk_seconds += took
    seconds = took / max(1, len(runs))
    for lane, run in by_lane(runs):
        trains = bucket.trains_next(run)
        run.chunks += 1
        _count_steps(ledger, run, bucket.schedule.quantum, trains)
        if run.stream is Stream.SEARCH:
            ledger.trials[run.trial].train_seconds += seconds
        if result.diverged[lane]:
            run.state = RunState.DIVERGED
        elif trains:
            shown[lane] = run
    trained = [bucket.trained(run) for run in shown.values()]
    rows = rows_of(ledger.study.log_every, bucket.schedule, shown, trained, result)
    for made in rows:
        curves.add_chunk(
            trials=[run.trial for run in made.runs],
            streams=[run.stream for run in made.runs],
            replicates=[run.replicate for run in made.runs],
            env_steps=made.env_steps,
            metrics=made.metrics,
        )
    failed = [(run, result.failed[lane]) for lane, run in by_lane(runs) if lane in result.failed]
    fail_replicates(ledger, failed)


def _count_steps(ledger: Ledger, run: Run, quantum: int, trains: bool) -> None:
    usage, trial = ledger.state.usage, ledger.trials[run.trial]
    searching = run.stream is Stream.SEARCH
    if not trains:
        usage.warmup_env_steps += quantum
        trial.warmup_env_steps += quantum if searching else 0
    elif searching:
        usage.search_env_steps += quantum
        trial.env_steps += quantum
    else:
        usage.confirm_env_steps += quantum
    ledger.touch(trial)


def retire_diverged(
    ledger: Ledger, set_aside: Callable[[Trial], bool] = lambda trial: False
) -> None:
    """End the trials of which more replicates diverged than the study tolerates.

    Args:
        ledger: trials.
        set_aside: says of such a trial whether it only leaves its lanes, to go on later from
            another's state.
    """
    for trial in ledger.live():
        diverged = [run.state is RunState.DIVERGED for run in trial.runs]
        too_many = sum(diverged) > ledger.study.seeds.tolerate or (diverged and all(diverged))
        if not too_many or trial.lost:
            continue
        if set_aside(trial):
            trial.lost = True
            cut(trial.runs)
        else:
            ledger.end(trial, TrialState.DIVERGED)


def due_for_evaluation(bucket: Bucket, runs: Sequence[Run]) -> list[Run]:
    """Return which of some replicates stand at an evaluation point, by lane."""
    return [
        run
        for _, run in by_lane(runs)
        if run.state is RunState.RUNNING and bucket.trained(run) in _evaluations(bucket, run)
    ]


def by_lane(runs: Sequence[Run]) -> list[tuple[int, Run]]:
    """Return the replicates that are in lanes, each with its lane, the lowest first."""
    there = [(run.lane, run) for run in runs if run.lane is not None]
    return sorted(there, key=lambda entry: entry[0])


def _evaluations(bucket: Bucket, run: Run) -> frozenset[int]:
    """Fresh seeds are only asked for the end."""
    if run.stream is Stream.SEARCH:
        return bucket.schedule.evaluations
    return frozenset({bucket.schedule.length})


def take_evaluations(
    ledger: Ledger, bucket: Bucket, runs: Sequence[Run], results: Sequence[EvaluationResult]
) -> list[EvaluationRow]:
    """Write down evaluations and give their rows; replicates at their full length end."""
    written: list[EvaluationRow] = []
    failed = [(run, result.failed) for run, result in zip(runs, results, strict=True)
              if result.failed]  # fmt: skip
    fail_replicates(ledger, failed)
    for run, result in zip(runs, results, strict=True):
        if result.failed:
            continue
        trained, trial = bucket.trained(run), ledger.trials[run.trial]
        steps = int(np.sum(result.lengths))
        ledger.state.usage.eval_env_steps += steps
        trial.eval_env_steps += steps if run.stream is Stream.SEARCH else 0
        ledger.touch(trial)
        value, extras = ledger.objective.measure(result), ledger.objectives.measure(result)
        if not all(map(math.isfinite, (value, *extras))):
            run.state = RunState.DIVERGED
            continue
        written += _rows(run, trained * bucket.schedule.quantum, result)
        run.value, run.extras = value, extras
        for _ in bucket.schedule.rungs_at(trained):
            run.rung_values.append(value)
            run.rung_extras.append(extras)
        if trained == bucket.schedule.length:
            run.state = RunState.ENDED
        if run.stream is Stream.SEARCH:
            trial.seed_values = trial.values_of(Stream.SEARCH)
    ledger.unwritten.evaluations += written
    return written


def _rows(run: Run, env_steps: int, result: EvaluationResult) -> list[EvaluationRow]:
    return [
        EvaluationRow(
            trial=run.trial,
            stream=run.stream,
            replicate=run.replicate,
            env_steps=env_steps,
            episode=episode,
            episode_return=float(result.returns[episode]),
            episode_length=int(result.lengths[episode]),
            metrics={name: float(values[episode]) for name, values in result.metrics.items()},
        )
        for episode in range(len(result.returns))
    ]
