"""Keeps lanes busy: decides which bucket runs, which trials fill its lanes, and how many to draw.

Decisions depend only on search state and buckets, so a resumed study fills the same lanes.
"""

from __future__ import annotations

import math

from ...store.rows import AskRow, Stream, TrialState
from ..samplers.proposal_queue import AskAhead, Proposal, Proposals
from ..samplers.registry import draws_ahead
from ..state.buckets import Bucket, next_bucket
from ..state.budget import may_propose, trials_left
from ..state.loop_state import PendingAsk
from ..state.trials import RunState, Trial, any_live, cut, in_state
from .engine import Engine


class RefillQueue:
    """Requests trials and queues their replicates in their buckets."""

    def __init__(self, engine: Engine, ahead: AskAhead):
        self._engine, self._search_state, self._ahead = engine, engine.search_state, ahead

    def begin(self, count: float) -> None:
        if self._search_state.state.pending is not None:
            return
        if self._begin_batch(count) is not None:
            self.resume()

    def resume(self) -> None:
        """Start drawing the pending batch, if there is one; also called on resuming."""
        state = self._search_state.state
        if state.pending is not None:
            history = self._search_state.history(unseen=state.told)
            self._ahead.start(state.pending.batch, state.pending.trials, history)

    def redraw(self) -> None:
        """Draw the pending batch again, because values in its history have changed."""
        if self._search_state.state.pending is not None:
            self._ahead.join()
            self.resume()

    def join(self) -> bool:
        pending = self._search_state.state.pending
        if pending is None:
            return False
        with self._search_state.state.usage.spending("search"):
            found = self._ahead.join()
        self._take_proposals(pending, found)
        return True

    def ask(self, count: float) -> bool:
        pending = self._begin_batch(count)
        if pending is None:
            return False
        with self._search_state.state.usage.spending("search"):
            proposals = self._ahead.ask(
                pending.batch, pending.trials, self._search_state.history()
            )
        self._take_proposals(pending, proposals)
        return bool(proposals.found)

    def _begin_batch(self, count: float) -> PendingAsk | None:
        state = self._search_state.state
        if not may_propose(self._search_state):
            return None
        left = trials_left(self._search_state.study, state.proposed)
        number = int(min(count, left, self._engine.trials_to_start()))
        if number < 1:
            return None
        # stays pending until it has been drawn, so that an error cannot lose it
        return state.begin_batch(number)

    def _take_proposals(self, pending: PendingAsk, proposals: Proposals) -> None:
        state = self._search_state.state
        state.usage.count_draws(proposals.draws, proposals.refused)
        state.take_batch(len(proposals.found))
        self._search_state.unwritten.add(
            AskRow(
                batch=pending.batch,
                method=self._search_state.study.search.method,
                trials=tuple(proposal.trial for proposal in proposals.found),
                told=tuple(pending.told),
            )
        )
        for proposal in proposals.found:
            self._admit_proposal(proposal, pending.batch)

    def _admit_proposal(self, proposal: Proposal, batch: int) -> None:
        trial = Trial(
            proposal.trial,
            TrialState.WAITING,
            proposal.proposed_by,
            batch,
            "",
            proposal.params,
            attributes=proposal.attributes,
        )
        bucket = self._engine.admit(trial, self._search_state.study.seeds.first)
        if bucket is not None:
            bucket.enqueue(trial.runs)


class Refiller:
    """Decides, before every chunk, which replicates run in it."""

    def __init__(self, engine: Engine, refill_queue: RefillQueue):
        self._engine, self._search_state = engine, engine.search_state
        self._refill_queue = refill_queue
        self._ahead = draws_ahead(engine.study)

    def refill(self) -> Bucket | None:
        """Fill lanes, and return the bucket that runs next; None if nothing can run."""
        if self._search_state.state.told:
            self._refill_queue.join()  # it is for the batch after the one being drawn
        while True:
            bucket = self._choose_bucket()
            if bucket is not None and not self._engine.prepare(bucket):
                continue
            if bucket is not None:
                self._fill_lanes(bucket)
            count = self._wanted_now(bucket)
            if count >= 1 and (self._refill_queue.join() or self._refill_queue.ask(count)):
                continue
            if bucket is None or self._engine.fix_lanes(bucket):
                break
        if bucket is None:
            return None
        self._refill_queue.begin(self._wanted_ahead(bucket))
        self._look_ahead(bucket)
        return bucket if bucket.busy() else None

    def _choose_bucket(self) -> Bucket | None:
        able = {
            key: bucket
            for key, bucket in self._engine.buckets.items()
            if bucket.work and self._engine.affordable(bucket) >= 1
        }
        return able.get(
            self._winner_bucket() or next_bucket(able, self._search_state.state.running)
        )

    def _winner_bucket(self) -> str:
        state = self._search_state.state
        if state.winner is None or state.winner not in state.live:
            return ""
        winner = state.live[state.winner]
        return winner.bucket if any_live(winner.runs) else ""

    def _look_ahead(self, bucket: Bucket) -> None:
        """Fix the lane count of the other bucket with the most work, and start compiling it."""
        others = [
            other
            for other in self._engine.buckets.values()
            if other is not bucket and other.work and self._engine.affordable(other) >= 1
        ]
        if self._search_state.state.running != bucket.key or not others:
            return
        largest = max(others, key=lambda other: other.work)  # the first one of equals
        if self._engine.prepare(largest) and self._engine.fix_lanes(largest):
            self._engine.compile_ahead(largest)

    def _fill_lanes(self, bucket: Bucket) -> None:
        """Cut replicates that exceed the budget, then fill as many lanes as the budget allows."""
        affordable = self._engine.affordable(bucket)
        busy = bucket.busy()
        if affordable < len(busy):
            cut(busy[int(affordable) :])
            bucket.release()
        most = int(min(affordable, bucket.lanes))
        for run in bucket.place(most - len(bucket.busy())):
            self._search_state.started(run)

    def _wanted_now(self, bucket: Bucket | None) -> int:
        if bucket is None:
            return 1
        busy = len(bucket.busy())
        free = min(bucket.lanes, self._engine.affordable(bucket)) - busy
        if free < 1 or self._is_next_ready(bucket, busy):
            return 0
        room = 2 * bucket.lanes - self._queued_trials()
        return int(min(math.ceil(free / self._seeds_per_trial), room))

    def _is_next_ready(self, bucket: Bucket, busy: int) -> bool:
        """Return whether another bucket would use the device better than more trials here.

        Trials are requested until the result is True, because queued trials cost nothing, but
        empty lanes cost a tenth of a study's time.
        """
        if 2 * busy >= bucket.lanes:
            return False
        others = [
            other.work
            for other in self._engine.buckets.values()
            if other is not bucket and self._engine.affordable(other) >= 1
        ]
        most = max(others, default=0)
        return most >= bucket.block and most > bucket.work

    def _wanted_ahead(self, bucket: Bucket) -> int:
        """Return how many trials to draw during the next chunk, for the lanes that it frees."""
        if not self._ahead:
            return 0
        return math.ceil(bucket.lanes / self._seeds_per_trial) - self._queued_trials()

    def _queued_trials(self) -> int:
        return sum(_is_queued(trial) for trial in self._search_state.live())

    @property
    def _seeds_per_trial(self) -> int:
        return self._search_state.study.seeds.first


def _is_queued(trial: Trial) -> bool:
    return bool(in_state(trial.runs_of(Stream.SEARCH), RunState.WAITING))
