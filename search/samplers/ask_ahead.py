"""Proposals drawn in a thread while the device runs a chunk.

The batch is fixed when it starts (number, trials, history), and its result is looked at only at
a boundary that the search chooses; so a slow sampler costs time but changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from .contract import Past
from .proposer import Proposals, Proposer

__all__ = ["AskAhead"]


class AskAhead:
    """Runs one batch at a time beside the loop."""

    def __init__(self, proposer: Proposer):
        self._proposer = proposer
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ask")
        self._future: Future[Proposals] | None = None

    def start(self, batch: int, trials: Sequence[int], history: Sequence[Past]) -> None:
        """Begin a batch; `join` must have given the one before."""
        if self._future is not None:
            raise RuntimeError("a batch is being drawn already")
        self._future = self._threads.submit(
            self._proposer.propose, batch, tuple(trials), tuple(history)
        )

    def join(self) -> Proposals:
        """Wait for the batch begun and give its proposals; errors of the sampler come out here."""
        if self._future is None:
            raise RuntimeError("no batch is being drawn")
        future, self._future = self._future, None
        return future.result()

    def ask(self, batch: int, trials: Sequence[int], history: Sequence[Past]) -> Proposals:
        """Draw a batch at once, in the caller's time."""
        return self._proposer.propose(batch, trials, history)

    def close(self) -> None:
        """Wait for the thread; a batch that is being drawn is lost, and drawn again on resume."""
        self._threads.shutdown(wait=True, cancel_futures=True)
