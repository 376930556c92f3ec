"""A trial as the loop sees it: its replicates, what was seen, where it stands.

It changes by its methods alone, at chunk boundaries; the `Ledger` calls those that others hear
of, and every change reaches the store as a `TrialRow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ...store.rows import DecisionRow, Stream, TrialRow, TrialState
from ...store.statistics import mean
from .runs import Run, RunState, cut

__all__ = ["LIVE", "Trial"]

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
            paused_at=[one.rung for one in decisions if one.action in ("pause", "promote")],
            **shared,
        )


# What a trial and its row have in common under the same name.
_SHARED = tuple(
    entry.name for entry in fields(TrialRow) if entry.name not in ("trial", "rung_value")
)
