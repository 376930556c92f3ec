"""What a study has used up: the counters that budgets and reports read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from ...store.rows import Stream

Part = Literal["compile", "evaluate", "search", "store"]
"""What a study's time goes into beside chunks: see `Usage`."""


@dataclass
class Usage:
    """What the study has used up; the counters that budgets and reports read.

    Attributes:
        search_env_steps, confirm_env_steps: training env steps.
        asked_env_steps: of these of confirm, those of trials that `confirm.also` names, which the
            budget does not bound.
        eval_env_steps, warmup_env_steps: counted apart, search and confirm together.
        lane_chunks, busy_lane_chunks: of chunks that ran while work remained; their ratio is the
            occupancy.
        chunks: dispatched.
        failures: exceptions and lack of memory, not divergence.
        draws, refused: configurations drawn, and those of them that a `forbid` rule refused.
        run_seconds: wall time over all starts of the study.
        chunk_seconds: of that, inside compiled chunks: rollouts and updates, one program.
        compile_seconds, evaluate_seconds: of that, compiling, and evaluating policies and
            baselines.
        search_seconds: of that, waiting for the sampler; what it draws beside a chunk is free.
        store_seconds: of that, committing and publishing.
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
    compile_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    search_seconds: float = 0.0
    store_seconds: float = 0.0
    asked_env_steps: int = 0

    def count_lanes(self, lanes: int, busy: int, work_remains: bool) -> None:
        """Count a chunk that begins; its lanes count while an idle one could be busy."""
        self.chunks += 1
        if work_remains:
            self.lane_chunks += lanes
            self.busy_lane_chunks += busy

    def count(self, env_steps: int, stream: Stream, trains: bool, asked: bool = False) -> None:
        """Count a chunk of one replicate; `asked` of a trial that `confirm.also` names."""
        if not trains:
            self.warmup_env_steps += env_steps
        elif stream is Stream.SEARCH:
            self.search_env_steps += env_steps
        else:
            self.confirm_env_steps += env_steps
            self.asked_env_steps += env_steps * asked

    def count_evaluation(self, env_steps: int) -> None:
        """Count an evaluation of one replicate."""
        self.eval_env_steps += env_steps

    def count_seconds(self, seconds: float) -> None:
        """Count the running time of a chunk."""
        self.chunk_seconds += seconds

    @contextmanager
    def spending(self, part: Part) -> Iterator[None]:
        """Count the time in here as that of a part; what fails counts too."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.count_part(part, time.monotonic() - started)

    def count_part(self, part: Part, seconds: float) -> None:
        """Count some of the wall time as that of a part; a clock set back counts nothing."""
        name = f"{part}_seconds"
        setattr(self, name, getattr(self, name) + max(0.0, seconds))

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
        """Training env steps of search and confirm together."""
        return self.search_env_steps + self.confirm_env_steps

    @property
    def bounded_env_steps(self) -> int:
        """Those that `budget.env_steps` bounds."""
        return self.env_steps - self.asked_env_steps

    @property
    def seconds_by_part(self) -> dict[str, float]:
        """What the wall time went into, part -> seconds; their sum is `run_seconds`.

        `train` are rollouts and updates; `between` is everything between two steps that has no
        counter of its own: judging, books, callbacks, views.

        >>> parts = Usage(run_seconds=10.0, chunk_seconds=6.0, compile_seconds=3.0).seconds_by_part
        >>> parts["compile"], parts["train"], parts["between"]
        (3.0, 6.0, 1.0)
        """
        parts = {
            "compile": self.compile_seconds,
            "train": self.chunk_seconds,
            "evaluate": self.evaluate_seconds,
            "search": self.search_seconds,
            "store": self.store_seconds,
        }
        return {**parts, "between": max(0.0, self.run_seconds - sum(parts.values()))}

    @property
    def env_steps_per_second(self) -> float:
        """Training env steps a second of all lives, their compiles included."""
        return self.env_steps / self.run_seconds if self.run_seconds > 0 else 0.0

    @property
    def occupancy(self) -> float:
        """Busy lane-chunks over all lane-chunks while work remained; 1 before the first."""
        return self.busy_lane_chunks / self.lane_chunks if self.lane_chunks else 1.0
