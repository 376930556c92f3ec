"""The rows a study leaves: plain data, written by the search loop, kept by the journal.

Columns that depend on time end in `_seconds` or `_at` (UTC seconds since the epoch); every other
column is equal after any interruption.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import nan
from typing import Any, Literal


class TrialState(StrEnum):
    """Where a trial stands, in the words that every table and every command uses.

    A trial that is `confirmed` has finished and was run again on fresh seeds. The journal keeps
    it as `finished`; the leaderboard, and whatever is made of it, says so.
    """

    WAITING = "waiting"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # it ran when its study was left; the journal says `running`
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    CONFIRMED = "confirmed"
    REFERENCE = "reference"  # no trial of the search: the default, beside the winner alone


REFERENCE_TRIAL = -1
"""The number of the default configuration where no trial of the search is it: where populations
copy and trial 0 was changed on the way, or trial 0 was never proposed."""


class Stream(StrEnum):
    """Which seeds a run used; the streams never overlap."""

    SEARCH = "search"
    CHOOSE = "choose"
    REPORT = "report"


@dataclass(frozen=True)
class TrialRow:
    """One trial of the search.

    Attributes:
        trial: its number; 0 is the default configuration, `REFERENCE_TRIAL` where that had to be
            run apart.
        state: where it stands.
        proposed_by: the method (`default`, `enqueue`, `random`, `tpe`, ...).
        batch: the ask batch it came from.
        bucket: short hash of its Plan.
        params: the searched knobs that are active, name -> value.
        value: the metric over its replicates at the end of the full run, else None.
        seed_values: one value a replicate (the last evaluation each one had), in replicate order.
        rung: index of the last rung it was judged at, -1 before the first.
        rung_value: its value there.
        rung_env_steps: training env steps of each replicate there; None before the first.
        stop_rule: the words of the rule that stopped it, else "".
        audited: it was stopped but runs on to measure false stops.
        env_steps: training env steps of all its replicates in the search.
        eval_env_steps: evaluation env steps.
        warmup_env_steps: env steps of warm-up.
        choose_values: one value a confirm seed that chose the winner; written when all are in,
            because a trial that has them counts as confirmed.
        report_values: one value a confirm seed that chose nothing; of the winner, the default
            and earlier winners only, all at once.
        scores, choose_scores, report_scores: of several environments, the mean score on each over
            the seeds of the search, of `choose_values` and of `report_values`.
        report_diverged: the replicates on those seeds that diverged and have no value, in order.
        error: why a trial failed or diverged.
        started_at: when its first replicate entered a lane, seconds since the epoch.
        ended_at: when it ended.
        bits: the `StudyMeta.bits` the trial ended under; trials with equal numbers come from
            the same versions and hardware.
        schedule: of a trial that took over another's state, the way of its lineage: from
            `env_steps` on, `params` were trained in trial `trial`; else empty. `params` above are
            then the last ones.
        objectives: where there are several, one value each at the end of the full run.
        constraints: one value a constraint; of a stopped trial those at its last rung.
        choose_objectives, choose_constraints: likewise on the confirm seeds that choose.
        train_seconds: its share of the running time of the chunks it was in.
    """

    trial: int
    state: TrialState
    proposed_by: str
    batch: int
    bucket: str
    params: Mapping[str, Any]
    value: float | None = None
    seed_values: tuple[float, ...] = ()
    rung: int = -1
    rung_value: float | None = None
    stop_rule: str = ""
    audited: bool = False
    env_steps: int = 0
    eval_env_steps: int = 0
    warmup_env_steps: int = 0
    choose_values: tuple[float, ...] = ()
    report_values: tuple[float, ...] = ()
    error: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    bits: int = 0
    schedule: tuple[Mapping[str, Any], ...] = ()
    objectives: tuple[float, ...] = ()
    constraints: tuple[float, ...] = ()
    choose_objectives: tuple[float, ...] = ()
    choose_constraints: tuple[float, ...] = ()
    train_seconds: float = 0.0
    report_diverged: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    choose_scores: tuple[float, ...] = ()
    report_scores: tuple[float, ...] = ()
    rung_env_steps: int | None = None

    @property
    def by_report_seed(self) -> dict[int, float]:
        """Return replicate -> value on the seeds that report, NaN where it diverged."""
        lost = set(self.report_diverged)
        seeds = range(len(self.report_values) + len(lost))
        left = [seed for seed in seeds if seed not in lost]
        known = dict(zip(left, self.report_values, strict=True))
        return {seed: known.get(seed, nan) for seed in seeds}


def as_left(rows: Iterable[TrialRow]) -> list[TrialRow]:
    """Return the trials of a study that nobody runs: those that were running are interrupted."""
    return [
        replace(row, state=TrialState.INTERRUPTED) if row.state is TrialState.RUNNING else row
        for row in rows
    ]


@dataclass(frozen=True)
class EvaluationRow:
    """One episode (or one window of steps in continuous operation) of one evaluation.

    Attributes:
        trial, stream, replicate: whose.
        env_steps: training env steps of the replicate when it was evaluated.
        episode: index within the evaluation.
        episode_return: undiscounted, unscaled sum of rewards.
        episode_length: env steps.
        metrics: the environment's own, name -> value.
    """

    trial: int
    stream: Stream
    replicate: int
    env_steps: int
    episode: int
    episode_return: float
    episode_length: int
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class CurveRow:
    """What one replicate's training showed over one chunk: name -> mean over its updates."""

    trial: int
    stream: Stream
    replicate: int
    env_steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class DecisionRow:
    """One judgement of one trial at one rung.

    Attributes:
        trial: judged.
        rung: its index.
        env_steps: of the rung.
        value: the trial's value there.
        action: `continue`, `stop`, `finish` (ended with its value there), `audit` (would have
            stopped, runs on), `pause` (waits there, its lanes kept), `promote` (waited, and went
            on by this judgement, which takes the place of the one that paused it), or `copy`
            (goes on from the state of trial `source`).
        rule: the words of the rule, for example `asha eta=4`.
        cutoff: the value needed to go on, None if everyone goes on.
        rank: 1 is the best among `judged` trials at that rung.
        judged: trials judged there so far, this boundary's included.
        source: the trial that was copied, else None.
        old_params: what was searched until here, where that changes.
        params: what takes its place from here on.
        extras: values of further objectives and of constraints there, in the study's order.
    """

    trial: int
    rung: int
    env_steps: int
    value: float
    action: str
    rule: str
    cutoff: float | None
    rank: int
    judged: int
    source: int | None = None
    old_params: Mapping[str, Any] | None = None
    params: Mapping[str, Any] | None = None
    extras: tuple[float, ...] = ()


@dataclass(frozen=True)
class AskRow:
    """One batch of proposals; in order of `batch` they replay everything a sampler was told.

    Attributes:
        batch: its number, counted from 0.
        method: who proposed.
        trials: the trials it proposed, in order.
        told: the trials told to the sampler since the batch before, in the order told.
    """

    batch: int
    method: str
    trials: tuple[int, ...]
    told: tuple[int, ...] = ()


@dataclass(frozen=True)
class AttributeRow:
    """One system attribute a sampler left on a trial, or on the study when `trial` is None.

    Attributes:
        trial: whose, None for the study's own.
        name: the sampler's key; a later value replaces an earlier one.
        value: anything JSON can say.
    """

    trial: int | None
    name: str
    value: Any


@dataclass(frozen=True)
class BaselineRow:
    """What a rule that learns nothing gets where a study's trials are evaluated.

    Attributes:
        baseline: its name.
        values: stream -> the study's metric, one value a replicate, on the very episodes that
            policies with that stream's seeds are evaluated on.
        metrics: stream -> the environment's own metrics, each a mean over episodes a replicate.
    """

    baseline: str
    values: Mapping[str, tuple[float, ...]]
    metrics: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class StudyMeta:
    """What a journal must know about its study to stand alone.

    Attributes:
        name: of the study and of its folder.
        study_hash: of the resolved study.
        study_text: the resolved study as YAML.
        metric: the name of what is optimised.
        goal: `maximize` or `minimize`.
        aggregate: `mean`, `median`, `min`, `max` or `iqm` over replicates.
        param_kinds: searched knob -> `float`, `int`, `bool`, `text` or `json`; the type of its
            column (`store.codec.param_kind` finds it from the values a knob may take).
        versions: package -> version that the study ran with last.
        backend: `cpu`, `gpu`, ...
        devices: how many.
        created_at: seconds since the epoch.
        bits: how often the study went on with other versions, backend or devices.
        objectives: where there are several, `name`, `goal` and `aggregate` of each.
        constraints: `metric`, `min`, `max` and `aggregate` of each.
        environments: of several, `name` and what scores 0 and 1 (`random`, `reference`).
        files: path as from the study's folder -> sha256 of the files that are part of what the
            study is; of studies from before they were compared, none.
    """

    name: str
    study_hash: str
    study_text: str
    metric: str
    goal: str
    aggregate: str
    param_kinds: Mapping[str, str]
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    backend: str = "cpu"
    devices: int = 1
    created_at: float = 0.0
    bits: int = 0
    objectives: Sequence[Mapping[str, Any]] = ()
    constraints: Sequence[Mapping[str, Any]] = ()
    environments: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, str] = field(default_factory=dict[str, str])


Phase = Literal["running", "interrupted", "finished"]
_PART = re.compile(r"\d{6,}\.parquet")


def part_name(number: int) -> str:
    """Return the name of the file of a curve part."""
    return f"{number:06d}.parquet"


def is_part_name(name: str) -> bool:
    """Whether a file of that name can be a curve part."""
    return _PART.fullmatch(name) is not None


@dataclass(frozen=True)
class Part:
    """One file of curve rows.

    Attributes:
        name: of the file in `parts/`.
        checksum: sha256 of its bytes, in hex.
        rows: how many.
        first: index of its first row among all curve rows of the study; the order of parts.
        level: how often its rows were merged.
    """

    name: str
    checksum: str
    rows: int
    first: int = 0
    level: int = 0


@dataclass(frozen=True)
class Commit:
    """Everything one transaction writes.

    Attributes:
        number: one more than the last commit's.
        loop_state: the search loop's own state as JSON text; comes back with `Journal.head`.
        checkpoint: name of the lane checkpoint that belongs to this commit, None without one.
        at: when, seconds since the epoch.
        trials: inserted, or replaced by number.
        evaluations: appended; all episodes of an evaluation in one commit.
        decisions: appended; a promotion takes the place of the judgement that paused its trial.
        asks: appended.
        attributes: inserted, or replaced by (trial, name).
        parts: added to the list of live curve parts.
        merged: names taken off that list (their rows are in one of `parts`).
        phase: `finished` when there is nothing left to do.
    """

    number: int
    loop_state: str
    checkpoint: str | None
    at: float
    trials: Sequence[TrialRow] = ()
    evaluations: Sequence[EvaluationRow] = ()
    decisions: Sequence[DecisionRow] = ()
    asks: Sequence[AskRow] = ()
    attributes: Sequence[AttributeRow] = ()
    parts: Sequence[Part] = ()
    merged: Sequence[str] = ()
    phase: Phase = "running"


@dataclass(frozen=True)
class Head:
    """The last commit; number 0 means that the study was created and nothing committed yet."""

    number: int = 0
    at: float = 0.0
    phase: Phase = "running"
    loop_state: str = "{}"
    checkpoint: str | None = None
