"""User callbacks: typed events, and a base class for the objects that receive them.

Callbacks run in the study's thread. Start events are sent just before the work starts; all other
events are sent between two chunks, after all decisions made there. Callbacks cannot affect
results. If a callback raises, the study stops before the next chunk. All finished work is
committed, and the same call resumes the study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import CallbackError
from ...store.rows import EvaluationRow, Stream, TrialRow
from ...studies.spec import Study
from ..state.progress import Observer, Progress, ReplicateProgress
from .evaluate import AddRows


class StopStudy(Exception):
    """Raised in a callback to stop the study as Ctrl-C does: `interrupted`, without an error."""


@dataclass(frozen=True)
class RunStartEvent:
    """A study starts or resumes."""

    study: Study
    folder: Path  # contains its tables
    resumed: bool


@dataclass(frozen=True)
class RunEndEvent:
    """A study has ended and everything is committed; `state` is `finished` or `interrupted`."""

    progress: Progress
    state: str


@dataclass(frozen=True)
class TrialStartEvent:
    """A trial of the search is about to train for the first time."""

    trial: int
    params: Mapping[str, Any]  # the active searched hyperparameters


@dataclass(frozen=True)
class ChunkStartEvent:
    """Replicates are about to train for one chunk."""

    progress: Progress
    replicates: Sequence[ReplicateProgress]


@dataclass(frozen=True)
class EvaluationStartEvent:
    """Replicates are about to be evaluated together; an `EvaluationEvent` follows for each."""

    replicates: Sequence[ReplicateProgress]


@dataclass(frozen=True)
class ChunkEvent:
    """A chunk is complete; there is one entry for each replicate with a new curve row.

    If `log_every` splits chunks, each row has a separate event. If a row covers several chunks,
    the chunk that completes the row reports it.
    """

    progress: Progress
    trials: Sequence[int]
    streams: Sequence[Stream]  # kind of seeds: search, choose or report
    replicates: Sequence[int]  # number within the stream
    env_steps: Sequence[int]  # training env steps of the replicate so far
    metrics: Mapping[str, np.ndarray]  # name -> float64 [replicates], as in the table `curves`


EvaluationEvent = EvaluationRow
"""A replicate was evaluated after `env_steps` of training."""


@dataclass(frozen=True)
class TrialEndEvent:
    """A trial of the search has ended; `trial` is its row."""

    trial: TrialRow


class Callback(Protocol):
    """The methods that a study calls. Subclass it and override the ones you need.

    >>> class Loud(Callback):
    ...     def on_trial_end(self, event: TrialEndEvent) -> None:
    ...         print(event.trial.trial, event.trial.value)
    """

    def on_run_start(self, event: RunStartEvent) -> None:
        """The study starts or resumes."""

    def on_run_end(self, event: RunEndEvent) -> None:
        """The study has finished or was interrupted."""

    def on_trial_start(self, event: TrialStartEvent) -> None:
        """A trial is about to train for the first time."""

    def on_chunk_start(self, event: ChunkStartEvent) -> None:
        """Replicates are about to train; for new trials, `on_trial_start` was called first."""

    def on_evaluation_start(self, event: EvaluationStartEvent) -> None:
        """Replicates are about to be evaluated."""

    def on_chunk(self, event: ChunkEvent) -> None:
        """A chunk is complete; its evaluations and trial ends have already been reported."""

    def on_evaluation(self, event: EvaluationEvent) -> None:
        """A replicate was evaluated."""

    def on_trial_end(self, event: TrialEndEvent) -> None:
        """A trial has ended."""


class Callbacks(Observer):
    """All callbacks of a study, as one observer.

    If a callback raises, the event raises CallbackError; for a start event, the next event does.
    """

    def __init__(self, callbacks: Iterable[Callback]):
        self._callbacks = tuple(callbacks)
        self._chunk_rows: list[dict[str, Any]] = []
        self._raised: Exception | None = None  # from a start event; raised at the next boundary

    def listening(self, add_rows: AddRows) -> AddRows:
        """Wrap `add_rows` so that it also records rows for `on_chunk`."""

        def listen(**rows: Any) -> None:
            add_rows(**rows)
            self._chunk_rows.append(rows)

        return listen

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        self._call_at_start("on_run_start", RunStartEvent(study, folder, resumed))

    def on_chunk_start(
        self,
        progress: Progress,
        replicates: Sequence[ReplicateProgress],
        started: Mapping[int, Mapping[str, Any]],
    ) -> None:
        for trial, params in started.items():
            self._call_at_start("on_trial_start", TrialStartEvent(trial, params))
        self._call_at_start("on_chunk_start", ChunkStartEvent(progress, replicates))

    def on_evaluation_start(self, replicates: Sequence[ReplicateProgress]) -> None:
        self._call_at_start("on_evaluation_start", EvaluationStartEvent(replicates))

    def on_end(self, progress: Progress, state: str) -> None:
        with suppress(StopStudy):  # there is nothing left to stop
            self._call_callbacks("on_run_end", RunEndEvent(progress, state))

    def on_evaluations(self, evaluations: Sequence[EvaluationRow]) -> None:
        for row in evaluations:
            self._call_callbacks(
                "on_evaluation", deepcopy(row)
            )  # copied, because a callback may change its arrays

    def on_trial_end(self, trial: TrialRow) -> None:
        self._call_callbacks("on_trial_end", TrialEndEvent(trial))

    def on_chunk(self, progress: Progress) -> None:
        chunk_rows = self._chunk_rows.copy()
        self._chunk_rows.clear()
        self._raise_kept()  # even without a row
        for rows in chunk_rows:
            self._call_callbacks("on_chunk", ChunkEvent(progress, **rows))

    def _raise_kept(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _call_at_start(self, method: str, event: object) -> None:
        """Call all callbacks; raise any error later, because nothing can be committed here."""
        if self._raised is None:
            try:
                self._call_callbacks(method, event)
            except (StopStudy, CallbackError) as error:
                self._raised = error

    def _call_callbacks(self, method: str, event: object) -> None:
        """Call a method of all callbacks that define it; user classes may lack some."""
        self._raise_kept()
        for callback in self._callbacks:
            try:
                if hear := getattr(callback, method, None):
                    hear(event)
            except StopStudy:
                raise
            except Exception as error:
                raise CallbackError(type(callback).__name__, method, error) from error
