"""A batch of environments that are stepped together, here or by workers that share its arrays."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from ...environments.via_gymnasium import check_actions, drawn_by, make, space_kinds
from ...errors import ConfigError, HpoError, format_error, is_interrupt


@dataclass(frozen=True)
class SpaceCode:
    """The format in which an environment's observations and actions are stored in arrays."""

    observation_shape: tuple[int, ...]
    observation_dtype: str  # `uint8` for images, else `float32`
    action: Literal["discrete", "multi_discrete", "box"]
    action_shape: tuple[int, ...]  # of one action as the policy returns it; discrete: ()
    action_dtype: str  # of the environment's actions
    sizes: tuple[int, ...] = ()  # actions of each component, if they are discrete
    starts: tuple[int, ...] = ()  # the smallest of each component
    low: tuple[float, ...] = ()  # bounds of each component of a box, flat
    high: tuple[float, ...] = ()
    one_hot: int = 0  # categories of a discrete observation, which becomes a vector of 0 and 1
    observation_start: int = 0  # its smallest category
    history: int = 1  # observations that the policy sees at once, oldest first

    @property
    def seen_shape(self) -> tuple[int, ...]:
        if self.history == 1:
            return self.observation_shape
        return (self.history, *self.observation_shape)

    def observed(self, raw: Any) -> np.ndarray:
        """Return an observation in stored form; ValueError if it is outside its space."""
        if self.one_hot:
            return self._one_hot_vector(raw)
        encoded, wanted = np.asarray(raw, self.observation_dtype), self.observation_shape
        if raw is None:
            raise ValueError(
                f"its observation is None, but its observation_space has shape {wanted}"
            )
        if encoded.shape != wanted:
            raise ValueError(
                f"its observation has shape {encoded.shape}, but its observation_space has shape "
                f"{wanted}"
            )
        return encoded

    def observed_rows(self, raw: np.ndarray) -> np.ndarray:
        """Return observations [N, ...] in stored form; ValueError if any is outside its space."""
        if self.one_hot:
            return np.stack([self._one_hot_vector(one) for one in raw.reshape(-1)])
        if raw.shape[1:] != self.observation_shape:
            raise ValueError(
                f"its observations have shape {raw.shape[1:]}, but its observation_space has "
                f"shape {self.observation_shape}"
            )
        return raw.astype(self.observation_dtype)

    def _one_hot_vector(self, raw: Any) -> np.ndarray:
        place = int(raw) - self.observation_start
        if not 0 <= place < self.one_hot:
            last = self.observation_start + self.one_hot - 1
            raise ValueError(
                f"its observation is {int(raw)}, but its observation_space allows "
                f"{self.observation_start} to {last}"
            )
        vector = np.zeros(self.one_hot, np.float32)
        vector[place] = 1.0
        return vector

    def actions(self, given: np.ndarray) -> Any:
        """Return actions [N, ...] in the environments' form: within their spaces, never nan."""
        if self.action == "box":
            flat = np.nan_to_num(given.reshape(len(given), -1), nan=0.0)
            legal = np.clip(flat, self.low, self.high)
            return legal.reshape(given.shape).astype(self.action_dtype)
        sizes, starts = (
            np.asarray(each, given.dtype).reshape(self.action_shape)
            for each in (self.sizes, self.starts)
        )
        moved = np.clip(given, 0, sizes - 1) + starts
        if self.action == "discrete":
            return moved.tolist()
        return moved.astype(self.action_dtype)


def code_of(id_: str, env: Any) -> SpaceCode:
    return SpaceCode(
        **_observation_code(id_, env.observation_space), **_action_code(id_, env.action_space)
    )


def _observation_code(id_: str, space: Any) -> dict[str, Any]:
    spaces = space_kinds(id_)
    if isinstance(space, spaces.Discrete):
        count = int(space.n)
        one_hot = {"one_hot": count, "observation_start": int(space.start)}
        return {"observation_shape": (count,), "observation_dtype": "float32", **one_hot}
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        dtype = "float32"
        if isinstance(space, spaces.Box) and space.dtype == np.uint8:
            dtype = "uint8"
        return {"observation_shape": tuple(map(int, space.shape)), "observation_dtype": dtype}
    raise ConfigError(
        f"{id_} has observations of type {type(space).__name__}; allowed: Box, Discrete, "
        "MultiBinary. Register it wrapped in gymnasium.wrappers.FlattenObservation",
        init=id_,
    )


def _action_code(id_: str, space: Any) -> dict[str, Any]:
    check_actions(id_, space)
    spaces = space_kinds(id_)
    if isinstance(space, spaces.Discrete):
        code = {"action": "discrete", "action_shape": (), "action_dtype": "int64"}
        return {**code, "sizes": (int(space.n),), "starts": (int(space.start),)}
    shape = tuple(map(int, space.shape))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        sizes, starts = (2,) * shape[0], (0,) * shape[0]
        if isinstance(space, spaces.MultiDiscrete):
            sizes, starts = tuple(map(int, space.nvec)), tuple(map(int, space.start))
        code = {"action": "multi_discrete", "action_shape": shape}
        return {**code, "action_dtype": str(space.dtype), "sizes": sizes, "starts": starts}
    bounds = {
        name: tuple(map(float, np.asarray(bound, np.float64).reshape(-1)))
        for name, bound in (("low", space.low), ("high", space.high))
    }
    code = {"action": "box", "action_shape": shape}
    return {**code, "action_dtype": str(space.dtype), **bounds}


_ALIGNED = 64


@dataclass(frozen=True, eq=False)
class SharedArrays:
    """Arrays with one row per slot (environment), written only by the process that steps it."""

    action: np.ndarray  # [N, ...] to be taken, as the policy returns them
    active: np.ndarray  # bool [N], slots to step; the others rest
    # [N, ...] or [N, history, ...] to act on next; of a new episode where one ended
    observation: np.ndarray
    final: np.ndarray  # the last one of the episode that ended in this step
    reward: np.ndarray  # float32 [N] of this step
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N]
    # int32 [N], number of the call that runs in the slot's environment, else 0: shows where a
    # process ended or hangs
    inside: np.ndarray
    # bool [N], the new episode continues the random numbers of the last one, without a new seed
    continued: np.ndarray

    @classmethod
    def over(cls, code: SpaceCode, count: int, block: bytearray | memoryview) -> SharedArrays:
        """Lay out the arrays for `count` slots in a memory block of `size_of` bytes."""
        arrays, offset = {}, 0
        for name, (shape, dtype) in _array_layout(code, count).items():
            flat = np.frombuffer(block, dtype, math.prod(shape), offset)
            arrays[name] = flat.reshape(shape)
            offset += _rounded_size(shape, dtype)
        return cls(**arrays)

    @staticmethod
    def size_of(code: SpaceCode, count: int) -> int:
        layout = _array_layout(code, count).values()
        return sum(_rounded_size(shape, dtype) for shape, dtype in layout)


def _array_layout(code: SpaceCode, count: int) -> dict[str, tuple[tuple[int, ...], str]]:
    observation_shape = (count, *code.seen_shape)
    policy_dtype = "int32"
    if code.action == "box":
        policy_dtype = "float32"
    return {
        "action": ((count, *code.action_shape), policy_dtype),
        "active": ((count,), "bool"),
        "observation": (observation_shape, code.observation_dtype),
        "final": (observation_shape, code.observation_dtype),
        "reward": ((count,), "float32"),
        "terminated": ((count,), "bool"),
        "truncated": ((count,), "bool"),
        "inside": ((count,), "int32"),
        "continued": ((count,), "bool"),
    }


def _rounded_size(shape: tuple[int, ...], dtype: str) -> int:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return -(-size // _ALIGNED) * _ALIGNED


@dataclass(frozen=True)
class CallOutcome:
    """The slots where a call failed; false if the call succeeded in every slot."""

    failed: Mapping[int, str] = field(default_factory=dict)  # slot -> error of its environment
    lost: Collection[int] = ()  # slots whose process ended
    # slot whose call ended its process -> how
    blamed: Mapping[int, str] = field(default_factory=dict)
    ended: tuple[str, ...] = ()  # how processes ended during this call

    def __bool__(self) -> bool:
        return bool(self.failed or self.lost or self.ended)


FINE = CallOutcome()
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
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        if isinstance(value, real):
            found[str(name)] = float(value)
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


def _check_step(stepped: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return a step's results; ValueError if they do not have Gymnasium's form."""
    if isinstance(stepped, tuple) and len(stepped) == 5:
        return stepped
    given = type(stepped).__name__
    if isinstance(stepped, tuple):
        given = f"{len(stepped)} values"
    raise ValueError(
        f"its step returned {given}; expected: observation, reward, terminated, truncated, info"
    )


def _write_reward(arrays: SharedArrays, slot: int, reward: Any) -> None:
    """Write a step's reward; ValueError if it is not a number."""
    if reward is not None:  # NumPy reads None as NaN
        try:
            arrays.reward[slot] = reward
            return
        except (TypeError, ValueError):
            pass
    shown = " ".join(repr(reward).split())[:80]
    raise ValueError(f"its step returned the reward {shown}; expected: a number")


@dataclass(frozen=True)
class Opening:
    slot: int
    values: Mapping[str, Any]  # arguments of the environment's constructor
    stream: str  # text that identifies its random numbers
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
                self._open_slot(opening)
            except HpoError:
                self._arrays.inside[opening.slot] = 0
                raise
            except BaseException as error:
                self._fail_slot(opening.slot, error, failed)
        return failed

    def _open_slot(self, opening: Opening) -> None:
        slot, values = opening.slot, dict(opening.values)
        for name, value in values.items():
            if isinstance(value, list):  # JSON has no tuples
                values[name] = tuple(value)
        if opening.fresh or self._values.get(slot) != values:
            self._close_slot(slot)
            self._mark_call(slot)
            self._envs[slot] = make(self._id, {**values, **self._more})
            self._values[slot] = values
        self._streams[slot] = (opening.stream, opening.episode)
        self.info.pop(slot, None)
        self._reset_slot(slot)

    def step(self, restart: bool) -> dict[int, str]:
        failed: dict[int, str] = {}
        actions = self._code.actions(self._arrays.action)
        for slot in np.flatnonzero(self._arrays.active).tolist():
            env = self._envs.get(slot)
            if env is None:  # another process has it
                continue
            try:
                self._step_slot(slot, env, actions[slot], restart)
            except BaseException as error:  # the others continue
                self._fail_slot(slot, error, failed)
        return failed

    def _step_slot(self, slot: int, env: Any, action: Any, restart: bool) -> None:
        arrays = self._arrays
        self._mark_call(slot)
        raw, reward, terminated, truncated, info = _check_step(env.step(action))
        _write_reward(arrays, slot, reward)
        arrays.terminated[slot], arrays.truncated[slot] = terminated, truncated
        self.info[slot] = info
        self._write_observation(slot, raw)
        if terminated or truncated:
            arrays.final[slot] = arrays.observation[slot]
            if restart:
                stream, episode = self._streams[slot]
                self._streams[slot] = (stream, episode + 1)
                self._reset_slot(slot)
        arrays.inside[slot] = 0

    def _mark_call(self, slot: int) -> None:
        self._calls = self._calls % _MOST_CALLS + 1
        self._arrays.inside[slot] = self._calls

    def _fail_slot(self, slot: int, error: BaseException, failed: dict[int, str]) -> None:
        if is_interrupt(error):
            raise error
        failed[slot] = format_error(error)
        try:
            self._close_slot(slot)
        except BaseException as another:  # it is already broken: report the first error
            if is_interrupt(another):
                raise
        self._arrays.inside[slot] = 0

    def drawn(self, slot: int) -> Any:
        return drawn_by(self._id, self._envs[slot])

    def close(self) -> None:
        for slot in list(self._envs):
            self._close_slot(slot)

    def _reset_slot(self, slot: int) -> None:
        self._mark_call(slot)
        raw, _ = self._envs[slot].reset(seed=episode_seed(*self._streams[slot]))
        self._arrays.observation[slot] = 0  # nothing of the last episode remains in a stack
        self._write_observation(slot, raw)
        self._arrays.inside[slot] = 0

    def _write_observation(self, slot: int, raw: Any) -> None:
        """Write an observation; in a stack, it replaces the oldest one."""
        rows, encoded = self._arrays.observation, self._code.observed(raw)
        if self._code.history == 1:
            rows[slot] = encoded
        else:
            rows[slot, :-1] = rows[slot, 1:]
            rows[slot, -1] = encoded

    def _close_slot(self, slot: int) -> None:
        env = self._envs.pop(slot, None)
        self._values.pop(slot, None)
        if env is not None:
            self._mark_call(slot)
            env.close()
            self._arrays.inside[slot] = 0


@runtime_checkable
class Batch(Protocol):
    arrays: SharedArrays
    may_lose: bool  # environments run in processes that may end; `Steady` restores them
    # Episodes may continue the random numbers of earlier ones (`SharedArrays.continued`), so
    # everything after a seed is replayed as a whole.
    continues: bool

    @property
    def said(self) -> Infos:
        """Map each slot to the numbers in its last step's `info`; see `BatchMaker`."""
        ...

    def open(self, openings: Sequence[Opening]) -> CallOutcome:
        """Start episodes in some slots, and write their first observations into the arrays."""
        ...

    def step(self, restart: bool) -> CallOutcome: ...

    def close(self) -> None: ...


@runtime_checkable
class BatchMaker(Protocol):
    """A factory for batches, such as `machine.workers.Workers`, whose processes step them."""

    def batch(self, id_: str, code: SpaceCode, count: int, tells: bool = False) -> Batch:
        """Create a batch of `count` slots; if `tells`, info metrics are recorded in `said`."""
        ...


class LocalBatch:
    may_lose = False
    continues = False

    def __init__(
        self, id_: str, code: SpaceCode, count: int, more: Mapping[str, Any] | None = None
    ):
        self.arrays = SharedArrays.over(code, count, bytearray(SharedArrays.size_of(code, count)))
        self.slots = Slots(id_, code, self.arrays, more)

    def open(self, openings: Sequence[Opening]) -> CallOutcome:
        return CallOutcome(self.slots.open(openings))

    @property
    def said(self) -> Infos:
        return {slot: numbers(info) for slot, info in self.slots.info.items()}

    def step(self, restart: bool) -> CallOutcome:
        return CallOutcome(self.slots.step(restart))

    def close(self) -> None:
        self.slots.close()
