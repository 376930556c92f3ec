"""What a query may take of time, and how Ctrl-C ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from ..errors import StoreError

if TYPE_CHECKING:  # loaded on use: duckdb costs 0.12 s
    import duckdb

__all__ = ["QueryTime"]

T = TypeVar("T")
_AGAIN = 0.05  # seconds: an interrupt that comes before the work begins is lost


class QueryTime:
    """What a query may take of time: it runs only while DuckDB works.

    Args:
        seconds: all of it; None sets no end.
    """

    def __init__(self, seconds: float | None):
        self._seconds, self._left = seconds, seconds

    def run(self, connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
        """Let DuckDB work, until it is done, its time is over, or somebody presses Ctrl-C.

        It works in a thread of its own: while DuckDB's other threads do the work, the one that
        called it waits and hears no signal (DuckDB 2.0: half of all times on two cores).

        Raises:
            StoreError: the time is over.
            duckdb.Error: whatever the work raises.
        """
        if self._left is not None and self._left <= 0.0:
            raise self._over()
        begun = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            try:
                return future.result(self._left)
            except BaseException as error:
                while not future.done():
                    connection.interrupt()
                    wait([future], _AGAIN)
                if isinstance(error, TimeoutError):
                    raise self._over() from None
                raise
            finally:
                if self._left is not None:
                    self._left -= time.monotonic() - begun

    def _over(self) -> StoreError:
        return StoreError(
            f"the query was ended after {self._seconds:g} s; ask for less, or allow more time",
            timeout="SECONDS",
        )
