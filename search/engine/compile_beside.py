"""Programs compiled in a thread while the lanes of another bucket run.

What is compiled when changes no result: a population is as ready afterwards as if it had been
compiled in its first chunk, and waits there if it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from weakref import WeakSet

from ...faults import Leave
from ..lanes.contract import Population

__all__ = ["CompileBeside"]


class CompileBeside:
    """Compiles one population at a time beside the loop, so that two at most compile at once."""

    def __init__(self):
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile")
        self._begun: WeakSet[Population] = WeakSet()

    def begin(self, population: Population) -> None:
        """Begin to compile a population, once, behind those begun before.

        An error is dropped here: it is that of the bucket, which meets it again in its own turn.
        """
        if population in self._begun or population.compiles:
            return
        self._begun.add(population)
        try:
            ahead = population.compile_ahead()
        except Exception:
            return
        if ahead is not None:
            self._threads.submit(_compile, ahead)

    def __enter__(self) -> CompileBeside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what is being compiled, unless somebody leaves at once; the rest is left."""
        self._threads.shutdown(wait=not isinstance(error, Leave), cancel_futures=True)


def _compile(ahead: Callable[[], None]) -> None:
    try:
        ahead()
    except Exception:  # comes again where the bucket compiles, with its trials to fail
        return
