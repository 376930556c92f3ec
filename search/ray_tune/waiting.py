"""Trials that have asked for their next evaluation, and what they are told when they stand there.

A foreign scheduler takes them for processes of their own; here they wait for each other, so that
they step together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..book.ledger import Ledger
from .contract import Desk, Reply, Report, Request
from .reports import Reports

__all__ = ["Waiting"]

_PATIENCE_SECONDS = 120.0  # a handle's process begins within seconds, on a busy machine not


class Waiting:
    """The requests of one study that have no reply yet.

    Args:
        ledger: trials and state.
        desk: where they come from.
        reports: what trials show.
    """

    def __init__(self, ledger: Ledger, desk: Desk, reports: Reports):
        self._ledger, self._desk, self._reports = ledger, desk, reports
        self._asked: dict[int, Request] = {}
        self._heard = time.monotonic()

    @property
    def numbers(self) -> list[int]:
        """The trials that wait, in the order in which they asked."""
        return list(self._asked)

    def add(self, request: Request) -> None:
        """Let a trial wait."""
        self._asked[request.trial] = request

    def heard(self) -> None:
        """Note that the scheduler is at work: another request may follow soon."""
        self._heard = time.monotonic()

    def is_complete(self) -> bool:
        """Return whether lanes step: all that are expected have asked, or no more come."""
        if not self._asked:
            return False
        waited = time.monotonic() - self._heard
        return len(self._asked) >= self._desk.expected() or waited > _PATIENCE_SECONDS

    def reply(self, replies: Mapping[str, Reply]) -> None:
        """Answer requests, by their keys."""
        if replies:
            self._desk.answer(replies)
            self.heard()

    def reply_to_all(self) -> None:
        """Answer the trials that stand at an evaluation or have ended."""
        replies: dict[str, Reply] = {}
        for number, request in list(self._asked.items()):
            report = self._reports.report(self._ledger.trials[number])
            if report is not None:
                replies[request.key] = report
                del self._asked[number]
        self.reply(replies)

    def dismiss(self, number: int) -> None:
        """Tell a trial, if it waits, that there is nothing more to train."""
        request = self._asked.pop(number, None)
        if request is not None:
            self.turn_away(request)

    def turn_away(self, request: Request) -> None:
        """Tell who asked that there is nothing more to train."""
        trial = self._ledger.trials.get(request.trial)
        length = self._ledger.study.env_steps if trial is None else self._reports.length(trial)
        value = None if trial is None else trial.value
        value = self._reports.worst_value() if value is None else value
        self.reply({request.key: Report(value, length, done=True)})
