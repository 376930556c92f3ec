"""Who goes on at a rung: finds the trials that stand there, asks the rule, writes its verdicts.

A trial is judged at the first boundary where all its replicates have passed the rung, on their
values at the rung; all trials that come to a rung at one boundary are judged together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...store.pareto import scores
from ...store.rows import DecisionRow, Stream, TrialState
from ..book.ledger import Ledger
from ..book.runs import Run, RunState
from ..book.schedule import Schedule
from ..book.trials import Trial
from ..rules.registry import Pruner, is_audited, rank_of
from ..rules.verdict import Standing, Verdict

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
    standings = _standings(ledger, everyone, rung)
    verdicts = pruner.judge(rung, standings[: len(before)], standings[len(before) :])
    ranked = sorted(standing.loss for standing in standings)
    for trial, standing, verdict in zip(due, standings[len(before) :], verdicts, strict=True):
        ledger.touch(trial)
        action = _carry_out(ledger, trial, rung, verdict)
        schedule = schedules[trial.bucket]
        ledger.unwritten.add(
            DecisionRow(
                trial=trial.number,
                rung=rung,
                env_steps=schedule.env_steps_at(rung),
                value=trial.reports[rung],
                action=action,
                rule=verdict.rule,
                cutoff=_cutoff(ledger, verdict),
                rank=rank_of(standing.loss, ranked),
                judged=len(standings),
                extras=tuple(trial.extra_reports[rung]),
            )
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
    trial.report(value)
    trial.report_extras(extras, ledger.objectives.limited(extras))


def _counting(trial: Trial) -> list[Run]:
    return [run for run in trial.runs_of(Stream.SEARCH) if run.state is not RunState.DIVERGED]


def _standings(ledger: Ledger, trials: Sequence[Trial], rung: int) -> list[Standing]:
    """Return how trials stand; with more than one loss, by their places among each other.

    Places are by constrained domination and crowding, see `store.pareto`.
    """
    loss = ledger.objective.loss
    curves = [tuple(map(loss, trial.reports[: rung + 1])) for trial in trials]
    shown = [curve[rung] for curve in curves]
    if not ledger.objectives.is_plain:
        extras = [trial.extra_reports[rung] for trial in trials]
        more = [ledger.objectives.losses(row) for row in extras]
        limited = [ledger.objectives.limited(row) for row in extras]
        shown = scores(
            [(first, *rest) for first, rest in zip(shown, more, strict=True)],
            [ledger.violation(values) for values in limited],
        )
    return [
        Standing(trial.number, own, curve)
        for trial, own, curve in zip(trials, shown, curves, strict=True)
    ]


def _cutoff(ledger: Ledger, verdict: Verdict) -> float | None:
    """Return the value that had to be reached; a place among others is no value."""
    if verdict.cutoff is None or not (ledger.objectives.is_plain or verdict.finish):
        return None
    return ledger.objective.loss(verdict.cutoff)


def _carry_out(ledger: Ledger, trial: Trial, rung: int, verdict: Verdict) -> str:
    if not verdict.stop:
        return "continue"
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
