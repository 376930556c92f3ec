"""When a replicate of one bucket is evaluated, judged and done, counted in training chunks.

Every event falls on a chunk boundary: rungs, evaluation points and the length of a run round up to
whole quanta, so buckets with other quanta are compared at nearly the same env steps. A rung keeps
its index in every bucket, also where two of them round up to the same chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...studies.quanta import rung_steps
from ...studies.spec import Study

__all__ = ["Schedule", "schedule_of"]


@dataclass(frozen=True)
class Schedule:
    """The events of one bucket.

    Attributes:
        quantum: training env steps of one lane in one chunk.
        length: training chunks of a full run.
        rungs: training chunks of each rung, in order, all below `length`.
        evaluations: training chunks after which a search replicate is evaluated; rungs and the
            end included.
    """

    quantum: int
    length: int
    rungs: tuple[int, ...]
    evaluations: frozenset[int]

    @property
    def env_steps(self) -> int:
        """Training env steps of a full run."""
        return self.quantum * self.length

    def env_steps_at(self, rung: int) -> int:
        """Training env steps of one replicate at a rung."""
        return self.rungs[rung] * self.quantum

    def rungs_at(self, chunks: int) -> list[int]:
        """Return the indices of the rungs that stand at this many training chunks."""
        return [index for index, rung in enumerate(self.rungs) if rung == chunks]


def schedule_of(study: Study, quantum: int) -> Schedule:
    """Lay out the events of a bucket whose lanes do `quantum` env steps a chunk."""

    def chunks(env_steps: float) -> int:
        return -(-round(env_steps) // quantum)

    length = chunks(study.env_steps)
    rungs = tuple(entry for entry in map(chunks, rung_steps(study)) if entry < length)
    every = study.evaluation.every
    points = set(rungs) | {length}
    if isinstance(every, int):
        points |= {chunks(steps) for steps in range(every, study.env_steps, every)}
    return Schedule(quantum, length, rungs, frozenset(points))
