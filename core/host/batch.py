"""A batch of environments stepped as one, in this process or by workers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from .outcome import FINE, Outcome
from .said import numbers
from .shared_arrays import SharedArrays
from .slots import Opening, Slots
from .space_code import SpaceCode

__all__ = ["Batch", "BatchMaker", "LocalBatch", "TimedBatch", "make_batch"]


@runtime_checkable
class Batch(Protocol):
    """N slots with an environment each.

    Attributes:
        arrays: their actions and observations.
        may_lose: other processes hold the environments, and may end; `steady` brings back what
            is then lost.
    """

    arrays: SharedArrays
    may_lose: bool

    @property
    def said(self) -> Mapping[int, Mapping[str, float]]:
        """Slot -> numbers of its last step's `info`; a batch of workers tells only if asked to."""
        ...

    def open(self, openings: Sequence[Opening]) -> Outcome:
        """Begin episodes in some slots; their first observations are then in the arrays.

        Raises:
            ConfigError: an environment cannot be made as asked.
        """
        ...

    def step(self, restart: bool) -> Outcome:
        """Take the actions in the arrays in all active slots.

        Args:
            restart: begin a new episode where one ended.
        """
        ...

    def close(self) -> None:
        """Close all environments."""
        ...


@runtime_checkable
class BatchMaker(Protocol):
    """What steps environments elsewhere: `machine.workers.Workers`, in processes of their own."""

    def batch(self, id_: str, code: SpaceCode, count: int, tells: bool = False) -> Batch:
        """Make a batch of `count` slots; with `tells` it has in `said` what environments say."""
        ...


class LocalBatch:
    """A batch in this process; see `Batch`. What hangs cannot be interrupted here.

    Attributes:
        slots: its environments.
    """

    may_lose = False

    def __init__(
        self, id_: str, code: SpaceCode, count: int, more: Mapping[str, Any] | None = None
    ):
        self.arrays = SharedArrays.over(code, count, bytearray(SharedArrays.size_of(code, count)))
        self.slots = Slots(id_, code, self.arrays, more)

    def open(self, openings: Sequence[Opening]) -> Outcome:
        """Begin episodes."""
        failed = self.slots.open(openings)
        return Outcome(failed=failed) if failed else FINE

    @property
    def said(self) -> Mapping[int, Mapping[str, float]]:
        """Slot -> numbers of its last step's `info`, as they are now."""
        return {slot: numbers(info) for slot, info in self.slots.info.items()}

    def step(self, restart: bool) -> Outcome:
        """Step the active slots, one after the other."""
        failed = self.slots.step(restart)
        return Outcome(failed=failed) if failed else FINE

    def close(self) -> None:
        """Close its environments."""
        self.slots.close()


class TimedBatch:
    """A batch that counts what it costs.

    Attributes:
        seconds: inside of `open` and `step` so far.
        steps: environments stepped so far.
    """

    def __init__(self, inner: Batch):
        self._inner, self.arrays, self.may_lose = inner, inner.arrays, inner.may_lose
        self.seconds, self.steps = 0.0, 0

    @property
    def said(self) -> Mapping[int, Mapping[str, float]]:
        """See `Batch`."""
        return self._inner.said

    def open(self, openings: Sequence[Opening]) -> Outcome:
        """Begin episodes."""
        started = time.perf_counter()
        outcome = self._inner.open(openings)
        self.seconds += time.perf_counter() - started
        return outcome

    def step(self, restart: bool) -> Outcome:
        """Step the active slots."""
        started = time.perf_counter()
        outcome = self._inner.step(restart)
        self.seconds += time.perf_counter() - started
        self.steps += int(self.arrays.active.sum())
        return outcome

    def close(self) -> None:
        """Close its environments."""
        self._inner.close()


def make_batch(
    id_: str, code: SpaceCode, count: int, workers: BatchMaker | None, tells: bool = False
) -> TimedBatch:
    """Make a batch of `count` slots, with workers or, without any, in this process.

    With `tells` it has in `said` what environments say.
    """
    if workers is None:
        return TimedBatch(LocalBatch(id_, code, count))
    return TimedBatch(workers.batch(id_, code, count, tells))
