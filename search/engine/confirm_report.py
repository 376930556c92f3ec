"""Who runs on the test seeds, which select nothing: the winner, the default, who is asked for.

Whether a search was worth its env steps is asked of the default. That is trial 0, however its run
in the search ended. Where trial 0 was never proposed, or copied another trial on its way, a trial
is made for it: REFERENCE, which was not in the search and has no place among what was.

Trials that `confirm.also` names run last, on as many of these seeds as it says and in full,
whatever became of them in the search. No budget bounds them: somebody asked for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import ConfigError
from ...store.codec import plain_json
from ...store.rows import REFERENCE_TRIAL, Stream, TrialState
from ...studies.metrics import COSTS
from ..book.buckets import Bucket
from ..book.budget import env_steps_left
from ..book.ledger import Ledger
from ..book.runs import Run, RunState
from ..book.trials import Trial
from ..lanes.contract import Resolved
from .confirm_resume import Fresh

__all__ = [
    "BucketOf",
    "default_beside",
    "end_report",
    "start_asked",
    "start_default",
    "start_winner",
]

_LACKS_REPORT = "report seeds gave no value"

BucketOf = Callable[[Resolved, int], Bucket]
"""Gives the bucket of a configuration, of which a trial is an example; made if there is none."""


def start_winner(ledger: Ledger, trial: Trial, bucket_of: BucketOf, fresh: Fresh) -> int:
    """Let the winner run on the report seeds; return the env steps that it has to run there.

    Args:
        ledger: trials and state.
        trial: the winner.
        bucket_of: gives its bucket.
        fresh: what it need not run again.
    """
    confirm = ledger.study.confirm
    place = None if confirm is None else _place(ledger, trial, bucket_of)
    if confirm is None or place is None:
        return 0
    runs = fresh.runs(trial.number, Stream.REPORT, trial.report_seeds(confirm.report))
    _enter(trial, runs, place)
    return _cost(ledger, runs, place)


def start_default(ledger: Ledger, bucket_of: BucketOf, fresh: Fresh, before: int = 0) -> bool:
    """Let the default configuration run on the seeds that report; return whether it begins to.

    It does not where the study leaves it out, where it is the winner, where it runs already, and
    where no program can run it; its row says why then. Where the budget does not pay for both it
    begins when the winner has ended.

    Args:
        ledger: trials and state.
        bucket_of: gives its bucket.
        fresh: what it need not run again.
        before: env steps that the winner has still to run.
    """
    state, confirm = ledger.state, ledger.study.confirm
    if confirm is None or not (confirm.default and confirm.report):
        return False
    if state.winner is None or state.default is not None:
        return False
    trial = _default(ledger)
    if trial is None or trial.number == state.winner:
        return False
    if trial.number not in state.candidates:
        trial.leave()
        trial.forget_lack()
    place = _place(ledger, trial, bucket_of)
    if place is None:
        return False
    runs = fresh.runs(trial.number, Stream.REPORT, trial.report_seeds(confirm.report))
    left = env_steps_left(ledger.study, state.usage)
    if before and left < before + _cost(ledger, runs, place):
        return False
    _enter(trial, runs, place)
    state.measure_default(trial.number)
    return True


def start_asked(ledger: Ledger, bucket_of: BucketOf, fresh: Fresh) -> bool:
    """Let the trials that the study names run on test seeds; return whether it names any.

    A trial that nobody proposed is passed over, and one that failed: no program runs it.

    Args:
        ledger: trials and state.
        bucket_of: gives their buckets.
        fresh: what they need not run again.
    """
    state, confirm = ledger.state, ledger.study.confirm
    asked: dict[int, tuple[Trial, int]] = {}
    for number, seeds in () if confirm is None else confirm.also:
        trial = _default(ledger) if number == REFERENCE_TRIAL else ledger.trials.get(number)
        if trial is not None and trial.state is not TrialState.FAILED:
            more = asked.get(trial.number, (trial, 0))[1]
            asked[trial.number] = trial, max(seeds, more)
    if not asked:
        return False
    state.ask_for(sorted(asked))
    for trial, seeds in asked.values():
        over = {run.replicate: run for run in trial.runs_of(Stream.REPORT) if _is_over(run)}
        trial.leave()
        if trial.number not in state.candidates or trial.error.endswith(_LACKS_REPORT):
            trial.forget_lack()
        place = _place(ledger, trial, bucket_of)
        if place is not None:
            runs = fresh.runs(trial.number, Stream.REPORT, trial.report_seeds(seeds))
            _enter(trial, [over.get(run.replicate, run) for run in runs], place)
    return True


def _is_over(run: Run) -> bool:
    """Return whether a replicate ran to its end in this phase or the one before."""
    return run.state in (RunState.ENDED, RunState.DIVERGED)


def _place(ledger: Ledger, trial: Trial, bucket_of: BucketOf) -> Bucket | None:
    """Admit a trial; return its bucket, None where no program can run it, which its row says."""
    ledger.state.admit(trial)
    ledger.touch(trial)
    try:
        bucket = bucket_of(ledger.resolved_of(trial.number), trial.number)
    except ConfigError as error:
        trial.lack(str(error))
        return None
    trial.join(bucket.key)
    return bucket


def _enter(trial: Trial, runs: Sequence[Run], bucket: Bucket) -> None:
    trial.add(runs)
    bucket.enqueue(run for run in runs if run.is_live)


def _cost(ledger: Ledger, runs: Sequence[Run], bucket: Bucket) -> int:
    live = sum(run.is_live for run in runs)
    return live * bucket.schedule.env_steps * ledger.study.spread


def default_beside(ledger: Ledger, best: Sequence[Trial], bucket_of: BucketOf) -> list[Trial]:
    """Return the default where it is to run beside the front on the seeds that choose; else none.

    These seeds chose none of the trials that run on them, so they are fair to all. Nothing runs
    where the study leaves the default out, it is among the best, no program can run it, or an
    objective is a cost, which a trial that was stopped has not paid in full.

    Args:
        ledger: trials and state, still in the search.
        best: the trials to confirm.
        bucket_of: gives its bucket.
    """
    confirm = ledger.study.confirm
    if not ledger.objectives.others or confirm is None or not confirm.default:
        return []
    trial = _default(ledger)
    if trial is None or trial in best:
        return []
    costs = {objective.metric.name for objective in ledger.objectives.others} & set(COSTS)
    if costs and trial.state is not TrialState.FINISHED:
        trial.lack(f"{', '.join(sorted(costs))} of a run that was not finished says nothing")
        ledger.touch(trial)
        return []
    try:
        bucket = bucket_of(ledger.resolved_of(trial.number), trial.number)
    except ConfigError as error:
        trial.lack(str(error))
        ledger.touch(trial)
        return []
    trial.join(bucket.key)
    return [trial]


def _default(ledger: Ledger) -> Trial | None:
    """Return the trial that is the default configuration; None where it failed."""
    first = ledger.trials.get(0)
    if first is not None and not first.schedule:
        return None if first.state is TrialState.FAILED else first
    known = ledger.trials.get(REFERENCE_TRIAL)
    if known is not None:
        return known
    params = plain_json(ledger.study.space.default())
    made = Trial(REFERENCE_TRIAL, params, "default", batch=-1, state=TrialState.REFERENCE)
    ledger.add(made)
    return made


def end_report(ledger: Ledger, trial: Trial) -> None:
    """Take the values of the report seeds; none where one of them was cut, which its row says."""
    runs = trial.runs_of(Stream.REPORT)
    lost = sum(run.state is not RunState.ENDED for run in runs)
    if lost:
        trial.lack(f"{lost} of {len(runs)} {_LACKS_REPORT}")
    if runs and not any(run.state is RunState.CUT for run in runs):
        trial.prove()
    ledger.touch(trial)
