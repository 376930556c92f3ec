"""Buckets and their lanes: the waiting and running replicates, and which bucket runs next.

Replicates enter free lanes one by one, in (trial, replicate) order; no replicate waits for others
of the same trial.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...store.rows import Stream
from ...studies.spec import Study
from ..lanes.contract import Population, Resolved
from .schedule import EventSchedule, schedule_of
from .trials import Replicate, RunState, in_state

_ORDER = {Stream.SEARCH: 0, Stream.CHOOSE: 1, Stream.REPORT: 2}


@dataclass
class Bucket:
    """All trials with the same Plan, and the lanes of their program."""

    key: str  # short hash of the Plan
    example: int  # number of a trial with this Plan
    resolved: Resolved
    schedule: EventSchedule
    population: Population | None = None  # None before the bucket's first chunk and after an error
    # the replicate in each lane; empty without a population
    slots: list[Replicate | None] = field(default_factory=list)
    lanes_fixed: bool = False  # whether the number of lanes is final; until then, no chunk has run
    waiting: list[Replicate] = field(default_factory=list)  # without a lane, sorted by `order`
    offered: int = 0  # lanes of the first population, before their number was reduced

    @classmethod
    def of(cls, study: Study, resolved: Resolved, example: int) -> Bucket:
        """Create a configuration's bucket, without lanes, with `example` as its first trial."""
        schedule = schedule_of(study, resolved.steps_per_chunk)
        return cls(resolved.bucket, example, resolved, schedule)

    @property
    def lanes(self) -> int:
        return len(self.slots)

    def busy(self) -> list[Replicate]:
        return sorted((run for run in self.slots if run is not None), key=order)

    @property
    def work(self) -> int:
        return len(self.waiting) + sum(run is not None for run in self.slots)

    def trained(self, run: Replicate) -> int:
        return max(0, run.chunks - self.warmup)

    def env_steps_of(self, run: Replicate) -> int:
        return self.trained(run) * self.schedule.quantum

    @property
    def block(self) -> int:
        if self.population is None:
            return 1
        return self.population.block

    @property
    def warmup(self) -> int:
        """Chunks without training at the start of a replicate."""
        if self.population is None:
            return 0
        return self.population.warmup_chunks

    def trains_next(self, run: Replicate) -> bool:
        """Return whether a replicate's next chunk trains (and so costs budget)."""
        return run.chunks >= self.warmup

    def enqueue(self, runs: Iterable[Replicate]) -> None:
        for run in runs:
            bisect.insort(self.waiting, run, key=order)

    def equip(self, population: Population) -> None:
        """Set the population; existing lanes are kept."""
        self.population = population
        self.slots = self.slots or [None] * population.lanes
        self.offered = self.offered or population.lanes

    def fix_lanes(self, population: Population | None = None) -> None:
        """Fix the number of lanes; replicates move to a smaller population if one is given."""
        self.lanes_fixed = True
        if population is None:
            return
        entered = self.busy()
        self.population, self.slots = population, [None] * population.lanes
        for lane, run in enumerate(entered):
            self._assign_lane(lane, run)

    def drop(self) -> None:
        self.population = None

    def release(self) -> None:
        """Free the lanes of replicates that no longer run; drop those that no longer wait."""
        for lane, run in enumerate(self.slots):
            if run is not None and run.state is not RunState.RUNNING:
                self._free_lane(lane, run)
        self.waiting = in_state(self.waiting, RunState.WAITING)

    def claim(self, run: Replicate) -> int:
        """Return a replicate's lane; assign a free one if it has none."""
        if run.lane is None:
            lane = next((i for i, taken in enumerate(self.slots) if taken is None), None)
            if lane is None:
                raise RuntimeError(f"bucket {self.key} has no free lane for {run}")
            self._assign_lane(lane, run)
            return lane
        return run.lane

    def place(self, most: int) -> list[Replicate]:
        """Put up to `most` waiting replicates into free lanes, lowest lane first."""
        free = [lane for lane, run in enumerate(self.slots) if run is None]
        placed = self.waiting[: max(0, min(most, len(free)))]
        del self.waiting[: len(placed)]
        for lane, run in zip(free, placed, strict=False):
            self._assign_lane(lane, run)
        return placed

    def evict(self, trial: int) -> None:
        for lane, run in enumerate(self.slots):
            if run is not None and run.trial == trial:
                self._free_lane(lane, run)

    def lay_out(
        self, lanes: int, lanes_fixed: bool, runs: Iterable[Replicate], offered: int
    ) -> None:
        """Restore lanes and queue from a commit; `runs` are the live replicates of this bucket."""
        self.slots, self.lanes_fixed, self.offered = [None] * lanes, lanes_fixed, offered
        for run in runs:
            if run.state is RunState.WAITING:
                self.enqueue([run])
            elif run.state is RunState.RUNNING and run.lane is not None:
                self.slots[run.lane] = run

    def _assign_lane(self, lane: int, run: Replicate) -> None:
        run.enter(lane)
        self.slots[lane] = run

    def _free_lane(self, lane: int, run: Replicate) -> None:
        run.leave()
        self.slots[lane] = None


def order(run: Replicate) -> tuple[int, int, int, int]:
    """Return the sort key of a replicate, used in every queue.

    On test seeds the winner precedes the default, so that the budget cuts the default first. Trial
    0 may win after its hyperparameters have changed; the default is then not a search trial.
    """
    late = 0
    if run.stream is Stream.REPORT and run.trial <= 0:
        late = 1 - run.trial
    return (late, run.trial, _ORDER[run.stream], run.replicate)


def next_bucket(buckets: Mapping[str, Bucket], running: str) -> str:
    """Return the bucket that runs in the next chunk."""
    best, most = running, 0
    if running in buckets:
        here = buckets[running]
        most = here.work
        if most and 2 * min(most, here.lanes) >= here.lanes > 0:
            return running
    for key, bucket in buckets.items():
        if bucket.work > most:
            best, most = key, bucket.work
    return best


def compiles_of(buckets: Iterable[Bucket]) -> int:
    """Return the number of compilations of all buckets' populations."""
    return sum(entry.population.compiles for entry in buckets if entry.population)
