"""What fresh seeds have shown before: a confirm stage that is opened again runs only the others.

Values come from the evaluations in the journal, which hold every bit, and so does what they said
of trials that are not confirmed any more. A replicate that was cut is run again, to the same bits,
and the rows of its curve that are there already are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...store.rows import Stream
from ...store.study_store import StudyStore
from ..after.looking_back import result_of
from ..book.ledger import Ledger
from ..book.runs import Run, RunState
from .chunk import CurveSink

__all__ = ["Fresh", "Replicate", "read_fresh"]

Replicate = tuple[int, Stream, int]
"""(trial, stream, replicate)"""


@dataclass(frozen=True)
class Fresh:
    """What the journal knew of fresh seeds when the study began or went on.

    Attributes:
        ended: replicates that ran to their end: the metric there, the extras, and the score on
            each of several environments.
        reached: training env steps up to which the curve of a replicate is written.
        diverged: replicates whose trial was reported with them, as diverged.
    """

    ended: Mapping[Replicate, tuple[float, list[float], list[float]]] = field(default_factory=dict)
    reached: Mapping[Replicate, int] = field(default_factory=dict)
    diverged: Collection[Replicate] = ()

    def runs(self, trial: int, stream: Stream, seeds: int) -> list[Run]:
        """Return the replicates of a trial on fresh seeds; those seen before are over."""
        return [self._run(trial, stream, replicate) for replicate in range(seeds)]

    def has_all(self, trial: int, stream: Stream, seeds: int) -> bool:
        """Return whether a trial has a value on each of so many fresh seeds."""
        return all((trial, stream, replicate) in self.ended for replicate in range(seeds))

    def _run(self, trial: int, stream: Stream, replicate: int) -> Run:
        seen = self.ended.get((trial, stream, replicate))
        if seen is None:
            lost = (trial, stream, replicate) in self.diverged
            state = RunState.DIVERGED if lost else RunState.WAITING
            return Run(trial, stream, replicate, state)
        value, extras, scores = seen
        state = RunState.ENDED
        return Run(trial, stream, replicate, state, value=value, extras=extras, scores=scores)

    def only_new(self, curves: CurveSink, cut: bool = False) -> CurveSink:
        """Return a sink that keeps rows of a curve from being written a second time.

        Args:
            curves: takes the others.
            cut: what is cut may run again in this life of the study.
        """
        return _OnlyNew(curves, dict(self.reached)) if self.reached or cut else curves


class _OnlyNew:
    """A `CurveSink` that drops what is written already; see `Fresh.only_new`."""

    def __init__(self, to: CurveSink, reached: dict[Replicate, int]):
        self._to, self._reached = to, reached

    def add_chunk(
        self,
        trials: Sequence[int],
        streams: Sequence[Stream],
        replicates: Sequence[int],
        env_steps: Sequence[int],
        metrics: dict[str, np.ndarray],
    ) -> None:
        """See `CurveSink`."""
        keys = list(zip(trials, streams, replicates, strict=True))
        new = [
            row
            for row, (key, at) in enumerate(zip(keys, env_steps, strict=True))
            if at > self._reached.get(key, 0)
        ]
        for row in new:
            if streams[row] is not Stream.SEARCH:
                self._reached[keys[row]] = env_steps[row]
        self._to.add_chunk(
            [trials[row] for row in new],
            [streams[row] for row in new],
            [replicates[row] for row in new],
            [env_steps[row] for row in new],
            {name: values[new] for name, values in metrics.items()},
        )


def read_fresh(ledger: Ledger, store: StudyStore) -> Fresh:
    """Read what the last commit knows; nothing where nothing is confirmed."""
    if ledger.study.confirm is None or store.created:
        return Fresh()
    ended: dict[Replicate, tuple[float, list[float], list[float]]] = {}
    for packed in store.journal.packed_evaluations(without=Stream.SEARCH):
        found = result_of(packed)
        key = (packed.trial, Stream(packed.stream), packed.replicate)
        value, scores = ledger.objective.seen(found)
        ended[key] = value, ledger.objectives.measure(found), scores
    reached = {
        (trial, Stream(stream), replicate): at
        for (trial, stream, replicate), at in store.curves.reached(Stream.SEARCH).items()
    }
    diverged = {
        (number, Stream.REPORT, replicate)
        for number, trial in ledger.trials.items()
        for replicate in trial.report_diverged
    }
    return Fresh(ended, reached, diverged)
