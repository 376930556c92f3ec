"""Counts chunks and evaluations, and retires diverged replicates.

The metrics of a diverged lane are dropped; the reason is kept. An evaluation that is not finite,
or above 1e70, also counts as divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ...errors import never
from ...store.baselines import attribute_of
from ...store.rows import BaselineRow, EvaluationRow, Stream, TrialState
from ...studies.spec import Study
from ..lanes.contract import ChunkResult, EvaluationResult, LaneChange, PopulationFactory, Refill
from ..state.buckets import Bucket
from ..state.objective import TRAINING_RETURN, with_training
from ..state.schedule import rows_of
from ..state.search_state import SearchState
from ..state.trials import Replicate, RunState, Trial

LONGEST = 500
_LARGEST = 1e70  # statistics use fourth powers, which must be finite; float32 ends at 3e38


def fail_replicates(search_state: SearchState, failed: Iterable[tuple[Replicate, str]]) -> None:
    """Fail trials, each with its reason; their lanes become free before the next chunk."""
    for run, why in failed:
        search_state.state.usage.count_failure()
        run.diverge()  # not cut: the trial's other replicates are still compared
        search_state.state.lose(run, failed=True)
        search_state.fail(run.trial, why[:LONGEST])


AddRows = Callable[..., None]
"""Takes curve rows as columns, like `store.parquet.CurveParts.add_chunk`, by keyword: `trials`,
`streams`, `replicates`, `env_steps`, `metrics`."""


def refills_of(search_state: SearchState, runs: Sequence[Replicate]) -> list[Refill]:
    """Return refills for the replicates that are about to run their first chunk."""
    refills: list[Refill] = []
    for run in runs:
        if run.chunks == 0 and run.lane is not None:
            if run.stream is Stream.SEARCH:
                resolved = search_state.resolved_of(run.trial)
            else:
                resolved = search_state.resolved_at(run.trial, 0)
            refills.append(Refill(run.lane, resolved, run.stream, run.replicate, run.trial))
    return refills


def changes_of(
    search_state: SearchState, bucket: Bucket, runs: Sequence[Replicate]
) -> list[LaneChange]:
    """Return the lineage's hyperparameter changes that are now due in lanes with new seeds."""
    changes: list[LaneChange] = []
    for run in runs:
        schedule = search_state.trials[run.trial].schedule
        if run.stream is Stream.SEARCH or not schedule or run.lane is None:
            continue
        here = bucket.env_steps_of(run)
        if here > 0 and any(entry["env_steps"] == here for entry in schedule):
            changes.append(LaneChange(run.lane, search_state.resolved_at(run.trial, here)))
    return changes


def count_chunk(
    search_state: SearchState,
    bucket: Bucket,
    runs: Sequence[Replicate],
    result: ChunkResult,
    add_rows: AddRows,
) -> None:
    """Count one chunk for its replicates, add their curve rows, and mark diverged replicates."""
    shown: dict[int, Replicate] = {}
    took = max(0.0, result.seconds)
    search_state.state.usage.count_seconds(took)
    seconds = took / max(1, len(runs))
    for lane, run in by_lane(runs):
        trains = bucket.trains_next(run)
        run.advance()
        search_state.count(run, bucket.schedule.quantum, trains, seconds)
        if result.diverged[lane]:
            _mark_diverged(search_state, bucket, run, "a training metric is not finite")
        elif trains:
            shown[lane] = run
    _digest_metrics(shown, result)
    trained = [bucket.trained(run) for run in shown.values()]
    rows = rows_of(search_state.study.log_every, bucket.schedule, shown, trained, result)
    for made in rows:
        add_rows(
            trials=[run.trial for run in made.runs],
            streams=[run.stream for run in made.runs],
            replicates=[run.replicate for run in made.runs],
            env_steps=made.env_steps,
            metrics=made.metrics,
        )
    failed = [(run, result.failed[lane]) for lane, run in by_lane(runs) if lane in result.failed]
    fail_replicates(search_state, failed)


def _digest_metrics(shown: Mapping[int, Replicate], result: ChunkResult) -> None:
    """Add a chunk's metrics to each replicate's digest; without metrics, there is no digest."""
    names = sorted(result.metrics)
    if not names:
        return
    table = np.stack([np.asarray(result.metrics[name], np.float64) for name in names], axis=-1)
    for lane, run in shown.items():
        run.digest_chunk(table[lane].tobytes())


def retire_diverged(search_state: SearchState, set_aside: Callable[[Trial], bool] = never) -> None:
    """End trials with more diverged replicates than the study tolerates."""
    for trial in search_state.live():
        diverged = [run.state is RunState.DIVERGED for run in trial.runs]
        too_many = sum(diverged) > search_state.study.seeds.tolerate or (
            diverged and all(diverged)
        )
        if not too_many or trial.lost:
            continue
        if set_aside(trial):
            trial.set_aside()
        else:
            search_state.end(trial, TrialState.DIVERGED, trial.error)


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
    search_state: SearchState,
    bucket: Bucket,
    runs: Sequence[Replicate],
    results: Sequence[EvaluationResult],
) -> list[EvaluationRow]:
    """Record evaluations and return their rows; end replicates that reached full length."""
    written: list[EvaluationRow] = []
    lacking = False
    failed = [
        (run, result.failed) for run, result in zip(runs, results, strict=True) if result.failed
    ]
    fail_replicates(search_state, failed)
    for run, result in zip(runs, results, strict=True):
        if result.failed:
            continue
        trained = bucket.trained(run)
        search_state.count_evaluation(run, int(np.sum(result.lengths)))
        result = _with_training(search_state, run, result)
        objective = search_state.objective.on(run.stream)
        value, scores = objective.value_and_scores(result)
        extras = search_state.objectives.measure(result)
        if not all(map(_is_usable, (value, *extras))):
            why = _not_finite(search_state, result, (value, *extras))
            _mark_diverged(search_state, bucket, run, why)
            continue
        row = _row_of(bucket, run, result)
        written.append(row)
        rungs = len(bucket.schedule.rungs_at(trained))
        alone = objective.measure_alone(result)
        run.measure(value, extras, rungs, scores, alone)
        compared = rungs > 0 or trained == bucket.schedule.length
        lacking = lacking or (compared and objective.lacks_training(result))
        if alone is not None:
            search_state.alone.see(row, alone)
        if trained == bucket.schedule.length:
            run.end()
            search_state.state.find(run)
            if search_state.trials[run.trial].note_copies(run.stream):
                search_state.touch(search_state.trials[run.trial])
        if run.stream is Stream.SEARCH:
            search_state.trials[run.trial].see_values()
    search_state.unwritten.add(*written)
    if lacking:
        search_state.count_evaluations_alone()
    return written


def _is_usable(value: float) -> bool:
    return abs(value) <= _LARGEST  # false for NaN


def _with_training(
    search_state: SearchState, run: Replicate, result: EvaluationResult
) -> EvaluationResult:
    """Add the training return to an evaluation's metrics, if the study's metric weights it.

    Replayed evaluations use the recorded returns.
    """
    if not search_state.study.metric.training_weight or TRAINING_RETURN in result.metrics:
        return result
    return with_training(result, run.training_return)


def _mark_diverged(search_state: SearchState, bucket: Bucket, run: Replicate, why: str) -> None:
    run.diverge()
    search_state.state.lose(run, failed=False)
    trial = search_state.trials[run.trial]
    if run.stream is Stream.SEARCH and (trial.is_live or trial.is_paused):
        unit = search_state.study.algorithm.unit
        at = f"seed {run.replicate} at {bucket.env_steps_of(run):,} {unit}"
        trial.lack(f"{at}: {why}")


def _not_finite(
    search_state: SearchState, result: EvaluationResult, values: Sequence[float]
) -> str:
    study = search_state.study
    names = study.objective_names or [study.metric.name]
    shown = zip(names, values, strict=False)  # objectives first, then constraints
    bad_ones = (f"{name} is {value}" for name, value in shown if not _is_usable(value))
    named = next(bad_ones, "the value of a constraint is not finite")
    if not study.algorithm.is_ppo and "eval/return_mean" not in names:
        return f"{named} in the evaluation"
    returns = np.asarray(result.returns)
    bad = int(np.sum(~(np.abs(returns) <= _LARGEST)))
    return f"{named} in the evaluation ({bad} of {len(returns)} returns not finite)"


def each_seed(counts: Mapping[Stream, int]) -> list[tuple[Stream, int]]:
    """Return (stream, replicate) of these numbers of replicates."""
    return [(stream, i) for stream, count in counts.items() for i in range(count)]


def replicates_of(study: Study) -> dict[Stream, int]:
    counts = {Stream.SEARCH: study.seeds.per_config}
    if study.confirm is not None:
        if study.confirm.top_k:
            counts[Stream.CHOOSE] = study.confirm.choose
        asked = (seeds for _, seeds in study.confirm.also)
        counts[Stream.REPORT] = max(study.confirm.report, *asked, 0)
    return {stream: count for stream, count in counts.items() if count > 0}


def _is_complete(row: BaselineRow, wanted: Mapping[Stream, int]) -> bool:
    known = {stream: len(values) for stream, values in row.values.items()}
    return known == {str(stream): count for stream, count in wanted.items()}


def measure_baselines(
    search_state: SearchState,
    factory: PopulationFactory,
    known: Sequence[BaselineRow],
    report: Callable[[str, float], None],
) -> None:
    """Measure baselines without a complete row in `known`; the next commit writes the results."""
    study = search_state.study
    wanted = replicates_of(study)
    complete = {row.baseline for row in known if _is_complete(row, wanted)}
    resolved = search_state.resolved(study.space.default())
    for name in study.baselines:
        if name in complete:
            continue
        seeds = each_seed(wanted)
        with search_state.state.usage.spending("evaluate"):
            results = factory.baseline(name, resolved, seeds)
        values: dict[str, tuple[float, ...]] = {}
        metrics: dict[str, dict[str, tuple[float, ...]]] = {}
        for stream in wanted:
            mine = [
                result for result, (its, _) in zip(results, seeds, strict=True) if its is stream
            ]
            values[str(stream)] = tuple(search_state.objective.measure(result) for result in mine)
            metrics[str(stream)] = _means_by_metric(mine)
        search_state.unwritten.add(attribute_of(BaselineRow(name, values, metrics)))
        report(name, search_state.objective.aggregate(values[str(Stream.SEARCH)]))


def _means_by_metric(results: Sequence[EvaluationResult]) -> dict[str, tuple[float, ...]]:
    if not results:
        return {}
    return {name: _metric_means(results, name) for name in results[0].metrics}


def _metric_means(results: Sequence[EvaluationResult], name: str) -> tuple[float, ...]:
    return tuple(float(result.metrics[name].mean()) for result in results)
