"""Buckets and their lanes: who waits, who runs where, and which bucket has the device.

Replicates enter lanes one by one in (trial, replicate) order as lanes become free; none waits for
another one of its trial.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...store.rows import Stream
from ...studies.spec import Study
from ..lanes.contract import Population, Resolved
from .schedule import Schedule, schedule_of
from .trials import Run, RunState

_ORDER = {Stream.SEARCH: 0, Stream.CHOOSE: 1, Stream.REPORT: 2}


@dataclass
class Bucket:
    """All trials that share a Plan, and the lanes of their program.

    Attributes:
        key: short hash of the Plan.
        example: a trial with this Plan.
        resolved: its configuration, from which the population is made.
        schedule: when its replicates are evaluated, judged and done.
        population: None until it first gets the device, and after an error.
        slots: the replicate in each lane; empty until the population is made.
        settled: the number of its lanes is what it stays; until then nothing has run in them.
        waiting: replicates without a lane, in (trial, stream, replicate) order.
        offered: the lanes that it had room for when it was first made, some of which it may
            have given up since; 0 before.
    """

    key: str
    example: int
    resolved: Resolved
    schedule: Schedule
    population: Population | None = None
    slots: list[Run | None] = field(default_factory=list)
    settled: bool = False
    waiting: list[Run] = field(default_factory=list)
    offered: int = 0

    @classmethod
    def of(cls, study: Study, resolved: Resolved, example: int) -> Bucket:
        """Return the bucket of a configuration, that of the trial `example`; it has no lanes."""
        schedule = schedule_of(study, resolved.steps_per_chunk)
        return cls(resolved.bucket, example, resolved, schedule)

    @property
    def lanes(self) -> int:
        """How many lanes it has."""
        return len(self.slots)

    def busy(self) -> list[Run]:
        """Return the replicates in lanes, in (trial, stream, replicate) order."""
        return sorted((run for run in self.slots if run is not None), key=order)

    @property
    def work(self) -> int:
        """Replicates that wait or are in lanes."""
        return len(self.waiting) + sum(run is not None for run in self.slots)

    def trained(self, run: Run) -> int:
        """Return the chunks that a replicate has trained, warm-up not counted."""
        return max(0, run.chunks - self.warmup)

    @property
    def warmup(self) -> int:
        """Chunks at the start of a replicate that do not train."""
        return self.population.warmup_chunks if self.population is not None else 0

    def trains_next(self, run: Run) -> bool:
        """Return whether a replicate's next chunk trains (and so costs budget)."""
        return run.chunks >= self.warmup

    def enqueue(self, runs: Iterable[Run]) -> None:
        """Let replicates wait for a lane."""
        for run in runs:
            bisect.insort(self.waiting, run, key=order)

    def equip(self, population: Population) -> None:
        """Take a population, with the lanes there were if it had one before."""
        self.population = population
        self.slots = self.slots or [None] * population.lanes
        self.offered = self.offered or population.lanes

    def settle(self, population: Population | None = None) -> None:
        """Let the number of lanes be what it stays.

        Args:
            population: with fewer lanes, to take in place of the one that has not run yet; its
                lanes hold the replicates that have entered, in their order.
        """
        self.settled = True
        if population is None:
            return
        entered = self.busy()
        self.population, self.slots = population, [None] * population.lanes
        for lane, run in enumerate(entered):
            self._give(lane, run)

    def drop(self) -> None:
        """Let the population go, whose lanes are not what they were."""
        self.population = None

    def release(self) -> None:
        """Free the lanes of replicates that have ended, and forget those that need none."""
        for lane, run in enumerate(self.slots):
            if run is not None and run.state is not RunState.RUNNING:
                self._free(lane, run)
        self.waiting = [run for run in self.waiting if run.state is RunState.WAITING]

    def claim(self, run: Run) -> int:
        """Return the lane of a replicate that begins again, a free one if it has none any more.

        Raises:
            RuntimeError: all lanes are taken.
        """
        if run.lane is None:
            lane = next((i for i, taken in enumerate(self.slots) if taken is None), None)
            if lane is None:
                raise RuntimeError(f"bucket {self.key} has no free lane for {run}")
            self._give(lane, run)
            return lane
        return run.lane

    def place(self, most: int) -> list[Run]:
        """Put up to `most` waiting replicates into free lanes, lowest lane first."""
        free = [lane for lane, run in enumerate(self.slots) if run is None]
        placed = self.waiting[: max(0, min(most, len(free)))]
        del self.waiting[: len(placed)]
        for lane, run in zip(free, placed, strict=False):
            self._give(lane, run)
        return placed

    def evict(self, trial: int) -> None:
        """Free the lanes of a trial whose state is kept elsewhere."""
        for lane, run in enumerate(self.slots):
            if run is not None and run.trial == trial:
                self._free(lane, run)

    def lay_out(self, lanes: int, settled: bool, runs: Iterable[Run], offered: int) -> None:
        """Lay out lanes and queue as a commit saw them.

        Args:
            lanes: how many there were.
            settled: that is what they stay.
            runs: replicates of the bucket that wait or run.
            offered: how many there were at first.
        """
        self.slots, self.settled, self.offered = [None] * lanes, settled, offered
        for run in runs:
            if run.state is RunState.WAITING:
                self.enqueue([run])
            elif run.state is RunState.RUNNING and run.lane is not None:
                self.slots[run.lane] = run

    def _give(self, lane: int, run: Run) -> None:
        run.enter(lane)
        self.slots[lane] = run

    def _free(self, lane: int, run: Run) -> None:
        run.leave()
        self.slots[lane] = None


def order(run: Run) -> tuple[int, int, int, int]:
    """Return the place of a replicate in every queue.

    On the seeds that report the winner comes before the default, which a budget cuts first. A
    trial 0 that was changed on its way may win; the default is none of the search's trials then.
    """
    late = 1 - run.trial if run.stream is Stream.REPORT and run.trial <= 0 else 0
    return (late, run.trial, _ORDER[run.stream], run.replicate)


def next_bucket(buckets: Mapping[str, Bucket], running: str) -> str:
    """Return which bucket gets the device for the next chunk.

    The running one keeps it while at least half of its lanes are busy or no other bucket has more
    replicates to run; then the one with the most gets it, the first of them on a tie. Lanes left
    stay as they are.
    """
    here = buckets.get(running)
    work_here = here.work if here is not None else 0
    if here is not None and work_here and 2 * min(work_here, here.lanes) >= here.lanes > 0:
        return running
    best, most = running, work_here
    for key, bucket in buckets.items():
        if bucket.work > most:
            best, most = key, bucket.work
    return best
