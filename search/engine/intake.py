"""From proposals to trials that wait: numbers, configurations, buckets, replicates.

Batches are numbered in the order they begin. One at a time may be drawn beside the chunks that
run; it is taken in at the first boundary where a trial ends or a free lane needs it. When that is
depends on the search, never on the time that drawing takes.
"""

from __future__ import annotations

from ...store.rows import AskRow
from ..book.budget import may_propose, trials_left
from ..book.state import PendingAsk
from ..book.trials import Trial
from ..samplers.ask_ahead import AskAhead
from ..samplers.proposer import Proposal, Proposals
from .engine import Engine

__all__ = ["Intake"]


class Intake:
    """Asks for trials and lets their replicates wait in their buckets.

    Args:
        engine: takes trials in.
        ahead: draws proposals, also beside the chunks.
    """

    def __init__(self, engine: Engine, ahead: AskAhead):
        self._engine, self._ledger, self._ahead = engine, engine.ledger, ahead

    def begin(self, count: float) -> None:
        """Begin to draw a batch of up to `count` trials, unless one is being drawn already."""
        if self._ledger.state.pending is not None:
            return
        if self._number(count) is not None:
            self.resume()

    def resume(self) -> None:
        """Begin the pending batch, if there is one; also after it was lost with its process.

        It knows nothing of the trials that ended since it began.
        """
        state = self._ledger.state
        if state.pending is not None:
            history = self._ledger.history(unseen=state.told)
            self._ahead.start(state.pending.batch, state.pending.trials, history)

    def join(self) -> bool:
        """Take in the batch being drawn, waiting for it; say whether there was one."""
        pending = self._ledger.state.pending
        if pending is None:
            return False
        with self._ledger.state.usage.spending("search"):
            found = self._ahead.join()
        self._take(pending, found)
        return True

    def ask(self, count: float) -> bool:
        """Draw a batch in the loop's own time and take it in; say whether it brought anything."""
        pending = self._number(count)
        if pending is None:
            return False
        with self._ledger.state.usage.spending("search"):
            proposals = self._ahead.ask(pending.batch, pending.trials, self._ledger.history())
        self._take(pending, proposals)
        return bool(proposals.found)

    def _number(self, count: float) -> PendingAsk | None:
        state = self._ledger.state
        number = int(min(count, trials_left(self._ledger.study, state.proposed)))
        if number < 1 or not may_propose(self._ledger):
            return None
        return state.begin_batch(number)  # pending until it is there: an error must not lose it

    def _take(self, pending: PendingAsk, proposals: Proposals) -> None:
        state = self._ledger.state
        state.usage.count_draws(proposals.draws, proposals.refused)
        state.take_batch(len(proposals.found))
        self._ledger.unwritten.add(
            AskRow(
                batch=pending.batch,
                method=self._ledger.study.search.method,
                trials=tuple(proposal.trial for proposal in proposals.found),
                told=tuple(pending.told),
            )
        )
        for proposal in proposals.found:
            self._admit(proposal, pending.batch)

    def _admit(self, proposal: Proposal, batch: int) -> None:
        trial = Trial(
            number=proposal.trial,
            params=proposal.params,
            proposed_by=proposal.proposed_by,
            batch=batch,
            attributes=proposal.attributes,
        )
        bucket = self._engine.admit(trial, self._ledger.study.seeds.first)
        if bucket is not None:
            bucket.enqueue(trial.runs)
