"""The run loop: chunk, evaluate, judge, settle, refill, commit, until nothing is left to do.

The loop only orders the steps of a boundary; each step is a part of its own. The device waits for
nothing but them: proposals are drawn while it runs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from ...errors import HpoError, StoreError
from ...store.rows import EvaluationRow, Stream
from ...studies.spec import Study
from ..book.buckets import Bucket
from ..book.budget import check_confirm_fits, check_health, may_propose, out_of_time
from ..book.ledger import Ledger, cut
from ..book.progress import Observer, Progress, picture
from ..book.state import Phase
from ..book.trials import Run
from ..lanes.contract import Change, PopulationFactory, Refill
from ..rules.registry import Pruner
from .callbacks import StopStudy
from .chunk import (
    CurveSink,
    count_chunk,
    due_for_evaluation,
    retire_diverged,
    take_evaluations,
)
from .commits import Committer
from .confirm import advance_phase, begin_confirm
from .confirm_resume import Fresh
from .evolve import Evolver, end_hopeless, evolve, set_aside
from .failures import fail_runs
from .intake import Intake
from .interrupts import Interrupts
from .judge import judge
from .refill import Refiller
from .settle import Policies, close_search, settle

__all__ = ["Loop"]

Outcome = Literal["finished", "interrupted"]


class Loop:
    """One study from where its ledger stands to its end.

    Args:
        ledger: trials and state, new or restored.
        factory: makes populations.
        intake: brings trials; owns the buckets.
        pruner: stops trials early, or None.
        curves: takes curve rows.
        committer: makes everything durable.
        policies: keeps the best.
        observers: told of every boundary.
        evolver: lets trials copy each other, or None.
        fresh: what the confirm stage need not run again.
    """

    def __init__(
        self,
        ledger: Ledger,
        factory: PopulationFactory,
        intake: Intake,
        pruner: Pruner | None,
        curves: CurveSink,
        committer: Committer,
        policies: Policies,
        observers: Sequence[Observer] = (),
        evolver: Evolver | None = None,
        fresh: Fresh | None = None,
    ):
        self._ledger, self._factory, self._intake = ledger, factory, intake
        self._pruner, self._curves, self._committer = pruner, curves, committer
        self._evolver, self._fresh = evolver, fresh or Fresh()
        self._policies, self._observers = policies, observers
        self._refiller = Refiller(ledger, intake, self._prepare)
        self._whole = True  # the state is one between two steps, which may be committed
        self._clock = time.monotonic()

    @property
    def _study(self) -> Study:
        return self._ledger.study

    @property
    def _buckets(self) -> dict[str, Bucket]:
        return self._intake.buckets

    def run(self, interrupts: Interrupts) -> Outcome:
        """Run until the study is finished or an interrupt asks to leave; commits at the end.

        Every commit is of a state between two steps. Filling lanes cuts what the budget no longer
        pays for and may then choose another bucket, so a state committed behind it would be
        filled once more on resume, and differently.

        Raises:
            SearchError: the search cannot go on; what was done up to the last boundary is kept.
        """
        self._clock = time.monotonic()
        self._intake.resume()
        try:
            check_health(self._ledger)
            while not interrupts.requested:
                self._committer.commit_if_due()
                bucket = self._next()
                if bucket is None:
                    self._ledger.state.live = {}
                    self._committer.commit("finished")
                    return "finished"
                self._chunk(bucket)
                self._boundary(bucket)
        except StopStudy:
            pass
        except StoreError:  # what the disk refused once is not tried again
            raise
        except HpoError:
            if self._whole:
                self._committer.commit("interrupted")
            raise
        self._committer.commit("interrupted")
        return "interrupted"

    # ------------------------------------------------------------------ before a chunk

    def _next(self) -> Bucket | None:
        """Return the bucket to run, going on to the next phase when this one has nothing left."""
        state = self._ledger.state
        while state.phase is not Phase.DONE:
            if self._out_of_time():
                self._stop_phase()
            self._whole = False
            bucket = self._refiller.refill() if state.phase is not Phase.DONE else None
            self._check_first_bucket()
            if bucket is not None:
                return bucket
            self._stop_phase()
        return None

    def _stop_phase(self) -> None:
        """End what this phase has left, which nothing pays for any more, and begin the next."""
        ledger = self._ledger
        self._whole = False
        if ledger.state.phase is Phase.SEARCH:
            self._intake.join()
            close_search(ledger)
            self._release()
            begin_confirm(ledger, self._buckets, self._fresh)
        else:
            for trial in ledger.state.live.values():
                cut(trial.runs)
            self._release()
            advance_phase(ledger, self._buckets, self._policies, self._fresh)
        self._whole = True
        self._tell_ended()
        self._tell_phase()

    def _out_of_time(self) -> bool:
        longest = max((entry.schedule.env_steps for entry in self._buckets.values()), default=0)
        usage = self._ledger.state.usage
        return out_of_time(self._study, usage, self._ledger.state.phase, longest)

    def _check_first_bucket(self) -> None:
        """Refuse a budget that cannot pay for confirming, as soon as the length is known."""
        state = self._ledger.state
        if state.usage.chunks == 0 and state.phase is Phase.SEARCH and self._buckets:
            first = next(iter(self._buckets.values()))
            check_confirm_fits(self._study, first.schedule.env_steps)

    def _prepare(self, bucket: Bucket) -> bool:
        """Make a bucket's population if it has none; on an error its trials fail."""
        if bucket.population is not None:
            return True
        lanes = bucket.lanes or self._study.population.lanes
        try:
            bucket.population = self._factory.make(bucket.resolved, lanes)
        except Exception as error:
            self._fail(bucket, [*bucket.waiting, *bucket.busy()], error)
            return False
        bucket.slots = bucket.slots or [None] * bucket.population.lanes
        return True

    # ------------------------------------------------------------------ the chunk

    def _chunk(self, bucket: Bucket) -> None:
        """Run one chunk of all lanes and count it."""
        population, usage = bucket.population, self._ledger.state.usage
        if population is None:
            raise RuntimeError(f"bucket {bucket.key} has no population")
        busy = bucket.busy()
        if self._work_remains():
            usage.lane_chunks += bucket.lanes
            usage.busy_lane_chunks += len(busy)
        usage.chunks += 1
        try:
            refills = [self._refill(run) for run in busy if run.chunks == 0]
            lanes = [run.lane for run in busy if run.lane is not None]
            if changes := self._following(bucket, busy):
                population.change(changes)
            result = population.advance(refills, lanes)
        except Exception as error:
            self._fail(bucket, busy, error)
            bucket.population = None
            return
        usage.chunk_seconds += max(0.0, result.seconds)
        count_chunk(self._ledger, bucket, result, self._curves)

    def _work_remains(self) -> bool:
        """Return whether a lane that is idle now could have been busy."""
        waiting = any(entry.waiting for entry in self._buckets.values())
        return waiting or self._ledger.state.pending is not None or may_propose(self._ledger)

    def _refill(self, run: Run) -> Refill:
        if run.lane is None:
            raise RuntimeError(f"{run} has no lane")
        if run.stream is Stream.SEARCH:
            resolved = self._ledger.resolved_of(run.trial)
        else:
            resolved = self._ledger.resolved_at(run.trial, 0)
        return Refill(run.lane, resolved, run.stream, run.replicate)

    def _following(self, bucket: Bucket, busy: Sequence[Run]) -> list[Change]:
        """Return the lanes on fresh seeds whose trial's lineage went on with other knobs here."""
        changes: list[Change] = []
        for run in busy:
            schedule = self._ledger.trials[run.trial].schedule
            if run.stream is Stream.SEARCH or not schedule or run.lane is None:
                continue
            here = bucket.trained(run) * bucket.schedule.quantum
            if here > 0 and any(entry["env_steps"] == here for entry in schedule):
                changes.append(Change(run.lane, self._ledger.resolved_at(run.trial, here)))
        return changes

    # ------------------------------------------------------------------ after a chunk

    def _boundary(self, bucket: Bucket) -> None:
        """Evaluate, judge and settle what stands at this boundary."""
        ledger = self._ledger
        ledger.state.boundary += 1
        self._retire()
        evaluations = self._evaluate(bucket)
        self._retire()
        self._policies.snapshots.take(ledger, bucket, bucket.busy())
        schedules = {key: entry.schedule for key, entry in self._buckets.items()}
        if self._evolver is None:
            judge(ledger, self._pruner, schedules)
        else:
            self._evolve(self._evolver)
        settle(ledger, self._buckets, self._policies)
        phase = ledger.state.phase
        if phase is not Phase.SEARCH:
            advance_phase(ledger, self._buckets, self._policies, self._fresh)
        self._release()
        self._whole = True
        if ledger.state.phase is not phase:
            self._tell_phase()
        now = time.monotonic()
        ledger.state.usage.run_seconds += max(0.0, now - self._clock)
        self._clock = now
        for observer in self._observers if evaluations else ():
            observer.on_evaluations(evaluations)
        self._tell_ended()
        if self._observers:
            progress = self.progress()
            for observer in self._observers:
                observer.on_chunk(progress)
        check_health(ledger)

    def _evaluate(self, bucket: Bucket) -> list[EvaluationRow]:
        due = due_for_evaluation(bucket)
        if not due or bucket.population is None:
            return []
        lanes = [run.lane for run in due if run.lane is not None]
        try:
            results = bucket.population.evaluate(lanes)
        except Exception as error:
            self._fail(bucket, due, error)
            return []
        rows = take_evaluations(self._ledger, bucket, due, results)
        self._policies.consider(self._ledger, bucket, due)
        return rows

    def _retire(self) -> None:
        if self._evolver is None:
            retire_diverged(self._ledger)
            return
        retire_diverged(self._ledger, lambda trial: set_aside(trial, self._buckets))
        end_hopeless(self._ledger)

    def _evolve(self, evolver: Evolver) -> None:
        """Let the worst trials at a rung go on from the best ones' states."""
        for bucket, changes in evolve(self._ledger, evolver, self._buckets):
            if not changes or bucket.population is None:
                continue
            try:
                bucket.population.change(changes)
            except Exception as error:
                self._fail(bucket, bucket.busy(), error)

    def _release(self) -> None:
        self._policies.snapshots.forget(self._ledger)
        for bucket in self._buckets.values():
            bucket.release()

    def _fail(self, bucket: Bucket, runs: Sequence[Run], error: Exception) -> None:
        fail_runs(self._ledger, bucket, runs, error)

    # ------------------------------------------------------------------ telling observers

    def progress(self) -> Progress:
        """Return where the study stands."""
        running = self._buckets.get(self._ledger.state.running)
        return picture(self._ledger, self._buckets.values(), running)

    def _tell_ended(self) -> None:
        ended, self._ledger.ended = self._ledger.ended, []
        for trial in ended:
            for observer in self._observers:
                observer.on_trial_end(trial.row())

    def _tell_phase(self) -> None:
        state = self._ledger.state
        streams = {Phase.CHOOSE: Stream.CHOOSE, Phase.REPORT: Stream.REPORT}
        if state.phase not in streams:
            return
        stream = streams[state.phase]
        trials = tuple(
            trial.number
            for trial in state.live.values()
            if any(run.is_live for run in trial.runs_of(stream))
        )
        for observer in self._observers:
            observer.on_confirm(state.phase, trials)
