"""The confirm stage: the best trials on fresh seeds, the winner on seeds that chose nothing.

Choosing the best of several on the seeds that found them flatters it; so the `choose` seeds only
choose, and the number to believe comes from the `report` seeds. Several objectives have a front
and no winner: the best places run on the `choose` seeds and form the front anew. The default
runs on the `report` seeds, too, and where there is no winner on the `choose` seeds; so do the
trials that the study names (`confirm_report.py`).

What a seed showed once is never run again and never forgotten: a trial that has all seeds which
choose from an earlier stage stands beside the new candidates, and one that ran on seeds that
report keeps their values, whoever wins now.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import counted
from ...store.leaderboard import seeds_that_choose
from ...store.rows import REFERENCE_TRIAL, Stream, TrialState
from ...store.statistics import mean
from ..book.buckets import Bucket
from ..book.ledger import Ledger
from ..book.runs import Run, RunState
from ..book.state import Phase
from ..book.trials import Trial
from .confirm_report import (
    BucketOf,
    default_beside,
    end_report,
    start_asked,
    start_default,
    start_winner,
)
from .confirm_resume import Fresh
from .settle import Policies, in_lanes

__all__ = ["advance_phase", "begin_confirm", "first_confirmed"]


def begin_confirm(
    ledger: Ledger, buckets: Mapping[str, Bucket], fresh: Fresh, bucket_of: BucketOf
) -> None:
    """Leave the search: run the best finished trials on the seeds that choose.

    Those that ran on all of these before stand beside them. With several objectives the default
    does, too.

    Args:
        ledger: trials and state.
        buckets: whose lanes run them.
        fresh: seeds that ran when the study was confirmed before, which do not run again.
        bucket_of: that of the default configuration, which may have had no lanes yet.
    """
    confirm, state = ledger.study.confirm, ledger.state
    _look(ledger)
    finished = [
        trial
        for trial in ledger.trials.values()
        if trial.state is TrialState.FINISHED and trial.value is not None
    ]
    finished = ledger.order(finished)
    if confirm is None or not finished or min(confirm.top_k, confirm.choose) < 1:
        _leave(ledger, fresh, bucket_of)
        return
    best = finished[: confirm.top_k]
    best += [
        trial
        for number, trial in sorted(ledger.trials.items())
        if trial not in best and fresh.has_all(number, Stream.CHOOSE, confirm.choose)
    ]
    best += default_beside(ledger, best, bucket_of)
    state.choose([trial.number for trial in best])
    for trial in best:
        state.admit(trial)
        trial.leave()  # a study resumed here has none of the search's replicates
        trial.forget_lack()
        _start(trial, Stream.CHOOSE, confirm.choose, buckets[trial.bucket], fresh)


def advance_phase(
    ledger: Ledger,
    buckets: Mapping[str, Bucket],
    policies: Policies,
    fresh: Fresh,
    bucket_of: BucketOf,
) -> None:
    """Go on to the next phase if all replicates of this one have ended.

    Args:
        ledger: trials and state.
        buckets: whose lanes run them.
        policies: takes the winner's.
        fresh: seeds that ran when the study was confirmed before.
        bucket_of: that of the default configuration, which may have had no lanes yet.
    """
    state = ledger.state
    if state.phase is Phase.REPORT:
        _keep_policy(ledger, buckets, policies)
    if any(run.is_live for trial in state.live.values() for run in trial.runs):
        return
    if state.phase is Phase.CHOOSE:
        _end_choose(ledger, fresh, bucket_of)
    elif state.phase is Phase.REPORT:
        _end_report(ledger, fresh, bucket_of)
    elif not state.asked:  # reopened for them
        _look(ledger)
        _leave(ledger, fresh, bucket_of)
    else:
        for number in state.asked:
            end_report(ledger, ledger.trials[number])
        _look(ledger)
        state.close()


def _leave(ledger: Ledger, fresh: Fresh, bucket_of: BucketOf) -> None:
    """Let the trials run that the study names, or have nothing left to do."""
    if not start_asked(ledger, bucket_of, fresh):
        ledger.state.close()


def _start(trial: Trial, stream: Stream, seeds: int, bucket: Bucket, fresh: Fresh) -> None:
    runs = fresh.runs(trial.number, stream, seeds)
    trial.add(runs)
    bucket.enqueue(run for run in runs if run.is_live)


def _end_choose(ledger: Ledger, fresh: Fresh, bucket_of: BucketOf) -> None:
    """Take the values of the seeds that choose, and let the winner run the others.

    A candidate that has not a value on every seed is not confirmed: on fewer seeds it would be
    compared with others that had a harder task. Where an error cost it that, the others go on;
    where the budget cut it, nobody was chosen. What an earlier confirmation showed stays.
    """
    state, confirm = ledger.state, ledger.study.confirm
    candidates = [ledger.trials[number] for number in state.candidates]
    out_of_budget = any(_was_cut(trial) and not trial.error for trial in candidates)
    keeps = out_of_budget and any(trial.choose_values for trial in ledger.trials.values())
    whole: list[Trial] = []
    for trial in candidates:
        missing = _missing(trial.runs_of(Stream.CHOOSE))
        trial.lack(missing)
        if not missing and not keeps:
            values = trial.values_of(Stream.CHOOSE)
            trial.choose(values, *ledger.aggregated(trial, Stream.CHOOSE, mean(values)))
            whole.append(trial)
        ledger.touch(trial)
    front = ledger.objectives.others  # which has no winner
    if confirm is None or not whole or out_of_budget or front:
        _leave(ledger, fresh, bucket_of)
        return
    winner = min(whole, key=lambda trial: _best_choice(ledger, trial))
    state.win(winner.number, reports=confirm.report > 0)
    if confirm.report:
        needed = start_winner(ledger, winner, bucket_of, fresh)
        start_default(ledger, bucket_of, fresh, needed)
    else:
        _leave(ledger, fresh, bucket_of)


def _best_choice(ledger: Ledger, trial: Trial) -> tuple[float, float, int]:
    """Sort candidates of one objective: those that keep the constraints first."""
    excess = ledger.violation(trial.choose_constraints)
    return (excess, ledger.objective.loss(mean(trial.choose_values)), trial.number)


def first_confirmed(ledger: Ledger) -> Trial | None:
    """Return who was best on the seeds that choose, of those that have a value on all of them."""
    seeds = seeds_that_choose(ledger.trials.values())
    confirmed = [t for t in ledger.trials.values() if seeds and len(t.choose_values) == seeds]
    return min(confirmed, key=lambda trial: _best_choice(ledger, trial), default=None)


def _look(ledger: Ledger) -> None:
    """Note what the test seeds show now: whoever adds to them looks again (`store.looks`)."""
    winner = first_confirmed(ledger)
    is_default = winner is None or winner.number in (0, REFERENCE_TRIAL)
    ledger.note_looks(None if is_default or winner is None else winner.number)


def _end_report(ledger: Ledger, fresh: Fresh, bucket_of: BucketOf) -> None:
    """Take the values of the seeds that report."""
    state = ledger.state
    if state.winner is None:
        _leave(ledger, fresh, bucket_of)
        return
    winner = ledger.trials[state.winner]
    if not _was_cut(winner) and start_default(ledger, bucket_of, fresh):
        return  # it had to wait, or an earlier version began this phase without it
    end_report(ledger, winner)
    if state.default is not None:
        end_report(ledger, ledger.trials[state.default])
    _look(ledger)
    _leave(ledger, fresh, bucket_of)


def _keep_policy(ledger: Ledger, buckets: Mapping[str, Bucket], policies: Policies) -> None:
    """Keep the winner's policy at the boundary where the last of its replicates ends."""
    if ledger.state.winner is None:
        return
    winner = ledger.trials[ledger.state.winner]
    runs = winner.runs_of(Stream.REPORT)
    still_there = in_lanes(runs)
    if still_there and not any(run.is_live for run in runs):
        policies.export(ledger, buckets[winner.bucket], still_there[0])


def _was_cut(trial: Trial) -> bool:
    confirming = (*trial.runs_of(Stream.CHOOSE), *trial.runs_of(Stream.REPORT))
    return any(run.state is RunState.CUT for run in confirming)


def _missing(runs: list[Run]) -> str:
    """Return in words which seeds that choose have no value, or nothing if all have one."""
    lost = sum(run.state is not RunState.ENDED for run in runs)
    return f"{lost} of {counted(len(runs), 'selection seed')} gave no value" if lost else ""
