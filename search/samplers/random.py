"""Random search: every trial draws its own configuration, whatever batch it is proposed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...spaces.space import Space
from ..streams import generator
from .contract import Batch, Draw, Past, SamplerSpec

__all__ = ["RandomSearch", "build"]


class RandomSearch:
    """Draws from the distributions of the space; trial n of a seed is always the same."""

    def __init__(self, space: Space, seed: int):
        self._space, self._seed = space, seed

    def begin(self, batch: int, history: Sequence[Past]) -> Batch:
        """See `Sampler.begin`."""
        return self

    def draw(self, trial: int, attempt: int) -> Draw | None:
        """See `Batch.draw`."""
        return Draw(self._space.draw(generator(self._seed, "random", trial, attempt)))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """See `Batch.keep`; random search does not care."""


def build(spec: SamplerSpec) -> RandomSearch:
    """Build the method `random`; it has no options."""
    return RandomSearch(spec.space, spec.seed)
