"""Exports a study to an Optuna storage, for use with Optuna's tools.

Trials keep their numbers. Values are search values, on seeds that all trials share; results on new
seeds are stored in the trials' user attributes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as Theirs

from ...errors import ConfigError
from ...spaces.via_optuna import open_storage, refusals, study_names, told_changes, written_params
from ...store.codec import finite_json
from ...store.rows import StudyMeta, TrialRow, TrialState
from ...studies.resolved import resolved
from ..state.objective import Objectives
from .checkpoint_values import CheckpointValues

_STATES: Mapping[TrialState, Theirs] = {
    TrialState.WAITING: Theirs.WAITING,
    TrialState.RUNNING: Theirs.RUNNING,
    TrialState.INTERRUPTED: Theirs.RUNNING,
    TrialState.FINISHED: Theirs.COMPLETE,
    TrialState.PAUSED: Theirs.PRUNED,
    TrialState.STOPPED: Theirs.PRUNED,
    TrialState.UNFINISHED: Theirs.PRUNED,
    TrialState.DIVERGED: Theirs.FAIL,
    TrialState.FAILED: Theirs.FAIL,
}
_ATTRIBUTES = (
    "proposed_by", "seed_values", "choose_values", "report_values", "env_steps", "stop_rule",
    "audited", "error",
)  # fmt: skip

_LEFT_OUT = ("name", "enqueue", "population", "executor", "checkpoint", "loggers")
"""Keys of a study file that concern a single machine or run."""


def write_storage(storage: str, name: str, meta: StudyMeta, points: CheckpointValues) -> list[str]:
    """Write a study to a storage atomically; return the features that Optuna cannot represent."""
    with refusals(storage):
        opened = open_storage(storage, make=True)
        if name in study_names(opened):
            raise ConfigError(
                f"{storage} already has a study {name!r}; choose a different storage or name",
                name="NAME",
            )
        goals = meta.objective_goals or [meta.goal]
        directions = [StudyDirection[goal.upper()] for goal in goals]
        optuna_study = optuna.create_study(storage=opened, study_name=name, directions=directions)
        try:
            _set_study_attributes(optuna_study, meta, points)
            for number, row in sorted(points.trials.items()):
                if row.state is TrialState.REFERENCE:  # not a search trial
                    continue
                optuna_study.add_trial(_optuna_trial(row, points, number))
        except BaseException:
            optuna.delete_study(study_name=name, storage=opened)
            raise
    return told_changes(points.study.space)


def _set_study_attributes(
    optuna_study: optuna.Study, meta: StudyMeta, points: CheckpointValues
) -> None:
    """Record the metric names, and everything that `hpo import optuna` needs."""
    study = resolved(points.study)
    names = meta.objective_names or [meta.metric]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna marks metric names as experimental
        optuna_study.set_metric_names(names)
    said = {
        "versions": dict(meta.versions),
        "study_hash": meta.study_hash,
        "study": {key: value for key, value in study.items() if key not in _LEFT_OUT},
    }
    optuna_study.set_user_attr("hpo", finite_json(said))


def _optuna_trial(row: TrialRow, points: CheckpointValues, number: int) -> FrozenTrial:
    params, spread = written_params(points.study.space, row.params)
    reports = _intermediate_values(points, number)
    state, values = _state_and_values(row, reports, len(points.study.objectives) > 1)
    about = {name: getattr(row, name) for name in _ATTRIBUTES}
    about = {name: value for name, value in about.items() if value not in ("", (), None, False)}
    trial = create_trial(
        state=state,
        values=values or None,
        params=params,
        distributions=spread,
        intermediate_values=reports,
        user_attrs=finite_json({"state": str(row.state), "params": dict(row.params), **about}),
        system_attrs=_constraint_attribute(row, points),
    )
    if row.started_at is not None and state is not Theirs.WAITING:
        trial.datetime_start = datetime.fromtimestamp(row.started_at)
    if row.ended_at is not None and state.is_finished():
        trial.datetime_complete = datetime.fromtimestamp(row.ended_at)
    return trial


def _intermediate_values(points: CheckpointValues, number: int) -> dict[int, float]:
    """Return finite values by env steps; empty for several objectives (unsupported by Optuna)."""
    if len(points.study.objectives) > 1:
        return {}
    reported = {at: found.get(number, math.nan) for at, found in points.values.items()}
    return {at: value for at, value in reported.items() if math.isfinite(value)}


def _state_and_values(
    row: TrialRow, reports: Mapping[int, float], several: bool
) -> tuple[Theirs, list[float]]:
    """Return a trial's state and values in a combination that Optuna accepts."""
    state = _STATES[row.state]
    if state is Theirs.PRUNED and not several:
        if not reports:
            return Theirs.FAIL, []
        return state, _without_none(row.rung_value)
    values = _without_none(row.value)
    if several:
        values = list(row.objectives)
    if state is Theirs.PRUNED:
        return state, values
    if state is not Theirs.COMPLETE:
        return state, []
    if not values or any(map(math.isnan, values)):
        return Theirs.FAIL, []
    return state, values


def _without_none(*values: float | None) -> list[float]:
    return [value for value in values if value is not None]


def _constraint_attribute(row: TrialRow, points: CheckpointValues) -> dict[str, Any]:
    if not row.constraints:
        return {}
    found = Objectives.of(points.study).violations(row.constraints)
    return {"constraints": [one if math.isfinite(one) else math.inf for one in found]}
