"""Trials and replicates in memory; only their methods change them, between chunks.

Methods that affect other parts of the state are called through `SearchState`. Every change reaches
the store as a `TrialRow`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from ...store.rows import LIVE, DecisionRow, Stream, TrialRow, TrialState
from ...store.statistics import mean

_RECENT = 100.0


class RunState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"  # in no lane; the state from its lane is kept
    ENDED = "ended"  # ran to its full length
    DIVERGED = "diverged"
    CUT = "cut"  # ended early with its trial, which was stopped, failed, or out of budget


@dataclass
class Replicate:
    """One replicate of a trial, on one stream of seeds.

        WAITING --start--> RUNNING --end--> ENDED --reopen--> RUNNING
           |                  +--diverge--> DIVERGED
           +-------cut--------+--cut------> CUT

    RUNNING --pause--> PAUSED --resume--> WAITING can occur repeatedly, as for its trial; the
    lane's state is kept until the replicate has a lane again (`come_back`). A paused replicate can
    also be cut. `adopt` copies the state of another replicate. A replicate has a lane from
    `enter`, before it starts, until `leave`, after its last chunk.
    """

    trial: int  # trial, stream and replicate determine all random numbers, with the study's seed
    stream: Stream
    replicate: int
    state: RunState = RunState.WAITING
    lane: int | None = None  # lane in its bucket
    chunks: int = 0  # number run so far, including warm-up
    rung_values: list[float] = field(default_factory=list)  # the metric at each rung passed
    value: float | None = None  # the metric at its last evaluation
    extras: list[float] = field(default_factory=list)  # of that evaluation, see `Objectives`
    rung_extras: list[list[float]] = field(default_factory=list)  # extras at each rung passed
    recent_episodes: float = 0.0  # number of training episodes in the rolling means, at most 100
    recent_return: float = 0.0
    recent_length: float | None = None  # None before the first episode, and in older studies
    # unfinished curve row, from half_row_chunks chunks
    half_row: dict[str, float] = field(default_factory=dict)
    half_row_chunks: int = 0
    seconds: float = 0.0  # running time of its chunks
    row_seconds: float = 0.0  # running time up to its last row
    # score per environment at the last evaluation
    scores: list[float] = field(default_factory=list)
    rung_scores: list[list[float]] = field(default_factory=list)
    # environment -> episodes, return, length in the rolling means
    recents: dict[str, list[float]] = field(default_factory=dict)
    kept: bool = False  # whether its state was taken out of its lane and has not been put back
    # digests of its training metrics, in the first chunk and in all chunks; seeds that train
    # identically have equal digests
    first_digest: str = ""
    digest: str = ""
    varies: bool = False  # whether its metrics differ between chunks
    alone: float | None = None  # `value` without training returns, if these count
    rung_alone: list[float] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        return self.state in (RunState.WAITING, RunState.RUNNING)

    def enter(self, lane: int) -> None:
        self.lane = lane

    def leave(self) -> None:
        self.lane = None

    def start(self) -> None:
        self.state = RunState.RUNNING

    def advance(self) -> None:
        self.chunks += 1

    def digest_chunk(self, metrics: bytes) -> None:
        """Add a chunk's training metrics to the digest."""
        own = blake2b(metrics, digest_size=8).hexdigest()
        self.first_digest = self.first_digest or own
        self.varies = self.varies or own != self.first_digest
        joined = f"{self.digest}{own}".encode()
        self.digest = blake2b(joined, digest_size=8).hexdigest()

    def skip_to(self, chunks: int) -> None:
        self.chunks = chunks

    def measure(
        self,
        value: float,
        extras: Sequence[float],
        rungs: int,
        scores: Sequence[float] = (),
        alone: float | None = None,
    ) -> None:
        """Record an evaluation at `rungs` rungs; `alone` is its value without training returns."""
        self.value, self.extras, self.scores = value, list(extras), list(scores)
        self.alone = alone
        for _ in range(rungs):
            self.rung_values.append(value)
            if alone is not None:
                self.rung_alone.append(alone)
            self.rung_extras.append(self.extras)
            self.rung_scores.append(self.scores)

    def take_alone(self) -> None:
        """Use only evaluations from now on, and replace earlier values."""
        if self.alone is None:
            return
        self.value = self.alone
        if len(self.rung_alone) == len(self.rung_values):
            self.rung_values = list(self.rung_alone)

    def end(self) -> None:
        self.state = RunState.ENDED

    def end_at(self, rung: int) -> None:
        self.value = self.rung_values[rung]
        if len(self.rung_alone) == len(self.rung_values):
            self.alone = self.rung_alone[rung]
        self.extras, self.scores = [], []
        if self.rung_extras:
            self.extras = self.rung_extras[rung]
        if self.rung_scores:
            self.scores = self.rung_scores[rung]
        self.end()

    def reopen(self) -> None:
        if self.state is RunState.ENDED:
            self.state = RunState.RUNNING

    def diverge(self) -> None:
        self.state = RunState.DIVERGED

    def cut(self) -> None:
        """Stop the replicate early if it is waiting, running or paused."""
        if self.is_live or self.state is RunState.PAUSED:
            self.state = RunState.CUT

    def pause(self) -> None:
        if self.is_live:
            self.state, self.kept = RunState.PAUSED, True

    def resume(self) -> None:
        if self.state is RunState.PAUSED:
            self.state = RunState.WAITING

    def come_back(self) -> None:
        self.kept = False

    def adopt(self, other: Replicate) -> None:
        vars(self).update(
            {name: copy.deepcopy(value) for name, value in vars(other).items() if name not in _OWN}
        )

    @property
    def training_return(self) -> float:
        """Mean return of the last 100 training episodes; NaN before the first."""
        if not self.recent_episodes:
            return math.nan
        return self.recent_return

    def roll(self, episodes: float, mean: float, length: float) -> tuple[float, float]:
        """Add a chunk's episodes; return rolling means over the last 100 returns and lengths.

        Earlier episodes are represented by their mean; without any episodes, means are NaN. `mean`
        and `length` are means over the `episodes` that ended in the chunk.
        """
        if episodes > 0:
            earlier = min(self.recent_episodes, max(0.0, _RECENT - episodes))
            total = earlier * self.recent_return + episodes * mean
            self.recent_return = total / (earlier + episodes)
            with_length = earlier
            if self.recent_length is None:
                with_length, self.recent_length = 0.0, 0.0
            total = with_length * self.recent_length + episodes * length
            self.recent_length = total / (with_length + episodes)
            self.recent_episodes = min(_RECENT, earlier + episodes)
        if not self.recent_episodes:
            return math.nan, math.nan
        if self.recent_length is None:
            return self.recent_return, math.nan
        return self.recent_return, self.recent_length

    def copied_means(self) -> Replicate:
        """Return a replicate with the same rolling means, for rows within a chunk."""
        return replace(self, recents=dict(self.recents))

    def roll_on(
        self, environment: int, episodes: float, mean: float, length: float
    ) -> tuple[float, float]:
        known = self.recents.get(str(environment))
        one = Replicate(self.trial, self.stream, self.replicate)
        if known is not None:
            one.recent_episodes, one.recent_return, one.recent_length = known
        means = one.roll(episodes, mean, length)
        if one.recent_length is not None:
            recent = [one.recent_episodes, one.recent_return, one.recent_length]
            self.recents[str(environment)] = recent
        return means

    def spend(self, seconds: float) -> None:
        self.seconds += seconds

    def take_row_seconds(self) -> float:
        """Return the running time since its last row, and start the next row."""
        took = self.seconds - self.row_seconds
        self.row_seconds = self.seconds
        return took

    def join_row(self, row: Mapping[str, float]) -> None:
        self.half_row, self.half_row_chunks = dict(row), self.half_row_chunks + 1

    def end_row(self) -> None:
        self.half_row, self.half_row_chunks = {}, 0


_OWN = ("trial", "stream", "replicate", "lane", "seconds", "row_seconds", "kept")
"""Fields that a replicate does not copy from another one."""


def cut(runs: Iterable[Replicate]) -> None:
    for run in runs:
        run.cut()


def in_state(runs: Iterable[Replicate], state: RunState) -> list[Replicate]:
    return [run for run in runs if run.state is state]


def any_live(runs: Iterable[Replicate]) -> bool:
    return any(run.is_live for run in runs)


def lanes_of(runs: Iterable[Replicate]) -> list[int]:
    """Return the lanes of the replicates that have one."""
    return [run.lane for run in runs if run.lane is not None]


@dataclass
class Trial(TrialRow):
    """One configuration and its results: a row that grows, and data that only the loop needs.

        WAITING --start--> RUNNING --end--> FINISHED --reopen--> RUNNING
           +-----------------+-------end--> STOPPED, DIVERGED, FAILED, UNFINISHED

    If rules pause trials, RUNNING --pause--> PAUSED --promote--> RUNNING happens at most once per
    rung; a trial that is not promoted ends as STOPPED. `report` records the values at a rung, a
    rule may `stop_by` or audit the trial, and `set_value` is called before it finishes. If trials
    copy each other, a diverged trial is `set_aside`, and then resumes by `adopt` or ends. A
    finished trial remains finished while it is confirmed: `add` adds replicates on new seeds, and
    `choose` and `prove` set their values. The same applies to the default configuration. If no
    trial has it, a REFERENCE trial is created, which was never in the search.
    """

    # attributes from the sampler, plain JSON values
    attributes: dict[str, Any] = field(default_factory=dict)
    # replicates in search and confirm, while the trial is live or confirmed
    runs: list[Replicate] = field(default_factory=list)
    reports: list[float] = field(default_factory=list)  # value at each judged rung
    report_steps: list[int] = field(default_factory=list)  # env steps of each
    # extras at each judged rung, see `Objectives`
    extra_reports: list[list[float]] = field(default_factory=list)
    lost: bool = False  # whether it diverged and waits, without lanes, for another trial's state
    paused_at: list[int] = field(default_factory=list)  # rungs at which it paused, in order

    @property
    def number(self) -> int:
        return self.trial

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def is_paused(self) -> bool:
        return self.state is TrialState.PAUSED

    def join(self, bucket: str) -> None:
        self.bucket = bucket

    def add(self, runs: Iterable[Replicate]) -> None:
        self.runs = [*self.runs, *runs]

    def start(self, now: float | None) -> None:
        if self.state is TrialState.WAITING:
            self.state, self.started_at = TrialState.RUNNING, now

    def count(self, env_steps: int, trains: bool, seconds: float) -> None:
        self.train_seconds += seconds
        if trains:
            self.env_steps += env_steps
        else:
            self.warmup_env_steps += env_steps

    def count_evaluation(self, env_steps: int) -> None:
        self.eval_env_steps += env_steps

    def see_values(self) -> None:
        self.seed_values = self.values_of(Stream.SEARCH)
        self.scores = self.scores_of(Stream.SEARCH)

    def report(self, value: float, env_steps: int) -> None:
        """Record the value at the trial's next rung, after `env_steps` per replicate."""
        self.rung, self.rung_value, self.rung_env_steps = self.rung + 1, value, env_steps
        self.reports.append(value)
        self.report_steps.append(env_steps)

    def report_extras(self, extras: list[float], constraints: tuple[float, ...]) -> None:
        self.extra_reports.append(extras)
        self.constraints = constraints

    def stop_by(self, rule: str, audited: bool = False) -> None:
        self.stop_rule, self.audited = rule, self.audited or audited

    def pause(self, rule: str) -> None:
        """Pause the trial at its rung and free its lanes; it counts as stopped if it ends here."""
        self.state, self.stop_rule = TrialState.PAUSED, rule
        self.paused_at.append(self.rung)
        for run in self.runs:
            run.pause()

    def promote(self) -> None:
        self.state, self.stop_rule = TrialState.RUNNING, ""
        for run in self.runs:
            run.resume()

    def set_value(
        self, value: float, objectives: tuple[float, ...], constraints: tuple[float, ...]
    ) -> None:
        self.value = value
        self.objectives = objectives or self.objectives
        self.constraints = constraints or self.constraints

    def end(self, state: TrialState, error: str, now: float | None, bits: int) -> None:
        """End the trial; unfinished replicates are cut."""
        cut(self.runs)
        if state is TrialState.DIVERGED and not error:
            error = self.error  # where it did
        self.state, self.error, self.ended_at = state, error, now
        self.bits, self.lost = bits, False
        self.see_values()
        if state is TrialState.STOPPED and self.rung >= 0:
            self.scores = self._scores_at(self.rung)

    def forget_cut(self) -> None:
        self.runs = [run for run in self.runs if run.state is not RunState.CUT]

    def reopen(self) -> None:
        self.state = TrialState.RUNNING
        for run in self.runs:
            run.reopen()

    def set_aside(self) -> None:
        """Free the lanes of a diverged trial, which waits for another trial's state."""
        self.lost = True
        cut(self.runs)

    def adopt(
        self,
        params: Mapping[str, Any],
        schedule: Sequence[dict[str, Any]],
        runs: Sequence[Replicate],
    ) -> None:
        """Resume from other replicates' states, one per replicate, with new parameters."""
        self.params, self.lost, self.error = dict(params), False, ""
        self.schedule = tuple(schedule) or self.schedule
        for run, other in zip(self.runs_of(Stream.SEARCH), runs, strict=True):
            run.adopt(other)
        self.see_values()

    def leave(self) -> None:
        self.runs = []

    def forget_lack(self) -> None:
        self.error = ""

    def remeasure(
        self,
        reports: Sequence[float],
        seed_values: tuple[float, ...],
        choose_values: tuple[float, ...],
        value: float | None,
    ) -> None:
        """Replace the values used for selection by values from evaluations only."""
        self.reports = list(reports)
        if self.reports and self.rung >= 0:
            self.rung_value = self.reports[-1]
        self.seed_values, self.choose_values, self.value = seed_values, choose_values, value
        for run in self.runs:
            run.take_alone()

    def take_reports(self, reports: Sequence[float]) -> None:
        self.reports = list(reports)

    def correct_value(self, value: float) -> None:
        self.value = value

    def note_copies(self, stream: Stream) -> bool:
        """Record whether two seeds of a stream trained identically; return whether that is new.

        Constant metrics do not count as evidence, because different training runs may share them.
        """
        ended = [run for run in self.runs_of(stream) if run.state is RunState.ENDED and run.varies]
        alike = len({run.digest for run in ended}) < len(ended)
        if not alike or str(stream) in self.copies:
            return False
        self.copies = (*self.copies, str(stream))
        return True

    def lack(self, what: str) -> None:
        """Record why a replicate diverged, or why the trial's confirmation is incomplete.

        The first reason is kept.
        """
        self.error = self.error or what

    def fail_confirming(self, why: str) -> None:
        self.error = why

    def choose(
        self,
        values: tuple[float, ...],
        objectives: tuple[float, ...] = (),
        constraints: tuple[float, ...] = (),
    ) -> None:
        self.choose_values = values
        self.choose_scores = ()
        if values:
            self.choose_scores = self.scores_of(Stream.CHOOSE)
        self.choose_objectives = objectives or self.choose_objectives
        self.choose_constraints = constraints or self.choose_constraints

    def report_seeds(self, wanted: int) -> int:
        """Return the number of test seeds to run; it never decreases."""
        return max(wanted, len(self.report_values) + len(self.report_diverged))

    def prove(self) -> None:
        self.report_values = self.values_of(Stream.REPORT)
        self.report_scores = self.scores_of(Stream.REPORT)
        measured = self._measured_runs(Stream.REPORT)
        lost = [run for run in self.runs_of(Stream.REPORT) if run not in measured]
        self.report_diverged = tuple(run.replicate for run in lost)

    def runs_of(self, stream: Stream) -> list[Replicate]:
        return [run for run in self.runs if run.stream is stream]

    def has_live_runs(self, stream: Stream) -> bool:
        return any_live(self.runs_of(stream))

    def values_of(self, stream: Stream) -> tuple[float, ...]:
        """Return the last values of a stream's replicates that did not diverge."""
        return tuple(run.value for run in self._measured_runs(stream) if run.value is not None)

    def extras_of(self, stream: Stream) -> list[list[float]]:
        return [run.extras for run in self._measured_runs(stream)]

    def scores_of(self, stream: Stream) -> tuple[float, ...]:
        """Return the mean score on each environment, over replicates that did not diverge."""
        rows = [run.scores for run in self._measured_runs(stream) if run.scores]
        return tuple(mean(column) for column in zip(*rows, strict=True))

    def _scores_at(self, rung: int) -> tuple[float, ...]:
        """Return the mean scores at a rung, over the seeds that have passed it."""
        runs = [run for run in self._measured_runs(Stream.SEARCH) if len(run.rung_scores) > rung]
        rows = [run.rung_scores[rung] for run in runs if run.rung_scores[rung]]
        return tuple(mean(column) for column in zip(*rows, strict=True))

    def _measured_runs(self, stream: Stream) -> list[Replicate]:
        return [
            run
            for run in self.runs_of(stream)
            if run.value is not None and run.state is not RunState.DIVERGED
        ]

    def costs(self) -> dict[str, float]:
        return {"env_steps": float(self.env_steps), "seconds": self.train_seconds}

    def row(self) -> TrialRow:
        return TrialRow(**{entry.name: getattr(self, entry.name) for entry in fields(TrialRow)})

    @classmethod
    def from_row(
        cls, row: TrialRow, decisions: Sequence[DecisionRow], attributes: Mapping[str, Any]
    ) -> Trial:
        return cls(
            **vars(row),
            reports=[decision.value for decision in decisions],
            report_steps=[decision.env_steps for decision in decisions],
            extra_reports=[list(decision.extras) for decision in decisions],
            attributes=dict(attributes),
            paused_at=[one.rung for one in decisions if one.action in ("pause", "promote")],
        )


@dataclass(frozen=True)
class Segment:
    """A part of a lineage, which starts after `env_steps` env steps of a replicate."""

    env_steps: int
    trial: int  # the trial whose lanes trained it
    params: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {"env_steps": self.env_steps, "trial": self.trial, "params": dict(self.params)}


def segments(schedule: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
    return tuple(Segment(**entry) for entry in schedule)


def lineage_of(trial: TrialRow) -> tuple[Segment, ...]:
    """Return a trial's segments; the first starts at 0 env steps."""
    return segments(trial.schedule) or (Segment(0, trial.trial, trial.params),)


def params_at(lineage: Sequence[Segment], env_steps: int) -> Mapping[str, Any]:
    return next(part.params for part in reversed(lineage) if part.env_steps <= env_steps)
