"""A study's rows: plain data, written by the search loop and stored in the journal.

Columns that depend on time end in `_seconds` or `_at` (UTC seconds since the epoch); all other
columns are the same after any interruption.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import nan
from typing import Any, Literal

from .libraries import np


class TrialState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # if no process runs the study; the journal has `running`
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    CONFIRMED = "confirmed"  # finished, and run again on new seeds; the journal has `finished`
    REFERENCE = "reference"  # not a search trial: the default, for comparison only


LIVE = (TrialState.WAITING, TrialState.RUNNING)
COMPLETE = (TrialState.FINISHED, TrialState.CONFIRMED)
HALTED = (TrialState.STOPPED, TrialState.PAUSED)  # by a rule, at a rung
LOST = (TrialState.DIVERGED, TrialState.FAILED)


REFERENCE_TRIAL = -1
"""Number of the default configuration if no search trial has it, because trial 0 was changed by
exploit/explore or never proposed."""


_DIVERGED = re.compile(
    r"seed \d+ at \S+ \S|\d+ of \d+ (report|selection) seeds? returned no value"
)
"""Reasons for `TrialRow.error` of runs that diverged, as the search writes them."""


class Stream(StrEnum):
    """The kind of seeds that a run used: search, selection or test seeds."""

    SEARCH = "search"
    CHOOSE = "choose"
    REPORT = "report"


@dataclass
class TrialRow:
    """One trial of the search."""

    trial: int  # 0 is the default configuration
    state: TrialState
    proposed_by: str  # `default`, `enqueue`, `portfolio`, `random`, `tpe`, ...
    batch: int  # number of its batch of proposals
    bucket: str  # short hash of its Plan
    params: Mapping[str, Any]  # active searched hyperparameters; after copies, the last ones
    value: float | None = None  # the metric over its replicates at the end of the full run
    seed_values: tuple[float, ...] = ()  # value of each replicate's last evaluation
    rung: int = -1  # index of the last rung at which it was judged, -1 before the first
    rung_value: float | None = None
    stop_rule: str = ""  # the rule that stopped it, for example `asha eta=4`
    audited: bool = False  # stopped, but still running to measure false stops
    env_steps: int = 0  # training env steps of all its search replicates
    eval_env_steps: int = 0
    warmup_env_steps: int = 0
    choose_values: tuple[float, ...] = ()  # per selection seed; set once all are known
    report_values: tuple[float, ...] = ()  # per test seed; only for winners and the default
    error: str = ""  # why it failed or diverged
    started_at: float | None = None  # when its first replicate entered a lane
    ended_at: float | None = None
    bits: int = 0  # trials with equal numbers ran with the same versions and hardware
    # Exploit/explore: from `env_steps` on, trial `trial` trained with `params`.
    schedule: tuple[Mapping[str, Any], ...] = ()
    objectives: tuple[float, ...] = ()  # values at the end of the full run, if there are several
    # one per constraint; for a stopped trial, at its last rung
    constraints: tuple[float, ...] = ()
    choose_objectives: tuple[float, ...] = ()
    choose_constraints: tuple[float, ...] = ()
    train_seconds: float = 0.0  # its share of its chunks' running time
    report_diverged: tuple[int, ...] = ()  # replicates that diverged on test seeds
    scores: tuple[float, ...] = ()  # mean score per environment, if there are several
    choose_scores: tuple[float, ...] = ()
    report_scores: tuple[float, ...] = ()
    rung_env_steps: int | None = None  # training env steps of each replicate at `rung`
    # streams on which two seeds trained identically, bit for bit, so that they are one run
    copies: tuple[str, ...] = ()

    @property
    def has_failed_test_run(self) -> bool:
        """Whether a test seed without a value raised an error; otherwise all such seeds diverged.

        A failure replaces an earlier reason in `error`.
        """
        return bool(self.report_diverged and self.error and not _DIVERGED.match(self.error))

    @property
    def by_report_seed(self) -> dict[int, float]:
        """Return the values on test seeds by replicate; NaN if it diverged."""
        known, lost = iter(self.report_values), self.report_diverged
        seeds = range(len(self.report_values) + len(lost))
        return {seed: nan if seed in lost else next(known) for seed in seeds}


def as_left(rows: Iterable[TrialRow]) -> list[TrialRow]:
    """Return the trials of a study that is not running: running trials become interrupted."""
    return [
        replace(row, state=TrialState.INTERRUPTED) if row.state is TrialState.RUNNING else row
        for row in rows
    ]


@dataclass(frozen=True)
class EpisodeRow:
    """The episodes (or windows of steps in continuous operation) of one evaluation."""

    returns: np.ndarray  # float64 [episodes], undiscounted, unscaled sums of rewards
    lengths: np.ndarray  # int64 [episodes], env steps
    metrics: Mapping[str, np.ndarray]  # metrics of the environment: name -> float64 [episodes]


@dataclass(frozen=True, kw_only=True)
class EvaluationRow(EpisodeRow):
    """One evaluation of one replicate."""

    trial: int
    stream: Stream
    replicate: int
    env_steps: int  # training env steps of the replicate when it was evaluated


@dataclass(frozen=True)
class DecisionRow:
    """One decision about one trial at one rung.

    `action` is `continue`, `stop`, `finish` (ended with its value there), `audit` (would have
    stopped, but continues), `pause`, `promote` (resumed after a pause; replaces the pause's row)
    or `copy` (continues from the state of trial `source`).
    """

    trial: int
    rung: int
    env_steps: int  # of the rung
    value: float
    action: str
    rule: str  # for example `asha eta=4`
    cutoff: float | None  # the value needed to continue, None if all continue
    rank: int  # 1 is the best of the `judged` trials at that rung
    judged: int  # number of trials judged there so far, including those in this chunk
    source: int | None = None
    old_params: Mapping[str, Any] | None = None  # before the rung, if hyperparameters change there
    params: Mapping[str, Any] | None = None  # after the rung
    extras: tuple[float, ...] = ()  # values of further objectives, then of constraints


@dataclass(frozen=True)
class AskRow:
    """One batch of proposals; all batches in order reproduce a sampler's history."""

    batch: int
    method: str
    trials: tuple[int, ...]  # proposed trials, in order
    told: tuple[int, ...] = ()  # results reported to the sampler since the last batch, in order


@dataclass(frozen=True)
class AttributeRow:
    """A sampler's attribute of a trial, or of the study if `trial` is None."""

    trial: int | None
    name: str  # a later value replaces an earlier one
    value: Any  # JSON data


EVALUATIONS_ALONE = AttributeRow(None, "evaluations_alone", True)
"""Recorded if a trial lacked a training return at a comparison; no value then includes any."""


def counts_evaluations_alone(attributes: Iterable[AttributeRow]) -> bool:
    return EVALUATIONS_ALONE in attributes


@dataclass(frozen=True)
class BaselineRow:
    """The results of a heuristic baseline on the episodes used to evaluate policies."""

    baseline: str
    values: Mapping[str, tuple[float, ...]]  # stream -> the study's metric per replicate
    # stream -> the environment's metrics, each as a mean over episodes per replicate
    metrics: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class StudyMeta:
    name: str
    study_hash: str  # of the study with all defaults filled in
    study_text: str  # that study as YAML
    metric: str
    goal: str  # `maximize` or `minimize`
    aggregate: str  # over replicates: `mean`, `median`, `min`, `max` or `iqm`
    param_kinds: Mapping[str, str]  # searched hyperparameter -> see `store.codec.param_kind`
    versions: Mapping[str, str] = field(default_factory=dict[str, str])  # package -> version
    backend: str = "cpu"
    devices: int = 1
    created_at: float = 0.0
    bits: int = 0  # number of times the study resumed with different versions, backend or devices
    objectives: Sequence[Mapping[str, Any]] = ()  # `name`, `goal`, `aggregate`; if several
    constraints: Sequence[Mapping[str, Any]] = ()  # `metric`, `min`, `max`, `aggregate`
    environments: Sequence[Mapping[str, Any]] = ()  # `name`, `random`, `reference`; if several
    files: Mapping[str, str] = field(default_factory=dict[str, str])  # imported path -> sha256

    @property
    def objective_names(self) -> list[str]:
        return [str(objective["name"]) for objective in self.objectives]

    @property
    def objective_goals(self) -> list[str]:
        return [str(objective["goal"]) for objective in self.objectives]


Phase = Literal["running", "interrupted", "finished"]


def is_part_name(name: str) -> bool:
    return re.fullmatch(r"\d{6,}\.parquet", name) is not None


@dataclass(frozen=True)
class Part:
    name: str
    checksum: str  # sha256 in hex
    rows: int
    first: int = 0  # index of its first row among all of the study's curve rows
    level: int = 0  # number of times that its rows were merged


@dataclass(frozen=True)
class Commit:
    number: int  # previous commit's number plus one
    loop_state: str  # state of the search loop as JSON text
    checkpoint: str | None  # name of this commit's lane checkpoint
    at: float
    trials: Sequence[TrialRow] = ()  # inserted, or replaced by number
    evaluations: Sequence[EvaluationRow] = ()
    decisions: Sequence[DecisionRow] = ()  # a promotion replaces the decision to pause
    asks: Sequence[AskRow] = ()
    attributes: Sequence[AttributeRow] = ()  # inserted, or replaced by (trial, name)
    parts: Sequence[Part] = ()  # added to the list of live curve parts
    merged: Sequence[str] = ()  # removed from that list, because their rows are in one of `parts`
    phase: Phase = "running"
    restarted: Sequence[int] = ()  # trials whose evaluations and decisions are deleted first


@dataclass(frozen=True)
class CommitHead:
    """The last commit; number 0 means that the study was created but nothing is committed yet."""

    number: int = 0
    at: float = 0.0
    phase: Phase = "running"
    loop_state: str = "{}"
    checkpoint: str | None = None
