"""The arrays of a batch of environments: where actions are written and observations are read.

All arrays of a batch lie in one block of memory, which worker processes share; each slot is one
environment, and whoever steps it writes its rows and nobody else's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...environments.via_gymnasium import space_kinds
from ...errors import ConfigError


@dataclass(frozen=True)
class SpaceCode:
    """How an environment's observations and actions look as arrays; plain data.

    Attributes:
        observation_shape: of one observation of the environment.
        observation_dtype: `uint8` for images, else `float32`.
        one_hot: categories of a discrete observation, which becomes a vector of 0 and 1; else 0.
        observation_start: its smallest category.
        action: `discrete`, `multi_discrete` or `box`.
        action_shape: of one action as the policy gives it; discrete: ().
        action_dtype: of what the environment takes.
        sizes: actions of each component, if they are discrete.
        starts: the smallest of each component.
        low, high: bounds of each component of a box, flat.
        history: observations that the policy sees at once, oldest first (the knob `history`).
    """

    observation_shape: tuple[int, ...]
    observation_dtype: str
    one_hot: int
    observation_start: int
    action: Literal["discrete", "multi_discrete", "box"]
    action_shape: tuple[int, ...]
    action_dtype: str
    sizes: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    history: int = 1

    @property
    def policy_dtype(self) -> str:
        """The type of actions as the policy gives them."""
        return "float32" if self.action == "box" else "int32"

    @property
    def seen_shape(self) -> tuple[int, ...]:
        """The shape of what the policy sees: one observation, or [history, ...] of them."""
        lead = () if self.history == 1 else (self.history,)
        return (*lead, *self.observation_shape)

    def observed(self, raw: Any) -> np.ndarray:
        """Return one observation of the environment as the policy sees it."""
        if not self.one_hot:
            return np.asarray(raw, self.observation_dtype)
        vector = np.zeros(self.one_hot, np.float32)
        vector[int(raw) - self.observation_start] = 1.0
        return vector

    def actions(self, given: np.ndarray) -> Any:
        """Return actions [N, ...] as their environments take them: inside of their spaces.

        Numbers of a policy that has diverged mean nothing, but must not end the process.
        """
        if self.action == "box":
            flat = np.nan_to_num(given.reshape(len(given), -1), nan=0.0)
            legal = np.clip(flat, self.low, self.high)
            return legal.reshape(given.shape).astype(self.action_dtype)
        legal = np.clip(
            given, 0, np.asarray(self.sizes, given.dtype).reshape(self.action_shape) - 1
        )
        moved = legal + np.asarray(self.starts, given.dtype).reshape(self.action_shape)
        return moved.tolist() if self.action == "discrete" else moved.astype(self.action_dtype)


def code_of(id_: str, env: Any) -> SpaceCode:
    """Return how the observations and actions of a made environment look as arrays.

    Raises:
        ConfigError: they do not fit into one array each.
    """
    return SpaceCode(**_observation(id_, env.observation_space), **_action(id_, env.action_space))


def _observation(id_: str, space: Any) -> dict[str, Any]:
    spaces = space_kinds(id_)
    if isinstance(space, spaces.Discrete):
        count = int(space.n)
        code = {"observation_shape": (count,), "one_hot": count}
        return {**code, "observation_dtype": "float32", "observation_start": int(space.start)}
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        dtype = "uint8" if isinstance(space, spaces.Box) and space.dtype == np.uint8 else "float32"
        code = {"observation_shape": tuple(map(int, space.shape)), "observation_dtype": dtype}
        return {**code, "one_hot": 0, "observation_start": 0}
    raise ConfigError(
        f"{id_} gives observations of the kind {type(space).__name__}; allowed: Box, Discrete, "
        "MultiBinary. Register it within gymnasium.wrappers.FlattenObservation, by `imports`"
    )


def _action(id_: str, space: Any) -> dict[str, Any]:
    spaces = space_kinds(id_)
    if isinstance(space, spaces.Discrete):
        code = {"action": "discrete", "action_shape": (), "action_dtype": "int64"}
        return {**code, "sizes": (int(space.n),), "starts": (int(space.start),)}
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        shape = tuple(map(int, space.shape))
        if len(shape) == 1:
            pairs = isinstance(space, spaces.MultiBinary)
            sizes = (2,) * shape[0] if pairs else tuple(map(int, space.nvec))
            starts = (0,) * shape[0] if pairs else tuple(map(int, space.start))
            code = {"action": "multi_discrete", "action_shape": shape}
            return {**code, "action_dtype": str(space.dtype), "sizes": sizes, "starts": starts}
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        bounds = {
            name: tuple(map(float, np.asarray(bound, np.float64).reshape(-1)))
            for name, bound in (("low", space.low), ("high", space.high))
        }
        code = {"action": "box", "action_shape": tuple(map(int, space.shape))}
        return {**code, "action_dtype": str(space.dtype), **bounds}
    shown = " ".join(str(space).split())
    raise ConfigError(
        f"{id_} takes actions of the kind {shown}; allowed: Discrete, MultiDiscrete and "
        "MultiBinary of one dimension, Box of real numbers"
    )


_ALIGNED = 64


@dataclass(frozen=True, eq=False)
class SharedArrays:
    """One row a slot, N slots.

    Attributes:
        action: [N, ...] to be taken, as the policy gives them.
        active: bool [N], slots to step; the others rest.
        observation: [N, ...] to act on next; of a new episode where one ended. [N, history, ...]
            where observations are stacked.
        final: [N, ...] the last one of the episode that ended in this step, likewise.
        reward: float32 [N] of this step.
        terminated: bool [N], the episode ended by its own rules.
        truncated: bool [N], it was cut.
        inside: int32 [N], where a call of the environment has begun and not ended, its number;
            else 0. It tells of a process that ended, or hangs, whose environment it was in.
    """

    action: np.ndarray
    active: np.ndarray
    observation: np.ndarray
    final: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    inside: np.ndarray

    @classmethod
    def over(cls, code: SpaceCode, count: int, block: bytearray | memoryview) -> SharedArrays:
        """Lay the arrays of `count` slots over a block of `size_of` bytes."""
        arrays, offset = {}, 0
        for name, (shape, dtype) in _layout(code, count).items():
            size = math.prod(shape)
            flat = np.frombuffer(block, dtype, size, offset)
            arrays[name] = flat.reshape(shape)
            offset += _rounded(size * np.dtype(dtype).itemsize)
        return cls(**arrays)

    @staticmethod
    def size_of(code: SpaceCode, count: int) -> int:
        """Return the bytes that `count` slots take."""
        layout = _layout(code, count).values()
        return sum(
            _rounded(math.prod(shape) * np.dtype(dtype).itemsize) for shape, dtype in layout
        )


def _layout(code: SpaceCode, count: int) -> dict[str, tuple[tuple[int, ...], str]]:
    seen = (count, *code.seen_shape)
    return {
        "action": ((count, *code.action_shape), code.policy_dtype),
        "active": ((count,), "bool"),
        "observation": (seen, code.observation_dtype),
        "final": (seen, code.observation_dtype),
        "reward": ((count,), "float32"),
        "terminated": ((count,), "bool"),
        "truncated": ((count,), "bool"),
        "inside": ((count,), "int32"),
    }


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
