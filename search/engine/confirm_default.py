"""The default configuration beside the winner, on the very seeds that chose nothing.

Whether a search was worth its env steps is asked of the default. That is trial 0, however its run
in the search ended. Where trial 0 was never proposed, or copied another trial on its way, a trial
is made for it: REFERENCE, which was not in the search and has no place among what was.
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
from ..book.runs import RunState
from ..book.trials import Trial
from ..lanes.contract import Resolved
from .confirm_resume import Fresh

__all__ = ["BucketOf", "default_beside", "end_default", "start_default"]

BucketOf = Callable[[Resolved, int], Bucket]
"""Gives the bucket of a configuration, of which a trial is an example; made if there is none."""


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
    state.admit(trial)
    if trial.number not in state.candidates:
        trial.forget_lack()
    ledger.touch(trial)
    try:
        resolved = ledger.resolved_of(trial.number)
        bucket = bucket_of(resolved, trial.number)
    except ConfigError as error:
        trial.lack(str(error))
        return False
    trial.join(bucket.key)
    runs = fresh.runs(trial.number, Stream.REPORT, confirm.report)
    own = [run for run in runs if run.is_live]
    left = env_steps_left(ledger.study, state.usage)
    needed = len(own) * bucket.schedule.env_steps * ledger.study.spread
    if before and left < before + needed:
        return False
    trial.add(runs)
    bucket.enqueue(own)
    state.measure_default(trial.number)
    return True


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


def end_default(ledger: Ledger) -> None:
    """Take the values of the default; none where the budget cut it, which its row says."""
    if ledger.state.default is None:
        return
    trial = ledger.trials[ledger.state.default]
    runs = trial.runs_of(Stream.REPORT)
    lost = sum(run.state is not RunState.ENDED for run in runs)
    if lost:
        trial.lack(f"{lost} of {len(runs)} report seeds gave no value")
    if not any(run.state is RunState.CUT for run in runs):
        trial.prove()
    ledger.touch(trial)
