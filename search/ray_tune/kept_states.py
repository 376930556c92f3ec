"""Training states that a foreign scheduler has put aside, to go on from later or elsewhere.

They are held in memory, the latest few of every trial; a study that is cut goes on from its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import SearchError
from ...store.rows import Stream
from ..book.buckets import Bucket
from ..book.ledger import Ledger
from ..book.lineage import Segment, lineage_of
from ..book.runs import Run, RunState
from ..book.trials import Trial
from .contract import Request

__all__ = ["KeptStates"]

_KEPT = 4  # another trial may ask for one after its own has gone on, or ended


@dataclass(frozen=True)
class _Kept:
    """A trial as it was.

    Attributes:
        trial: its number.
        params: it was trained with.
        way: its lineage.
        runs: copies of its replicates.
        states: replicate -> what its lane held; none of those that had diverged.
    """

    trial: int
    params: Mapping[str, Any]
    way: tuple[Segment, ...]
    runs: tuple[Run, ...]
    states: Mapping[int, Any]


class KeptStates:
    """The states of one study, by name."""

    def __init__(self, ledger: Ledger):
        self._ledger = ledger
        self._kept: dict[str, _Kept] = {}
        self._count = 0

    def keep(self, number: int, bucket: Bucket) -> str:
        """Keep a trial as it is now, and give the name of that."""
        trial = self._ledger.trials[number]
        runs = trial.runs_of(Stream.SEARCH)
        lanes = {
            run.replicate: run.lane
            for run in runs
            if run.lane is not None and run.state is RunState.RUNNING
        }
        states: Mapping[int, Any] = {}
        if lanes and bucket.population is not None:
            found = bucket.population.take(list(lanes.values()))
            states = dict(zip(lanes, found, strict=True))
        self._count += 1
        name = f"{number}-{self._count}"
        copies = tuple(_copied(run) for run in runs)
        self._kept[name] = _Kept(number, dict(trial.params), lineage_of(trial), copies, states)
        own = [key for key, kept in self._kept.items() if kept.trial == number]
        for key in own[:-_KEPT]:
            del self._kept[key]
        return name

    def has(self, number: int, chunks: int) -> bool:
        """Return whether a trial is kept as it is after so many chunks."""
        return any(
            kept.trial == number and any(run.chunks == chunks for run in kept.runs)
            for kept in self._kept.values()
        )

    def adopt(
        self, trial: Trial, bucket: Bucket, request: Request, room: Callable[[Bucket, int], None]
    ) -> int | None:
        """Let a trial go on from a kept state; give the trial it was kept of, if another one's.

        Args:
            trial: goes on, with the knobs of the request.
            bucket: of both.
            request: names the state.
            room: called before so many lanes are claimed.

        Raises:
            SearchError: the state is gone.
        """
        kept = self._kept.get(request.state or "")
        if kept is None or bucket.population is None:
            raise SearchError(
                f"Ray Tune asks for a state of trial {trial.number} that is gone ({request.state})"
            )
        own = kept.trial == trial.number and dict(kept.params) == dict(request.params)
        runs = trial.runs_of(Stream.SEARCH)
        if own and all(_intact(run, was) for run, was in zip(runs, kept.runs, strict=True)):
            return None
        if not kept.states:
            return None  # it had diverged itself
        if max(run.chunks for run in kept.runs) < max(run.chunks for run in runs):
            raise SearchError(
                f"Ray Tune sends trial {trial.number} back to a state at env steps that it has "
                "trained already; take a scheduler that copies at equal env steps"
            )
        self._take_over(trial, bucket, kept, request.params)
        going = [run for run in runs if run.replicate in kept.states]
        room(bucket, sum(run.lane is None for run in going))
        resolved = self._ledger.resolved_of(trial.number)
        bucket.population.put(
            {bucket.claim(run): (kept.states[run.replicate], resolved) for run in going}
        )
        return None if own else kept.trial

    def _take_over(
        self, trial: Trial, bucket: Bucket, kept: _Kept, params: Mapping[str, Any]
    ) -> None:
        """Bring a trial's books to where the state is."""
        here = max(bucket.trained(run) for run in kept.runs) * bucket.schedule.quantum
        way = list(kept.way)
        if kept.trial != trial.number or dict(kept.params) != dict(params):
            way.append(Segment(here, trial.number, dict(params)))
        own = [part.trial for part in way] == [trial.number]
        trial.adopt(params, () if own else [part.as_json() for part in way], kept.runs)
        self._ledger.touch(trial)


def _copied(run: Run) -> Run:
    """Return a replicate as it is now, in no lane."""
    copied = Run(run.trial, run.stream, run.replicate)
    copied.adopt(run)
    return copied


def _intact(run: Run, was: Run) -> bool:
    """Return whether a replicate is still where it was kept."""
    if was.state is not RunState.RUNNING:
        return run.state is was.state
    return run.state is was.state and run.chunks == was.chunks and run.lane is not None
