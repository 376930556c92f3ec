"""Observations kept smaller than the array they stand for, and that array.

An environment may observe a tree with a method `as_vector` (float32 [..., n] for any leading
axes): rollouts keep the tree, and whoever needs numbers, network or normaliser, expands it. One
that is mostly flags may have a method `as_flags` (`Flagged`) and a property `lead`, the leading
axes, besides, for networks that multiply flags.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Float, Int8

from .pytree import Pytree, pytree

__all__ = ["Flagged", "as_array"]


@pytree
class Flagged(Pytree):
    """Rows of an array of m + n numbers of which all but the first m are 0 or 1.

    Attributes:
        numbers: the first m; float32 [..., m].
        flags: the others; int8 [..., n].
    """

    numbers: Float[Array, "... m"]
    flags: Int8[Array, "... n"]


def as_array(observation: Any) -> Any:
    """Return the array of an observation; one without `as_vector` is returned as it is."""
    return observation.as_vector() if hasattr(observation, "as_vector") else observation
