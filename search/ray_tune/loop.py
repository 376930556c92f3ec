"""Lanes that a foreign scheduler drives: its trials step together, and end as it decides.

Before each chunk the trials that it runs are waited for, so that what it believes to be processes
of their own are lanes of one program. Rows, budget, divergence and policies are those of every
study; what it decides is written down as rungs are, one at every evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from ...errors import ConfigError, HpoError, StoreError
from ...store.rows import AttributeRow, EvaluationRow, TrialState
from ..book.budget import check_health
from ..book.ledger import Ledger
from ..book.progress import Observer, picture
from ..book.trials import RunState
from ..engine.callbacks import StopStudy
from ..engine.chunk import CurveSink
from ..engine.commits import Committer
from ..engine.intake import Intake
from ..engine.interrupts import Interrupts
from ..engine.settle import Policies, close_search, settle
from ..lanes.contract import PopulationFactory
from .chunks import DrivenChunks
from .contract import Desk, Request
from .lanes import DrivenLanes
from .reports import Reports
from .waiting import Waiting

__all__ = ["Driven"]

_LISTEN_SECONDS = 0.05


class Driven:
    """The search of one study whose trials a foreign scheduler runs.

    Args:
        ledger: trials and state, new or restored.
        factory: makes populations.
        intake: knows the buckets.
        curves: takes curve rows.
        committer: makes everything durable.
        policies: keeps the best.
        desk: the scheduler.
        rule: its words in the store.
        copies: it lets trials go on from each other's states, so that one that diverged waits for
            one.
        observers: told of every boundary.
    """

    def __init__(
        self,
        ledger: Ledger,
        factory: PopulationFactory,
        intake: Intake,
        curves: CurveSink,
        committer: Committer,
        policies: Policies,
        desk: Desk,
        rule: str,
        copies: bool = False,
        observers: Sequence[Observer] = (),
    ):
        self._ledger, self._committer, self._policies = ledger, committer, policies
        self._desk, self._rule, self._observers = desk, rule, observers
        self._reports = Reports(ledger, intake.buckets, rule)
        self._waiting = Waiting(ledger, desk, self._reports)
        self._lanes = DrivenLanes(ledger, factory, intake, desk, self._reports, copies)
        self._chunks = DrivenChunks(ledger, self._lanes, curves, policies, copies)
        self._whole = True  # no step is half done: the state may be committed
        self._clock = time.monotonic()

    def run(self, interrupts: Interrupts) -> Literal["finished", "interrupted"]:
        """Run until the scheduler has ended all its trials, or an interrupt asks to leave.

        Raises:
            SearchError: the search cannot go on; what was done up to the last boundary is kept.
        """
        try:
            self._ledger.state.exhausted = False
            self._give_up_without_lanes()
            bucket = self._lanes.bucket_of_default()
            self._desk.begin(self._lanes.width(bucket), bucket.schedule)
            while not self._desk.is_over:
                if interrupts.requested:
                    return self._leave()
                self._listen()
                if self._waiting.is_complete():
                    self._committer.commit_if_due()
                    self._step()
        except StopStudy:
            return self._leave()
        except StoreError:  # amid a step, half of which must not be committed
            self._desk.stop()
            raise
        except HpoError:
            self._leave()
            raise
        self._ledger.state.exhausted = True
        row = AttributeRow(None, "ray_tune", self._chunks.together.as_json())
        self._ledger.unwritten.attributes.append(row)
        close_search(self._ledger)
        self._lanes.release()
        return "finished"

    def _leave(self) -> Literal["interrupted"]:
        self._desk.stop()
        if self._whole:
            self._committer.commit("interrupted")
        return "interrupted"

    def _give_up_without_lanes(self) -> None:
        """End trials that were put aside when the study was cut: their states are gone."""
        for trial in self._ledger.live():
            runs = [run for run in trial.runs if run.state is RunState.RUNNING]
            if trial.lost or any(run.lane is None for run in runs):
                text = "it was put aside when the study was cut, and its state is gone"
                self._ledger.end(trial, TrialState.UNFINISHED, text)
        self._lanes.release()

    # ------------------------------------------------------------------ what the scheduler wants

    def _listen(self) -> None:
        """Take what is on the desk; who has ended makes room before others come in."""
        requests = self._desk.wait(_LISTEN_SECONDS)
        gone = self._desk.ended()
        if requests:
            self._waiting.heard()
        for request in requests:
            if request.kind == "keep":
                self._waiting.reply({request.key: self._lanes.keep(request.trial)})
        for number in gone:
            self._ended(number)
        for request in requests:
            if request.kind == "train" and request.trial in gone:
                self._waiting.turn_away(request)
            elif request.kind == "train":
                self._admit(request)
        self._tell_ended()

    def _admit(self, request: Request) -> None:
        """Let a trial wait for the next chunk in its lanes; one that has ended is told so."""
        trial = self._ledger.trials.get(request.trial)
        if trial is None and not self._chunks.is_affordable():
            self._waiting.turn_away(request)
            return
        self._waiting.add(request)
        try:
            trial = trial or self._lanes.begin(request)
            if not trial.is_live:
                self._waiting.dismiss(trial.number)
                return
            self._lanes.enter(trial, request)
            self._reports.judge(trial, "continue", None)
        except HpoError as error:
            if not isinstance(error, ConfigError) or trial is None or not trial.is_live:
                raise
            self._chunks.fail(self._lanes.buckets[trial.bucket], trial.runs, error)
            self._waiting.dismiss(trial.number)

    def _ended(self, number: int) -> None:
        """Take note that the scheduler has ended a trial; one that could go on was stopped."""
        trial = self._ledger.trials.get(number)
        if trial is not None and trial.is_live:
            shown = self._reports.has_shown(number)
            self._reports.judge(trial, "stop", None)
            trial.stop_rule = self._rule
            lost = TrialState.DIVERGED if trial.lost else TrialState.UNFINISHED
            self._ledger.end(trial, TrialState.STOPPED if shown and not trial.lost else lost)
            self._lanes.release()
        self._waiting.dismiss(number)

    # ------------------------------------------------------------------ the boundary

    def _step(self) -> None:
        """Run one chunk of the lanes of all trials that asked, then the boundary."""
        ledger = self._ledger
        self._whole = False
        evaluations = self._chunks.run(self._waiting.numbers, self._desk.has_more())
        self._reports.note(self._waiting.numbers)
        settle(ledger, self._lanes.buckets, self._policies)
        self._policies.snapshots.forget(ledger)
        self._lanes.release()
        self._whole = True
        self._tell(evaluations)
        self._waiting.reply_to_all()
        check_health(ledger)

    def _tell(self, evaluations: Sequence[EvaluationRow]) -> None:
        """Tell observers of a boundary."""
        ledger, now = self._ledger, time.monotonic()
        ledger.state.usage.run_seconds += max(0.0, now - self._clock)
        self._clock = now
        for observer in self._observers if evaluations else ():
            observer.on_evaluations(evaluations)
        self._tell_ended()
        if self._observers:
            buckets = self._lanes.buckets
            progress = picture(ledger, buckets.values(), buckets.get(ledger.state.running))
            for observer in self._observers:
                observer.on_chunk(progress)

    def _tell_ended(self) -> None:
        ended, self._ledger.ended = self._ledger.ended, []
        for trial in ended:
            for observer in self._observers:
                observer.on_trial_end(trial.row())
