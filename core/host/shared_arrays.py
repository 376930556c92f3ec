"""The arrays of a batch of environments: where actions are written and observations are read.

All arrays of a batch lie in one block of memory, which worker processes share; each slot is one
environment, and whoever steps it writes its rows and nobody else's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .space_code import SpaceCode

__all__ = ["SharedArrays"]

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
