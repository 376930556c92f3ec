"""Counts chunks and evaluations, and retires diverged replicates.

The numbers of a diverged lane are dropped; the reason is kept. A non-finite evaluation also counts
as divergence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...store.baselines import attribute_of
from ...store.rows import BaselineRow, EvaluationRow, Stream, TrialState
from ...studies.spec import Study
from ..lanes.contract import ChunkResult, EvaluationResult, LaneChange, PopulationFactory, Refill
from ..state.buckets import Bucket
from ..state.objective import TRAINING_RETURN
from ..state.schedule import rows_of
from ..state.search_state import SearchState
from ..state.trials import Replicate, RunState, Trial

LONGEST = 500


def fail_replicates(ledger: SearchState, failed: Iterable[tuple[Replicate, str]]) -> None:
    """Fail trials, each for a reason; their lanes become free before the next chunk."""
    for run, why in failed:
        ledger.state.usage.count_failure()
        run.diverge()  # not cut: the trial's other replicates are still compared
        ledger.state.lose(run, failed=True)
        ledger.fail(run.trial, why[:LONGEST])


AddRows = Callable[..., None]
"""Takes curve rows as columns, like `store.parquet.CurveParts.add_chunk`, by keyword: `trials`,
`streams`, `replicates`, `env_steps`, `metrics`."""


def refills_of(ledger: SearchState, runs: Sequence[Replicate]) -> list[Refill]:
    """Return the refills for replicates that start their first chunk next."""
    refills: list[Refill] = []
    for run in runs:
        if run.chunks == 0 and run.lane is not None:
            if run.stream is Stream.SEARCH:
                resolved = ledger.resolved_of(run.trial)
            else:
                resolved = ledger.resolved_at(run.trial, 0)
            refills.append(Refill(run.lane, resolved, run.stream, run.replicate, run.trial))
    return refills


def changes_of(ledger: SearchState, bucket: Bucket, runs: Sequence[Replicate]) -> list[LaneChange]:
    """Return changes for lanes on new seeds whose lineage changed hyperparameters here."""
    changes: list[LaneChange] = []
    for run in runs:
        schedule = ledger.trials[run.trial].schedule
        if run.stream is Stream.SEARCH or not schedule or run.lane is None:
            continue
        here = bucket.env_steps_of(run)
        if here > 0 and any(entry["env_steps"] == here for entry in schedule):
            changes.append(LaneChange(run.lane, ledger.resolved_at(run.trial, here)))
    return changes


def count_chunk(
    ledger: SearchState,
    bucket: Bucket,
    runs: Sequence[Replicate],
    result: ChunkResult,
    add_rows: AddRows,
) -> None:
    """Count one chunk for its replicates, and mark the diverged ones."""
    shown: dict[int, Replicate] = {}
    took = max(0.0, result.seconds)
    ledger.state.usage.count_seconds(took)
    seconds = took / max(1, len(runs))
    for lane, run in by_lane(runs):
        trains = bucket.trains_next(run)
        run.advance()
        ledger.count(run, bucket.schedule.quantum, trains, seconds)
        if result.diverged[lane]:
            _diverge(ledger, bucket, run, "a training metric is not finite")
        elif trains:
            shown[lane] = run
    _digest_metrics(shown, result)
    trained = [bucket.trained(run) for run in shown.values()]
    rows = rows_of(ledger.study.log_every, bucket.schedule, shown, trained, result)
    for made in rows:
        add_rows(
            trials=[run.trial for run in made.runs],
            streams=[run.stream for run in made.runs],
            replicates=[run.replicate for run in made.runs],
            env_steps=made.env_steps,
            metrics=made.metrics,
        )
    failed = [(run, result.failed[lane]) for lane, run in by_lane(runs) if lane in result.failed]
    fail_replicates(ledger, failed)


def _digest_metrics(shown: Mapping[int, Replicate], result: ChunkResult) -> None:
    """Add a chunk's metrics to each replicate's digest; without metrics, there is no digest."""
    names = sorted(result.metrics)
    if not names:
        return
    table = np.stack([np.asarray(result.metrics[name], np.float64) for name in names], axis=-1)
    for lane, run in shown.items():
        run.digest_chunk(table[lane].tobytes())


def retire_diverged(
    ledger: SearchState, set_aside: Callable[[Trial], bool] = lambda trial: False
) -> None:
    """End trials with more diverged replicates than the study tolerates."""
    for trial in ledger.live():
        diverged = [run.state is RunState.DIVERGED for run in trial.runs]
        too_many = sum(diverged) > ledger.study.seeds.tolerate or (diverged and all(diverged))
        if not too_many or trial.lost:
            continue
        if set_aside(trial):
            trial.set_aside()
        else:
            ledger.end(trial, TrialState.DIVERGED, trial.error)


def due_for_evaluation(bucket: Bucket, runs: Sequence[Replicate]) -> list[Replicate]:
    return [
        run
        for _, run in by_lane(runs)
        if run.state is RunState.RUNNING and bucket.trained(run) in _evaluation_chunks(bucket, run)
    ]


def by_lane(runs: Sequence[Replicate]) -> list[tuple[int, Replicate]]:
    there = [(run.lane, run) for run in runs if run.lane is not None]
    return sorted(there, key=lambda entry: entry[0])


def _evaluation_chunks(bucket: Bucket, run: Replicate) -> frozenset[int]:
    if run.stream is Stream.SEARCH:
        return bucket.schedule.evaluations
    return frozenset({bucket.schedule.length})


def _row_of(bucket: Bucket, run: Replicate, result: EvaluationResult) -> EvaluationRow:
    return EvaluationRow(
        np.array(result.returns, np.float64),
        np.array(result.lengths, np.int64),
        {name: np.array(values, np.float64) for name, values in result.metrics.items()},
        trial=run.trial,
        stream=run.stream,
        replicate=run.replicate,
        env_steps=bucket.env_steps_of(run),
    )


def take_evaluations(
    ledger: SearchState,
    bucket: Bucket,
    runs: Sequence[Replicate],
    results: Sequence[EvaluationResult],
) -> list[EvaluationRow]:
    """Record evaluations and return their rows; replicates that reach full length end."""
    written: list[EvaluationRow] = []
    lacking = False
    failed = [
        (run, result.failed) for run, result in zip(runs, results, strict=True) if result.failed
    ]
    fail_replicates(ledger, failed)
    for run, result in zip(runs, results, strict=True):
        if result.failed:
            continue
        trained = bucket.trained(run)
        ledger.count_evaluation(run, int(np.sum(result.lengths)))
        result, objective = _with_training(ledger, run, result), ledger.objective_on(run.stream)
        value, scores = objective.seen(result)
        extras = ledger.objectives.measure(result)
        if not all(map(math.isfinite, (value, *extras))):
            _diverge(ledger, bucket, run, _not_finite(ledger, result, (value, *extras)))
            continue
        row = _row_of(bucket, run, result)
        written.append(row)
        rungs = len(bucket.schedule.rungs_at(trained))
        alone = objective.of_test.measure(result) if objective.metric.training_weight else None
        run.measure(value, extras, rungs, scores, alone)
        compared = rungs > 0 or trained == bucket.schedule.length
        lacking = lacking or (compared and objective.lacks_training(result))
        if alone is not None:
            ledger.alone.see(row, alone)
        if trained == bucket.schedule.length:
            run.end()
            ledger.state.find(run)
            if ledger.trials[run.trial].note_copies(run.stream):
                ledger.touch(ledger.trials[run.trial])
        if run.stream is Stream.SEARCH:
            ledger.trials[run.trial].see_values()
    ledger.unwritten.add(*written)
    if lacking:
        ledger.count_evaluations_alone()
    return written


def _with_training(
    ledger: SearchState, run: Replicate, result: EvaluationResult
) -> EvaluationResult:
    """Add training returns to an evaluation's metrics, if they have a weight.

    Replayed evaluations use the recorded returns.
    """
    if not ledger.study.metric.training_weight or TRAINING_RETURN in result.metrics:
        return result
    shown = run.recent_return if run.recent_episodes else math.nan
    trained = {TRAINING_RETURN: np.full(len(result.returns), shown)}
    return replace(result, metrics={**result.metrics, **trained})


def _diverge(ledger: SearchState, bucket: Bucket, run: Replicate, why: str) -> None:
    run.diverge()
    ledger.state.lose(run, failed=False)
    trial = ledger.trials[run.trial]
    if run.stream is Stream.SEARCH and (trial.is_live or trial.is_paused):
        at = f"seed {run.replicate} at {bucket.env_steps_of(run):,} {ledger.study.algorithm.unit}"
        trial.lack(f"{at}: {why}")


def _not_finite(ledger: SearchState, result: EvaluationResult, values: Sequence[float]) -> str:
    study = ledger.study
    names = [metric.name for metric in study.objectives or (study.metric,)]
    shown = zip(names, values, strict=False)  # objectives first, then constraints
    bad_ones = [f"{name} is {value}" for name, value in shown if not math.isfinite(value)]
    named = bad_ones[0] if bad_ones else "the value of a constraint is not finite"
    if not study.algorithm.is_ppo and "eval/return_mean" not in names:
        return f"{named} in its evaluation"
    returns = np.asarray(result.returns)
    bad = int(np.sum(~np.isfinite(returns)))
    return f"{named} in its evaluation: {bad} of {len(returns)} returns are not finite"


def replicates_of(study: Study) -> dict[Stream, int]:
    counts = {Stream.SEARCH: study.seeds.per_config}
    if study.confirm is not None:
        choose = study.confirm.choose if study.confirm.top_k else 0
        report = max(study.confirm.report, *(seeds for _, seeds in study.confirm.also), 0)
        counts |= {Stream.CHOOSE: choose, Stream.REPORT: report}
    return {stream: count for stream, count in counts.items() if count > 0}


def measure_baselines(
    ledger: SearchState,
    factory: PopulationFactory,
    known: Sequence[BaselineRow],
    report: Callable[[str, float], None],
) -> None:
    """Measure the baselines that have no row in `known`; the next commit writes the results."""
    study = ledger.study
    wanted = replicates_of(study)
    there = {
        row.baseline: {key: len(values) for key, values in row.values.items()} for row in known
    }
    resolved = ledger.resolved(study.space.default())
    for name in study.baselines:
        if there.get(name) == {str(stream): count for stream, count in wanted.items()}:
            continue
        seeds = [(stream, i) for stream, count in wanted.items() for i in range(count)]
        with ledger.state.usage.spending("evaluate"):
            seen = factory.baseline(name, resolved, seeds)
        values: dict[str, tuple[float, ...]] = {}
        metrics: dict[str, dict[str, tuple[float, ...]]] = {}
        for stream in wanted:
            mine = [result for result, (its, _) in zip(seen, seeds, strict=True) if its is stream]
            values[str(stream)] = tuple(ledger.objective.measure(result) for result in mine)
            metrics[str(stream)] = _means(mine)
        ledger.unwritten.add(attribute_of(BaselineRow(name, values, metrics)))
        report(name, ledger.objective.aggregate(values[str(Stream.SEARCH)]))


def _means(results: Sequence[EvaluationResult]) -> dict[str, tuple[float, ...]]:
    names = results[0].metrics if results else {}
    return {name: tuple(float(r.metrics[name].mean()) for r in results) for name in names}
