"""Counters for budgets and reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from ...store.rows import Stream

Part = Literal["compile", "evaluate", "search", "store"]
# parts of the study's time other than chunks


@dataclass
class Usage:
    """Resources used so far, over all processes of the study."""

    search_env_steps: int = 0
    confirm_env_steps: int = 0
    eval_env_steps: int = 0  # not included in the two above, like warm-up
    warmup_env_steps: int = 0
    lane_chunks: int = 0  # all, while work remained; occupancy is busy ones divided by these
    busy_lane_chunks: int = 0
    chunks: int = 0
    failures: int = 0  # errors and out-of-memory failures, not divergence
    draws: int = 0  # configurations drawn; `refused` counts those rejected by a `forbid` rule
    refused: int = 0
    run_seconds: float = 0.0  # wall time, including the parts below
    chunk_seconds: float = 0.0  # rollouts and updates: compiled chunks
    compile_seconds: float = 0.0
    evaluate_seconds: float = 0.0  # evaluation of policies and baselines
    search_seconds: float = 0.0  # waiting for the sampler
    store_seconds: float = 0.0  # committing and publishing
    asked_env_steps: int = 0  # used by confirm for `confirm.also`, which the budget does not limit

    def count_lanes(self, lanes: int, busy: int, work_remains: bool, chunks: int = 1) -> None:
        """Count chunks; their lanes count towards the occupancy only if work remains."""
        self.chunks += chunks
        if work_remains:
            self.lane_chunks += lanes
            self.busy_lane_chunks += busy

    def count(self, env_steps: int, stream: Stream, trains: bool, asked: bool = False) -> None:
        """Count a replicate's chunk; `asked` is whether its trial is in `confirm.also`."""
        if not trains:
            self.warmup_env_steps += env_steps
        elif stream is Stream.SEARCH:
            self.search_env_steps += env_steps
        else:
            self.confirm_env_steps += env_steps
            self.asked_env_steps += env_steps * asked

    def count_evaluation(self, env_steps: int) -> None:
        self.eval_env_steps += env_steps

    def count_seconds(self, seconds: float) -> None:
        self.chunk_seconds += seconds

    @contextmanager
    def spending(self, part: Part) -> Iterator[None]:
        """Add the time spent in the context to a part's total, even after an error."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.count_part(part, time.monotonic() - started)

    def count_part(self, part: Part, seconds: float) -> None:
        name = f"{part}_seconds"
        setattr(self, name, getattr(self, name) + max(0.0, seconds))

    def count_wall(self, seconds: float) -> None:
        self.run_seconds += seconds

    def count_failure(self) -> None:
        self.failures += 1

    def forgive_failure(self) -> None:
        self.failures = max(0, self.failures - 1)

    def count_draws(self, draws: int, refused: int) -> None:
        self.draws += draws
        self.refused += refused

    @property
    def env_steps(self) -> int:
        return self.search_env_steps + self.confirm_env_steps

    @property
    def bounded_env_steps(self) -> int:
        return self.env_steps - self.asked_env_steps

    @property
    def seconds_by_part(self) -> dict[str, float]:
        """The wall time by part, which sums to `run_seconds`.

        `train` covers rollouts and updates; `between` covers judging, bookkeeping and callbacks.

        >>> parts = Usage(run_seconds=10.0, chunk_seconds=6.0, compile_seconds=3.0).seconds_by_part
        >>> parts["compile"], parts["train"], parts["between"]
        (3.0, 6.0, 1.0)
        """
        named = {part: getattr(self, f"{part}_seconds") for part in get_args(Part)}
        parts = {"compile": named.pop("compile"), "train": self.chunk_seconds, **named}
        return {**parts, "between": max(0.0, self.run_seconds - sum(parts.values()))}

    @property
    def idle_share(self) -> float:
        """The share of the wall time without training or evaluation; 0 before the first chunk.

        >>> Usage(run_seconds=10.0, chunk_seconds=6.0, evaluate_seconds=1.5).idle_share
        0.25
        """
        if self.run_seconds <= 0.0:
            return 0.0
        return max(0.0, 1.0 - (self.chunk_seconds + self.evaluate_seconds) / self.run_seconds)

    @property
    def env_steps_per_second(self) -> float:
        """Training env steps per second over all processes, including compile time."""
        if self.run_seconds <= 0:
            return 0.0
        return self.env_steps / self.run_seconds

    @property
    def occupancy(self) -> float:
        """The share of lane-chunks that were busy while work remained; initially 1."""
        if not self.lane_chunks:
            return 1.0
        return self.busy_lane_chunks / self.lane_chunks
