"""The confirm stage: run the best trials on selection seeds and the winner on test seeds.

Search values are optimistic, because the search seeds selected the trials. The `choose` seeds are
therefore used only for selection; without them, the trial with the best search value wins. The
reported value comes from the `report` seeds. With several objectives, there is a front instead of
a winner: the best trials run on the `choose` seeds, and their results form a new front. The
default also runs on the `report` seeds (with a front, on the `choose` seeds). The trials in
`confirm.also` run on the `report` seeds.

A trial runs on each seed once, and no value is discarded. A trial that ran on all selection seeds
in an earlier stage competes with the new candidates, and test values are kept if the winner
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import ConfigError, counted
from ...store.codec import plain_json
from ...store.interim_analyses import begins_interim, winners_looks
from ...store.leaderboard import default_of, seeds_that_choose
from ...store.rows import REFERENCE_TRIAL, Stream, TrialState
from ...store.statistics import mean
from ...store.study_store import StudyStore
from ...store.verdict import Evidence, conclude
from ...studies.search_spec import Confirm
from ...studies.study_keys import COSTS
from ..lanes.contract import Resolved
from ..state.buckets import Bucket
from ..state.budget import env_steps_left, reserve
from ..state.loop_state import Phase
from ..state.progress import bounds_of
from ..state.search_state import SearchState
from ..state.trials import Replicate, RunState, Trial, any_live, in_state
from .evaluate import AddRows
from .finish_trials import KeptPolicies, in_lanes

ReplicateKey = tuple[int, Stream, int]  # (trial, stream, replicate)
BucketOf = Callable[[Resolved, int], Bucket]
"""Returns the bucket of a configuration, and creates it for the first trial."""
_OF_REPORT = "report seed"


def _pick_rows(column: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    return [column[row] for row in rows]


@dataclass(frozen=True)
class Fresh:
    """Results of the confirm stage that were in the journal when the study started or resumed."""

    # finished replicates: metric, extras, scores per environment
    ended: Mapping[ReplicateKey, tuple[float, list[float], list[float]]] = field(
        default_factory=dict
    )
    reached: Mapping[ReplicateKey, int] = field(default_factory=dict)  # env steps with a curve
    diverged: Collection[ReplicateKey] = ()

    def runs(self, trial: int, stream: Stream, seeds: int) -> list[Replicate]:
        """Return a trial's replicates on new seeds, marked as ended if their results are known."""
        runs: list[Replicate] = []
        for key in ((trial, stream, replicate) for replicate in range(seeds)):
            if key in self.ended:
                value, extras, scores = self.ended[key]
                state = RunState.ENDED
                runs.append(Replicate(*key, state, value=value, extras=extras, scores=scores))
            elif key in self.diverged:
                runs.append(Replicate(*key, RunState.DIVERGED))
            else:
                runs.append(Replicate(*key, RunState.WAITING))
        return runs

    def has_all(self, trial: int, stream: Stream, seeds: int) -> bool:
        return all((trial, stream, replicate) in self.ended for replicate in range(seeds))

    def only_new(self, add_rows: AddRows, cut: bool = False) -> AddRows:
        """Return an `add_rows` that skips rows that are already written."""
        reached = dict(self.reached)

        def add(*, metrics: Mapping[str, np.ndarray], **rows: Any) -> None:
            keys = zip(rows["trials"], rows["streams"], rows["replicates"], strict=True)
            ends = list(zip(keys, rows["env_steps"], strict=True))
            new = [row for row, (key, at) in enumerate(ends) if at > reached.get(key, 0)]
            fresh = (ends[row] for row in new)
            reached.update((key, at) for key, at in fresh if key[1] is not Stream.SEARCH)
            left = {name: _pick_rows(column, new) for name, column in rows.items()}
            add_rows(**left, metrics={name: values[new] for name, values in metrics.items()})

        if reached or cut:
            return add
        return add_rows


def read_fresh(search_state: SearchState, store: StudyStore) -> Fresh:
    if search_state.study.confirm is None or store.created:
        return Fresh()
    ended: dict[ReplicateKey, tuple[float, list[float], list[float]]] = {}
    for row in store.journal.evaluations(without=Stream.SEARCH):
        value, scores = search_state.objective.on(row.stream).value_and_scores(row)
        key = (row.trial, row.stream, row.replicate)
        ended[key] = value, search_state.objectives.measure(row), scores
    reached = {
        (trial, Stream(stream), replicate): at
        for (trial, stream, replicate), at in store.curves.reached(Stream.SEARCH).items()
    }
    diverged = {
        (number, Stream.REPORT, replicate)
        for number, trial in search_state.trials.items()
        for replicate in trial.report_diverged
    }
    diverged |= {one.key for one in search_state.state.lost}
    diverged -= {one.key for one in search_state.state.lost if one.failed}
    return Fresh(ended, reached, diverged)


class ConfirmStage:
    """The confirm stage of one study."""

    def __init__(
        self,
        search_state: SearchState,
        buckets: Mapping[str, Bucket],
        policies: KeptPolicies,
        fresh: Fresh,
        bucket_of: BucketOf,
    ):
        self._search_state, self._state = search_state, search_state.state
        self._confirm = search_state.study.confirm
        self._buckets, self._policies = buckets, policies
        self._fresh, self._bucket_of = fresh, bucket_of

    def _finalists(self, finished: Sequence[Trial], confirm: Confirm) -> list[Trial]:
        """Return the best trials, any with all selection results and, for a front, the default."""
        best = [*finished[: confirm.top_k]]
        best += [
            trial
            for number, trial in sorted(self._search_state.trials.items())
            if trial not in best and self._fresh.has_all(number, Stream.CHOOSE, confirm.choose)
        ]
        return [*best, *self._default_of_front(best)]

    def begin(self) -> None:
        """End the search, and start its best finished trials on the selection seeds."""
        search_state, confirm = self._search_state, self._confirm
        self._record_look()
        over = (t for t in search_state.trials.values() if t.state is TrialState.FINISHED)
        finished = search_state.order(trial for trial in over if trial.value is not None)
        if confirm is None or not finished or confirm.top_k < 1:
            self._close_if_done()
            return
        if not confirm.choose:
            self._test_best_of_search(finished)
            return
        best = self._finalists(finished, confirm)
        runs = {
            trial.number: self._fresh.runs(trial.number, Stream.CHOOSE, confirm.choose)
            for trial in best
        }
        if not self._pays_for(best, runs):
            self._close_if_done()
            return
        self._state.choose([trial.number for trial in best])
        for trial in best:
            self._state.admit(trial)
            trial.leave()  # a study resumed at this point has none of the search's replicates
            trial.forget_lack()
            _enqueue_runs(trial, runs[trial.number], self._buckets[trial.bucket])

    def _test_best_of_search(self, finished: Sequence[Trial]) -> None:
        """Start the test without a selection stage; earlier selection results still count."""
        winner = finished[0]
        if seeds_that_choose(self._search_state.trials.values()) > 0:
            winner = first_confirmed(self._search_state) or winner
        self._state.choose([winner.number])
        winner.leave()  # a study resumed at this point has none of the search's replicates
        winner.forget_lack()
        self._start_test(winner)

    def _pays_for(self, best: Sequence[Trial], runs: Mapping[int, Sequence[Replicate]]) -> bool:
        """Return whether the budget covers these selection seeds; if not, note this in the rows.

        A search reserves the cost of its selection seeds, but a finished study may request more
        seeds than its remaining budget covers. An incomplete set of seeds cannot select a winner.
        """
        search_state = self._search_state
        cost = sum(
            self._env_steps_needed(runs[one.number], self._buckets[one.bucket]) for one in best
        )
        longest = max(bucket.schedule.env_steps for bucket in self._buckets.values())
        kept = reserve(search_state.study, Phase.CHOOSE, longest)
        if not cost or cost + kept <= env_steps_left(search_state.study, self._state.usage):
            return True
        for trial in best:
            waiting = sum(run.is_live for run in runs[trial.number])
            if waiting:
                seeds = counted(len(runs[trial.number]), "selection seed")
                trial.lack(
                    f"{waiting} of {seeds} did not start: budget.env_steps does not cover them"
                )
                search_state.touch(trial)
        return False

    def advance(self) -> None:
        """Enter the next phase if all replicates of the current one have ended."""
        state = self._state
        if state.phase is Phase.REPORT:
            self._keep_policy()
        if any(run.is_live for trial in state.live.values() for run in trial.runs):
            return
        if state.phase is Phase.CHOOSE:
            self._end_choose()
        elif state.phase is Phase.REPORT:
            self._end_report()
        elif not state.asked:  # reopened for these trials
            self._record_look()
            self._close_if_done()
        else:
            for number in state.asked:
                self._take_report(number)
            self._record_look()
            state.close()

    def _close_if_done(self) -> None:
        if not self._start_asked():
            self._state.close()

    def _end_choose(self) -> None:
        """Store the selection values, and start the winner on the test seeds.

        A candidate that lacks a value on some seed is not confirmed, because candidates must be
        compared on the same seeds. If the cause was an error, the other candidates continue; if it
        was the budget, no winner is selected. Earlier results are kept.
        """
        search_state, state, confirm = self._search_state, self._state, self._confirm
        candidates = [search_state.trials[number] for number in state.candidates]
        out_of_budget = any(_was_cut(trial) and not trial.error for trial in candidates)
        keeps = out_of_budget and any(
            trial.choose_values for trial in search_state.trials.values()
        )
        whole: list[Trial] = []
        for trial in candidates:
            missing = self._missing_note(trial.runs_of(Stream.CHOOSE), "selection seed")
            trial.lack(missing)
            if not missing and not keeps:
                values = trial.values_of(Stream.CHOOSE)
                trial.choose(values, *search_state.aggregated(trial, Stream.CHOOSE, mean(values)))
                whole.append(trial)
            search_state.touch(trial)
        front = search_state.objectives.others  # which has no winner
        if confirm is None or not whole or out_of_budget or front:
            self._close_if_done()
            return
        self._start_test(min(whole, key=lambda trial: _best_choice(search_state, trial)))

    def _start_test(self, winner: Trial) -> None:
        """Start the winner and the default on the test seeds, or on the seeds of an interim look.

        There is no interim look without a default, or after an earlier look (at another winner, or
        through `confirm.also`). Too little of the error rate would remain for two more looks.
        """
        confirm, looks = self._confirm, self._search_state.looks
        won = {look.trial for look in looks if look.won}
        again = won == {winner.number} and begins_interim(looks)
        looked = not again and bool(won or winner.by_report_seed)
        if confirm is None or not confirm.report:
            self._state.win(winner.number, reports=False)
            self._close_if_done()
            return
        self._state.win(winner.number, reports=True)
        wanted, interim = confirm.report, confirm.interim
        if looked or not confirm.default:
            interim = None
        if interim is not None and self._default_trial() not in (None, winner):
            wanted = min(interim, wanted)
        runs, bucket = self._on_test_seeds(winner, wanted)
        _enqueue_runs(winner, runs, bucket)
        self._start_default(wanted, after=self._env_steps_needed(runs, bucket))

    def _end_report(self) -> None:
        state, confirm = self._state, self._confirm
        if state.winner is None or confirm is None:
            self._close_if_done()
            return
        winner = self._search_state.trials[state.winner]
        if not _was_cut(winner) and self._start_default(len(winner.runs_of(Stream.REPORT))):
            return  # it had to wait, or an earlier version started this phase without it
        both = [number for number in (state.winner, state.default) if number is not None]
        for number in both:
            self._take_report(number)
        seeds = min(
            len(self._search_state.trials[number].runs_of(Stream.REPORT)) for number in both
        )
        is_interim = seeds < confirm.report and not any(
            _was_cut(self._search_state.trials[number]) for number in both
        )
        self._record_look(is_interim)
        if not is_interim or self._is_clear():
            self._close_if_done()
            return
        for number in both:
            self._run_tests(number, confirm.report)

    def _is_clear(self) -> bool:
        """Return whether an interim look is decisive, or does not favour the winner.

        The look is also decisive if only unseen outcomes prevent a verdict (`unless`) and the
        planned seeds are too few to exclude these outcomes.
        """
        search_state, state, confirm = self._search_state, self._state, self._confirm
        if confirm is None or state.winner is None or state.default is None:
            return False
        if search_state.study.constraints:
            return False  # constraints are tested on all seeds, whatever the values
        both = [search_state.trials[number] for number in (state.winner, state.default)]
        if any(str(Stream.REPORT) in trial.copies for trial in both):
            return True  # further seeds would repeat these results
        winner_values, default_values = (trial.by_report_seed for trial in both)
        shared = len(winner_values.keys() & default_values.keys())
        found = conclude(
            Evidence(
                winner_values,
                default_values,
                goal=search_state.study.metric.goal,
                bounds=bounds_of(search_state.study),
                earlier=winners_looks(search_state.looks, state.winner, state.default, shared),
                interim=begins_interim(search_state.looks),
            )
        ).against
        if found.difference is None or found.pairs < found.seeds:
            return False
        if found.verdict in ("better", "worse") or found.difference <= 0.0:
            return True
        planned = confirm.report - found.seeds
        too_few = found.more_seeds is None or found.more_seeds > planned
        return found.unless is not None and too_few

    def _on_test_seeds(self, trial: Trial, seeds: int) -> tuple[list[Replicate], Bucket | None]:
        """Return a trial's test-seed replicates and its bucket; no replicates if it cannot run."""
        self._state.admit(trial)
        bucket, runs = self._join_bucket(trial), list[Replicate]()
        if bucket is not None:
            runs = self._fresh.runs(trial.number, Stream.REPORT, trial.report_seeds(seeds))
        return runs, bucket

    def _start_default(self, seeds: int, after: int = 0) -> bool:
        """Start the default on the test seeds; return whether it started.

        It does not start if the study omits it, if it is the winner, if it is already running, or
        if no program can run it (its row gives the reason). If the budget does not cover the
        default in addition to the winner's env steps (`after`), the default waits until the winner
        has finished.
        """
        state, confirm = self._state, self._confirm
        if confirm is None or not (confirm.default and confirm.report):
            return False
        if state.winner is None or state.default is not None:
            return False
        trial = self._default_trial()
        if trial is None or trial.number == state.winner:
            return False
        if trial.number not in state.candidates:
            trial.leave()
            if trial.state is not TrialState.DIVERGED:
                trial.forget_lack()
        runs, bucket = self._on_test_seeds(trial, seeds)
        if bucket is None:
            return False
        left = env_steps_left(self._search_state.study, state.usage)
        if after and left < after + self._env_steps_needed(runs, bucket):
            return False
        _enqueue_runs(trial, runs, bucket)
        state.measure_default(trial.number)
        return True

    def _start_asked(self) -> bool:
        """Start the trials in `confirm.also` on test seeds; return whether there are any."""
        asked = dict[int, int]()
        if self._confirm is None:
            return False
        for number, seeds in self._confirm.also:
            trial = self._search_state.trials.get(number)
            if number == REFERENCE_TRIAL:
                trial = self._default_trial()
            if trial is not None and trial.state is not TrialState.FAILED:
                asked[trial.number] = max(seeds, asked.get(trial.number, 0))
        if not asked:
            return False
        self._state.ask_for(sorted(asked))
        for number, seeds in asked.items():
            self._run_tests(number, seeds)
        return True

    def _run_tests(self, number: int, seeds: int) -> None:
        """Run a trial on the test seeds that it has not finished."""
        trial = self._search_state.trials[number]
        over = {
            run.replicate: run
            for run in trial.runs_of(Stream.REPORT)
            if run.state in (RunState.ENDED, RunState.DIVERGED)
        }
        trial.leave()
        of_search = number in self._state.candidates or trial.error.startswith("seed ")
        if not of_search or _OF_REPORT in trial.error:
            trial.forget_lack()
        runs, bucket = self._on_test_seeds(trial, seeds)
        _enqueue_runs(trial, [over.get(run.replicate, run) for run in runs], bucket)

    def _default_of_front(self, best: Sequence[Trial]) -> list[Trial]:
        """Return [default] if the default joins the front on the selection seeds, otherwise [].

        These seeds were not used to select any of the trials that run on them. The default is left
        out if the study omits it, if it is already among the best, or if no program can run it. An
        unfinished default is also left out if an objective is a cost: a full run costs more.
        """
        search_state, confirm = self._search_state, self._confirm
        if not search_state.objectives.others or confirm is None or not confirm.default:
            return []
        trial = self._default_trial()
        if trial is None or trial in best:
            return []
        names = {objective.metric.name for objective in search_state.objectives.others}
        costs = names.intersection(COSTS)
        if costs and trial.state is not TrialState.FINISHED:
            trial.lack(f"{', '.join(sorted(costs))} from an unfinished run cannot be compared")
            search_state.touch(trial)
            return []
        if self._join_bucket(trial) is None:
            return []
        return [trial]

    def _default_trial(self) -> Trial | None:
        """Return the trial with the default configuration; None if it failed."""
        search_state = self._search_state
        first = search_state.trials.get(0)
        if first is not None and not first.schedule:
            return None if first.state is TrialState.FAILED else first
        if REFERENCE_TRIAL not in search_state.trials:
            params, state = plain_json(search_state.study.space.default()), TrialState.REFERENCE
            search_state.add(Trial(REFERENCE_TRIAL, state, "default", -1, "", params))
        return search_state.trials[REFERENCE_TRIAL]

    def _join_bucket(self, trial: Trial) -> Bucket | None:
        """Return a trial's bucket, or None if no program can run it (its row gives the reason)."""
        self._search_state.touch(trial)
        try:
            bucket = self._bucket_of(self._search_state.resolved_of(trial.number), trial.number)
        except ConfigError as error:
            trial.lack(str(error))
            return None
        trial.join(bucket.key)
        return bucket

    def _env_steps_needed(self, runs: Sequence[Replicate], bucket: Bucket | None) -> int:
        if bucket is None:
            return 0
        each = bucket.schedule.env_steps * self._search_state.study.spread
        return sum(run.is_live for run in runs) * each

    def _take_report(self, number: int) -> None:
        """Store the test values; if a seed was cut, store only the reason in the trial's row."""
        trial = self._search_state.trials[number]
        runs = trial.runs_of(Stream.REPORT)
        trial.lack(self._missing_note(runs, _OF_REPORT))
        if runs and not in_state(runs, RunState.CUT):
            trial.prove()
        self._search_state.touch(trial)

    def _missing_note(self, runs: Sequence[Replicate], of: str) -> str:
        """Describe how many seeds have no value, and which limit cut them; "" if all have one."""
        lost, budget = sum(run.state is not RunState.ENDED for run in runs), ""
        if not lost:
            return ""
        if in_state(runs, RunState.CUT):
            bounds = self._search_state.study.budget
            given = {"budget.env_steps": bounds.env_steps, "budget.wall": bounds.wall_seconds}
            ended = " or ".join(name for name, bound in given.items() if bound is not None)
            budget = f": {ended} ran out"
        return f"{lost} of {counted(len(runs), of)} returned no value{budget}"

    def _record_look(self, interim: bool = False) -> None:
        winner, number = first_confirmed(self._search_state), None
        is_default = winner is default_of([*self._search_state.trials.values()])
        if winner is not None and not is_default:
            number = winner.number
        self._search_state.note_looks(number, interim)

    def _keep_policy(self) -> None:
        """Save the winner's policy after the chunk in which its last replicate ends."""
        if self._state.winner is None:
            return
        runs = self._search_state.trials[self._state.winner].runs_of(Stream.REPORT)
        still_there = in_lanes(runs)
        if still_there and not any_live(runs):
            self._policies.export(still_there[0])


def _enqueue_runs(trial: Trial, runs: Sequence[Replicate], bucket: Bucket | None) -> None:
    if bucket is not None:
        trial.add(runs)
        bucket.enqueue(run for run in runs if run.is_live)


def _best_choice(search_state: SearchState, trial: Trial) -> tuple[float, float, int]:
    excess = search_state.objectives.violation(trial.choose_constraints)
    return (excess, search_state.objective.loss(mean(trial.choose_values)), trial.number)


def first_confirmed(search_state: SearchState) -> Trial | None:
    """Return the best trial on the selection seeds, among trials with values on all of them.

    Without selection seeds, return the best trial of the search if it has test values.
    """
    seeds = seeds_that_choose(search_state.trials.values())
    if not seeds and not search_state.objectives.others:
        finished = [t for t in search_state.trials.values() if t.state is TrialState.FINISHED]
        if not finished:
            return None
        best = search_state.best(finished)
        return best if best.by_report_seed else None
    confirmed = [
        t for t in search_state.trials.values() if seeds and len(t.choose_values) == seeds
    ]
    return min(confirmed, key=lambda trial: _best_choice(search_state, trial), default=None)


def _was_cut(trial: Trial) -> bool:
    confirming = (*trial.runs_of(Stream.CHOOSE), *trial.runs_of(Stream.REPORT))
    return bool(in_state(confirming, RunState.CUT))
