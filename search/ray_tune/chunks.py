"""The chunks of lanes that a foreign scheduler drives: of all trials that have asked, together.

They are our own loop's: what they cost stays within the budget, what goes wrong in one fails the
trials it hit.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from ...store.rows import EvaluationRow
from ..book.buckets import Bucket
from ..book.budget import affordable_lanes, out_of_time
from ..book.ledger import Ledger, cut
from ..book.trials import Run, RunState
from ..engine.chunk import CurveSink, count_chunk, retire_diverged, take_evaluations
from ..engine.failures import fail_runs
from ..engine.settle import Policies
from ..lanes.contract import Refill
from .lanes import DrivenLanes
from .reports import Together

__all__ = ["DrivenChunks"]


class DrivenChunks:
    """Steps the lanes of one study.

    Args:
        ledger: trials and state.
        lanes: which trial is in which.
        curves: takes curve rows.
        policies: keeps the best.
        copies: a trial that diverged may go on from another one's state, so that it waits for one.

    Attributes:
        together: how far lanes stepped together.
    """

    def __init__(
        self,
        ledger: Ledger,
        lanes: DrivenLanes,
        curves: CurveSink,
        policies: Policies,
        copies: bool,
    ):
        self._ledger, self._lanes, self._copies = ledger, lanes, copies
        self._curves, self._policies = curves, policies
        self.together = Together()

    def run(self, asked: Sequence[int], has_more: bool) -> list[EvaluationRow]:
        """Run one chunk of the lanes of some trials; give what was evaluated behind it.

        Args:
            asked: the trials.
            has_more: others are still to begin, so that a lane without a trial is idle.
        """
        ledger = self._ledger
        evaluations: list[EvaluationRow] = []
        if self._is_out_of_time():
            for number in asked:
                cut(ledger.trials[number].runs)
        for bucket in list(self._lanes.buckets.values()):
            stepping = self._stepping(bucket, asked)
            if stepping.busy():
                evaluations += self._step(bucket, stepping, has_more)
        ledger.state.boundary += 1
        self._retire()
        return evaluations

    def _stepping(self, bucket: Bucket, asked: Container[int]) -> Bucket:
        """Return a bucket with only the lanes of some trials, as far as the budget pays."""
        runs = [run for run in bucket.busy() if run.trial in asked and run.is_live]
        affordable = self._affordable(bucket)
        if affordable < len(runs):
            cut(runs[int(affordable) :])
        lanes = {run.lane for run in runs if run.is_live}
        slots = [run if lane in lanes else None for lane, run in enumerate(bucket.slots)]
        return replace(bucket, slots=slots)

    def _step(self, bucket: Bucket, stepping: Bucket, has_more: bool) -> list[EvaluationRow]:
        """Step the lanes of some trials, and evaluate those that stand at an evaluation."""
        ledger, usage, busy = self._ledger, self._ledger.state.usage, stepping.busy()
        population = self._lanes.prepared(bucket)
        if has_more:
            usage.lane_chunks += bucket.lanes
            usage.busy_lane_chunks += len(busy)
        usage.chunks += 1
        self.together.add(len(busy), sum(run.is_live for run in bucket.busy()))
        ledger.state.running = bucket.key
        lanes = [run.lane for run in busy if run.lane is not None]
        try:
            refills = [self._refill(run) for run in busy if run.chunks == 0]
            result = population.advance(refills, lanes)
            usage.chunk_seconds += max(0.0, result.seconds)
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
            self.fail(bucket, busy, error)
            return []
        rows = take_evaluations(ledger, bucket, due, seen)
        self._policies.consider(ledger, bucket, due)
        self._policies.snapshots.take(ledger, bucket, busy)
        return rows

    def _refill(self, run: Run) -> Refill:
        if run.lane is None:
            raise RuntimeError(f"{run} has no lane")
        return Refill(run.lane, self._ledger.resolved_of(run.trial), run.stream, run.replicate)

    def fail(self, bucket: Bucket, runs: Sequence[Run], error: Exception) -> None:
        """Fail the trials that an error hit, and with the lanes those that had rested in them.

        Raises:
            HpoError: one that is no single configuration's fault.
        """
        trials = {run.trial for run in runs}
        held = [run for run in bucket.busy() if run.trial not in trials]
        fail_runs(self._ledger, bucket, [*runs, *held], error)
        bucket.population = None

    def _retire(self) -> None:
        """End what diverged, or put it aside where it may go on from another trial's state."""
        retire_diverged(self._ledger, lambda trial: self._copies)

    # ------------------------------------------------------------------ the budget

    def is_affordable(self) -> bool:
        """Return whether the budget still pays for a chunk of anything."""
        return not self._is_out_of_time() and any(
            self._affordable(bucket) >= 1 for bucket in self._lanes.buckets.values()
        )

    def _affordable(self, bucket: Bucket) -> float:
        schedules = {key: entry.schedule for key, entry in self._lanes.buckets.items()}
        state = self._ledger.state
        return affordable_lanes(
            self._ledger.study, state.usage, state.phase, schedules, bucket.schedule.quantum
        )

    def _is_out_of_time(self) -> bool:
        buckets = self._lanes.buckets.values()
        longest = max((entry.schedule.env_steps for entry in buckets), default=0)
        state = self._ledger.state
        return out_of_time(self._ledger.study, state.usage, state.phase, longest)
