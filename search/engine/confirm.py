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

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import ConfigError, counted
from ...store.codec import plain_json
from ...store.leaderboard import seeds_that_choose
from ...store.rows import REFERENCE_TRIAL, Stream, TrialState
from ...store.statistics import mean
from ...store.study_store import StudyStore
from ...studies.study_keys import COSTS
from ..analysis.checkpoint_values import result_of
from ..lanes.contract import Resolved
from ..state.buckets import Bucket
from ..state.budget import env_steps_left
from ..state.loop_state import Phase
from ..state.search_state import Ledger
from ..state.trials import Run, RunState, Trial
from .evaluate import CurveSink
from .finish_trials import Policies, in_lanes

Replicate = tuple[int, Stream, int]
"""(trial, stream, replicate)"""


@dataclass(frozen=True)
class Fresh:
    """What the journal knew of fresh seeds when the study began or went on.

    Attributes:
        ended: replicates that ran to their end: the metric there, the extras, and the score on
            each of several environments.
        reached: training env steps up to which the curve of a replicate is written.
        diverged: replicates whose trial was reported with them, as diverged.
    """

    ended: Mapping[Replicate, tuple[float, list[float], list[float]]] = field(default_factory=dict)
    reached: Mapping[Replicate, int] = field(default_factory=dict)
    diverged: Collection[Replicate] = ()

    def runs(self, trial: int, stream: Stream, seeds: int) -> list[Run]:
        """Return the replicates of a trial on fresh seeds; those seen before are over."""
        return [self._run(trial, stream, replicate) for replicate in range(seeds)]

    def has_all(self, trial: int, stream: Stream, seeds: int) -> bool:
        """Return whether a trial has a value on each of so many fresh seeds."""
        return all((trial, stream, replicate) in self.ended for replicate in range(seeds))

    def _run(self, trial: int, stream: Stream, replicate: int) -> Run:
        seen = self.ended.get((trial, stream, replicate))
        if seen is None:
            lost = (trial, stream, replicate) in self.diverged
            state = RunState.DIVERGED if lost else RunState.WAITING
            return Run(trial, stream, replicate, state)
        value, extras, scores = seen
        state = RunState.ENDED
        return Run(trial, stream, replicate, state, value=value, extras=extras, scores=scores)

    def only_new(self, curves: CurveSink, cut: bool = False) -> CurveSink:
        """Return a sink that keeps rows of a curve from being written a second time.

        Args:
            curves: takes the others.
            cut: what is cut may run again in this life of the study.
        """
        return _OnlyNew(curves, dict(self.reached)) if self.reached or cut else curves


class _OnlyNew:
    """A `CurveSink` that drops what is written already; see `Fresh.only_new`."""

    def __init__(self, to: CurveSink, reached: dict[Replicate, int]):
        self._to, self._reached = to, reached

    def add_chunk(
        self,
        trials: Sequence[int],
        streams: Sequence[Stream],
        replicates: Sequence[int],
        env_steps: Sequence[int],
        metrics: dict[str, np.ndarray],
    ) -> None:
        """See `CurveSink`."""
        keys = list(zip(trials, streams, replicates, strict=True))
        new = [
            row
            for row, (key, at) in enumerate(zip(keys, env_steps, strict=True))
            if at > self._reached.get(key, 0)
        ]
        for row in new:
            if streams[row] is not Stream.SEARCH:
                self._reached[keys[row]] = env_steps[row]
        self._to.add_chunk(
            [trials[row] for row in new],
            [streams[row] for row in new],
            [replicates[row] for row in new],
            [env_steps[row] for row in new],
            {name: values[new] for name, values in metrics.items()},
        )


def read_fresh(ledger: Ledger, store: StudyStore) -> Fresh:
    """Read what the last commit knows; nothing where nothing is confirmed."""
    if ledger.study.confirm is None or store.created:
        return Fresh()
    ended: dict[Replicate, tuple[float, list[float], list[float]]] = {}
    for packed in store.journal.packed_evaluations(without=Stream.SEARCH):
        found = result_of(packed)
        key = (packed.trial, Stream(packed.stream), packed.replicate)
        value, scores = ledger.objective.seen(found)
        ended[key] = value, ledger.objectives.measure(found), scores
    reached = {
        (trial, Stream(stream), replicate): at
        for (trial, stream, replicate), at in store.curves.reached(Stream.SEARCH).items()
    }
    diverged = {
        (number, Stream.REPORT, replicate)
        for number, trial in ledger.trials.items()
        for replicate in trial.report_diverged
    }
    return Fresh(ended, reached, diverged)


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
    """Note what the test seeds show now: the next look counts them (`store.interim_analyses`)."""
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
