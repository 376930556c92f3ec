"""A batch of environments stepped as one, in this process or by workers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...environments.via_gymnasium import drawn_by, make
from ...errors import HpoError, format_error, is_interrupt
from .shared_arrays import SharedArrays, SpaceCode


@dataclass(frozen=True)
class Outcome:
    """The slots in which a call did not succeed; false if it did in all."""

    failed: Mapping[int, str] = field(default_factory=dict)  # slot -> error of its environment
    lost: Collection[int] = ()  # slots whose process ended
    blamed: Mapping[int, str] = field(default_factory=dict)  # slot whose call ended it -> how
    ended: tuple[str, ...] = ()  # how processes ended during this call

    def __bool__(self) -> bool:
        return bool(self.failed or self.lost or self.ended)


FINE = Outcome()
Infos = Mapping[int, Mapping[str, float]]  # slot -> numbers of a step's `info`
Warn = Callable[[str], None]


def unheard(text: str) -> None:
    """Ignore a warning."""


class EnvironmentsFailed(HpoError):
    def __init__(self, reasons: Mapping[int, str]):
        self.reasons = dict(reasons)
        super().__init__(next(iter(self.reasons.values())))


def numbers(said: Mapping[str, Any]) -> dict[str, float]:
    real = bool | int | float | np.bool_ | np.integer | np.floating
    found = {}
    for name, value in said.items():
        scalar = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
        if isinstance(scalar, real):
            found[str(name)] = float(scalar)
    return found


def columns(steps: Sequence[Infos], counted: np.ndarray) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for step, said in enumerate(steps):
        for env in np.flatnonzero(counted[:, step]).tolist():
            for name, number in said.get(env, {}).items():
                column = found.setdefault(name, np.full(counted.shape, math.nan))
                column[env, step] = number
    return dict(sorted(found.items()))


_MOST_CALLS = 2**31 - 2


@dataclass(frozen=True)
class Opening:
    slot: int
    values: Mapping[str, Any]  # arguments of the environment's constructor
    stream: str  # words that name its random numbers
    episode: int = 0
    fresh: bool = False  # make a new environment even if there is one with these values


def episode_seed(stream: str, episode: int) -> int:
    words = hashlib.blake2b(f"{stream}/{episode}".encode(), digest_size=4).digest()
    return int.from_bytes(words, "little") & 0x7FFFFFFF


class Slots:
    def __init__(
        self,
        id_: str,
        code: SpaceCode,
        arrays: SharedArrays,
        more: Mapping[str, Any] | None = None,
    ):
        self._id, self._code, self._arrays, self._more = id_, code, arrays, dict(more or {})
        self.info: dict[int, Mapping[str, Any]] = {}
        self._envs: dict[int, Any] = {}
        self._values: dict[int, Mapping[str, Any]] = {}
        self._streams: dict[int, tuple[str, int]] = {}
        self._calls = 0

    def open(self, openings: Sequence[Opening]) -> dict[int, str]:
        failed: dict[int, str] = {}
        for opening in openings:
            try:
                self._open(opening)
            except HpoError:
                self._arrays.inside[opening.slot] = 0
                raise
            except BaseException as error:
                self._fail(opening.slot, error, failed)
        return failed

    def _open(self, opening: Opening) -> None:
        slot, values = opening.slot, dict(opening.values)
        for name, value in values.items():
            if isinstance(value, list):  # after JSON
                values[name] = tuple(value)
        if opening.fresh or self._values.get(slot) != values:
            self._close(slot)
            self._enter(slot)
            self._envs[slot] = make(self._id, {**values, **self._more})
            self._values[slot] = values
        self._streams[slot] = (opening.stream, opening.episode)
        self.info.pop(slot, None)
        self._reset(slot)

    def step(self, restart: bool) -> dict[int, str]:
        failed: dict[int, str] = {}
        actions = self._code.actions(self._arrays.action)
        for slot in np.flatnonzero(self._arrays.active).tolist():
            env = self._envs.get(slot)
            if env is None:  # another process has it
                continue
            try:
                self._step(slot, env, actions[slot], restart)
            except BaseException as error:  # the others continue
                self._fail(slot, error, failed)
        return failed

    def _step(self, slot: int, env: Any, action: Any, restart: bool) -> None:
        arrays = self._arrays
        self._enter(slot)
        raw, reward, terminated, truncated, info = env.step(action)
        arrays.reward[slot] = reward
        arrays.terminated[slot], arrays.truncated[slot] = terminated, truncated
        self.info[slot] = info
        self._show(slot, raw)
        if terminated or truncated:
            arrays.final[slot] = arrays.observation[slot]
            if restart:
                stream, episode = self._streams[slot]
                self._streams[slot] = (stream, episode + 1)
                self._reset(slot)
        arrays.inside[slot] = 0

    def _enter(self, slot: int) -> None:
        self._calls = self._calls % _MOST_CALLS + 1
        self._arrays.inside[slot] = self._calls

    def _fail(self, slot: int, error: BaseException, failed: dict[int, str]) -> None:
        if is_interrupt(error):
            raise error
        failed[slot] = format_error(error)
        try:
            self._close(slot)
        except BaseException as another:  # it is broken already: report the first error
            if is_interrupt(another):
                raise
        self._arrays.inside[slot] = 0

    def drawn(self, slot: int) -> Any:
        return drawn_by(self._id, self._envs[slot])

    def close(self) -> None:
        for slot in list(self._envs):
            self._close(slot)

    def _reset(self, slot: int) -> None:
        self._enter(slot)
        raw, _ = self._envs[slot].reset(seed=episode_seed(*self._streams[slot]))
        self._arrays.observation[slot] = 0  # nothing of the last episode remains in a stack
        self._show(slot, raw)
        self._arrays.inside[slot] = 0

    def _show(self, slot: int, raw: Any) -> None:
        """Write an observation; in a stack it replaces the oldest."""
        rows, seen = self._arrays.observation, self._code.observed(raw)
        if self._code.history == 1:
            rows[slot] = seen
        else:
            rows[slot, :-1] = rows[slot, 1:]
            rows[slot, -1] = seen

    def _close(self, slot: int) -> None:
        env = self._envs.pop(slot, None)
        self._values.pop(slot, None)
        if env is not None:
            self._enter(slot)
            env.close()
            self._arrays.inside[slot] = 0


@runtime_checkable
class Batch(Protocol):
    arrays: SharedArrays
    may_lose: bool  # environments are in other processes, which may end; `Steady` restores them

    @property
    def said(self) -> Infos:
        """Slot -> numbers of its last step's `info`; see `BatchMaker`."""
        ...

    def open(self, openings: Sequence[Opening]) -> Outcome:
        """Start episodes in some slots; their first observations are then in the arrays."""
        ...

    def step(self, restart: bool) -> Outcome: ...

    def close(self) -> None: ...


@runtime_checkable
class BatchMaker(Protocol):
    """Makes batches that other processes step, such as `machine.workers.Workers`."""

    def batch(self, id_: str, code: SpaceCode, count: int, tells: bool = False) -> Batch:
        """Make a batch of `count` slots; `tells` fills its `said`."""
        ...


class LocalBatch:
    may_lose = False

    def __init__(
        self, id_: str, code: SpaceCode, count: int, more: Mapping[str, Any] | None = None
    ):
        self.arrays = SharedArrays.over(code, count, bytearray(SharedArrays.size_of(code, count)))
        self.slots = Slots(id_, code, self.arrays, more)

    def open(self, openings: Sequence[Opening]) -> Outcome:
        return Outcome(self.slots.open(openings))

    @property
    def said(self) -> Infos:
        return {slot: numbers(info) for slot, info in self.slots.info.items()}

    def step(self, restart: bool) -> Outcome:
        return Outcome(self.slots.step(restart))

    def close(self) -> None:
        self.slots.close()


def make_batch(
    id_: str, code: SpaceCode, count: int, workers: BatchMaker | None, tells: bool = False
) -> Batch:
    if workers is None:
        return LocalBatch(id_, code, count)
    return workers.batch(id_, code, count, tells)
