"""What a study has used up: the counters that budgets and reports read."""

from __future__ import annotations

from dataclasses import dataclass

from ...store.rows import Stream

__all__ = ["Usage"]


@dataclass
class Usage:
    """What the study has used up; the counters that budgets and reports read.

    Attributes:
        search_env_steps, confirm_env_steps: training env steps.
        eval_env_steps, warmup_env_steps: counted apart, search and confirm together.
        lane_chunks, busy_lane_chunks: of chunks that ran while work remained; their ratio is the
            occupancy.
        chunks: dispatched.
        failures: exceptions and lack of memory, not divergence.
        draws, refused: configurations drawn, and those of them that a `forbid` rule refused.
        run_seconds: wall time over all starts of the study.
        chunk_seconds: of that, inside compiled chunks.
    """

    search_env_steps: int = 0
    confirm_env_steps: int = 0
    eval_env_steps: int = 0
    warmup_env_steps: int = 0
    lane_chunks: int = 0
    busy_lane_chunks: int = 0
    chunks: int = 0
    failures: int = 0
    draws: int = 0
    refused: int = 0
    run_seconds: float = 0.0
    chunk_seconds: float = 0.0

    def count_lanes(self, lanes: int, busy: int, work_remains: bool) -> None:
        """Count a chunk that begins; its lanes count while an idle one could be busy."""
        self.chunks += 1
        if work_remains:
            self.lane_chunks += lanes
            self.busy_lane_chunks += busy

    def count(self, env_steps: int, stream: Stream, trains: bool) -> None:
        """Count a chunk of one replicate."""
        if not trains:
            self.warmup_env_steps += env_steps
        elif stream is Stream.SEARCH:
            self.search_env_steps += env_steps
        else:
            self.confirm_env_steps += env_steps

    def count_evaluation(self, env_steps: int) -> None:
        """Count an evaluation of one replicate."""
        self.eval_env_steps += env_steps

    def count_seconds(self, seconds: float) -> None:
        """Count the running time of a chunk."""
        self.chunk_seconds += seconds

    def count_wall(self, seconds: float) -> None:
        """Count wall time."""
        self.run_seconds += seconds

    def count_failure(self) -> None:
        """Count an error."""
        self.failures += 1

    def count_draws(self, draws: int, refused: int) -> None:
        """Count configurations drawn, and those of them that a rule refused."""
        self.draws += draws
        self.refused += refused

    @property
    def env_steps(self) -> int:
        """Training env steps of search and confirm together; what `budget.env_steps` bounds."""
        return self.search_env_steps + self.confirm_env_steps

    @property
    def occupancy(self) -> float:
        """Busy lane-chunks over all lane-chunks while work remained; 1 before the first."""
        return self.busy_lane_chunks / self.lane_chunks if self.lane_chunks else 1.0
