"""The rows a study leaves: plain data, written by the search loop, kept by the journal.

Columns that depend on time end in `_seconds` or `_at` (UTC seconds since the epoch); every other
column is equal after any interruption.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["CurveRow", "DecisionRow", "EvaluationRow", "Stream", "TrialRow", "TrialState"]


class TrialState(StrEnum):
    """Where a trial stands."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    FAILED = "failed"
    UNFINISHED = "unfinished"


class Stream(StrEnum):
    """Which seeds a run used; the streams never overlap."""

    SEARCH = "search"
    CHOOSE = "choose"
    REPORT = "report"


@dataclass(frozen=True)
class TrialRow:
    """One trial of the search.

    Attributes:
        trial: its number; 0 is the default configuration.
        state: where it stands.
        proposed_by: the method (`default`, `enqueue`, `random`, `tpe`, ...).
        batch: the ask batch it came from.
        bucket: short hash of its Plan.
        params: the searched knobs that are active, name -> value.
        value: the metric over its replicates at the end of the full run, else None.
        seed_values: one value a replicate (the last evaluation each one had), in replicate order.
        rung: index of the last rung it was judged at, -1 before the first.
        rung_value: its value there.
        stop_rule: the words of the rule that stopped it, else "".
        audited: it was stopped but runs on to measure false stops.
        env_steps: training env steps of all its replicates in the search.
        eval_env_steps: evaluation env steps.
        warmup_env_steps: env steps of warm-up.
        choose_values: one value a confirm seed that chose the winner.
        report_values: one value a confirm seed that chose nothing.
        error: the message of a failed trial.
        started_at: when its first replicate entered a lane, seconds since the epoch.
        ended_at: when it ended.
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
    metrics: Mapping[str, float] = field(default_factory=dict)


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
        action: `continue`, `stop`, or `audit` (would have stopped, runs on).
        rule: the words of the rule, for example `asha eta=4`.
        cutoff: the value needed to go on, None if everyone goes on.
        rank: 1 is the best among `judged` trials at that rung.
        judged: trials judged there so far, this boundary's included.
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
