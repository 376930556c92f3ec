"""A replicate as the loop sees it: what ran, what was seen, where it stands.

It changes by its methods alone, at chunk boundaries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ...store.rows import Stream

__all__ = ["Run", "RunState", "cut"]

_RECENT = 100.0


class RunState(StrEnum):
    """Where one replicate stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"  # in no lane, and what was in its lane is kept
    ENDED = "ended"  # ran to its full length
    DIVERGED = "diverged"
    CUT = "cut"  # ended early with its trial: stopped, failed, or out of budget


@dataclass
class Run:
    """One replicate of a trial on one stream of seeds.

        WAITING --start--> RUNNING --end--> ENDED --reopen--> RUNNING
           |                  +--diverge--> DIVERGED
           +-------cut--------+--cut------> CUT

    On the way RUNNING --pause--> PAUSED --resume--> WAITING, as often as its trial. What its lane
    held is kept from there until it has a lane again and can `come_back`. A cut ends PAUSED, too.
    `adopt` brings it from any state to that of another replicate. It has a lane from `enter` to
    `leave`: it enters before it starts, and leaves at the boundary where it stops running.

    Attributes:
        trial, stream, replicate: whose; with the study's seed they fix every random number.
        state: where it stands.
        lane: the lane of its bucket that it is in, None when in none.
        chunks: run so far, those of warm-up included.
        rung_values: the metric at each rung passed so far.
        value: the metric at its last evaluation, None before the first.
        extras: what else that evaluation measured, see `Objectives`.
        rung_extras: likewise at each rung passed.
        scores, rung_scores: of several environments, one each, at these evaluations.
        recent_episodes, recent_return, recent_length: training episodes behind the rolling means
            of their returns and lengths (at most 100), and these; a length is None before the
            first, and in states of studies that were begun before it was kept.
        recents: the same by environment, where there are several: number -> episodes, return,
            length.
        half_row, half_row_chunks: what the next row of its curve holds so far, and of how many
            chunks, where rows join several.
        kept: what its lane held was taken out of it, and is not back in one yet.
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
    scores: list[float] = field(default_factory=list)
    rung_scores: list[list[float]] = field(default_factory=list)
    recents: dict[str, list[float]] = field(default_factory=dict)
    kept: bool = False

    @property
    def is_live(self) -> bool:
        """Whether it waits or runs."""
        return self.state in (RunState.WAITING, RunState.RUNNING)

    # ------------------------------------------------------------------ its lane and its state

    def enter(self, lane: int) -> None:
        """Take a lane."""
        self.lane = lane

    def leave(self) -> None:
        """Free its lane."""
        self.lane = None

    def start(self) -> None:
        """Begin to run, in the lane that it has entered."""
        self.state = RunState.RUNNING

    def advance(self) -> None:
        """Count a chunk."""
        self.chunks += 1

    def skip_to(self, chunks: int) -> None:
        """Stand where it would after so many chunks, without having run them."""
        self.chunks = chunks

    def measure(
        self, value: float, extras: Sequence[float], rungs: int, scores: Sequence[float] = ()
    ) -> None:
        """Take in an evaluation.

        Args:
            value: the metric.
            extras: see `Objectives`.
            rungs: how many stand here.
            scores: of several environments, one each.
        """
        self.value, self.extras, self.scores = value, list(extras), list(scores)
        for _ in range(rungs):
            self.rung_values.append(value)
            self.rung_extras.append(self.extras)
            self.rung_scores.append(self.scores)

    def end(self) -> None:
        """Stop at its full length."""
        self.state = RunState.ENDED

    def end_at(self, rung: int) -> None:
        """Be over with what it showed at a rung."""
        self.value = self.rung_values[rung]
        self.extras = self.rung_extras[rung] if self.rung_extras else []
        self.scores = self.rung_scores[rung] if self.rung_scores else []
        self.end()

    def reopen(self) -> None:
        """Run on in the lane it ended with, if it ran to its length: runs have grown."""
        if self.state is RunState.ENDED:
            self.state = RunState.RUNNING

    def diverge(self) -> None:
        """Stop: its numbers mean nothing."""
        self.state = RunState.DIVERGED

    def cut(self) -> None:
        """Stop before its time, if it waits, runs or is paused."""
        if self.is_live or self.state is RunState.PAUSED:
            self.state = RunState.CUT

    def pause(self) -> None:
        """Leave off with its trial, if it runs or was to go on; what its lane holds is kept."""
        if self.is_live:
            self.state, self.kept = RunState.PAUSED, True

    def resume(self) -> None:
        """Wait for a lane to go on in, if it is paused."""
        if self.state is RunState.PAUSED:
            self.state = RunState.WAITING

    def come_back(self) -> None:
        """Have in its lane again what was kept of it."""
        self.kept = False

    def adopt(self, other: Run) -> None:
        """Stand where a replicate stands whose training state this one takes over."""
        self.state, self.chunks, self.value = other.state, other.chunks, other.value
        self.rung_values = list(other.rung_values)
        self.extras, self.rung_extras = list(other.extras), list(other.rung_extras)
        self.scores, self.rung_scores = list(other.scores), list(other.rung_scores)
        self.roll_on_from(other)

    # ------------------------------------------------------------------ the rows of its curve

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

    def roll_on(
        self, environment: int, episodes: float, mean: float, length: float
    ) -> tuple[float, float]:
        """Take in a chunk's episodes on one of several environments; see `roll`."""
        known = self.recents.get(str(environment))
        one = Run(self.trial, self.stream, self.replicate)
        if known is not None:
            one.recent_episodes, one.recent_return, one.recent_length = known
        means = one.roll(episodes, mean, length)
        if one.recent_length is not None:
            recent = [one.recent_episodes, one.recent_return, one.recent_length]
            self.recents[str(environment)] = recent
        return means

    def roll_on_from(self, other: Run) -> None:
        """Take over what is half counted of a run whose training state this one takes over."""
        self.recent_episodes, self.recent_return = other.recent_episodes, other.recent_return
        self.recent_length = other.recent_length
        self.recents = {number: list(recent) for number, recent in other.recents.items()}
        self.half_row, self.half_row_chunks = dict(other.half_row), other.half_row_chunks

    def spend(self, seconds: float) -> None:
        """Count running time."""
        self.seconds += seconds

    def take_row_seconds(self) -> float:
        """Return the running time since its last row, which ends here."""
        took = self.seconds - self.row_seconds
        self.row_seconds = self.seconds
        return took

    def join_row(self, row: Mapping[str, float]) -> None:
        """Keep what its next row holds, with one more chunk in it."""
        self.half_row, self.half_row_chunks = dict(row), self.half_row_chunks + 1

    def end_row(self) -> None:
        """Begin its next row."""
        self.half_row, self.half_row_chunks = {}, 0


def cut(runs: Iterable[Run]) -> None:
    """End replicates that wait, run or are paused before their time."""
    for run in runs:
        run.cut()
