"""A sink in a thread of its own: however slow or broken it is, the study does not wait for it.

The queue holds one notice and no more. Sinks read tables, so a sink that is told once of two
publications has missed nothing; that it fell behind is counted, and said once. Sinks import their
packages when they are made, not in the thread: parsing in two of them at once fails at times with
Python 3.11.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from .sinks import Sink

__all__ = ["Background"]

PATIENCE_SECONDS = 60.0


class Background:
    """Runs a sink in a thread; itself a sink. What the other raises comes out at the next call.

    Args:
        sink: the one that works.
        warn: takes a line when the sink falls behind or does not end.
        patience_seconds: how long `close` waits for the sink to write what is left.

    Attributes:
        name: of the sink.
        skipped: publications that the sink saw only together with a later one.
    """

    def __init__(
        self,
        sink: Sink,
        warn: Callable[[str], None] = lambda text: None,
        patience_seconds: float = PATIENCE_SECONDS,
    ):
        self.name, self.skipped = sink.name, 0
        self._sink, self._warn, self._patience = sink, warn, patience_seconds
        self._changed = threading.Condition()
        self._waiting: Path | None = None
        self._closing = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def published(self, directory: Path) -> None:
        """Leave a notice and return at once.

        Raises:
            Exception: what the sink raised since the last call.
        """
        with self._changed:
            self._raise()
            behind = self._waiting is not None
            self._waiting = directory
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            self._thread.start()
        if behind:
            self.skipped += 1
        if behind and self.skipped == 1:
            self._warn(
                f"the {self.name} logger is slower than the study: it takes several publications "
                "together from here on, and loses nothing by it"
            )

    def close(self) -> None:
        """Wait for what is left, but not for ever; a second call does nothing.

        Raises:
            Exception: what the sink raised since the last call.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is None:
            return
        self._thread.join(self._patience)
        if self._thread.is_alive():
            self._warn(
                f"the {self.name} logger was still busy after {self._patience:g} s and was left; "
                f"export the study to {self.name} to get the rest"
            )
        self._thread = None
        self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        """Serve notices until closed; end at the first error."""
        try:
            while (directory := self._next()) is not None:
                self._sink.published(directory)
            self._sink.close()
        except Exception as error:  # told by the study's thread, at its next call
            self._error = error

    def _next(self) -> Path | None:
        """Wait for a notice; None once closed and nothing waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closing)
            directory, self._waiting = self._waiting, None
            return directory
