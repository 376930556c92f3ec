"""Where a study stood at its last commit, as those see it who did not run it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ...store.rows import DecisionRow, TrialRow, TrialState
from ...studies.spec import Study
from ..book.objective import Objective, Objectives
from ..book.progress import Best, Leader, Progress, bounds_of
from ..book.runs import Run
from ..book.state import LoopState, Outlook, Phase

__all__ = ["in_lanes", "recorded_progress"]


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
    best = _best(study, rows)
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
        leader=_leader(study, state, decisions) if best is None else None,
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


def _best(study: Study, rows: Sequence[TrialRow]) -> Best | None:
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


def _leader(study: Study, state: LoopState, decisions: Iterable[DecisionRow]) -> Leader | None:
    objective = Objective.of(study)
    judged = [trial for trial in state.live.values() if trial.rung >= 0 and trial.reports]
    if not judged:
        return None
    first = min(judged, key=lambda t: (-t.rung, objective.loss(t.reports[t.rung]), t.number))
    place = (first.number, first.rung)
    at = next((row.env_steps for row in decisions if (row.trial, row.rung) == place), None)
    return None if at is None else Leader(first.number, first.reports[first.rung], at)
