"""The arrays of a batch of environments, in one block of memory that worker processes share.

Each slot is one environment; the process that steps it alone writes its rows.
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
    """How an environment's observations and actions are stored in arrays; plain data."""

    observation_shape: tuple[int, ...]
    observation_dtype: str  # `uint8` for images, else `float32`
    action: Literal["discrete", "multi_discrete", "box"]
    action_shape: tuple[int, ...]  # of one action as the policy gives it; discrete: ()
    action_dtype: str  # of what the environment takes
    sizes: tuple[int, ...] = ()  # actions of each component, if they are discrete
    starts: tuple[int, ...] = ()  # the smallest of each component
    low: tuple[float, ...] = ()  # bounds of each component of a box, flat
    high: tuple[float, ...] = ()
    one_hot: int = 0  # categories of a discrete observation, which becomes a vector of 0 and 1
    observation_start: int = 0  # its smallest category
    history: int = 1  # observations that the policy sees at once, oldest first

    @property
    def seen_shape(self) -> tuple[int, ...]:
        lead = () if self.history == 1 else (self.history,)
        return (*lead, *self.observation_shape)

    def observed(self, raw: Any) -> np.ndarray:
        if not self.one_hot:
            return np.asarray(raw, self.observation_dtype)
        vector = np.zeros(self.one_hot, np.float32)
        vector[int(raw) - self.observation_start] = 1.0
        return vector

    def actions(self, given: np.ndarray) -> Any:
        """Return actions [N, ...] as environments take them: within their spaces, never nan."""
        if self.action == "box":
            flat = np.nan_to_num(given.reshape(len(given), -1), nan=0.0)
            legal = np.clip(flat, self.low, self.high)
            return legal.reshape(given.shape).astype(self.action_dtype)
        sizes, starts = (
            np.asarray(each, given.dtype).reshape(self.action_shape)
            for each in (self.sizes, self.starts)
        )
        moved = np.clip(given, 0, sizes - 1) + starts
        return moved.tolist() if self.action == "discrete" else moved.astype(self.action_dtype)


def code_of(id_: str, env: Any) -> SpaceCode:
    return SpaceCode(**_observation(id_, env.observation_space), **_action(id_, env.action_space))


def _observation(id_: str, space: Any) -> dict[str, Any]:
    spaces = space_kinds(id_)
    if isinstance(space, spaces.Discrete):
        count = int(space.n)
        one_hot = {"one_hot": count, "observation_start": int(space.start)}
        return {"observation_shape": (count,), "observation_dtype": "float32", **one_hot}
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        dtype = "uint8" if isinstance(space, spaces.Box) and space.dtype == np.uint8 else "float32"
        return {"observation_shape": tuple(map(int, space.shape)), "observation_dtype": dtype}
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
    action: np.ndarray  # [N, ...] to be taken, as the policy gives them
    active: np.ndarray  # bool [N], slots to step; the others rest
    # [N, ...] or [N, history, ...] to act on next; of a new episode where one ended
    observation: np.ndarray
    final: np.ndarray  # the last one of the episode that ended in this step
    reward: np.ndarray  # float32 [N] of this step
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N]
    # int32 [N], number of the running call of the slot's environment, else 0: shows where a
    # process ended or hangs
    inside: np.ndarray

    @classmethod
    def over(cls, code: SpaceCode, count: int, block: bytearray | memoryview) -> SharedArrays:
        """Lay the arrays of `count` slots over a block of `size_of` bytes."""
        arrays, offset = {}, 0
        for name, (shape, dtype) in _layout(code, count).items():
            flat = np.frombuffer(block, dtype, math.prod(shape), offset)
            arrays[name] = flat.reshape(shape)
            offset += _rounded_size(shape, dtype)
        return cls(**arrays)

    @staticmethod
    def size_of(code: SpaceCode, count: int) -> int:
        layout = _layout(code, count).values()
        return sum(_rounded_size(shape, dtype) for shape, dtype in layout)


def _layout(code: SpaceCode, count: int) -> dict[str, tuple[tuple[int, ...], str]]:
    seen = (count, *code.seen_shape)
    policy_dtype = "float32" if code.action == "box" else "int32"
    return {
        "action": ((count, *code.action_shape), policy_dtype),
        "active": ((count,), "bool"),
        "observation": (seen, code.observation_dtype),
        "final": (seen, code.observation_dtype),
        "reward": ((count,), "float32"),
        "terminated": ((count,), "bool"),
        "truncated": ((count,), "bool"),
        "inside": ((count,), "int32"),
    }


def _rounded_size(shape: tuple[int, ...], dtype: str) -> int:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return -(-size // _ALIGNED) * _ALIGNED
