"""Observations kept smaller than the array they stand for, and that array.

An environment may observe a tree with a method `as_vector` (float32 [..., n] for any leading
axes): rollouts keep the tree, and whoever needs numbers, network or normaliser, expands it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["as_array"]


def as_array(observation: Any) -> Any:
    """Return the array of an observation; one without `as_vector` is returned as it is."""
    return observation.as_vector() if hasattr(observation, "as_vector") else observation
