"""The run loop: the steps between two chunks, in order (docs/architecture.md).

The device waits only during these steps; proposals are drawn while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...store.rows import EvaluationRow
from ..rules.registry import Pruner
from ..rules.stopping import PromotingAsha
from ..state.budget import may_propose
from ..state.loop_state import Phase
from ..state.schedule import EventSchedule
from ..state.trials import RunState, Trial, cut, in_state
from .confirm import ConfirmStage, Fresh, first_confirmed
from .engine import Engine, Outcome
from .finish_trials import close_search, finish_trials
from .interrupts import Interrupts
from .pbt_step import Evolver, end_hopeless, evolve, set_aside
from .refill import Refiller, RefillQueue
from .rung_decisions import judge, promote_last


class Loop:
    """Runs one study from its last commit to its end.

    `pruner` stops trials early, `evolver` makes trials copy each other, and `fresh` contains
    earlier confirm results.
    """

    def __init__(
        self,
        engine: Engine,
        refill_queue: RefillQueue,
        pruner: Pruner | None = None,
        evolver: Evolver | None = None,
        fresh: Fresh | None = None,
    ):
        self._engine, self._search_state = engine, engine.search_state
        self._buckets = engine.buckets
        self._refill_queue, self._refiller = refill_queue, Refiller(engine, refill_queue)
        self._pruner, self._evolver = pruner, evolver
        self._confirm = ConfirmStage(
            engine.search_state,
            engine.buckets,
            engine.policies,
            fresh or Fresh(),
            engine.bucket_of,
        )

    def run(self, interrupts: Interrupts) -> Outcome:
        return self._engine.run(lambda: self._run_to_end(interrupts))

    def _run_to_end(self, interrupts: Interrupts) -> Outcome:
        """Run chunks, and the steps between them, until the study ends or is interrupted.

        Every commit records a state between two steps. Filling lanes cuts replicates that the
        budget does not cover, and may then select another bucket. A study resumed from a commit
        after that would fill its lanes differently.
        """
        self._refill_queue.resume()
        while self._search_state.state.phase is not Phase.DONE:
            if interrupts.requested:
                return "interrupted"
            self._engine.committer.commit_if_due()
            if self._engine.is_out_of_time():
                self._stop_phase()
            evaluations = self._pass_boundary()
            if evaluations is None:
                self._stop_phase()
            else:
                self._engine.notifier.boundary(evaluations)
        self._engine.policies.tidy(first_confirmed(self._search_state))
        self._search_state.state.finish()
        self._engine.notifier.count_time()
        self._engine.committer.commit("finished")
        return "finished"

    def _pass_boundary(self) -> list[EvaluationRow] | None:
        """Refill lanes, run a chunk and judge trials; return None if this phase is complete."""
        engine, search_state = self._engine, self._search_state
        with engine.undivided():
            bucket = None
            if search_state.state.phase is not Phase.DONE:
                bucket = self._refiller.refill()
            if bucket is None and self._one_goes_on():
                bucket = self._refiller.refill()
            engine.check_first_bucket()
            if bucket is None:
                return None
            rows: list[EvaluationRow] = []
            if runs := engine.ready(bucket):
                rows = engine.step(bucket, runs, self._work_remains(), self._set_aside)
            self._judge_rungs()
            finish_trials(search_state, self._buckets, engine.policies)
            if search_state.state.phase is not Phase.SEARCH:
                self._confirm.advance()
            engine.release()
            if search_state.take_redraw():
                self._refill_queue.redraw()
        return rows

    def _stop_phase(self) -> None:
        engine, search_state = self._engine, self._search_state
        if search_state.state.phase is Phase.DONE:
            return
        with engine.undivided():
            if search_state.state.phase is Phase.SEARCH:
                self._refill_queue.join()
                close_search(search_state, engine.policies)
                engine.release()
                self._confirm.begin()
            else:
                for trial in search_state.state.live.values():
                    cut(trial.runs)
                engine.release()
                self._confirm.advance()
        engine.notifier.changes()

    def _work_remains(self) -> bool:
        waiting = any(bucket.waiting for bucket in self._buckets.values())
        if waiting or self._search_state.state.pending is not None:
            return True
        return may_propose(self._search_state) and self._engine.trials_to_start() >= 1

    def _set_aside(self, trial: Trial) -> bool:
        return self._evolver is not None and set_aside(trial, self._buckets)

    @property
    def _schedule_by_bucket(self) -> dict[str, EventSchedule]:
        return {key: bucket.schedule for key, bucket in self._buckets.items()}

    def _one_goes_on(self) -> bool:
        """Promote a paused trial if nothing else can run; return whether one was promoted."""
        if self._search_state.state.phase is not Phase.SEARCH:
            return False
        if not isinstance(self._pruner, PromotingAsha):
            return False
        able = [key for key, b in self._buckets.items() if self._engine.affordable(b) >= 1]
        best = promote_last(self._search_state, self._pruner, able)
        if best is None:
            return False
        self._enqueue_promoted([best])
        return True

    def _enqueue_promoted(self, promoted: Iterable[Trial]) -> None:
        for trial in promoted:
            runs = in_state(trial.runs, RunState.WAITING)
            self._buckets[trial.bucket].enqueue(runs)

    def _judge_rungs(self) -> None:
        """Judge the trials at a rung: stop or pause some of them, or let some copy others."""
        if self._evolver is None:
            self._enqueue_promoted(
                judge(self._search_state, self._pruner, self._schedule_by_bucket)
            )
            self._engine.shelve()
            return
        end_hopeless(self._search_state)
        for bucket, changes in evolve(self._search_state, self._evolver, self._buckets):
            if changes and bucket.population is not None:
                try:
                    bucket.population.change(changes)
                except Exception as error:
                    self._engine.fail_lanes(bucket, error)
