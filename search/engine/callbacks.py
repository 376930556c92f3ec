"""User callbacks: typed events, one Protocol, any number of them.

Callbacks are called from the study's thread: of what ends between chunks, once everything of a
boundary is decided; of what starts right before. Nothing they do changes a result. One that raises
ends the study at the next boundary: what was done is committed, and the same call goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import CallbackError
from ...store.rows import EvaluationRow, Stream, TrialRow
from ...studies.spec import Study
from ..state.progress import Progress, Silent, Standing
from .evaluate import CurveSink


class StopStudy(Exception):
    """Raise it in a callback to end the study as Ctrl-C does: `interrupted`, without an error."""


@dataclass(frozen=True)
class RunStartEvent:
    """A study begins, or goes on.

    Attributes:
        study: what is asked.
        folder: where its tables lie.
        resumed: it goes on with what was done before.
    """

    study: Study
    folder: Path
    resumed: bool


@dataclass(frozen=True)
class RunEndEvent:
    """A study has `finished` or was `interrupted`, which `state` says; all of it is committed."""

    progress: Progress
    state: str


@dataclass(frozen=True)
class TrialStartEvent:
    """A trial of the search is about to train for the first time.

    Attributes:
        trial: its number.
        params: the searched knobs that are active.
    """

    trial: int
    params: Mapping[str, Any]


@dataclass(frozen=True)
class ChunkStartEvent:
    """Replicates are about to train for one chunk; one entry each.

    Attributes:
        progress: where the study stands.
        replicates: trial, stream, replicate and env steps so far.
    """

    progress: Progress
    replicates: Sequence[Standing]


@dataclass(frozen=True)
class EvaluationStartEvent:
    """Replicates are about to be evaluated, together; an `EvaluationEvent` follows for each."""

    replicates: Sequence[Standing]


@dataclass(frozen=True)
class ChunkEvent:
    """A chunk is done; one entry a replicate that trained in it and has a new row of its curve.

    Where `log_every` splits chunks there is an event for each row; where it joins them, entries
    come with the chunk that completes their row.

    Attributes:
        progress: where the study stands.
        trials: numbers.
        streams: which seeds: `search`, `choose`, `report`.
        replicates: index within the stream.
        env_steps: training env steps of the replicate so far.
        metrics: name -> float64 [replicates], as in the table `curves`.
    """

    progress: Progress
    trials: Sequence[int]
    streams: Sequence[Stream]
    replicates: Sequence[int]
    env_steps: Sequence[int]
    metrics: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class EvaluationEvent:
    """A replicate was evaluated.

    Attributes:
        trial, stream, replicate: whose.
        env_steps: its training env steps so far.
        returns: float64 [episodes], undiscounted.
        lengths: int64 [episodes], env steps.
        metrics: the environment's own, name -> float64 [episodes].
    """

    trial: int
    stream: Stream
    replicate: int
    env_steps: int
    returns: np.ndarray
    lengths: np.ndarray
    metrics: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class TrialEndEvent:
    """A trial of the search has ended; `trial` is its row."""

    trial: TrialRow


class Callback(Protocol):
    """What a study calls. Subclass it and write the methods you care about.

    >>> class Loud(Callback):
    ...     def on_trial_end(self, event: TrialEndEvent) -> None:
    ...         print(event.trial.trial, event.trial.value)
    """

    def on_run_start(self, event: RunStartEvent) -> None:
        """The study begins, or goes on."""

    def on_run_end(self, event: RunEndEvent) -> None:
        """The study has finished, or was interrupted."""

    def on_trial_start(self, event: TrialStartEvent) -> None:
        """A trial is about to train for the first time."""

    def on_chunk_start(self, event: ChunkStartEvent) -> None:
        """Replicates are about to train; the trials that begin so have been told before."""

    def on_evaluation_start(self, event: EvaluationStartEvent) -> None:
        """Replicates are about to be evaluated."""

    def on_chunk(self, event: ChunkEvent) -> None:
        """A chunk is done; its evaluations and ends have been told before."""

    def on_evaluation(self, event: EvaluationEvent) -> None:
        """A replicate was evaluated."""

    def on_trial_end(self, event: TrialEndEvent) -> None:
        """A trial has ended."""


@dataclass(frozen=True)
class _Chunk:
    """The rows of a chunk; see `ChunkEvent`."""

    trials: Sequence[int]
    streams: Sequence[Stream]
    replicates: Sequence[int]
    env_steps: Sequence[int]
    metrics: Mapping[str, np.ndarray]


class _Listening:
    """A `CurveSink` that passes everything on, and tells."""

    def __init__(self, hear: Callable[[_Chunk], None], to: CurveSink):
        self._hear, self._to = hear, to

    def add_chunk(
        self,
        trials: Sequence[int],
        streams: Sequence[Stream],
        replicates: Sequence[int],
        env_steps: Sequence[int],
        metrics: dict[str, np.ndarray],
    ) -> None:
        """See `CurveSink`."""
        self._to.add_chunk(trials, streams, replicates, env_steps, metrics)
        self._hear(_Chunk(trials, streams, replicates, env_steps, metrics))


def _whose(row: EvaluationRow) -> tuple[int, Stream, int, int]:
    return row.trial, row.stream, row.replicate, row.env_steps


class Callbacks(Silent):
    """All callbacks of a study, as one of its observers.

    Raises:
        CallbackError: from any event, where a callback raised.
    """

    def __init__(self, callbacks: Iterable[Callback]):
        self._callbacks = tuple(callbacks)
        self._heard: list[_Chunk] = []
        self._raised: Exception | None = None  # by what started; told at the next boundary

    def listening(self, curves: CurveSink) -> CurveSink:
        """Return the sink of curve rows that hears what passes to another one."""
        return _Listening(self._hear, curves)

    def _hear(self, chunk: _Chunk) -> None:
        self._heard.append(chunk)

    def on_start(self, study: Study, folder: Path, resumed: bool) -> None:
        """Tell that the study begins."""
        event = RunStartEvent(study, folder, resumed)
        self._tell_start("on_run_start", event)

    def on_chunk_start(
        self,
        progress: Progress,
        replicates: Sequence[Standing],
        begun: Mapping[int, Mapping[str, Any]],
    ) -> None:
        """Tell which trials begin, and that a chunk does."""
        for trial, params in begun.items():
            start = TrialStartEvent(trial, params)
            self._tell_start("on_trial_start", start)
        event = ChunkStartEvent(progress, replicates)
        self._tell_start("on_chunk_start", event)

    def on_evaluation_start(self, replicates: Sequence[Standing]) -> None:
        """Tell that an evaluation begins."""
        event = EvaluationStartEvent(replicates)
        self._tell_start("on_evaluation_start", event)

    def on_end(self, progress: Progress, state: str) -> None:
        """Tell that the study has ended; there is nothing left that could be stopped."""
        event = RunEndEvent(progress, state)
        with suppress(StopStudy):
            self._tell("on_run_end", event)

    def on_evaluations(self, evaluations: Sequence[EvaluationRow]) -> None:
        """Tell each evaluation of a boundary."""
        for key, found in groupby(evaluations, _whose):
            rows = list(found)
            names = sorted(rows[0].metrics)
            event = EvaluationEvent(
                *key,
                returns=np.array([row.episode_return for row in rows], np.float64),
                lengths=np.array([row.episode_length for row in rows], np.int64),
                metrics={n: np.array([row.metrics[n] for row in rows], np.float64) for n in names},
            )
            self._tell("on_evaluation", event)

    def on_trial_end(self, trial: TrialRow) -> None:
        """Tell that a trial ended."""
        event = TrialEndEvent(trial)
        self._tell("on_trial_end", event)

    def on_chunk(self, progress: Progress) -> None:
        """Tell the rows of a chunk, those of one number of updates at a time."""
        heard, self._heard = self._heard, []
        self._raise_kept()  # also where there is no row
        for chunk in heard:
            event = ChunkEvent(progress, **vars(chunk))
            self._tell("on_chunk", event)

    def _raise_kept(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _tell_start(self, method: str, event: object) -> None:
        """Tell all callbacks, and keep what one raises: no state may be committed here."""
        if self._raised is None:
            try:
                self._tell(method, event)
            except (StopStudy, CallbackError) as error:
                self._raised = error

    def _tell(self, method: str, event: object) -> None:
        """Call a method of all callbacks that have it: a class of its own may lack some."""
        self._raise_kept()
        for callback in self._callbacks:
            try:
                if hear := getattr(callback, method, None):
                    hear(event)
            except StopStudy:
                raise
            except Exception as error:
                raise CallbackError(type(callback).__name__, method, error) from error
