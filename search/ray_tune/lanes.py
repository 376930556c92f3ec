"""Lanes for trials that a foreign scheduler begins, copies, and puts aside."""

from __future__ import annotations

from ...errors import ConfigError, SearchError
from ...store.rows import AskRow
from ..book.buckets import Bucket
from ..book.runs import RunState
from ..book.trials import Trial
from ..engine.engine import Engine
from ..lanes.contract import Population
from .contract import Desk, Request
from .kept_states import KeptStates
from .reports import Reports

__all__ = ["DrivenLanes"]


class DrivenLanes:
    """The lanes of one study, and which trial is in them.

    Args:
        engine: steps them.
        desk: the scheduler.
        reports: takes note of copies.
        copies: the scheduler lets trials go on from each other's states.

    Attributes:
        states: that the scheduler has put aside.
    """

    def __init__(
        self,
        engine: Engine,
        desk: Desk,
        reports: Reports,
        copies: bool,
    ):
        self._engine, self._ledger = engine, engine.ledger
        self._desk, self._reports, self._copies = desk, reports, copies
        self.states = KeptStates(engine.ledger)

    @property
    def buckets(self) -> dict[str, Bucket]:
        """By key."""
        return self._engine.buckets

    @property
    def _replicates(self) -> int:
        return self._ledger.study.seeds.per_config

    # ------------------------------------------------------------------ the lanes there are

    def bucket_of_default(self) -> Bucket:
        """Return the bucket of the default configuration."""
        study = self._ledger.study
        resolved = self._ledger.resolved(study.space.default())
        return self._engine.bucket_of(resolved, 0)

    def width(self, bucket: Bucket) -> int:
        """Make the lanes of a bucket, and say how many trials they hold.

        Raises:
            ConfigError: trials that copy each other do not find room side by side.
        """
        study = self._ledger.study
        population = self.prepared(bucket)
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

    def prepared(self, bucket: Bucket) -> Population:
        """Return the population of a bucket, made if it is not there; all hold as many trials."""
        others = [other.lanes for other in self.buckets.values() if other.lanes]
        return self._engine.make(bucket, min(others, default=None))

    # ------------------------------------------------------------------ trials that come in

    def begin(self, request: Request) -> Trial:
        """Take in a new trial; one that cannot run has failed."""
        ledger, state = self._ledger, self._ledger.state
        batch = state.take_foreign(request.trial)
        trial = Trial(request.trial, dict(request.params), self._source(request), batch)
        method = f"ray_tune {ledger.study.search.searcher}"
        ledger.unwritten.add(AskRow(batch, method, (trial.number,), ()))
        self._engine.admit(trial, self._replicates)
        return trial

    def _source(self, request: Request) -> str:
        """Return who proposed a trial."""
        study = self._ledger.study
        if request.trial <= len(study.enqueue):
            return "enqueue" if request.trial else "default"
        return study.search.searcher.rpartition(".")[2]

    def keep(self, number: int) -> str:
        """Put a trial's state aside, and give its name."""
        return self.states.keep(number, self.buckets[self._ledger.trials[number].bucket])

    def enter(self, trial: Trial, request: Request) -> None:
        """Assign a lane to every replicate of a trial, with the state that it goes on from.

        Raises:
            SearchError: there is no lane for it, or the state is gone.
        """
        bucket = self.buckets[trial.bucket]
        self.prepared(bucket)
        if request.state is not None:
            old = dict(trial.params)
            source = self.states.adopt(trial, bucket, request, self._room)
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
            if runs and self.states.has(number, runs[0].chunks):
                bucket.evict(number)
        if bucket.slots.count(None) < wanted:
            raise SearchError(
                f"Ray Tune runs more trials than the {bucket.lanes} lanes hold; raise "
                "population.lanes"
            )
