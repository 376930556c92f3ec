"""Stop requests: Ctrl-C once to finish cleanly, twice to quit at once; and `hpo stop`.

SIGTERM (from a batch system or container) counts as Ctrl-C. `timeout`, shells and systemd send
SIGTERM twice in a row, which counts as one request; a later SIGTERM quits at once. SIGHUP (closed
terminal) counts as a single Ctrl-C, however often it is sent.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from ...errors import Leave, ignore, never

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a study, except SIGHUP in a process started by `nohup`."""


_SAME_REQUEST_SECONDS = 2.0


def leaves_at_once(number: int, seconds: float) -> bool:
    """Return whether a signal that arrives `seconds` after a stop request quits at once."""
    if number == signal.SIGTERM:
        return seconds > _SAME_REQUEST_SECONDS
    return number == signal.SIGINT


class Interrupts:
    """Watches for signals while its context is open; works only in the main thread.

    `on_first` is called once, at the first request; `asked()` returns whether another process has
    requested a stop.
    """

    def __init__(
        self,
        on_first: Callable[[], None] = ignore,
        asked: Callable[[], bool] = never,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._requested, self._requested_at = False, 0.0
        self._clock = clock
        self._on_first, self._asked = on_first, asked
        self._before: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        if not self._requested and self._asked():
            self._request_stop()
        return self._requested

    def _request_stop(self) -> None:
        if not self._requested:
            self._requested, self._requested_at = True, self._clock()
            self._on_first()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            # A script's background jobs start with SIGINT ignored, although `kill -INT` should end
            # them. If SIGHUP is ignored, the user asked for that (nohup).
            deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            for number in HEARD:
                if number != signal.SIGHUP or not deaf:
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._requested:
            self._request_stop()
        elif leaves_at_once(number, self._clock() - self._requested_at):
            raise Leave
