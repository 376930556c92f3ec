"""Lanes that a foreign scheduler drives: its trials step together, and end as it decides.

Before each chunk the trials that it runs are waited for, so that what it believes to be processes
of their own are lanes of one program. Rows, budget, divergence and policies are those of every
study; what it decides is written down as rungs are, one at every evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ..errors import ConfigError, HpoError, SearchError
from ..knobs import complete
from ..store.rows import AskRow, AttributeRow, EvaluationRow, Stream, TrialState
from .buckets import Bucket
from .budget import affordable_lanes, check_health, out_of_time
from .callbacks import StopStudy
from .chunk import CurveSink, count_chunk, retire_diverged, take_evaluations
from .commits import Committer
from .desk import Desk, Reply, Report, Request
from .driven_reports import Reports, Together
from .failures import fail_runs
from .intake import Intake
from .interrupts import Interrupts
from .kept_states import KeptStates
from .ledger import Ledger, cut
from .population import Population, PopulationFactory, Refill
from .progress import Observer, picture
from .schedule import schedule_of
from .settle import Policies, close_search, settle
from .trials import Run, RunState, Trial

__all__ = ["Driven"]

_PATIENCE_SECONDS = 30.0
_LISTEN_SECONDS = 0.05


class Driven:
    """The search of one study whose trials a foreign scheduler runs.

    Args:
        ledger: trials and state, new or restored.
        factory: makes populations.
        intake: knows the buckets.
        curves: takes curve rows.
        committer: makes everything durable.
        policies: keeps the best.
        desk: the scheduler.
        rule: its words in the store.
        copies: it lets trials go on from each other's states, so that one that diverged waits for
            one.
        observers: told of every boundary.
    """

    def __init__(
        self,
        ledger: Ledger,
        factory: PopulationFactory,
        intake: Intake,
        curves: CurveSink,
        committer: Committer,
        policies: Policies,
        desk: Desk,
        rule: str,
        copies: bool = False,
        observers: Sequence[Observer] = (),
    ):
        self._ledger, self._factory, self._intake = ledger, factory, intake
        self._curves, self._committer, self._policies = curves, committer, policies
        self._desk, self._rule, self._copies = desk, rule, copies
        self._observers = observers
        self._asked: dict[int, Request] = {}
        self._states = KeptStates(ledger)
        self._heard = self._clock = time.monotonic()
        self._reports = Reports(ledger, intake.buckets, rule)
        self._together = Together()

    @property
    def _buckets(self) -> dict[str, Bucket]:
        return self._intake.buckets

    @property
    def _replicates(self) -> int:
        return self._ledger.study.seeds.per_config

    def run(self, interrupts: Interrupts) -> Literal["finished", "interrupted"]:
        """Run until the scheduler has ended all its trials, or an interrupt asks to leave.

        Raises:
            SearchError: the search cannot go on; what was done is committed first.
        """
        try:
            self._ledger.state.exhausted = False
            self._give_up_without_lanes()
            bucket = self._bucket_of_default()
            self._desk.begin(self._width(bucket), bucket.schedule)
            while not self._desk.is_over:
                if interrupts.requested:
                    return self._leave()
                self._listen()
                if self._is_time():
                    self._committer.commit_if_due()
                    self._step()
        except StopStudy:
            return self._leave()
        except HpoError:
            self._leave()
            raise
        self._ledger.state.exhausted = True
        row = AttributeRow(None, "ray_tune", self._together.as_json())
        self._ledger.unwritten.attributes.append(row)
        close_search(self._ledger)
        self._release()
        return "finished"

    def _leave(self) -> Literal["interrupted"]:
        self._desk.stop()
        self._committer.commit("interrupted")
        return "interrupted"

    def _give_up_without_lanes(self) -> None:
        """End trials that were put aside when the study was cut: their states are gone."""
        for trial in self._ledger.live():
            runs = [run for run in trial.runs if run.state is RunState.RUNNING]
            if trial.lost or any(run.lane is None for run in runs):
                text = "it was put aside when the study was cut, and its state is gone"
                self._ledger.end(trial, TrialState.UNFINISHED, text)
        self._release()

    def _width(self, bucket: Bucket) -> int:
        """Make the default configuration's lanes, and say how many trials they hold.

        Raises:
            ConfigError: trials that copy each other do not find room side by side.
        """
        study = self._ledger.study
        population = self._prepared(bucket)
        width = max(1, population.lanes // self._replicates)
        if population.lanes < self._replicates:
            raise ConfigError(
                f"a trial has {self._replicates} replicates, but there are {population.lanes} "
                "lanes; raise population.lanes, or lower seeds.per_config"
            )
        if self._copies and width < (study.budget.trials or 0):
            raise ConfigError(
                f"trials that copy each other run side by side: {study.budget.trials} x "
                f"{self._replicates} replicates, but there are {population.lanes} lanes; raise "
                "population.lanes, or lower budget.trials"
            )
        return width

    def _bucket_of_default(self) -> Bucket:
        study = self._ledger.study
        config = complete({**study.fixed, **study.space.default()})
        key = self._factory.bucket_of(config)
        if key not in self._buckets:
            schedule = schedule_of(study, self._factory.quantum(config))
            self._buckets[key] = Bucket(key, 0, config, schedule)
        return self._buckets[key]

    def _prepared(self, bucket: Bucket) -> Population:
        if bucket.population is None:
            others = [other.lanes for other in self._buckets.values() if other.lanes]
            lanes = bucket.lanes or self._ledger.study.population.lanes
            bucket.population = self._factory.make(
                bucket.config, lanes or min(others, default=None)
            )
            bucket.slots = bucket.slots or [None] * bucket.population.lanes
        return bucket.population

    # ------------------------------------------------------------------ what the scheduler wants

    def _listen(self) -> None:
        """Take what is on the desk; who has ended makes room before others come in."""
        requests = self._desk.wait(_LISTEN_SECONDS)
        gone = self._desk.ended()
        for number in gone:
            self._ended(number)
        for request in requests:
            self._heard = time.monotonic()
            if request.kind == "keep":
                bucket = self._buckets[self._ledger.trials[request.trial].bucket]
                self._reply({request.key: self._states.keep(request.trial, bucket)})
            elif request.trial in gone:
                self._dismiss(request)
            else:
                self._asked[request.trial] = request
                self._admit(request)
        self._tell_ended()

    def _is_time(self) -> bool:
        """Say whether lanes step: all that are expected have asked, or no more come."""
        if not self._asked:
            return False
        waited = time.monotonic() - self._heard
        return len(self._asked) >= self._desk.expected() or waited > _PATIENCE_SECONDS

    def _admit(self, request: Request) -> None:
        """Let a trial wait for the next chunk in its lanes; one that has ended is told so."""
        trial = self._ledger.trials.get(request.trial)
        if trial is None and not self._is_affordable():
            self._dismiss(request)
            return
        try:
            trial = trial or self._begin(request)
            if not trial.is_live:
                self._dismiss(request)
                return
            self._enter(trial, self._buckets[trial.bucket], request)
            self._reports.judge(trial, "continue", None)
        except HpoError as error:
            if not isinstance(error, ConfigError) or trial is None or not trial.is_live:
                raise
            self._fail(self._buckets[trial.bucket], trial.runs, error)
            self._dismiss(request)

    def _begin(self, request: Request) -> Trial:
        """Take in a new trial."""
        ledger, state = self._ledger, self._ledger.state
        trial = Trial(request.trial, dict(request.params), self._source(request), state.batches)
        row = AskRow(
            state.batches, f"ray_tune {ledger.study.search.searcher}", (trial.number,), ()
        )
        state.batches += 1
        state.proposed = max(state.proposed, trial.number + 1)
        state.told = []
        ledger.unwritten.asks.append(row)
        ledger.add(trial)
        try:
            self._intake.bucket_for(trial)
        except ConfigError as error:
            state.usage.failures += 1
            ledger.end(trial, TrialState.FAILED, str(error))
            return trial
        trial.runs = [Run(trial.number, Stream.SEARCH, one) for one in range(self._replicates)]
        return trial

    def _source(self, request: Request) -> str:
        """Say who proposed a trial."""
        study = self._ledger.study
        if request.trial <= len(study.enqueue):
            return "enqueue" if request.trial else "default"
        return study.search.searcher.rpartition(".")[2]

    def _enter(self, trial: Trial, bucket: Bucket, request: Request) -> None:
        """Give every replicate of a trial a lane, with the state that it is to go on from."""
        self._prepared(bucket)
        if request.state is not None:
            old = dict(trial.params)
            source = self._states.adopt(trial, bucket, request, self._room)
            if source is not None:
                self._reports.judge(trial, "copy", source, old)
        waiting = [run for run in trial.runs if run.state is RunState.WAITING]
        if waiting:
            self._room(bucket, len(waiting))
            bucket.enqueue(waiting)
            for run in bucket.place(len(waiting)):
                self._ledger.started(run)

    def _room(self, bucket: Bucket, wanted: int) -> None:
        """Make room: trials that were put aside leave their lanes.

        Raises:
            SearchError: the scheduler runs more trials than there are lanes for.
        """
        for number in sorted(self._desk.paused()):
            if bucket.slots.count(None) >= wanted:
                return
            runs = [run for run in bucket.busy() if run.trial == number]
            if runs and self._states.has(number, runs[0].chunks):
                for lane, run in enumerate(bucket.slots):
                    if run is not None and run.trial == number:
                        run.lane, bucket.slots[lane] = None, None
        if bucket.slots.count(None) < wanted:
            raise SearchError(
                f"Ray Tune runs more trials than the {bucket.lanes} lanes hold; raise "
                "population.lanes"
            )

    def _ended(self, number: int) -> None:
        """Take note that the scheduler has ended a trial; one that could go on was stopped."""
        request = self._asked.pop(number, None)
        trial = self._ledger.trials.get(number)
        if trial is not None and trial.is_live:
            shown = self._reports.has_shown(number)
            self._reports.judge(trial, "stop", None)
            trial.stop_rule = self._rule
            lost = TrialState.DIVERGED if trial.lost else TrialState.UNFINISHED
            self._ledger.end(trial, TrialState.STOPPED if shown and not trial.lost else lost)
            self._release()
        if request is not None:
            self._dismiss(request)

    # ------------------------------------------------------------------ the chunk

    def _step(self) -> None:
        """Run one chunk of the lanes of all trials that asked, then the boundary."""
        ledger = self._ledger
        if self._is_out_of_time():
            for number in list(self._asked):
                cut(ledger.trials[number].runs)
        evaluations: list[EvaluationRow] = []
        for bucket in list(self._buckets.values()):
            stepping = self._stepping(bucket)
            if stepping.busy():
                evaluations += self._chunk(bucket, stepping)
        ledger.state.boundary += 1
        self._retire()
        self._reports.note(self._asked)
        settle(ledger, self._buckets, self._policies)
        self._release()
        self._tell(evaluations)
        self._reply_to_all()
        check_health(ledger)

    def _stepping(self, bucket: Bucket) -> Bucket:
        """Give a bucket with only the lanes of trials that asked, as far as the budget pays."""
        runs = [run for run in bucket.busy() if run.trial in self._asked and run.is_live]
        affordable = self._affordable(bucket)
        if affordable < len(runs):
            cut(runs[int(affordable) :])
        lanes = {run.lane for run in runs if run.is_live}
        slots = [run if lane in lanes else None for lane, run in enumerate(bucket.slots)]
        return replace(bucket, slots=slots)

    def _chunk(self, bucket: Bucket, stepping: Bucket) -> list[EvaluationRow]:
        """Step the lanes of some trials, and evaluate those that stand at an evaluation."""
        ledger, usage, busy = self._ledger, self._ledger.state.usage, stepping.busy()
        population = self._prepared(bucket)
        if self._desk.has_more():
            usage.lane_chunks += bucket.lanes
            usage.busy_lane_chunks += len(busy)
        usage.chunks += 1
        self._together.add(len(busy), sum(run.is_live for run in bucket.busy()))
        ledger.state.running = bucket.key
        lanes = [run.lane for run in busy if run.lane is not None]
        try:
            refills = [self._refill(run) for run in busy if run.chunks == 0]
            result = population.advance(refills, lanes)
            usage.chunk_seconds += result.seconds
            count_chunk(ledger, stepping, result, self._curves)
            self._retire()
            due = [
                run
                for run in busy
                if run.state is RunState.RUNNING
                and bucket.trained(run) in bucket.schedule.evaluations
            ]
            seen = population.evaluate([run.lane for run in due if run.lane is not None])
        except Exception as error:
            self._fail(bucket, busy, error)
            return []
        rows = take_evaluations(ledger, bucket, due, seen)
        self._policies.consider(ledger, bucket, due)
        return rows

    def _refill(self, run: Run) -> Refill:
        if run.lane is None:
            raise RuntimeError(f"{run} has no lane")
        return Refill(run.lane, self._ledger.config_of(run.trial), run.stream, run.replicate)

    def _fail(self, bucket: Bucket, runs: Sequence[Run], error: Exception) -> None:
        """Fail the trials that an error hit, and with the lanes those that had rested in them."""
        trials = {run.trial for run in runs}
        held = [run for run in bucket.busy() if run.trial not in trials]
        fail_runs(self._ledger, bucket, [*runs, *held], error)
        bucket.population = None

    def _retire(self) -> None:
        """End what diverged, or put it aside where it may go on from another trial's state."""
        retire_diverged(
            self._ledger, (lambda trial: True) if self._copies else lambda trial: False
        )

    # ------------------------------------------------------------------ answers

    def _reply_to_all(self) -> None:
        """Answer the trials that stand at an evaluation or have ended."""
        replies: dict[str, Reply] = {}
        for number, request in list(self._asked.items()):
            report = self._reports.report(self._ledger.trials[number])
            if report is not None:
                replies[request.key] = report
                del self._asked[number]
        self._reply(replies)

    def _dismiss(self, request: Request) -> None:
        """Tell a trial that there is nothing more to train."""
        self._asked.pop(request.trial, None)
        trial = self._ledger.trials.get(request.trial)
        length = self._ledger.study.env_steps if trial is None else self._reports.length(trial)
        value = None if trial is None else trial.value
        value = self._reports.worst_value() if value is None else value
        self._reply({request.key: Report(value, length, done=True)})

    def _reply(self, replies: dict[str, Reply]) -> None:
        if replies:
            self._desk.answer(replies)
            self._heard = time.monotonic()

    # ------------------------------------------------------------------ budget and observers

    def _affordable(self, bucket: Bucket) -> float:
        schedules = {key: entry.schedule for key, entry in self._buckets.items()}
        state = self._ledger.state
        return affordable_lanes(
            self._ledger.study, state.usage, state.phase, schedules, bucket.schedule.quantum
        )

    def _is_affordable(self) -> bool:
        """Say whether the budget still pays for a chunk of anything."""
        return not self._is_out_of_time() and any(
            self._affordable(bucket) >= 1 for bucket in self._buckets.values()
        )

    def _is_out_of_time(self) -> bool:
        longest = max((entry.schedule.env_steps for entry in self._buckets.values()), default=0)
        state = self._ledger.state
        return out_of_time(self._ledger.study, state.usage, state.phase, longest)

    def _release(self) -> None:
        for bucket in self._buckets.values():
            bucket.release()

    def _tell(self, evaluations: Sequence[EvaluationRow]) -> None:
        ledger, now = self._ledger, time.monotonic()
        ledger.state.usage.run_seconds += now - self._clock
        self._clock = now
        for observer in self._observers if evaluations else ():
            observer.on_evaluations(evaluations)
        self._tell_ended()
        if self._observers:
            running = self._buckets.get(ledger.state.running)
            progress = picture(ledger, self._buckets.values(), running)
            for observer in self._observers:
                observer.on_chunk(progress)

    def _tell_ended(self) -> None:
        ended, self._ledger.ended = self._ledger.ended, []
        for trial in ended:
            for observer in self._observers:
                observer.on_trial_end(trial.row())
