"""What the loop tells those who watch: a Protocol of events, and a picture of where it stands.

Observers only look; nothing they do reaches the search.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...store.leaderboard import search_interval
from ...store.paired import Bounds
from ...store.rows import DecisionRow, EvaluationRow, Stream, TrialRow, TrialState
from ...store.value_bounds import RETURN, bounds_in
from ...studies.spec import Study
from .buckets import Bucket
from .loop_state import LoopState, Outlook, Phase
from .objective import Objective, Objectives
from .search_state import Ledger
from .trials import Run


@dataclass(frozen=True)
class Best:
    """The best trial that has run to its end.

    Attributes:
        trial: its number.
        value: the metric, aggregated over its replicates.
        low, high: the 95 % interval, None below 5 seeds.
        seed_values: one value a replicate.
    """

    trial: int
    value: float
    low: float | None
    high: float | None
    seed_values: tuple[float, ...]

    @classmethod
    def of(
        cls,
        trial: int,
        value: float,
        seeds: tuple[float, ...],
        aggregate: str,
        stop_rule: str,
        bounds: Bounds | None = None,
    ) -> Best:
        """Return it with its interval: none where racing moved the value by what others showed.

        Args:
            trial: its number.
            value: the metric.
            seeds: one value a replicate.
            aggregate: over these.
            stop_rule: the words of the rule that ended it.
            bounds: between which values can be.
        """
        around = search_interval(value, seeds, aggregate, stop_rule)
        around = around if bounds is None else bounds.around(around)
        return cls(trial, value, around.low, around.high, seeds)


@dataclass(frozen=True)
class Leader:
    """The best of the trials that have come furthest, while none has run to its end.

    Attributes:
        trial: its number.
        value: the metric at its last rung, aggregated over its replicates.
        env_steps: of each replicate there.
    """

    trial: int
    value: float
    env_steps: int


@dataclass(frozen=True)
class Progress:
    """Where a study stands at a chunk boundary.

    Attributes:
        phase: search, choose, report or done.
        env_steps: training env steps so far, search and confirm together.
        env_steps_total: estimate of what the whole study takes.
        eval_env_steps: counted apart.
        lanes_busy, lanes: of the bucket that runs.
        occupancy: busy lane-chunks over all lane-chunks while work remained.
        proposed: trials so far.
        trials_total: `budget.trials`, None when unbounded.
        states: how many trials are in each state.
        best: None before the first trial has finished.
        env_steps_per_second: of late, compiles apart; of a study that is done over its lives.
        compiles: training programs compiled by this process.
        seconds: wall time over all starts of the study.
        seconds_left: estimate, confirming and compiles included; None before there is a speed.
        leader: None before the first trial has been judged, and when there is a best.
        least_share: that was done by what was expected before; see `Outlook`.
    """

    phase: Phase
    env_steps: int
    env_steps_total: int
    eval_env_steps: int
    lanes_busy: int
    lanes: int
    occupancy: float
    proposed: int
    trials_total: int | None
    states: dict[TrialState, int]
    best: Best | None
    env_steps_per_second: float
    compiles: int
    seconds: float
    seconds_left: float | None
    leader: Leader | None = None
    least_share: float = 0.0

    @property
    def share(self) -> float:
        """The share of its env steps that is done; 1 only when nothing is left to do."""
        if self.phase is Phase.DONE:
            return 1.0
        found = Outlook(self.env_steps_total, least_share=self.least_share)
        return found.share(self.env_steps)


class Observer(Protocol):
    """Watches a study; called from the loop's thread, between chunks, so be quick."""

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        """The study begins or goes on."""
        ...

    def on_baseline(self, baseline: str, value: float) -> None:
        """A baseline has been measured: the metric over the replicates of the search."""
        ...

    def on_chunk(self, progress: Progress) -> None:
        """A chunk is done and judged."""
        ...

    def on_evaluations(self, evaluations: Sequence[EvaluationRow]) -> None:
        """Replicates were evaluated at this boundary: all their episodes, one after the other."""
        ...

    def on_trial_end(self, trial: TrialRow) -> None:
        """A trial has ended."""
        ...

    def on_confirm(self, phase: Phase, trials: tuple[int, ...]) -> None:
        """The `choose` or the `report` stage begins with these trials."""
        ...

    def on_interrupt(self) -> None:
        """A clean end was asked for; the chunk is finished and committed before the loop leaves.

        By Ctrl-C, pressed once, or by `hpo stop`.
        """
        ...

    def on_end(self, progress: Progress, state: str) -> None:
        """The study has `finished`, or was `interrupted`."""
        ...


@dataclass(frozen=True)
class Standing:
    """A replicate and its training env steps so far."""

    trial: int
    stream: Stream
    replicate: int
    env_steps: int


class StartObserver(Protocol):
    """Hears what is about to begin; called in the midst of a step, where it must not raise."""

    def on_chunk_start(
        self,
        progress: Progress,
        replicates: Sequence[Standing],
        begun: Mapping[int, Mapping[str, Any]],
    ) -> None:
        """Replicates are about to train; `begun`: the trials that begin so, with their knobs."""
        ...

    def on_evaluation_start(self, replicates: Sequence[Standing]) -> None:
        """Replicates are about to be evaluated."""
        ...


class Silent:
    """An observer that does nothing; a base for those that care about a few events."""

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        """See `Observer`."""

    def on_baseline(self, baseline: str, value: float) -> None:
        """See `Observer`."""

    def on_chunk(self, progress: Progress) -> None:
        """See `Observer`."""

    def on_evaluations(self, evaluations: Sequence[EvaluationRow]) -> None:
        """See `Observer`."""

    def on_trial_end(self, trial: TrialRow) -> None:
        """See `Observer`."""

    def on_confirm(self, phase: Phase, trials: tuple[int, ...]) -> None:
        """See `Observer`."""

    def on_interrupt(self) -> None:
        """See `Observer`."""

    def on_end(self, progress: Progress, state: str) -> None:
        """See `Observer`."""


def picture(ledger: Ledger, buckets: Iterable[Bucket], running: Bucket | None) -> Progress:
    """Return where the study stands."""
    state, usage, buckets = ledger.state, ledger.state.usage, list(buckets)
    outlook = state.outlook or Outlook(usage.env_steps)
    done, best = state.phase is Phase.DONE, _best(ledger)
    return Progress(
        phase=state.phase,
        env_steps=usage.env_steps,
        env_steps_total=usage.env_steps if done else outlook.env_steps_total,
        eval_env_steps=usage.eval_env_steps,
        lanes_busy=len(running.busy()) if running is not None else 0,
        lanes=running.lanes if running is not None else 0,
        occupancy=usage.occupancy,
        proposed=state.proposed,
        trials_total=ledger.study.budget.trials,
        states=dict(Counter(t.state for t in ledger.trials.values() if t.number >= 0)),
        best=best,
        env_steps_per_second=usage.env_steps_per_second if done else outlook.env_steps_per_second,
        compiles=sum(entry.population.compiles for entry in buckets if entry.population),
        seconds=usage.run_seconds,
        seconds_left=0.0 if done else outlook.seconds_left,
        leader=_leader(ledger, buckets) if best is None else None,
        least_share=outlook.least_share,
    )


def _best(ledger: Ledger) -> Best | None:
    finished = [trial for trial in ledger.trials.values() if trial.value is not None]
    if not finished:
        return None
    best = ledger.best(finished)
    return Best.of(
        best.number, best.value or 0.0, best.seed_values, ledger.study.metric.aggregate,
        best.stop_rule, bounds_of(ledger.study),
    )  # fmt: skip


def bounds_of(study: Study) -> Bounds:
    """Return between which values the metric of a study can be."""
    if study.more_envs or study.metric.name != RETURN:
        return Bounds()
    held_out = study.evaluation.env
    return bounds_in(study.env.id, {**study.env.values, **held_out}, study.space.names)


def _leader(ledger: Ledger, buckets: list[Bucket]) -> Leader | None:
    schedules = {bucket.key: bucket.schedule for bucket in buckets}
    judged = [
        trial
        for trial in ledger.live()
        if trial.rung >= 0 and math.isfinite(trial.reports[trial.rung])
    ]
    if not judged:
        return None
    first = min(
        judged, key=lambda t: (-t.rung, ledger.objective.loss(t.reports[t.rung]), t.number)
    )
    env_steps = schedules[first.bucket].env_steps_at(first.rung)
    return Leader(first.number, first.reports[first.rung], env_steps)


def recorded_progress(
    study: Study,
    state: LoopState,
    rows: Iterable[TrialRow],
    decisions: Iterable[DecisionRow],
) -> Progress:
    """Return where a study stood at a commit; `compiles` is 0, which only the process knows.

    Args:
        study: as its journal has it.
        state: of the loop at that commit.
        rows: all trials; those with a negative number, which are none of the search, are left out.
        decisions: all judgements.
    """
    usage, rows = state.usage, [row for row in rows if row.trial >= 0]
    lanes = {bucket.key: bucket.lanes for bucket in state.buckets}
    best = _recorded_best(study, rows)
    done = state.phase is Phase.DONE
    outlook = state.outlook or Outlook(usage.env_steps)
    return Progress(
        phase=state.phase,
        env_steps=usage.env_steps,
        env_steps_total=usage.env_steps if done else outlook.env_steps_total,
        eval_env_steps=usage.eval_env_steps,
        lanes_busy=len(in_lanes(state, state.running)),
        lanes=lanes.get(state.running, 0),
        occupancy=usage.occupancy,
        proposed=state.proposed,
        trials_total=study.budget.trials,
        states=dict(Counter(TrialState(row.state) for row in rows)),
        best=best,
        env_steps_per_second=usage.env_steps_per_second if done else outlook.env_steps_per_second,
        compiles=0,
        seconds=usage.run_seconds,
        seconds_left=0.0 if done else outlook.seconds_left,
        leader=_recorded_leader(study, state, decisions) if best is None else None,
        least_share=outlook.least_share,
    )


def in_lanes(state: LoopState, bucket: str) -> list[Run]:
    """Return the replicates in the lanes of a bucket, by lane."""
    found = [
        run
        for trial in state.live.values()
        if trial.bucket == bucket
        for run in trial.runs
        if run.lane is not None and run.is_live
    ]
    return sorted(found, key=lambda run: -1 if run.lane is None else run.lane)


def _recorded_best(study: Study, rows: Sequence[TrialRow]) -> Best | None:
    """Return the first of the trials with a value, in the order of the search."""
    objective, more = Objective.of(study), Objectives.of(study)
    found = sorted((row for row in rows if row.value is not None), key=lambda row: row.trial)
    if not found:
        return None
    values = [row.value if row.value is not None else math.nan for row in found]
    keys = more.keys(
        [(objective.loss(value), *more.losses(row.objectives[1:]))
         for value, row in zip(values, found, strict=True)],
        [more.violation(row.constraints) for row in found],
    )  # fmt: skip
    at = min(range(len(found)), key=keys.__getitem__)
    best = found[at]
    return Best.of(
        best.trial, values[at], best.seed_values, study.metric.aggregate, best.stop_rule,
        bounds_of(study),
    )  # fmt: skip


def _recorded_leader(
    study: Study, state: LoopState, decisions: Iterable[DecisionRow]
) -> Leader | None:
    objective = Objective.of(study)
    judged = [trial for trial in state.live.values() if trial.rung >= 0 and trial.reports]
    if not judged:
        return None
    first = min(judged, key=lambda t: (-t.rung, objective.loss(t.reports[t.rung]), t.number))
    place = (first.number, first.rung)
    at = next((row.env_steps for row in decisions if (row.trial, row.rung) == place), None)
    return None if at is None else Leader(first.number, first.reports[first.rung], at)
