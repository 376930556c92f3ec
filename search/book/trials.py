"""A trial and its replicates as the loop sees them: what ran, what was seen, where it stands.

A live trial changes in place at chunk boundaries; every change reaches the store as a `TrialRow`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from ...store.rows import DecisionRow, Stream, TrialRow, TrialState

__all__ = ["LIVE", "Run", "RunState", "Trial"]

_RECENT = 100.0
LIVE = (TrialState.WAITING, TrialState.RUNNING)


class RunState(StrEnum):
    """Where one replicate stands."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"  # ran to its full length
    DIVERGED = "diverged"
    CUT = "cut"  # ended early with its trial: stopped, failed, or out of budget


@dataclass
class Run:
    """One replicate of a trial on one stream of seeds.

    Attributes:
        trial, stream, replicate: whose; with the study's seed they fix every random number.
        state: where it stands.
        lane: the lane of its bucket that it is in, None when in none.
        chunks: run so far, those of warm-up included.
        rung_values: the metric at each rung passed so far.
        value: the metric at its last evaluation, None before the first.
        extras: what else that evaluation measured, see `Objectives`.
        rung_extras: likewise at each rung passed.
        recent_episodes, recent_return, recent_length: training episodes behind the rolling means
            of their returns and lengths (at most 100), and these; a length is None before the
            first, and in states of studies that were begun before it was kept.
        half_row, half_row_chunks: what the next row of its curve holds so far, and of how many
            chunks, where rows join several.
        seconds, row_seconds: running time of the chunks it was in, so far and at its last row.
    """

    trial: int
    stream: Stream
    replicate: int
    state: RunState = RunState.WAITING
    lane: int | None = None
    chunks: int = 0
    rung_values: list[float] = field(default_factory=list)
    value: float | None = None
    extras: list[float] = field(default_factory=list)
    rung_extras: list[list[float]] = field(default_factory=list)
    recent_episodes: float = 0.0
    recent_return: float = 0.0
    recent_length: float | None = None
    half_row: dict[str, float] = field(default_factory=dict)
    half_row_chunks: int = 0
    seconds: float = 0.0
    row_seconds: float = 0.0

    def roll(self, episodes: float, mean: float, length: float) -> tuple[float, float]:
        """Take in a chunk's episodes; return rolling means of the last 100 returns and lengths.

        Earlier episodes stand for their own mean; while there is none at all it is NaN.

        Args:
            episodes: that ended in the chunk.
            mean: of their returns; NaN without any.
            length: mean of their lengths, likewise.
        """
        if episodes > 0:
            earlier = min(self.recent_episodes, max(0.0, _RECENT - episodes))
            total = earlier * self.recent_return + episodes * mean
            self.recent_return = total / (earlier + episodes)
            before = 0.0 if self.recent_length is None else earlier
            total = before * (self.recent_length or 0.0) + episodes * length
            self.recent_length = total / (before + episodes)
            self.recent_episodes = min(_RECENT, earlier + episodes)
        if not self.recent_episodes:
            return math.nan, math.nan
        return self.recent_return, math.nan if self.recent_length is None else self.recent_length

    def roll_on_from(self, other: Run) -> None:
        """Take over what is half counted of a run whose training state this one takes over."""
        self.recent_episodes, self.recent_return = other.recent_episodes, other.recent_return
        self.recent_length = other.recent_length
        self.half_row, self.half_row_chunks = dict(other.half_row), other.half_row_chunks

    @property
    def is_live(self) -> bool:
        """Whether it waits or runs."""
        return self.state in (RunState.WAITING, RunState.RUNNING)


@dataclass
class Trial:
    """One configuration and everything known about it.

    Attributes:
        number: 0 is the default configuration.
        params: active searched knobs, plain JSON values.
        proposed_by: `default`, `enqueue`, or the method.
        batch: the ask batch it came from.
        attributes: what the sampler wants to remember of it, plain JSON values.
        bucket: short hash of its Plan, "" when it has none because it failed at once.
        state: where it stands.
        runs: its replicates in the search, then those of the confirm stage; only while it is live
            or being confirmed.
        rung: last rung it was judged at, -1 before the first.
        reports: its value at each rung judged so far.
        extra_reports: its extras there, see `Objectives`.
        value: the metric of the full run, aggregated over replicates.
        seed_values: last value of every replicate that has one and did not diverge.
        stop_rule: the words of the rule that stopped it (or would have, if `audited`).
        audited: it runs on although it was stopped.
        error: why it failed, or what is missing of its confirmation.
        env_steps, eval_env_steps, warmup_env_steps: of its replicates in the search.
        choose_values, report_values: one value a confirm seed.
        started_at, ended_at: seconds since the epoch.
        bits: how often the study had gone on with other bits when it ended.
        schedule: the way of its lineage, see `lineage.Segment`; empty if it copied no other.
        lost: it diverged, has no lane, and waits for the state of another trial.
        objectives, constraints, choose_objectives, choose_constraints: as in its row.
        train_seconds: its share of the running time of chunks.
    """

    number: int
    params: dict[str, Any]
    proposed_by: str
    batch: int
    attributes: dict[str, Any] = field(default_factory=dict)
    bucket: str = ""
    state: TrialState = TrialState.WAITING
    runs: list[Run] = field(default_factory=list)
    rung: int = -1
    reports: list[float] = field(default_factory=list)
    extra_reports: list[list[float]] = field(default_factory=list)
    value: float | None = None
    seed_values: tuple[float, ...] = ()
    stop_rule: str = ""
    audited: bool = False
    error: str = ""
    env_steps: int = 0
    eval_env_steps: int = 0
    warmup_env_steps: int = 0
    choose_values: tuple[float, ...] = ()
    report_values: tuple[float, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    bits: int = 0
    schedule: tuple[dict[str, Any], ...] = ()
    lost: bool = False
    objectives: tuple[float, ...] = ()
    constraints: tuple[float, ...] = ()
    choose_objectives: tuple[float, ...] = ()
    choose_constraints: tuple[float, ...] = ()
    train_seconds: float = 0.0

    @property
    def is_live(self) -> bool:
        """Whether it waits or runs in the search."""
        return self.state in LIVE

    def runs_of(self, stream: Stream) -> list[Run]:
        """Return its replicates on one stream, in order."""
        return [run for run in self.runs if run.stream is stream]

    def values_of(self, stream: Stream) -> tuple[float, ...]:
        """Return the last value of each replicate of a stream that has one and did not diverge."""
        return tuple(run.value for run in self._measured(stream) if run.value is not None)

    def extras_of(self, stream: Stream) -> list[list[float]]:
        """Return the extras of the same replicates."""
        return [run.extras for run in self._measured(stream)]

    def _measured(self, stream: Stream) -> list[Run]:
        return [
            run
            for run in self.runs_of(stream)
            if run.value is not None and run.state is not RunState.DIVERGED
        ]

    def costs(self) -> dict[str, float]:
        """Return what it has cost so far, under the names of `studies.metrics.COSTS`."""
        return {"env_steps": float(self.env_steps), "seconds": self.train_seconds}

    def row(self) -> TrialRow:
        """Return what the store keeps."""
        shared = {name: getattr(self, name) for name in _SHARED}
        rung_value = self.reports[self.rung] if self.rung >= 0 else None
        return TrialRow(trial=self.number, rung_value=rung_value, **shared)

    @classmethod
    def from_row(
        cls, row: TrialRow, decisions: Sequence[DecisionRow], attributes: Mapping[str, Any]
    ) -> Trial:
        """Rebuild a trial that has ended; its replicates are not needed any more."""
        shared = {name: getattr(row, name) for name in _SHARED}
        shared["params"] = dict(row.params)
        return cls(
            number=row.trial,
            reports=[decision.value for decision in decisions],
            extra_reports=[list(decision.extras) for decision in decisions],
            attributes=dict(attributes),
            **shared,
        )


# What a trial and its row have in common under the same name.
_SHARED = tuple(
    entry.name for entry in fields(TrialRow) if entry.name not in ("trial", "rung_value")
)
