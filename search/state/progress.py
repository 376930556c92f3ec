"""A study's progress, and the events sent to observers, which cannot affect the search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...store.leaderboard import search_interval
from ...store.rows import EvaluationRow, Stream, TrialRow, TrialState
from ...store.unobserved import Bounds
from ...store.value_bounds import metric_range, range_over, score_range
from ...studies.spec import Study
from ...studies.study_environments import environments_of, scales
from .buckets import Bucket, compiles_of
from .loop_state import LoopState, Outlook, Phase
from .objective import Objective, Objectives
from .search_state import SearchState
from .tally import Tally
from .trials import Replicate


@dataclass(frozen=True)
class Best:
    """The best trial among those that have finished their runs."""

    trial: int
    value: float  # metric over its replicates
    low: float | None  # 95 % interval; None below 5 seeds
    high: float | None
    seed_values: tuple[float, ...]  # one per replicate

    @classmethod
    def of(
        cls,
        trial: int,
        value: float,
        seeds: tuple[float, ...],
        aggregate: str,
        stop_rule: str,
        *,
        bounds: Bounds | None = None,
    ) -> Best:
        """Return the trial with its interval; no interval with racing, which biases the value."""
        around = search_interval(value, seeds, aggregate, stop_rule, bounds or Bounds())
        return cls(trial, value, around.low, around.high, seeds)

    def without_interval(self) -> Best:
        return replace(self, low=None, high=None)


@dataclass(frozen=True)
class Leader:
    """The best trial at the highest rung, while no trial has finished its run."""

    trial: int
    value: float  # metric over its replicates, at its last rung
    env_steps: int  # of each of its replicates there


@dataclass(frozen=True)
class Progress:
    """A study's progress between two chunks."""

    phase: Phase
    env_steps: int  # training so far, in search and confirm
    env_steps_total: int  # estimated for the whole study
    eval_env_steps: int  # not included in `env_steps`
    lanes_busy: int  # in the running bucket
    lanes: int
    occupancy: float  # busy lane-chunks divided by all, while work remained
    proposed: int
    trials_total: int | None  # budget.trials
    states: dict[TrialState, int]
    best: Best | None  # None until a trial has finished
    env_steps_per_second: float  # recent, without compiles; at the end, over all processes
    compiles: int  # training programs that this process compiled
    seconds: float  # wall time over all processes of the study
    # estimate, including confirm and compiles; None before the first chunk
    seconds_left: float | None
    leader: Leader | None = None  # until a trial has finished
    least_share: float = 0.0  # see `Outlook`

    @property
    def share(self) -> float:
        """The completed share of the study's env steps; 1 only if nothing is left to do."""
        if self.phase is Phase.DONE:
            return 1.0
        found = Outlook(self.env_steps_total, least_share=self.least_share)
        return found.share(self.env_steps)


@dataclass(frozen=True)
class ReplicateProgress:
    """A replicate, and its training env steps so far."""

    trial: int
    stream: Stream
    replicate: int
    env_steps: int


class Observer:
    """Observes a study, in the loop's thread between chunks. Overridden methods should be quick.

    `on_chunk_start` and `on_evaluation_start` are called in the middle of a step and must not
    raise.
    """

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        """The study starts or resumes."""

    def on_baseline(self, baseline: str, value: float) -> None:
        """A baseline was measured; `value` is its metric over the search's replicates."""

    def on_chunk_start(
        self,
        progress: Progress,
        replicates: Sequence[ReplicateProgress],
        started: Mapping[int, Mapping[str, Any]],
    ) -> None:
        """Replicates are about to train; `started` has the hyperparameters of new trials."""

    def on_evaluation_start(self, replicates: Sequence[ReplicateProgress]) -> None:
        """Replicates are about to be evaluated."""

    def on_chunk(self, progress: Progress) -> None:
        """A chunk has run, and its trials have been judged."""

    def on_evaluations(self, evaluations: Sequence[EvaluationRow]) -> None:
        """Replicates were evaluated after a chunk."""

    def on_trial_end(self, trial: TrialRow) -> None:
        """A trial has ended."""

    def on_confirm(self, phase: Phase, trials: tuple[int, ...]) -> None:
        """The `choose` or `report` stage starts with these trials."""

    def on_interrupt(self) -> None:
        """A clean end was requested (Ctrl-C, `hpo stop`); the loop ends after this chunk."""

    def on_end(self, progress: Progress, state: str) -> None:
        """The study has `finished`, or was `interrupted`."""


def picture(
    search_state: SearchState, buckets: Iterable[Bucket], running: Bucket | None
) -> Progress:
    found = _progress_from_rows(
        search_state.study, search_state.state, search_state.trials, search_state.tally
    )
    lanes = 0
    if running is not None:
        lanes = running.lanes
    compiles = compiles_of(buckets)
    return replace(found, lanes=lanes, compiles=compiles)


def recorded_progress(study: Study, state: LoopState, trials: Iterable[TrialRow]) -> Progress:
    """Return the progress as of a commit; `compiles` is 0, because it is not recorded."""
    rows = {row.trial: row for row in trials}
    return _progress_from_rows(
        study, state, rows, Tally(rows, Objective.of(study), Objectives.of(study))
    )


def _progress_from_rows(
    study: Study, state: LoopState, rows: Mapping[int, TrialRow], tally: Tally
) -> Progress:
    lanes = {bucket.key: bucket.lanes for bucket in state.buckets}
    usage, best, leader = state.usage, _best_trial(study, rows, tally), None
    if best is None:
        leader = _leading_trial(state, Objective.of(study))
    outlook = state.outlook or Outlook(usage.env_steps)
    if state.phase is Phase.DONE:
        outlook = replace(
            outlook,
            env_steps_total=usage.env_steps,
            seconds_left=0.0,
            env_steps_per_second=usage.env_steps_per_second,
        )
    return Progress(
        phase=state.phase,
        env_steps=usage.env_steps,
        env_steps_total=outlook.env_steps_total,
        eval_env_steps=usage.eval_env_steps,
        lanes_busy=len(in_lanes(state, state.running)),
        lanes=lanes.get(state.running, 0),
        occupancy=usage.occupancy,
        proposed=state.proposed,
        trials_total=study.budget.trials,
        states=tally.states(),
        best=best,
        env_steps_per_second=outlook.env_steps_per_second,
        compiles=0,
        seconds=usage.run_seconds,
        seconds_left=outlook.seconds_left,
        leader=leader,
        least_share=outlook.least_share,
    )


def in_lanes(state: LoopState, bucket: str) -> list[Replicate]:
    found = {
        run.lane: run
        for trial in state.live.values()
        if trial.bucket == bucket
        for run in trial.runs
        if run.lane is not None and run.is_live
    }
    return [found[lane] for lane in sorted(found)]


def _best_trial(study: Study, rows: Mapping[int, TrialRow], tally: Tally) -> Best | None:
    number = tally.best()
    if number is None:
        return None
    best = rows[number]
    if best.value is None:
        raise RuntimeError(f"trial {number} ranks best but has no value")
    found = Best.of(
        best.trial,
        best.value,
        best.seed_values,
        study.metric.aggregate,
        best.stop_rule,
        bounds=bounds_of(study),
    )
    if Stream.SEARCH in best.copies:  # seeds that trained identically predict no new seeds
        return found.without_interval()
    return found


def bounds_of(study: Study) -> Bounds:
    """Return the range of the study's metric; see `store.value_bounds`."""
    searched, metric = study.space.names, study.metric.name
    if not study.more_envs:
        env = {"id": study.env.id, **study.env.values, **study.evaluation.env}
        return metric_range(metric, env, searched)
    each = zip(environments_of(study), scales(study), strict=True)
    scores = [
        score_range(
            metric_range(metric, {"id": env.id, **env.values}, searched),
            scale.random,
            scale.reference,
        )
        for env, scale in each
    ]
    return range_over(scores, study.over_environments)


def _leading_trial(state: LoopState, objective: Objective) -> Leader | None:
    found = [
        (-trial.rung, objective.loss(trial.reports[trial.rung]), number)
        for number, trial in state.live.items()
        if trial.rung >= 0 and math.isfinite(trial.reports[trial.rung])
    ]
    if not found:
        return None
    first = state.live[min(found)[2]]
    if first.rung_env_steps is None:  # written by an older version
        return None
    return Leader(first.number, first.reports[first.rung], first.rung_env_steps)
