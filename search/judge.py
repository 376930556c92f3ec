"""Who goes on at a rung: finds the trials that stand there, asks the rule, writes its verdicts.

A trial is judged at the first boundary where all its replicates have passed the rung, on their
values at the rung; all trials that come to a rung at one boundary are judged together.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..store.rows import DecisionRow, Stream, TrialState
from .ledger import Ledger
from .pruner import Pruner, is_audited, rank_of
from .schedule import Schedule
from .trials import RunState, Trial
from .verdict import Verdict

__all__ = ["is_due", "judge", "value_at"]


def judge(ledger: Ledger, pruner: Pruner | None, schedules: Mapping[str, Schedule]) -> None:
    """Judge every trial that is due, rung by rung, and end those that are stopped.

    Args:
        ledger: trials and the losses judged so far.
        pruner: the rule, None when nobody is stopped early.
        schedules: of each bucket.
    """
    if pruner is None:
        return
    for rung in range(max((len(entry.rungs) for entry in schedules.values()), default=0)):
        due = [trial for trial in ledger.live() if is_due(trial, rung)]
        if due:
            _judge_rung(ledger, pruner, schedules, rung, due)


def is_due(trial: Trial, rung: int) -> bool:
    """Say whether a live trial must be judged at this rung now.

    A replicate that diverged (and is tolerated) is not waited for; a trial that is audited, or
    has a replicate cut by the budget, is not judged any more.
    """
    if trial.rung != rung - 1 or trial.audited:
        return False
    runs = [run for run in trial.runs_of(Stream.SEARCH) if run.state is not RunState.DIVERGED]
    return all(run.state is not RunState.CUT and len(run.rung_values) > rung for run in runs)


def _judge_rung(
    ledger: Ledger,
    pruner: Pruner,
    schedules: Mapping[str, Schedule],
    rung: int,
    due: list[Trial],
) -> None:
    while len(ledger.state.rung_losses) <= rung:
        ledger.state.rung_losses.append([])
    earlier = ledger.state.rung_losses[rung]
    values = [value_at(ledger, trial, rung) for trial in due]
    losses = [ledger.objective.loss(value) for value in values]
    verdicts = pruner.judge(earlier, losses)
    earlier += losses
    ranked = sorted(earlier)
    for trial, value, loss, verdict in zip(due, values, losses, verdicts, strict=True):
        trial.rung = rung
        trial.reports.append(value)
        ledger.touch(trial)
        action = _carry_out(ledger, trial, verdict)
        ledger.unwritten.decisions.append(
            DecisionRow(
                trial=trial.number,
                rung=rung,
                env_steps=schedules[trial.bucket].rungs[rung] * schedules[trial.bucket].quantum,
                value=value,
                action=action,
                rule=verdict.rule,
                cutoff=None if verdict.cutoff is None else ledger.objective.loss(verdict.cutoff),
                rank=rank_of(loss, ranked),
                judged=len(earlier),
            )
        )


def value_at(ledger: Ledger, trial: Trial, rung: int) -> float:
    """Give a trial's value at a rung it has passed, over the replicates that did not diverge."""
    runs = trial.runs_of(Stream.SEARCH)
    return ledger.objective.aggregate(
        [run.rung_values[rung] for run in runs if run.state is not RunState.DIVERGED]
    )


def _carry_out(ledger: Ledger, trial: Trial, verdict: Verdict) -> str:
    if not verdict.stop:
        return "continue"
    trial.stop_rule = verdict.rule
    spec = ledger.study.early_terminate
    if spec is not None and is_audited(ledger.study.seed, trial.number, spec.audit):
        trial.audited = True
        return "audit"
    ledger.end(trial, TrialState.STOPPED)
    return "stop"
