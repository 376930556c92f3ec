"""A batch of environments stepped as one, in this process or by workers."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...environments.via_gymnasium import drawn_by, make
from ...errors import HpoError, format_error, is_interrupt
from .shared_arrays import SharedArrays, SpaceCode


@dataclass(frozen=True)
class Outcome:
    """Which slots did not do what was asked; all others did.

    Attributes:
        failed: slot -> what its environment raised.
        lost: slots whose environment is gone with the process that held it.
        blamed: slot -> how that process ended, where it was inside of the slot's environment.
        ended: how processes ended during this call.
    """

    failed: Mapping[int, str] = field(default_factory=dict)
    lost: Collection[int] = ()
    blamed: Mapping[int, str] = field(default_factory=dict)
    ended: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.failed or self.lost or self.ended)


FINE = Outcome()
"""Of a call that went well."""


class EnvironmentsFailed(HpoError):
    """Environments failed while policies were evaluated; `reasons` has words by policy."""

    def __init__(self, reasons: Mapping[int, str]):
        self.reasons = dict(reasons)
        super().__init__(next(iter(self.reasons.values())))


def numbers(said: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that are said now: the next step may write over them."""
    found = {str(name): _number(value) for name, value in said.items()}
    return {name: number for name, number in found.items() if number is not None}


def _number(value: Any) -> float | None:
    """Return a value that is one real number, or a flag, as a number; None for all others."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    real = isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)
    return float(value) if real else None


def columns(
    steps: Sequence[Mapping[int, Mapping[str, float]]], counted: np.ndarray
) -> dict[str, np.ndarray]:
    """Return what environments said, [N, steps] by name, nan where they did not say it.

    Args:
        steps: for each step, the numbers by environment.
        counted: bool [N, steps], what each environment said in which of them.
    """
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
    """What to begin in a slot.

    Attributes:
        slot: which.
        values: arguments of the environment's constructor.
        stream: words that name its random numbers.
        episode: number of the episode to begin with.
        fresh: make the environment anew, although one with these values stands there.
    """

    slot: int
    values: Mapping[str, Any]
    stream: str
    episode: int = 0
    fresh: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data; `Opening(**data)` is the way back."""
        return asdict(self)


def episode_seed(stream: str, episode: int) -> int:
    """Return the seed of an episode, a number of 31 bits."""
    words = hashlib.blake2b(f"{stream}/{episode}".encode(), digest_size=4).digest()
    return int.from_bytes(words, "little") & 0x7FFFFFFF


class Slots:
    """The environments of some slots of the arrays.

    Args:
        id_: of all of them, `gym:...`.
        code: how their observations and actions look.
        arrays: where they are written.
        more: arguments of every constructor besides those of an opening.

    Attributes:
        info: slot -> what its environment said of its last step.
    """

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
        """Begin episodes; environments are made where there are none with these values.

        Returns:
            What environments raised, by slot; there is none in these slots any more.

        Raises:
            HpoError: an environment cannot be made.
        """
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
        slot, values = opening.slot, _plain(opening.values)
        if opening.fresh or self._values.get(slot) != values:
            self._close(slot)
            self._enter(slot)
            self._envs[slot] = make(self._id, {**values, **self._more})
            self._values[slot] = values
        self._streams[slot] = (opening.stream, opening.episode)
        self.info.pop(slot, None)
        self._reset(slot)

    def step(self, restart: bool) -> dict[int, str]:
        """Step the active slots of these.

        Args:
            restart: begin a new episode where one ended; its first observation is then the one
                to act on.

        Returns:
            What environments raised, by slot; there is none in these slots any more.
        """
        failed: dict[int, str] = {}
        actions = self._code.actions(self._arrays.action)
        for slot in np.flatnonzero(self._arrays.active).tolist():
            env = self._envs.get(slot)
            if env is None:  # another process has it
                continue
            try:
                self._step(slot, env, actions[slot], restart)
            except BaseException as error:  # one ends with its replicate, the others live on
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
        """Note in the arrays that a call of a slot's environment begins."""
        self._calls = self._calls % _MOST_CALLS + 1
        self._arrays.inside[slot] = self._calls

    def _fail(self, slot: int, error: BaseException, failed: dict[int, str]) -> None:
        """Note what an environment raised, and let go of it; a real interrupt goes on."""
        if is_interrupt(error):
            raise error
        failed[slot] = format_error(error)
        try:
            self._close(slot)
        except BaseException as another:  # it is broken already: the first error is told
            if is_interrupt(another):
                raise
        self._arrays.inside[slot] = 0

    def drawn(self, slot: int) -> Any:
        """Return what the environment of a slot draws of itself now.

        Raises:
            HpoError: see `environments.via_gymnasium.drawn_by`.
        """
        return drawn_by(self._id, self._envs[slot])

    def close(self) -> None:
        """Close all environments."""
        for slot in list(self._envs):
            self._close(slot)

    def _reset(self, slot: int) -> None:
        """Begin the episode that the stream says; nothing of another one is seen in it."""
        self._enter(slot)
        raw, _ = self._envs[slot].reset(seed=episode_seed(*self._streams[slot]))
        self._arrays.observation[slot] = 0
        self._show(slot, raw)
        self._arrays.inside[slot] = 0

    def _show(self, slot: int, raw: Any) -> None:
        """Write an observation; where they are stacked, the oldest makes room for the newest."""
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


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as constructors take them, whether or not they have been JSON."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }


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
