"""A trial as the loop sees it: its replicates, what was seen, where it stands.

It changes by its methods alone, at chunk boundaries; the `Ledger` calls those that others hear
of, and every change reaches the store as a `TrialRow`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from ...store.rows import DecisionRow, Stream, TrialRow, TrialState
from ...store.statistics import mean

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


LIVE = (TrialState.WAITING, TrialState.RUNNING)


@dataclass
class Trial:
    """One configuration and everything known about it.

        WAITING --start--> RUNNING --end--> FINISHED --reopen--> RUNNING
           +-----------------+-------end--> STOPPED, DIVERGED, FAILED, UNFINISHED

    Where trials are paused in place of stopped RUNNING --pause--> PAUSED --promote--> RUNNING, at
    every rung once at most; one that nothing promotes ends as STOPPED.
    On the way `report` notes what it shows at a rung, and a rule may `stop_by` or `audit` it;
    `settle` gives it its value before it ends as finished. Where trials copy each other one that
    diverged is `set_aside`, runs on by `adopt`, or ends. One that has finished stays so while it
    is confirmed: `add` brings replicates on fresh seeds, `choose` and `prove` take their values.
    So does the default configuration, whatever its state; where no trial is it any more, a trial
    is made as REFERENCE, which never was in the search.

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
        rung_env_steps: of each of its replicates there.
        reports: its value at each rung judged so far.
        extra_reports: its extras there, see `Objectives`.
        value: the metric of the full run, aggregated over replicates.
        seed_values: last value of every replicate that has one and did not diverge.
        stop_rule: the words of the rule that stopped it (or would have, if `audited`).
        audited: it runs on although it was stopped.
        error: why it failed or diverged, or what is missing of its confirmation.
        env_steps, eval_env_steps, warmup_env_steps: of its replicates in the search.
        choose_values, report_values: one value a confirm seed.
        report_diverged: the replicates that diverged on the seeds that report.
        started_at, ended_at: seconds since the epoch.
        bits: how often the study had gone on with other bits when it ended.
        schedule: the way of its lineage, see `lineage.Segment`; empty if it copied no other.
        lost: it diverged, has no lane, and waits for the state of another trial.
        objectives, constraints, choose_objectives, choose_constraints: as in its row.
        train_seconds: its share of the running time of chunks.
        paused_at: rungs at which it was paused, in order.
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
    report_diverged: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    choose_scores: tuple[float, ...] = ()
    report_scores: tuple[float, ...] = ()
    paused_at: list[int] = field(default_factory=list)
    rung_env_steps: int | None = None

    @property
    def is_live(self) -> bool:
        """Whether it waits or runs in the search."""
        return self.state in LIVE

    @property
    def is_paused(self) -> bool:
        """Whether it waits at a rung, in no lane."""
        return self.state is TrialState.PAUSED

    # ------------------------------------------------------------------ its life in the search

    def join(self, bucket: str) -> None:
        """Belong to a bucket."""
        self.bucket = bucket

    def add(self, runs: Iterable[Run]) -> None:
        """Take further replicates."""
        self.runs = [*self.runs, *runs]

    def start(self, now: float | None) -> None:
        """Run, if it waited: a replicate has begun."""
        if self.state is TrialState.WAITING:
            self.state, self.started_at = TrialState.RUNNING, now

    def count(self, env_steps: int, trains: bool, seconds: float) -> None:
        """Count a chunk of one replicate: its env steps, and its share of the running time."""
        self.train_seconds += seconds
        if trains:
            self.env_steps += env_steps
        else:
            self.warmup_env_steps += env_steps

    def count_evaluation(self, env_steps: int) -> None:
        """Count an evaluation of one replicate."""
        self.eval_env_steps += env_steps

    def see_values(self) -> None:
        """Note what its replicates show now."""
        self.seed_values = self.values_of(Stream.SEARCH)
        self.scores = self.scores_of(Stream.SEARCH)

    def report(self, value: float, env_steps: int) -> None:
        """Stand at its next rung, with a value there, after env steps of each replicate."""
        self.rung, self.rung_env_steps = self.rung + 1, env_steps
        self.reports.append(value)

    def report_extras(self, extras: list[float], constraints: tuple[float, ...]) -> None:
        """Note what else it shows at its rung."""
        self.extra_reports.append(extras)
        self.constraints = constraints

    def stop_by(self, rule: str, audited: bool = False) -> None:
        """Note the rule that ends it here, or would if it were not audited."""
        self.stop_rule, self.audited = rule, self.audited or audited

    def pause(self, rule: str) -> None:
        """Wait at its rung, in no lane.

        Args:
            rule: that paused it, and has stopped it if it ends here.
        """
        self.state, self.stop_rule = TrialState.PAUSED, rule
        self.paused_at.append(self.rung)
        for run in self.runs:
            run.pause()

    def promote(self) -> None:
        """Go on from where it was paused."""
        self.state, self.stop_rule = TrialState.RUNNING, ""
        for run in self.runs:
            run.resume()

    def settle(
        self, value: float, objectives: tuple[float, ...], constraints: tuple[float, ...]
    ) -> None:
        """Take its value; empty objectives and constraints leave what was there."""
        self.value = value
        self.objectives = objectives or self.objectives
        self.constraints = constraints or self.constraints

    def end(self, state: TrialState, error: str, now: float | None, bits: int) -> None:
        """End; replicates that still wait, run or are paused are cut."""
        cut(self.runs)
        self.state, self.error, self.ended_at = state, error, now
        self.bits, self.lost = bits, False
        self.see_values()
        if state is TrialState.STOPPED and self.rung >= 0:
            self.scores = self._scores_at(self.rung)

    def forget_cut(self) -> None:
        """Go without the replicates that the budget has cut."""
        self.runs = [run for run in self.runs if run.state is not RunState.CUT]

    def reopen(self) -> None:
        """Run on from its end: runs have grown."""
        self.state = TrialState.RUNNING
        for run in self.runs:
            run.reopen()

    def note_divergence(self, why: str) -> None:
        """Note why a replicate diverged; the first word stays, and is the reason if it ends so."""
        self.error = self.error or why

    # ------------------------------------------------------------------ copies

    def set_aside(self) -> None:
        """Leave the lanes, having diverged, and wait for the state of another trial."""
        self.lost = True
        cut(self.runs)

    def adopt(
        self, params: Mapping[str, Any], schedule: Sequence[dict[str, Any]], runs: Sequence[Run]
    ) -> None:
        """Go on from where other replicates stand, with some knobs.

        Args:
            params: from here on.
            schedule: the way of its lineage; empty if it is its own alone.
            runs: one for each of its own.
        """
        self.params, self.lost, self.error = dict(params), False, ""
        self.schedule = tuple(schedule) or self.schedule
        for run, other in zip(self.runs_of(Stream.SEARCH), runs, strict=True):
            run.adopt(other)
        self.see_values()

    # ------------------------------------------------------------------ its confirmation

    def leave(self) -> None:
        """Have no replicates any more: what they showed at their ends is written down."""
        self.runs = []

    def forget_lack(self) -> None:
        """Be confirmed again: what an earlier confirmation lacked counts no more."""
        self.error = ""

    def lack(self, what: str) -> None:
        """Note what its confirmation lacks, or why; the first word stays."""
        self.error = self.error or what

    def fail_confirming(self, why: str) -> None:
        """Note an error that hit its confirmation."""
        self.error = why

    def choose(
        self,
        values: tuple[float, ...],
        objectives: tuple[float, ...] = (),
        constraints: tuple[float, ...] = (),
    ) -> None:
        """Take the values of the seeds that choose; empty objectives leave what was there."""
        self.choose_values = values
        self.choose_scores = self.scores_of(Stream.CHOOSE) if values else ()
        self.choose_objectives = objectives or self.choose_objectives
        self.choose_constraints = constraints or self.choose_constraints

    def report_seeds(self, wanted: int) -> int:
        """Return on how many seeds that report it is to have a value: no fewer than before."""
        return max(wanted, len(self.report_values) + len(self.report_diverged))

    def prove(self) -> None:
        """Take the values of the seeds that report, and note which have none."""
        self.report_values = self.values_of(Stream.REPORT)
        self.report_scores = self.scores_of(Stream.REPORT)
        measured = self._measured(Stream.REPORT)
        lost = [run for run in self.runs_of(Stream.REPORT) if run not in measured]
        self.report_diverged = tuple(run.replicate for run in lost)

    # ------------------------------------------------------------------ what it shows

    def runs_of(self, stream: Stream) -> list[Run]:
        """Return its replicates on one stream, in order."""
        return [run for run in self.runs if run.stream is stream]

    def values_of(self, stream: Stream) -> tuple[float, ...]:
        """Return the last value of each replicate of a stream that has one and did not diverge."""
        return tuple(run.value for run in self._measured(stream) if run.value is not None)

    def extras_of(self, stream: Stream) -> list[list[float]]:
        """Return the extras of the same replicates."""
        return [run.extras for run in self._measured(stream)]

    def scores_of(self, stream: Stream) -> tuple[float, ...]:
        """Return the mean score on each of several environments over the same replicates."""
        rows = [run.scores for run in self._measured(stream) if run.scores]
        return tuple(mean(column) for column in zip(*rows, strict=True))

    def _scores_at(self, rung: int) -> tuple[float, ...]:
        """Return the mean scores behind what it showed at a rung, which some seeds may be past."""
        runs = [run for run in self._measured(Stream.SEARCH) if len(run.rung_scores) > rung]
        rows = [run.rung_scores[rung] for run in runs if run.rung_scores[rung]]
        return tuple(mean(column) for column in zip(*rows, strict=True))

    def _measured(self, stream: Stream) -> list[Run]:
        return [
            run
            for run in self.runs_of(stream)
            if run.value is not None and run.state is not RunState.DIVERGED
        ]

    def costs(self) -> dict[str, float]:
        """Return what it has cost so far, under the names of `studies.study_keys.COSTS`."""
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
            paused_at=[one.rung for one in decisions if one.action in ("pause", "promote")],
            **shared,
        )


# What a trial and its row have in common under the same name.
_SHARED = tuple(
    entry.name for entry in fields(TrialRow) if entry.name not in ("trial", "rung_value")
)


@dataclass(frozen=True)
class Segment:
    """A part of a lineage.

    Attributes:
        env_steps: where it begins, training env steps of a replicate.
        trial: the trial whose lanes trained it.
        params: searched knobs in force.
    """

    env_steps: int
    trial: int
    params: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return what the store keeps."""
        return {"env_steps": self.env_steps, "trial": self.trial, "params": dict(self.params)}


def segments(schedule: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
    """Return what `as_json` wrote."""
    return tuple(Segment(**entry) for entry in schedule)


def lineage_of(trial: Trial | TrialRow) -> tuple[Segment, ...]:
    """Return the segments of a trial, the first from 0 env steps on."""
    number = trial.number if isinstance(trial, Trial) else trial.trial
    return segments(trial.schedule) or (Segment(0, number, trial.params),)


def params_at(lineage: Sequence[Segment], env_steps: int) -> Mapping[str, Any]:
    """Return the knobs that train on from some number of env steps."""
    return next(part.params for part in reversed(lineage) if part.env_steps <= env_steps)
