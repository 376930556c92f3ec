"""Who goes on at a rung: finds the trials that stand there, asks the rule, writes its verdicts.

A trial is judged at the first boundary where all its replicates have passed the rung, on their
values at the rung; all trials that come to a rung at one boundary are judged together.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...store.rows import Stream, TrialState
from ..book.ledger import Ledger
from ..book.runs import Run, RunState
from ..book.schedule import Schedule
from ..book.trials import Trial
from ..rules.promotion import PromotingAsha
from ..rules.registry import Pruner, is_audited, rank_of
from ..rules.verdict import Verdict
from .decisions import write_decision
from .promote import let_go, promote
from .standings import cutoff_value, standings_of

__all__ = ["is_due", "judge", "value_at"]


def judge(ledger: Ledger, pruner: Pruner | None, schedules: Mapping[str, Schedule]) -> list[Trial]:
    """Judge every trial that is due, rung by rung, and end or pause those that are stopped.

    Args:
        ledger: trials and the losses judged so far.
        pruner: the rule, None when nobody is stopped early.
        schedules: of each bucket.

    Returns:
        The trials that were paused and go on; their replicates wait for lanes.
    """
    promoted: list[Trial] = []
    if pruner is None:
        return promoted
    for rung in range(max((len(entry.rungs) for entry in schedules.values()), default=0)):
        due = [trial for trial in ledger.live() if is_due(trial, rung)]
        if due:
            _judge_rung(ledger, pruner, schedules, rung, due)
        if due and isinstance(pruner, PromotingAsha):  # before the next rung: one may stand there
            promoted += promote(ledger, pruner, schedules, rung)
    if isinstance(pruner, PromotingAsha):
        let_go(ledger, pruner)
    return [trial for trial in promoted if trial.is_live]


def is_due(trial: Trial, rung: int) -> bool:
    """Return whether a live trial must be judged at this rung now.

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
    before = ledger.judged(rung)
    for trial in due:
        _report(ledger, trial, rung, schedules[trial.bucket])
    ledger.judge(rung, [trial.number for trial in due])
    everyone = [ledger.trials[number] for number in before] + due
    standings = standings_of(ledger, everyone, rung)
    verdicts = pruner.judge(rung, standings[: len(before)], standings[len(before) :])
    ranked = sorted(standing.loss for standing in standings)
    for trial, standing, verdict in zip(due, standings[len(before) :], verdicts, strict=True):
        ledger.touch(trial)
        action = _carry_out(ledger, trial, rung, verdict)
        write_decision(
            ledger,
            trial,
            rung,
            schedules[trial.bucket],
            action=action,
            rule=verdict.rule,
            cutoff=_cutoff(ledger, verdict),
            rank=rank_of(standing.loss, ranked),
            judged=len(standings),
        )


def value_at(ledger: Ledger, trial: Trial, rung: int) -> float:
    """Return a trial's value at a rung it has passed, over the replicates that did not diverge."""
    return ledger.objective.aggregate([run.rung_values[rung] for run in _counting(trial)])


def _report(ledger: Ledger, trial: Trial, rung: int, schedule: Schedule) -> None:
    """Note what a trial shows at a rung."""
    value, extras = value_at(ledger, trial, rung), []
    if not ledger.objectives.is_plain:
        steps = schedule.env_steps_at(rung) * len(trial.runs) * ledger.study.spread
        costs = {**trial.costs(), "env_steps": float(steps)}
        rows = [run.rung_extras[rung] for run in _counting(trial)]
        extras = ledger.objectives.aggregate(rows, costs)
    trial.report(value, schedule.env_steps_at(rung))
    trial.report_extras(extras, ledger.objectives.limited(extras))


def _counting(trial: Trial) -> list[Run]:
    return [run for run in trial.runs_of(Stream.SEARCH) if run.state is not RunState.DIVERGED]


def _cutoff(ledger: Ledger, verdict: Verdict) -> float | None:
    """Return the value that had to be reached; of a trial that is through it is its own."""
    if verdict.finish and verdict.cutoff is not None:
        return ledger.objective.loss(verdict.cutoff)
    return cutoff_value(ledger, verdict.cutoff)


def _carry_out(ledger: Ledger, trial: Trial, rung: int, verdict: Verdict) -> str:
    if not verdict.stop:
        return "continue"
    if verdict.pause:
        if not any(run.is_live for run in trial.runs):  # it has cost all that it may cost
            return "continue"
        ledger.pause(trial, verdict.rule)
        return "pause"
    spec = ledger.study.early_terminate
    audited = spec is not None and is_audited(ledger.study.seed, trial.number, spec.audit)
    trial.stop_by(verdict.rule, audited)
    if audited:
        return "audit"
    if verdict.finish:  # its runs are over with what they showed here; `settle` ends it
        for run in _counting(trial):
            run.end_at(rung)
        return "finish"
    ledger.end(trial, TrialState.STOPPED)
    return "stop"
