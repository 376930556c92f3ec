"""What one program takes on this machine, as it was timed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Costs"]

_RETRIEVED = 0.05  # of a compile, the time that a program of that size takes from the cache


@dataclass(frozen=True)
class Costs:
    """What one program takes.

    Attributes:
        fixed_seconds: of a chunk, however few lanes are busy.
        block_seconds: of each block with a busy lane.
        error: standard error of a chunk's time as a share of it.
        chunks: that were timed.
        trace_seconds: before XLA has both programs to compile; in every process.
        xla_seconds: compiling both of them, without a cache.
        evaluate_seconds: of one call of the evaluation.
        evaluate_steps: env steps that this call's time grows with: of its longest episode, or,
            where the host steps, of all of them.
        baseline_seconds: of one baseline.
        at: seconds since the epoch.
    """

    fixed_seconds: float
    block_seconds: float
    error: float
    chunks: int
    trace_seconds: float
    xla_seconds: float
    evaluate_seconds: float
    evaluate_steps: int
    baseline_seconds: float
    at: float

    def chunk_seconds(self, chunks: float, blocks: float) -> float:
        """Return the time of some chunks that had so many busy blocks in all."""
        return chunks * self.fixed_seconds + blocks * self.block_seconds

    def compile_seconds(self, cached: bool) -> float:
        """Return the time until both programs are there, XLA's part from the cache or not."""
        return self.trace_seconds + self.xla_seconds * (_RETRIEVED if cached else 1.0)
