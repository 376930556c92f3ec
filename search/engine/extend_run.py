"""Extends a finished run of one configuration, starting from its final lane states.

An extension is allowed only if the tables then equal those of a run that had this length from the
start.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import StoreError, counted
from ...store.journal import Journal
from ...store.rows import Stream, TrialState
from ...studies.resolved import ABSENT, as_recorded, diff, resolved
from ...studies.search_spec import Confirm
from ...studies.spec import Study
from ...studies.train_study import can_grow, single, with_horizon_of
from ..lanes.lane_count import population_replicates
from ..state.loop_state import EndedTrial, Phase
from ..state.schedule import EventSchedule, chunks_of_row, ends_row, schedule_of
from ..state.search_state import SearchState
from ..state.trials import RunState, Trial, in_state

_NOTE = 71  # columns left after "warning: "


def as_begun(study: Study, folder: Path) -> Study:
    """Fill in settings that a study's file may omit, from the study's folder."""
    before = _recorded_study(folder)
    if before is None:
        return study
    also = {int(number): seeds for number, seeds in _asked_trials(before).items()}
    study = with_horizon_of(study, before)
    if study.population.tiles == "auto":
        tiles = before.get("population", {}).get("tiles", "auto")
        study = replace(study, population=replace(study.population, tiles=tiles))
    if also:
        study = asked_for(study, also)
    return study


def _asked_trials(study: Mapping[str, Any]) -> Mapping[str, int]:
    """Return `confirm.also` of a resolved study."""
    confirm = study.get("confirm") or {}
    return confirm.get("also") or {}


def asked_for(study: Study, also: Mapping[int, int]) -> Study:
    """Return a study that also tests the trials in `also` (trial -> minimum number of seeds)."""
    confirm = study.confirm or Confirm(top_k=0, report=0)
    most = dict(confirm.also)
    for trial, seeds in also.items():
        most[trial] = max(seeds, most.get(trial, 0))
    return replace(study, confirm=replace(confirm, also=tuple(sorted(most.items()))))


def single_as_begun(study: Study, folder: Path) -> Study:
    """Return the study that `hpo train` runs, with its original horizon."""
    original = as_begun(single(study), folder)
    return single(replace(study, schedule_env_steps=original.schedule_env_steps))


def resume_note(study: Study, folder: Path) -> str:
    """Return a line about settings that changed since the study in the folder started, or ""."""
    before = _recorded_study(folder)
    if before is None:
        return ""
    changes = diff(before, resolved(study))
    if not changes or not all(change.allowed for change in changes):
        return ""
    if study.env_steps > before["env_steps"]:
        text = f"env_steps grew from {before['env_steps']:,} to {study.env_steps:,}: the run "
        text += "continues; schedules and chunks are still based on "
        return f"{text}{study.horizon:,} (schedule_env_steps)"
    words = [str(one).replace(": ", " ", 1) for one in changes if one.new != ABSENT]
    if not (count := len(words)):
        return ""
    while len(text := f"changed: {', '.join(words[:count])}") > _NOTE and count > 1:
        count -= 1
    if count < len(words):
        text += f" and {len(words) - count} more"
    return text


def _recorded_study(folder: Path) -> Mapping[str, Any] | None:
    if not Journal.exists(folder):
        return None
    with Journal(folder) as journal:
        return as_recorded(journal.meta.study_text)


def keep_for_growth(search_state: SearchState, trial: Trial) -> None:
    """Store the state of a finished trial if its run may be extended later.

    Called while the trial is still in its lanes.
    """
    ended = in_state(trial.runs, RunState.ENDED)
    if can_grow(search_state.study) and ended and all(run.lane is not None for run in ended):
        search_state.state.keep_ended(copy.deepcopy(trial), search_state.study.env_steps)


def lengthen(search_state: SearchState, before: int, checkpoint: Path | None) -> None:
    """Resume the trial of a study whose runs are now longer than `before`; write nothing yet."""
    study, ended = search_state.study, search_state.state.ended
    lanes = max((bucket.lanes for bucket in search_state.state.buckets), default=0)
    if search_state.state.phase is Phase.SEARCH and 0 < lanes < population_replicates(study):
        trials = counted(lanes // study.seeds.per_config, "trial")
        most = f"the running population has lanes for only {trials}"
        raise StoreError(f"budget.trials cannot be raised yet: {most}; let the study finish first")
    if ended is not None and ended.env_steps < study.env_steps:
        _reopen_trial(search_state, ended, checkpoint)
    elif study.env_steps != before and search_state.state.phase is Phase.DONE:
        raise _growth_error(study, _why_missing(search_state, before))
    elif study.env_steps != before:
        _check_running(search_state, before)


def _reopen_trial(search_state: SearchState, ended: EndedTrial, checkpoint: Path | None) -> None:
    study, quantum = search_state.study, search_state.resolved_of(0).steps_per_chunk
    was = schedule_of(replace(study, env_steps=ended.env_steps), quantum)
    now = schedule_of(study, quantum)
    if was.length == now.length:  # both end with the same chunk: nothing is left to do
        return
    if checkpoint is None or not (checkpoint / ended.trial.bucket).is_dir():
        raise _growth_error(study, f"{checkpoint}, the state at the end of the run, is missing")
    _check_points(study, was, now)
    search_state.reopen(ended.trial)


def _check_running(search_state: SearchState, before: int) -> None:
    """Raise if some of the runs to be extended have already ended."""
    runs = [run for live in search_state.live() for run in live.runs_of(Stream.SEARCH)]
    over = [str(run.replicate) for run in runs if run.state is RunState.ENDED]
    if over:
        which, lanes = f"seed {over[0]}", "its lane was reused"
        if len(over) > 1:
            which, lanes = f"seeds {', '.join(over)}", "their lanes were reused"
        ended = f"{which} ended at {before} {search_state.study.algorithm.unit}"
        raise _growth_error(search_state.study, f"{ended}, and {lanes}")


def _growth_error(study: Study, why: str, more: str = "") -> StoreError:
    way = "start a new study"
    if study.algorithm.is_ppo:
        init = "init: {from: .../policies/trial_0}"
        way = f"continue training the saved policy with {init}, or {way}"
    return StoreError(f"env_steps cannot be raised: {why}; {way}{more}", new=True)


def _check_points(study: Study, was: EventSchedule, now: EventSchedule) -> None:
    """Raise if the longer run would not have been evaluated where the old run ended."""
    chunks = chunks_of_row(study.log_every, was.quantum)
    if was.length in now.evaluations and ends_row(now, was.length, chunks):
        return
    if was.length in now.evaluations:
        raise _growth_error(
            study,
            f"the last row of the curve ends at {was.env_steps} env steps, but a longer run "
            f"would have no row there (log_every is {study.log_every})",
            " with a log_every that divides env_steps",
        )
    raise _growth_error(
        study,
        f"the run was evaluated at its end, {was.env_steps} env steps, but a longer run would "
        "not be evaluated there "
        f"(evaluation.every is {study.evaluation.every})",
        " with an evaluation.every that divides env_steps",
    )


def _why_missing(search_state: SearchState, before: int) -> str:
    trial = search_state.trials.get(0)
    if trial is None:
        return "trial 0 does not exist"
    if trial.state is not TrialState.FINISHED:
        return f"trial 0 has not finished ({trial.state})"
    lanes, seeds = search_state.study.population.lanes, search_state.study.seeds.per_config
    if lanes is not None and lanes < seeds:
        shared = f"{seeds} seeds shared {counted(lanes, 'lane')}"
        return f"{shared}, and only the last state of each lane is kept"
    return f"the state of the run at {before} env steps is no longer available"
