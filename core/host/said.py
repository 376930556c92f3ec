"""What Gymnasium's environments say besides, in `info`: of it the numbers are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["columns", "numbers"]


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
