"""Ctrl-C is answered at once, by a thread that listens while the main thread runs compiled code.

Python runs signal handlers between two instructions of the main thread, which may be seconds
away; `search.engine.interrupts` acts there. This thread answers each press; the second one ends
the process.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from ...search.engine.interrupts import HEARD, leaves_at_once
from .console import let_go_of_terminal

__all__ = ["InterruptListener"]


class InterruptListener:
    """Listens for Ctrl-C while entered and armed; does nothing outside of the main thread.

    Args:
        on_first: called from the listening thread at the first press; any signal that ends a
            study counts as one.
        on_second: called there at the next Ctrl-C, before the process ends with code 130. The
            journal is whole at any moment, so this loses no more than a crash.
        leave: ends the process.
    """

    def __init__(
        self,
        on_first: Callable[[], None],
        on_second: Callable[[], None],
        leave: Callable[[int], object] = os._exit,
    ):
        self._on_first, self._on_second, self._leave = on_first, on_second, leave
        self._armed = threading.Event()
        self._thread: threading.Thread | None = None

    def arm(self) -> None:
        """Count presses from now on: the loop has its own handlers by now."""
        self._armed.set()

    def __enter__(self) -> InterruptListener:
        if threading.current_thread() is threading.main_thread():
            self._hears, self._rings = socket.socketpair()
            self._rings.setblocking(False)
            self._before = signal.set_wakeup_fd(self._rings.fileno(), warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._listen, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is None:
            return
        signal.set_wakeup_fd(self._before)
        self._rings.close()  # the listener reads the end and returns
        self._thread.join()
        self._hears.close()
        self._thread = None

    def _listen(self) -> None:
        pressed = False
        while byte := self._hears.recv(1):
            if byte[0] not in HEARD or not self._armed.is_set():
                continue
            if byte[0] == signal.SIGHUP:
                let_go_of_terminal()
            if not pressed:
                pressed = True
                self._on_first()
            elif leaves_at_once(byte[0]):
                try:
                    self._on_second()
                finally:
                    self._leave(130)
