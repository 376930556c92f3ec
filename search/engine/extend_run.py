"""Runs that grow: a finished run of one configuration goes on from the lanes it ended with.

What it did so far is what a run of the new length would have done, so its tables become those of
the run that was long from the start; where that cannot be, growing is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import StoreError
from ...store.journal import Journal
from ...store.rows import Stream, StudyMeta, TrialState
from ...studies.resolved import as_recorded, diff, resolved
from ...studies.spec import Confirm, Study
from ...studies.train_study import can_grow, single, with_horizon_of
from ...studies.yaml_io import plain, read_text
from ..state.loop_state import Phase
from ..state.schedule import chunks_of_row, ends_row, schedule_of
from ..state.search_state import Ledger
from ..state.trials import Run, RunState, Trial


def as_begun(study: Study, folder: Path) -> Study:
    """Return a study with what its folder knows and its file need not say.

    That is the horizon that it began with, if only it grew, and the trials that `hpo confirm` was
    asked for.

    Raises:
        StoreError: the journal is damaged.
    """
    before = _before(folder)
    return study if before is None else _with_asked(with_horizon_of(study, before), before)


def asked_for(study: Study, also: Mapping[int, int]) -> Study:
    """Return a study that runs trials on test seeds, too: trial -> on how many, at least.

    One that confirms nothing goes on to choose no winner.
    """
    confirm = study.confirm or Confirm(top_k=0, report=0)
    most = dict(confirm.also)
    for trial, seeds in also.items():
        most[trial] = max(seeds, most.get(trial, 0))
    return replace(study, confirm=replace(confirm, also=tuple(sorted(most.items()))))


def _with_asked(study: Study, before: Mapping[str, Any]) -> Study:
    also = (before.get("confirm") or {}).get("also") or {}
    return asked_for(study, {int(n): seeds for n, seeds in also.items()}) if also else study


def single_as_begun(study: Study, folder: Path) -> Study:
    """Return the study of `hpo train`, laid out over the horizon that it began with.

    Raises:
        StoreError: the journal is damaged.
    """
    begun = as_begun(single(study), folder)
    return single(replace(study, schedule_env_steps=begun.schedule_env_steps))


def words_of_growth(study: Study, folder: Path) -> str:
    """Return how much longer the runs of a study are than those in its folder.

    "" if they are not, and where a change keeps the study from going on.
    """
    before = _before(folder)
    if before is None or study.env_steps <= before["env_steps"]:
        return ""
    if not all(change.allowed for change in diff(before, resolved(study))):
        return ""
    return (
        f"env_steps grew from {before['env_steps']:,} to {study.env_steps:,}: the run goes on; "
        f"schedules and chunks stay laid out over {study.horizon:,} (schedule_env_steps)"
    )


def _before(folder: Path) -> Mapping[str, Any] | None:
    """Return the resolved study that a folder holds, None without one."""
    if not Journal.exists(folder):
        return None
    with Journal(folder) as journal:
        return as_recorded(journal.meta.study_text)


def keep_for_growth(ledger: Ledger, trial: Trial) -> None:
    """Remember a trial that has run to its end as it stands, if its lanes let it go on later.

    To be called while it holds its lanes, before it ends.
    """
    ended = [run for run in trial.runs if run.state is RunState.ENDED]
    if can_grow(ledger.study) and ended and all(run.lane is not None for run in ended):
        ledger.state.keep_ended(copy.deepcopy(trial), ledger.study.env_steps)


def length_of(meta: StudyMeta) -> int:
    """Return the env steps of a run of the study that a journal is about."""
    return plain(read_text(meta.study_text, "study.resolved.yaml"))["env_steps"]


def lengthen(ledger: Ledger, before: int, checkpoint: Path | None) -> None:
    """Let the trial of a study whose runs grew go on; nothing is written yet.

    Args:
        ledger: restored, of the study as it is asked for now.
        before: env steps of a run, as the journal has them.
        checkpoint: the lanes of the last commit.

    Raises:
        StoreError: it could not equal a run that was long from the start; says why.
    """
    study, ended = ledger.study, ledger.state.ended
    if ended is not None and ended.env_steps < study.env_steps:
        if _is_as_long(study, ended.env_steps, ledger.resolved_of(0).steps_per_chunk):
            return
        if checkpoint is None or not (checkpoint / ended.trial.bucket).is_dir():
            raise _cannot(f"{checkpoint} is gone, the lanes at the end of the run")
        _check_points(study, ended.env_steps, ledger.resolved_of(0).steps_per_chunk)
        ledger.reopen(ended.trial)
    elif study.env_steps != before and ledger.state.phase is Phase.DONE:
        raise _cannot(_lost(ledger, before))
    elif study.env_steps != before:
        for live in ledger.live():
            _check_running(live.runs_of(Stream.SEARCH), before)


def _is_as_long(study: Study, before: int, quantum: int) -> bool:
    """Return whether a run that grew ends with the same chunk as before: nothing is left to do."""
    was, now = (schedule_of(s, quantum) for s in (replace(study, env_steps=before), study))
    return was.length == now.length


def _cannot(why: str, more: str = "") -> StoreError:
    return StoreError(
        f"env_steps cannot grow: {why}; train its policy on with init: "
        f"{{from: .../policies/trial_0}}, or start the study anew{more}",
        new=True,
    )


def _check_running(runs: list[Run], before: int) -> None:
    ended = [run.replicate for run in runs if run.state is RunState.ENDED]
    if ended:
        seeds = ", ".join(map(str, ended))
        raise _cannot(f"seeds {seeds} ended at {before} env steps and left their lanes to others")


def _check_points(study: Study, before: int, quantum: int) -> None:
    """Refuse an end that the long run would not have been evaluated at."""
    was, now = (schedule_of(s, quantum) for s in (replace(study, env_steps=before), study))
    chunks = chunks_of_row(study.log_every, quantum)
    if was.length in now.evaluations and ends_row(now, was.length, chunks):
        return
    if was.length in now.evaluations:
        raise _cannot(
            f"the last row of its curve ends at {was.env_steps} env steps, where a longer run has "
            f"none (log_every is {study.log_every})",
            " with a log_every that divides env_steps",
        )
    raise _cannot(
        f"the run was evaluated at its end, {was.env_steps} env steps, where a longer one is not "
        f"(evaluation.every is {study.evaluation.every})",
        " with an evaluation.every that divides env_steps",
    )


def _lost(ledger: Ledger, before: int) -> str:
    """Return why the state in which a study ended is not there."""
    trial = ledger.trials.get(0)
    if trial is None or trial.state is not TrialState.FINISHED:
        return f"trial 0 has not run to its end ({'absent' if trial is None else trial.state})"
    lanes, seeds = ledger.study.population.lanes, ledger.study.seeds.per_config
    if lanes is not None and lanes < seeds:
        return f"{seeds} seeds took turns in {lanes} lanes, and only the last ones are still there"
    return f"the lanes in which the run ended at {before} env steps are not kept any more"
