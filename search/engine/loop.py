"""The run loop: what happens at a boundary between two chunks, in which order (docs/search.md).

The loop only orders the steps; each is a part of its own. The device waits for nothing but them:
proposals are drawn while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...store.rows import EvaluationRow
from ..rules.registry import Pruner
from ..rules.successive_halving import PromotingAsha
from ..state.budget import may_propose
from ..state.loop_state import Phase
from ..state.schedule import Schedule
from ..state.trials import RunState, Trial, cut
from .confirm import Fresh, advance_phase, begin_confirm, first_confirmed
from .engine import Engine, Outcome
from .finish_trials import close_search, settle
from .interrupts import Interrupts
from .pbt_step import Evolver, end_hopeless, evolve, set_aside
from .refill import Intake, Refiller
from .rung_decisions import judge, promote_last


class Loop:
    """One study from where its ledger stands to its end.

    Args:
        engine: steps the lanes.
        intake: brings trials.
        pruner: stops trials early, or None.
        evolver: lets trials copy each other, or None.
        fresh: what the confirm stage need not run again.
    """

    def __init__(
        self,
        engine: Engine,
        intake: Intake,
        pruner: Pruner | None = None,
        evolver: Evolver | None = None,
        fresh: Fresh | None = None,
    ):
        self._engine, self._ledger, self._buckets = engine, engine.ledger, engine.buckets
        self._intake, self._refiller = intake, Refiller(engine, intake)
        self._pruner, self._evolver, self._fresh = pruner, evolver, fresh or Fresh()

    def run(self, interrupts: Interrupts) -> Outcome:
        """Run until the study is finished or an interrupt asks to leave; commits at the end.

        Raises:
            SearchError: the search cannot go on; what was done up to the last boundary is kept.
        """
        return self._engine.run(lambda: self._search(interrupts))

    def _search(self, interrupts: Interrupts) -> Outcome:
        """Pass boundary after boundary.

        Every commit is of a state between two steps. Filling lanes cuts what the budget no longer
        pays for and may then choose another bucket, so a state committed behind it would be
        filled once more on resume, and differently.
        """
        self._intake.resume()
        while self._ledger.state.phase is not Phase.DONE:
            if interrupts.requested:
                return "interrupted"
            self._engine.committer.commit_if_due()
            if self._engine.is_out_of_time():
                self._stop_phase()
            evaluations = self._pass_boundary()
            if evaluations is None:
                self._stop_phase()
            else:
                self._engine.telling.boundary(evaluations)
        self._engine.policies.tidy(self._ledger, first_confirmed(self._ledger))
        self._ledger.state.finish()
        self._engine.telling.count_time()
        self._engine.committer.commit("finished")
        return "finished"

    def _pass_boundary(self) -> list[EvaluationRow] | None:
        """Refill lanes, run a chunk, judge and settle; None when this phase has nothing to run."""
        engine, ledger = self._engine, self._ledger
        with engine.undivided():
            bucket = None if ledger.state.phase is Phase.DONE else self._refiller.refill()
            if bucket is None and self._one_goes_on():
                bucket = self._refiller.refill()
            engine.check_first_bucket()
            if bucket is None:
                return None
            rows = engine.step(bucket, bucket.busy(), self._work_remains(), self._set_aside)
            self._judge()
            settle(ledger, self._buckets, engine.policies)
            if ledger.state.phase is not Phase.SEARCH:
                self._advance_phase()
            engine.release()
        return rows

    def _stop_phase(self) -> None:
        """End what this phase has left, which nothing pays for any more, and begin the next."""
        engine, ledger = self._engine, self._ledger
        if ledger.state.phase is Phase.DONE:
            return
        with engine.undivided():
            if ledger.state.phase is Phase.SEARCH:
                self._intake.join()
                close_search(ledger)
                engine.release()
                begin_confirm(ledger, self._buckets, self._fresh, engine.bucket_of)
            else:
                for trial in ledger.state.live.values():
                    cut(trial.runs)
                engine.release()
                self._advance_phase()
        engine.telling.changes()

    def _advance_phase(self) -> None:
        """Go on with confirming, if what ran has ended."""
        engine = self._engine
        advance_phase(self._ledger, self._buckets, engine.policies, self._fresh, engine.bucket_of)

    def _work_remains(self) -> bool:
        """Return whether a lane that is idle now could have been busy."""
        waiting = any(bucket.waiting for bucket in self._buckets.values())
        return waiting or self._ledger.state.pending is not None or may_propose(self._ledger)

    def _set_aside(self, trial: Trial) -> bool:
        """Return whether a trial that diverged waits for the state of another one."""
        return self._evolver is not None and set_aside(trial, self._buckets)

    @property
    def _schedules(self) -> dict[str, Schedule]:
        return {key: bucket.schedule for key, bucket in self._buckets.items()}

    def _one_goes_on(self) -> bool:
        """Return whether a paused trial goes on because nothing else is left to run."""
        if self._ledger.state.phase is not Phase.SEARCH or not isinstance(
            self._pruner, PromotingAsha
        ):
            return False
        able = [key for key, b in self._buckets.items() if self._engine.affordable(b) >= 1]
        best = promote_last(self._ledger, self._pruner, self._schedules, able)
        self._wait([] if best is None else [best])
        return best is not None

    def _wait(self, promoted: Iterable[Trial]) -> None:
        """Let the replicates of trials that go on wait for lanes."""
        for trial in promoted:
            runs = [run for run in trial.runs if run.state is RunState.WAITING]
            self._buckets[trial.bucket].enqueue(runs)

    def _judge(self) -> None:
        """Judge the trials that stand at a rung: stop or pause some, or let some copy others."""
        if self._evolver is None:
            self._wait(judge(self._ledger, self._pruner, self._schedules))
            self._engine.shelve()
            return
        end_hopeless(self._ledger)
        for bucket, changes in evolve(self._ledger, self._evolver, self._buckets):
            if changes and bucket.population is not None:
                try:
                    bucket.population.change(changes)
                except Exception as error:
                    self._engine.fail_lanes(bucket, error)
