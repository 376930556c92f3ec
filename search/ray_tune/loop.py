"""Lanes that a foreign scheduler drives: its trials step together, and end as it decides.

Before each chunk the trials that it runs are waited for, so that what it believes to be processes
of their own are lanes of one program. Rows, budget, divergence and policies are those of every
study; what it decides is written down as rungs are, one at every evaluation.
"""

from __future__ import annotations

from collections.abc import Container

from ...disk import has_refused
from ...errors import HpoError, SearchError
from ...faults import told_if_own
from ...store.rows import AttributeRow, EvaluationRow, TrialState
from ..book.buckets import Bucket
from ..book.runs import Run, RunState, cut
from ..engine.engine import Engine, Outcome
from ..engine.interrupts import Interrupts
from ..engine.settle import close_search, settle
from .contract import Desk, Request
from .lanes import DrivenLanes
from .reports import Reports, Together
from .waiting import Waiting

__all__ = ["Driven"]

_LISTEN_SECONDS = 0.05


class Driven:
    """The search of one study whose trials a foreign scheduler runs.

    Args:
        engine: steps the lanes.
        desk: the scheduler.
        rule: its words in the store.
        copies: it lets trials go on from each other's states, so that one that diverged waits for
            one.
    """

    def __init__(self, engine: Engine, desk: Desk, rule: str, copies: bool = False):
        self._engine, self._ledger = engine, engine.ledger
        self._desk, self._rule, self._copies = desk, rule, copies
        self._reports = Reports(engine.ledger, engine.buckets, rule)
        self._waiting = Waiting(engine.ledger, desk, self._reports)
        self._lanes = DrivenLanes(engine, desk, self._reports, copies)
        self._together = Together()

    def run(self, interrupts: Interrupts) -> Outcome:
        """Run until the scheduler has ended all its trials, or an interrupt asks to leave.

        Raises:
            SearchError: the search cannot go on; what was done up to the last boundary is kept.
        """
        return self._engine.run(lambda: self._search(interrupts))

    def _search(self, interrupts: Interrupts) -> Outcome:
        engine, ledger = self._engine, self._ledger
        ledger.state.proposes(True)
        self._give_up_without_lanes()
        bucket, width = self._first_lanes()
        self._desk.begin(width, bucket.schedule)
        while not self._desk.is_over:
            if interrupts.requested:
                return "interrupted"
            self._listen()
            if self._waiting.is_complete():
                engine.committer.commit_if_due()
                self._pass_boundary()
        ledger.state.proposes(False)
        ledger.unwritten.add(AttributeRow(None, "ray_tune", self._together.as_json()))
        close_search(ledger)
        engine.release()
        return "finished"

    def _first_lanes(self) -> tuple[Bucket, int]:
        """Return the bucket of the default configuration, and how many trials its lanes hold.

        Raises:
            HpoError: it does not run at all, which would fail a trial of our own driver.
        """
        try:
            bucket = self._lanes.bucket_of_default()
            self._engine.check_first_bucket()
            return bucket, self._lanes.width(bucket)
        except Exception as error:
            if isinstance(error, HpoError) or has_refused(error):
                raise
            raise SearchError(
                "the default configuration does not run, so Ray Tune has no lanes: "
                f"{told_if_own(error)}"
            ) from error

    def _give_up_without_lanes(self) -> None:
        """End trials that were put aside when the study was cut: their states are gone."""
        for trial in self._ledger.live():
            runs = [run for run in trial.runs if run.state is RunState.RUNNING]
            if trial.lost or any(run.lane is None for run in runs):
                text = "it was put aside when the study was cut, and its state is gone"
                self._ledger.end(trial, TrialState.UNFINISHED, text)
        self._engine.release()

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
                with self._engine.undivided():
                    self._admit(request)
        self._engine.telling.changes()

    def _admit(self, request: Request) -> None:
        """Let a trial wait for the next chunk in its lanes; one that has ended is told so."""
        engine, trial = self._engine, self._ledger.trials.get(request.trial)
        if trial is None and (engine.is_out_of_time() or not engine.pays_for_any()):
            self._waiting.turn_away(request)
            return
        self._waiting.add(request)
        try:
            trial = trial or self._lanes.begin(request)
            if trial.is_live:
                self._lanes.enter(trial, request)
                self._reports.judge(trial, "continue", None)
        except Exception as error:
            if trial is None or not trial.is_live:
                raise
            engine.fail(engine.buckets[trial.bucket], trial.runs, error)
        if not trial.is_live:
            self._waiting.dismiss(trial.number)

    def _ended(self, number: int) -> None:
        """Take note that the scheduler has ended a trial; one that could go on was stopped."""
        trial = self._ledger.trials.get(number)
        if trial is not None and trial.is_live:
            shown = self._reports.has_shown(number)
            self._reports.judge(trial, "stop", None)
            trial.stop_by(self._rule)
            lost = TrialState.DIVERGED if trial.lost else TrialState.UNFINISHED
            self._ledger.end(trial, TrialState.STOPPED if shown and not trial.lost else lost)
            self._engine.release()
        self._waiting.dismiss(number)

    # ------------------------------------------------------------------ the boundary

    def _pass_boundary(self) -> None:
        """Run one chunk of the lanes of all trials that asked, then the boundary."""
        engine, asked = self._engine, self._waiting.numbers
        with engine.undivided():
            evaluations = self._chunk(asked)
            self._reports.note(asked)
            settle(self._ledger, engine.buckets, engine.policies)
            engine.release()
        engine.telling.boundary(evaluations)
        self._waiting.reply_to_all()

    def _chunk(self, asked: Container[int]) -> list[EvaluationRow]:
        """Run one chunk of the lanes of some trials, together; return what was evaluated."""
        engine, has_more = self._engine, self._desk.has_more()
        broke = engine.is_out_of_time()
        evaluations: list[EvaluationRow] = []
        for bucket in list(engine.buckets.values()):
            runs = self._stepping(bucket, asked, 0 if broke else engine.affordable(bucket))
            if runs:
                self._together.add(len(runs), sum(run.is_live for run in bucket.busy()))
                evaluations += engine.step(bucket, runs, has_more, lambda trial: self._copies)
        return evaluations

    def _stepping(self, bucket: Bucket, asked: Container[int], affordable: float) -> list[Run]:
        """Return the replicates of some trials, as far as the budget pays; the others are cut."""
        runs = [run for run in bucket.busy() if run.trial in asked and run.is_live]
        if affordable < len(runs):
            cut(runs[int(affordable) :])
        return [run for run in runs if run.is_live]
