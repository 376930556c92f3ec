"""What asks a study to end: Ctrl-C once for a clean end, twice to leave at once.

SIGTERM (a batch system, a container) and SIGHUP (a terminal that was closed) count as Ctrl-C once,
however often they come: `timeout`, shells and systemd send them twice.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from ...faults import Leave

__all__ = ["HEARD", "Interrupts", "leaves_at_once"]

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a study; SIGHUP does not where `nohup` started the process."""


def leaves_at_once(number: int) -> bool:
    """Return whether this signal leaves at once if a clean end was asked for already."""
    return number == signal.SIGINT


class Interrupts:
    """Watches for signals while it is entered; does nothing outside of the main thread.

    Attributes:
        requested: a clean end was asked for.
    """

    def __init__(self, on_first: Callable[[], None] = lambda: None):
        self.requested = False
        self._on_first = on_first
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            # A script's background jobs are started with SIGINT ignored, and yet `kill -INT` is
            # to end them; an ignored SIGHUP was asked for, by nohup.
            deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            for number in HEARD:
                if number != signal.SIGHUP or not deaf:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            self._on_first()
        elif leaves_at_once(number):
            raise Leave
