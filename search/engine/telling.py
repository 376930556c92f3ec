"""Tells observers what happened, between two steps, and counts the time: they only look."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...store.rows import EvaluationRow, Stream
from ..book.buckets import Bucket
from ..book.budget import check_health
from ..book.ledger import Ledger
from ..book.progress import Observer, Progress, Standing, StartObserver, picture
from ..book.runs import Run
from ..book.state import Phase

__all__ = ["Telling"]

_STREAMS = {Phase.CHOOSE: Stream.CHOOSE, Phase.REPORT: Stream.REPORT}


class Telling:
    """The observers of one study.

    Args:
        ledger: what they are told of.
        buckets: by key.
        observers: told of every boundary.
        starts: told of what begins, too.
    """

    def __init__(
        self,
        ledger: Ledger,
        buckets: Mapping[str, Bucket],
        observers: Sequence[Observer],
        starts: Sequence[StartObserver] = (),
    ):
        self._starts = starts
        self._ledger, self._buckets, self._observers = ledger, buckets, observers
        self._clock = time.monotonic()
        self._phase = ledger.state.phase  # that observers know of

    def start(self, folder: Path, resumed: bool) -> None:
        """Tell that the study begins, or goes on."""
        for observer in self._observers:
            observer.on_start(self._ledger.study, folder, resumed)

    def baseline(self, baseline: str, value: float) -> None:
        """Tell a baseline that was measured."""
        for observer in self._observers:
            observer.on_baseline(baseline, value)

    def interrupt(self) -> None:
        """Tell that a clean end was asked for."""
        for observer in self._observers:
            observer.on_interrupt()

    def end(self, outcome: str) -> None:
        """Tell that the study has `finished`, or was `interrupted`."""
        progress = self.progress()
        for observer in self._observers:
            observer.on_end(progress, outcome)

    def start_clock(self) -> None:
        """Count the time from here on."""
        self._clock = time.monotonic()

    def progress(self) -> Progress:
        """Return where the study stands."""
        running = self._buckets.get(self._ledger.state.running)
        return picture(self._ledger, self._buckets.values(), running)

    def chunk_starts(self, bucket: Bucket, runs: Sequence[Run]) -> None:
        """Tell which replicates are about to train, and which trials of the search begin so."""
        if not self._starts:
            return
        trials = [self._ledger.trials[run.trial] for run in runs if run.stream is Stream.SEARCH]
        begun = {
            trial.number: trial.params
            for trial in trials
            if not any(run.chunks for run in trial.runs)
        }
        standing, progress = _standing(bucket, runs), self.progress()
        for observer in self._starts:
            observer.on_chunk_start(progress, standing, begun)

    def evaluation_starts(self, bucket: Bucket, runs: Sequence[Run]) -> None:
        """Tell which replicates are about to be evaluated."""
        for observer in self._starts:
            observer.on_evaluation_start(_standing(bucket, runs))

    def boundary(self, evaluations: Sequence[EvaluationRow]) -> None:
        """Count a boundary, whose steps are done, and its time; tell of it.

        Raises:
            SearchError: the study only fails.
            CallbackError: a callback raised.
        """
        now = time.monotonic()
        self._ledger.state.pass_boundary(max(0.0, now - self._clock))
        self._clock = now
        for observer in self._observers if evaluations else ():
            observer.on_evaluations(evaluations)
        self.changes()
        if self._observers:
            progress = self.progress()
            for observer in self._observers:
                observer.on_chunk(progress)
        check_health(self._ledger)

    def changes(self) -> None:
        """Tell which trials have ended, and which phase has begun."""
        for trial in self._ledger.take_ended():
            for observer in self._observers:
                observer.on_trial_end(trial.row())
        phase = self._ledger.state.phase
        if phase is not self._phase and phase in _STREAMS:
            trials = self._on(_STREAMS[phase])
            for observer in self._observers:
                observer.on_confirm(phase, trials)
        self._phase = phase

    def _on(self, stream: Stream) -> tuple[int, ...]:
        """Return the trials with a replicate of a stream to run."""
        live = self._ledger.state.live.values()
        return tuple(t.number for t in live if any(run.is_live for run in t.runs_of(stream)))


def _standing(bucket: Bucket, runs: Sequence[Run]) -> list[Standing]:
    quantum = bucket.schedule.quantum
    return [
        Standing(run.trial, run.stream, run.replicate, bucket.trained(run) * quantum)
        for run in runs
    ]
