"""Notifies observers between two steps, and tracks elapsed and remaining time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...store.rows import EvaluationRow, Stream
from ..state.buckets import Bucket, compiles_of
from ..state.budget import check_health
from ..state.loop_state import Outlook, Phase
from ..state.progress import Observer, Progress, ReplicateProgress, picture
from ..state.remaining_work import Rates, RemainingWork, Work
from ..state.search_state import SearchState
from ..state.trials import Replicate, Trial

# between two estimates, and the share of time that they may take
_LOOK_SECONDS, _LOOK_SHARE = 0.25, 0.02
_STREAMS = {Phase.CHOOSE: Stream.CHOOSE, Phase.REPORT: Stream.REPORT, Phase.ALSO: Stream.REPORT}


def _has_trained(trial: Trial) -> bool:
    return any(run.chunks for run in trial.runs)


class Notifier:
    """Notifies the observers of one study; those in `starts` also receive start events."""

    def __init__(
        self,
        search_state: SearchState,
        buckets: Mapping[str, Bucket],
        observers: Sequence[Observer],
        starts: Sequence[Observer] = (),
    ):
        self._starts = starts
        self._search_state, self._buckets, self._observers = search_state, buckets, observers
        self._clock = time.monotonic()
        self._rates, self._looked, self._wait = Rates(), -math.inf, _LOOK_SECONDS
        self._rates.begin(search_state.state.usage)
        self._ahead = RemainingWork(search_state.study)
        self._found: Outlook | None = None  # result of the last estimate
        state = search_state.state
        self._phase = state.phase  # that observers know of
        if state.phase is Phase.ALSO and not state.asked:
            self._phase = Phase.DONE

    def tell(self, event: str, *about: Any) -> None:
        for observer in self._observers:
            getattr(observer, event)(*about)

    def count_time(self) -> None:
        now = time.monotonic()
        self._search_state.state.usage.count_wall(max(0.0, now - self._clock))
        self._clock = now

    def progress(self) -> Progress:
        running = self._buckets.get(self._search_state.state.running)
        return picture(self._search_state, self._buckets.values(), running)

    def worked(self, bucket: Bucket, lanes: Sequence[int]) -> None:
        blocks = len({lane // bucket.block for lane in lanes})
        self._rates.did(Work(block_steps=float(blocks * bucket.schedule.quantum)))

    def evaluated(self, replicates: int) -> None:
        self._rates.did(Work(evaluations=float(replicates)))

    def chunk_starts(self, bucket: Bucket, runs: Sequence[Replicate]) -> None:
        """Report the replicates about to train, and the search trials that start in this chunk."""
        if not self._starts:
            return
        trials = [
            self._search_state.trials[run.trial] for run in runs if run.stream is Stream.SEARCH
        ]
        started = {trial.number: trial.params for trial in trials if not _has_trained(trial)}
        standing, progress = _progress_of_runs(bucket, runs), self.progress()
        for observer in self._starts:
            observer.on_chunk_start(progress, standing, started)

    def evaluation_starts(self, bucket: Bucket, runs: Sequence[Replicate]) -> None:
        for observer in self._starts:
            observer.on_evaluation_start(_progress_of_runs(bucket, runs))

    def boundary(self, evaluations: Sequence[EvaluationRow]) -> None:
        self._search_state.state.pass_boundary()
        self.count_time()
        self._look_ahead()
        if evaluations:
            self.tell("on_evaluations", evaluations)
        self.changes()
        if self._observers:
            self.tell("on_chunk", self.progress())
        check_health(self._search_state)

    def _look_ahead(self) -> None:
        search_state, buckets = self._search_state, list(self._buckets.values())
        usage, wall = search_state.state.usage, search_state.study.budget.wall_seconds
        if search_state.state.phase is Phase.ALSO:
            wall = None
        compiled = compiles_of(buckets)
        self._rates.pass_boundary(usage, compiled)
        if 0.0 <= self._clock - self._looked < self._wait:
            self._store_outlook(self._found)
            return
        self._looked, ahead = self._clock, self._ahead.of(search_state, buckets)
        left, speed = self._rates.seconds_of(ahead), self._rates.env_steps_per_second
        more = ahead.work.env_steps
        if wall is not None and left is not None:
            rest = max(0.0, wall - usage.run_seconds)
            if not ahead.bounded or rest < left:
                left, more = rest, rest * speed
        elif not ahead.bounded:
            left = None
        self._found = Outlook(usage.env_steps + round(more), left, speed)
        self._store_outlook(self._found)
        took = time.monotonic() - self._clock  # the estimate reads every trial
        self._wait = max(_LOOK_SECONDS, took / _LOOK_SHARE)

    def _store_outlook(self, found: Outlook | None) -> None:
        """Store an estimate of the remaining time, less the time since it was made."""
        if found is None:
            return
        left = found.seconds_left
        if left is not None:
            left = max(0.0, left - (self._clock - self._looked))
        self._search_state.state.expect(replace(found, seconds_left=left))

    def changes(self) -> None:
        for trial in self._search_state.take_ended():
            self.tell("on_trial_end", trial.row())
        phase = self._search_state.state.phase
        if phase is not self._phase and phase in _STREAMS:
            live, stream = self._search_state.state.live.values(), _STREAMS[phase]
            trials = tuple(trial.number for trial in live if trial.has_live_runs(stream))
            self.tell("on_confirm", phase, trials)
        self._phase = phase


def _progress_of_runs(bucket: Bucket, runs: Sequence[Replicate]) -> list[ReplicateProgress]:
    return [
        ReplicateProgress(run.trial, run.stream, run.replicate, bucket.env_steps_of(run))
        for run in runs
    ]
