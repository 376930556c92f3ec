"""Times of day that never go back, whatever is done to the machine's clock.

Within a process the steady clock counts on from the time of day at its beginning, so that a clock
that is set while a study runs makes no trial end before it began.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """Seconds since the epoch.

    Args:
        earliest: never before this: the time of the last commit.
        wall: the time of day.
        steady: seconds that only grow.

    >>> Clock(earliest=50.0, wall=lambda: 20.0, steady=lambda: 3.0)()
    50.0
    """

    def __init__(
        self,
        earliest: float = 0.0,
        wall: Callable[[], float] | None = None,
        steady: Callable[[], float] = time.monotonic,
    ):
        self._steady, self._began = steady, steady()
        self._at = max(earliest, (wall or time.time)())

    def __call__(self) -> float:
        """Return the time of day, no earlier than any before."""
        return self._at + max(0.0, self._steady() - self._began)
