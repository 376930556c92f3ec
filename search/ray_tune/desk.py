"""Reports of trials to an external scheduler, and the scheduler's decisions.

Every evaluation except the last is a rung: the scheduler receives the value there, and its
decision is recorded as soon as it is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ...store.rows import Stream, TrialState
from ..state.buckets import Bucket
from ..state.schedule import EventSchedule
from ..state.search_state import SearchState
from ..state.trials import RunState, Trial


@dataclass(frozen=True)
class DeskRequest:
    key: str  # key of the request, to which the reply is sent
    # `train` until the next evaluation, or `keep` the trial's current state
    kind: Literal["train", "keep"]
    trial: int
    # searched hyperparameters from now on
    params: Mapping[str, Any] = field(default_factory=dict)
    state: str | None = None  # the kept state to resume from; None: the trial's own state


@dataclass(frozen=True)
class Report:
    # mean metric over its replicates; missing values count as the worst so far
    value: float
    env_steps: int  # training env steps of one replicate
    done: bool = False  # whether training is complete


Reply = Report | str  # a report, or the name of a kept state


class Desk(Protocol):
    """The scheduler as seen by the driver of the lanes; both run concurrently."""

    @property
    def is_over(self) -> bool: ...

    def begin(self, width: int, schedule: EventSchedule) -> None: ...

    def wait(self, seconds: float) -> list[DeskRequest]:
        """Wait for a request, and return all requests since the last call."""
        ...

    def answer(self, replies: Mapping[str, Reply]) -> None: ...

    def expected(self) -> int:
        """Return how many trials must have sent requests before lanes step."""
        ...

    def has_more(self) -> bool: ...

    def ended(self) -> list[int]:
        """Return the trials that the scheduler ended since the last call."""
        ...

    def paused(self) -> set[int]: ...


_WORST = 1e6  # loss reported while there is no value


class Reports:
    def __init__(self, search_state: SearchState, buckets: Mapping[str, Bucket], rule: str):
        self._search_state, self._buckets, self._rule = search_state, buckets, rule
        # trial -> (rank, number of trials), until the scheduler's decision is known
        self._shown: dict[int, tuple[int, int]] = {}
        self._worst: float | None = None
        for number in sorted(search_state.undecided):  # shown before the study was cut
            self._show_rank(search_state.trials[number])

    def _show_rank(self, trial: Trial) -> None:
        there, loss = self._search_state.rung(trial.rung), self._search_state.objective.loss
        rank = there.rank(loss(trial.reports[trial.rung]))
        self._shown[trial.number] = rank, len(there)

    def has_shown(self, number: int) -> bool:
        return number in self._shown

    def note(self, numbers: Iterable[int]) -> None:
        """Record the values of trials at any evaluation except their last."""
        shown = list[Trial]()
        for number in numbers:
            trial = self._search_state.trials[number]
            point = self._value_and_steps(trial)
            if point is not None and point[1] < self.length(trial):
                trial.report(*point)
                self._search_state.judge(trial.rung, [number])
                self._search_state.touch(trial)
                shown.append(trial)
        for trial in shown:  # compared with all that have reported so far
            self._show_rank(trial)

    def _value_and_steps(self, trial: Trial) -> tuple[float, int] | None:
        """Return the value and env steps of a live trial at an evaluation."""
        runs = [run for run in trial.runs if run.state in (RunState.RUNNING, RunState.ENDED)]
        if not trial.is_live or trial.lost or not runs:
            return None
        bucket = self._buckets[trial.bucket]
        chunks = bucket.trained(runs[0])
        values = trial.values_of(Stream.SEARCH)
        if chunks not in bucket.schedule.evaluations or not values:
            return None
        value = self._search_state.objective.aggregate(values)
        loss = self._search_state.objective.loss(value)
        if self._worst is None or loss > self._worst:
            self._worst = loss
        return value, chunks * bucket.schedule.quantum

    def judge(
        self, trial: Trial, action: str, source: int | None, old: dict[str, Any] | None = None
    ) -> None:
        shown = self._shown.pop(trial.number, None)
        if shown is None:
            return
        copied: dict[str, Any] = {"source": source}
        if action == "copy":
            copied |= {"old_params": old, "params": dict(trial.params)}
        self._search_state.decide(
            trial,
            action=action,
            rule=self._rule,
            cutoff=None,
            rank=shown[0],
            judged=shown[1],
            **copied,
        )

    def report(self, trial: Trial) -> Report | None:
        if trial.lost:
            return self._of_lost(trial)
        if not trial.is_live:
            return Report(self.value_or_worst(trial), self.length(trial), done=True)
        point = self._value_and_steps(trial)
        if point is None:
            return None
        return Report(*point)

    def _of_lost(self, trial: Trial) -> Report:
        """Report the worst loss for a diverged trial, so that PBT replaces it with a copy."""
        bucket = self._buckets[trial.bucket]
        marks = sorted(bucket.schedule.evaluations)
        chunks = max((bucket.trained(run) for run in trial.runs), default=0)
        ahead = next((mark for mark in marks if mark > chunks), None)
        if ahead is None or ahead >= bucket.schedule.length:
            self._search_state.end(trial, TrialState.DIVERGED)
            return Report(self.worst_value(), self.length(trial), done=True)
        for run in trial.runs:
            run.skip_to(ahead + bucket.warmup)
        return Report(self.worst_value(), ahead * bucket.schedule.quantum)

    def length(self, trial: Trial) -> int:
        if trial.bucket not in self._buckets:
            return self._search_state.study.env_steps
        return self._buckets[trial.bucket].schedule.env_steps

    def value_or_worst(self, trial: Trial) -> float:
        if trial.value is None:
            return self.worst_value()
        return trial.value

    def worst_value(self) -> float:
        worst = self._worst
        if worst is None:
            worst = _WORST
        return self._search_state.objective.loss(worst)  # a loss is the value, or its negative


_PATIENCE_SECONDS = 120.0  # a process starts within seconds, but not on a busy machine


class Waiting:
    """The unanswered requests of one study."""

    def __init__(self, search_state: SearchState, desk: Desk, reports: Reports):
        self._search_state, self._desk, self._reports = search_state, desk, reports
        self._asked: dict[int, DeskRequest] = {}
        self._last_activity = time.monotonic()

    @property
    def numbers(self) -> list[int]:
        """The waiting trials in the order of their requests."""
        return list(self._asked)

    def add(self, request: DeskRequest) -> None:
        self._asked[request.trial] = request

    def note_activity(self) -> None:
        """Record that the scheduler is working, so another request may follow soon."""
        self._last_activity = time.monotonic()

    def is_complete(self) -> bool:
        """Return whether lanes can step: all expected requests arrived, or the wait timed out."""
        if not self._asked:
            return False
        waited = time.monotonic() - self._last_activity
        return len(self._asked) >= self._desk.expected() or waited > _PATIENCE_SECONDS

    def reply(self, replies: Mapping[str, Reply]) -> None:
        if replies:
            self._desk.answer(replies)
            self.note_activity()

    def reply_to_all(self) -> None:
        """Reply to the waiting trials that are at an evaluation or have ended."""
        replies: dict[str, Reply] = {}
        for number, request in list(self._asked.items()):
            report = self._reports.report(self._search_state.trials[number])
            if report is not None:
                replies[request.key] = report
                del self._asked[number]
        self.reply(replies)

    def dismiss(self, number: int) -> None:
        """Reply to a waiting trial that its training is complete."""
        request = self._asked.pop(number, None)
        if request is not None:
            self.turn_away(request)

    def turn_away(self, request: DeskRequest) -> None:
        trial = self._search_state.trials.get(request.trial)
        value, length = self._reports.worst_value(), self._search_state.study.env_steps
        if trial is not None:
            value, length = self._reports.value_or_worst(trial), self._reports.length(trial)
        self.reply({request.key: Report(value, length, done=True)})
