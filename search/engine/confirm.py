"""The confirm stage: the best trials on fresh seeds, the winner on seeds that chose nothing.

Choosing the best of several on the seeds that found them flatters it; so the `choose` seeds only
choose, and the number to believe comes from the `report` seeds. Several objectives have a front
and no winner: the best places run on the `choose` seeds and form the front anew. The default
runs on the `report` seeds, too, and where there is no winner on the `choose` seeds
(`confirm_default.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...store.rows import REFERENCE_TRIAL, Stream, TrialState
from ...store.statistics import mean
from ...studies.spec import Confirm
from ..book.buckets import Bucket
from ..book.ledger import Ledger
from ..book.runs import Run, RunState
from ..book.state import Phase
from ..book.trials import Trial
from .confirm_default import BucketOf, default_beside, end_default, start_default
from .confirm_resume import Fresh
from .settle import Policies, in_lanes

__all__ = ["advance_phase", "begin_confirm", "first_confirmed"]


def begin_confirm(
    ledger: Ledger, buckets: Mapping[str, Bucket], fresh: Fresh, bucket_of: BucketOf
) -> None:
    """Leave the search: run the best finished trials on the seeds that choose.

    With several objectives the default runs beside them.

    Args:
        ledger: trials and state.
        buckets: whose lanes run them.
        fresh: seeds that ran when the study was confirmed before, which do not run again.
        bucket_of: that of the default configuration, which may have had no lanes yet.
    """
    confirm, state = ledger.study.confirm, ledger.state
    finished = [
        trial
        for trial in ledger.trials.values()
        if trial.state is TrialState.FINISHED and trial.value is not None
    ]
    finished = ledger.order(finished)
    if confirm is None or not finished or min(confirm.top_k, confirm.choose) < 1:
        state.close()
        return
    best = finished[: confirm.top_k]
    best += default_beside(ledger, best, bucket_of)
    state.choose([trial.number for trial in best])
    for trial in best:
        state.admit(trial)
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
        _end_choose(ledger, buckets, fresh, bucket_of)
    elif state.phase is Phase.REPORT:
        _end_report(ledger, fresh, bucket_of)


def _start(trial: Trial, stream: Stream, seeds: int, bucket: Bucket, fresh: Fresh) -> None:
    runs = fresh.runs(trial.number, stream, seeds)
    trial.add(runs)
    bucket.enqueue(run for run in runs if run.is_live)


def _end_choose(
    ledger: Ledger, buckets: Mapping[str, Bucket], fresh: Fresh, bucket_of: BucketOf
) -> None:
    """Take the values of the seeds that choose, and let the winner run the others.

    A candidate that has not a value on every seed is not confirmed: on fewer seeds it would be
    compared with others that had a harder task. Where an error cost it that, the others go on;
    where the budget cut it, nobody was chosen, and what an earlier confirmation showed stays.
    """
    state, confirm = ledger.state, ledger.study.confirm
    candidates = [ledger.trials[number] for number in state.candidates]
    confirmed = [trial for trial in ledger.trials.values() if trial.choose_values]
    out_of_budget = any(_was_cut(trial) and not trial.error for trial in candidates)
    keeps = out_of_budget and bool(confirmed)
    for trial in candidates:
        missing = _missing(trial.runs_of(Stream.CHOOSE), "choose")
        trial.lack(missing)
        if not keeps:
            _choose(ledger, trial, () if missing else trial.values_of(Stream.CHOOSE))
        ledger.touch(trial)
    if keeps:
        state.close()
        return
    for trial in confirmed:
        if trial.number not in state.candidates:
            trial.unchoose()
            ledger.touch(trial)
    whole = [trial for trial in candidates if trial.choose_values]
    if confirm is None or not whole or out_of_budget:
        state.close()
        return
    if ledger.objectives.others:  # a front has no winner
        state.close()
        return
    winner = min(whole, key=lambda trial: _best_choice(ledger, trial))
    state.win(winner.number, reports=confirm.report > 0)
    _unprove_others(ledger, confirm, winner)
    if confirm.report:
        bucket = buckets[winner.bucket]
        _start(winner, Stream.REPORT, confirm.report, bucket, fresh)
        live = sum(run.is_live for run in winner.runs)
        needed = live * bucket.schedule.env_steps * ledger.study.spread
        start_default(ledger, bucket_of, fresh, needed)


def _unprove_others(ledger: Ledger, confirm: Confirm, winner: Trial) -> None:
    """Forget what an earlier confirmation proved of others than the winner and the default."""
    kept = {winner.number} if confirm.report else set[int]()
    if confirm.report and confirm.default:
        kept |= {0, REFERENCE_TRIAL}
    for trial in ledger.trials.values():
        if trial.number not in kept and (trial.report_values or trial.report_diverged):
            trial.unprove()
            ledger.touch(trial)


def _choose(ledger: Ledger, trial: Trial, values: tuple[float, ...]) -> None:
    """Take what the seeds that choose gave, nothing where one has no value."""
    if values:
        trial.choose(values, *ledger.aggregated(trial, Stream.CHOOSE, mean(values)))
    else:
        trial.choose(())


def _best_choice(ledger: Ledger, trial: Trial) -> tuple[float, float, int]:
    """Sort candidates of one objective: those that keep the constraints first."""
    excess = ledger.violation(trial.choose_constraints)
    return (excess, ledger.objective.loss(mean(trial.choose_values)), trial.number)


def first_confirmed(ledger: Ledger) -> Trial | None:
    """Return who was best on the seeds that choose, of those that have a value on all of them."""
    confirmed = [trial for trial in ledger.trials.values() if trial.choose_values]
    return min(confirmed, key=lambda trial: _best_choice(ledger, trial), default=None)


def _end_report(ledger: Ledger, fresh: Fresh, bucket_of: BucketOf) -> None:
    """Take the values of the seeds that report."""
    state = ledger.state
    if state.winner is None:
        state.close()
        return
    winner = ledger.trials[state.winner]
    whole = not _was_cut(winner)
    if whole and start_default(ledger, bucket_of, fresh):
        return  # it had to wait, or an earlier version began this phase without it
    state.close()
    winner.lack(_missing(winner.runs_of(Stream.REPORT), "report"))
    if whole:
        winner.prove()
    ledger.touch(winner)
    end_default(ledger)


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


def _missing(runs: list[Run], stream: str) -> str:
    """Return in words which fresh seeds have no value, or nothing if all have one."""
    lost = sum(run.state is not RunState.ENDED for run in runs)
    return f"{lost} of {len(runs)} {stream} seeds gave no value" if lost else ""
