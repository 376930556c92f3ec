"""From proposals to trials that wait: numbers, configurations, buckets, replicates.

Batches are numbered in the order they begin. One at a time may be drawn beside the chunks that
run; it is taken in at the first boundary where a trial ends or a free lane needs it. When that is
depends on the search, never on the time that drawing takes.
"""

from __future__ import annotations

from ...errors import ConfigError
from ...store.rows import AskRow, Stream, TrialState
from ..book.buckets import Bucket
from ..book.budget import may_propose, trials_left
from ..book.ledger import Ledger
from ..book.schedule import schedule_of
from ..book.state import PendingAsk
from ..book.trials import Run, Trial
from ..samplers.ask_ahead import AskAhead
from ..samplers.proposer import Proposal, Proposals

__all__ = ["Intake"]


class Intake:
    """Asks for trials and lets their replicates wait in their buckets.

    Attributes:
        buckets: by key, in the order of their first trials.
    """

    def __init__(
        self,
        ledger: Ledger,
        ahead: AskAhead,
        buckets: dict[str, Bucket],
    ):
        self._ledger, self._ahead = ledger, ahead
        self.buckets = buckets

    def begin(self, count: float) -> None:
        """Begin to draw a batch of up to `count` trials, unless one is being drawn already."""
        if self._ledger.state.pending is not None:
            return
        pending = self._number(count)
        if pending is not None:
            self._ledger.state.pending = pending
            self.resume()

    def resume(self) -> None:
        """Begin the pending batch, if there is one; also after it was lost with its process.

        It knows nothing of the trials that ended since it began.
        """
        state = self._ledger.state
        if state.pending is not None:
            history = self._ledger.history(unseen=frozenset(state.told))
            self._ahead.start(state.pending.batch, state.pending.trials, history)

    def join(self) -> bool:
        """Take in the batch being drawn, waiting for it; say whether there was one."""
        pending = self._ledger.state.pending
        if pending is None:
            return False
        self._take(pending, self._ahead.join())
        return True

    def ask(self, count: float) -> bool:
        """Draw a batch in the loop's own time and take it in; say whether it brought anything."""
        pending = self._number(count)
        if pending is None:
            return False
        self._ledger.state.pending = pending  # until it is there: an error must not lose it
        proposals = self._ahead.ask(pending.batch, pending.trials, self._ledger.history())
        self._take(pending, proposals)
        return bool(proposals.found)

    def _number(self, count: float) -> PendingAsk | None:
        state = self._ledger.state
        number = int(min(count, trials_left(self._ledger.study, state.proposed)))
        if number < 1 or not may_propose(self._ledger):
            return None
        trials = list(range(state.proposed, state.proposed + number))
        pending = PendingAsk(state.batches, trials, state.told)
        state.told = []
        state.batches += 1
        state.proposed += number
        return pending

    def _take(self, pending: PendingAsk, proposals: Proposals) -> None:
        state = self._ledger.state
        state.pending = None
        state.usage.draws += proposals.draws
        state.usage.refused += proposals.refused
        if len(proposals.found) < len(pending.trials):
            state.exhausted = True
            state.proposed = pending.trials[0] + len(proposals.found)
        self._ledger.unwritten.asks.append(
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
        self._ledger.add(trial)
        try:
            bucket = self.bucket_for(trial)
        except ConfigError as error:  # knobs that only contradict each other together
            self._ledger.state.usage.failures += 1
            self._ledger.end(trial, TrialState.FAILED, str(error))
            return
        replicates = range(self._ledger.study.seeds.first)
        trial.runs = [Run(trial.number, Stream.SEARCH, replicate) for replicate in replicates]
        bucket.enqueue(trial.runs)

    def bucket_for(self, trial: Trial) -> Bucket:
        """Return the bucket of a trial, made if it is the first one there.

        Raises:
            ConfigError: no program can run this configuration.
        """
        resolved = self._ledger.resolved_of(trial.number)
        key = trial.bucket = resolved.bucket
        if key not in self.buckets:
            self._check_alone(trial)
            schedule = schedule_of(self._ledger.study, resolved.steps_per_chunk)
            self.buckets[key] = Bucket(key, trial.number, resolved, schedule)
        return self.buckets[key]

    def _check_alone(self, trial: Trial) -> None:
        """Refuse a second program where trials copy each other."""
        early = self._ledger.study.early_terminate
        if self.buckets and early is not None and early.evolves:
            raise ConfigError(
                f"trial {trial.number} needs a program of its own, but {early.type} copies "
                "networks between trials of one program; search knobs that are traced only"
            )
