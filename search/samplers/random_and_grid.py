"""Random search, and grid search: every combination once, the file's last parameter fastest.

Combinations that a rule forbids are left out, and the study ends when the grid does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ...spaces.space import Space
from ..seeds import generator
from .registry import Batch, Draw, Past, SamplerSpec, options_of


class Walk:
    """Walks along a sequence of points; each trial remembers its place, as `INDEX`."""

    INDEX = ""
    _next = 0

    def begin(self, batch: int, history: Sequence[Past]) -> Batch:
        """See `Sampler.begin`; goes to the point after the last one that became a trial."""
        used = [past.attributes[self.INDEX] for past in history if self.INDEX in past.attributes]
        self._seek(1 + max(used, default=-1))
        return self

    def draw(self, trial: int, attempt: int) -> Draw | None:
        raise NotImplementedError

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        pass

    def _seek(self, index: int) -> None:
        raise NotImplementedError


class GridSearch(Walk):
    INDEX = "grid:index"

    def __init__(self, space: Space, points: int | Mapping[str, int]):
        self._space, self._points = space, points
        self._rest = space.grid(points)

    def draw(self, trial: int, attempt: int) -> Draw | None:
        params = next(self._rest, None)
        if params is None:
            return None
        self._next += 1
        return Draw(params, {self.INDEX: self._next - 1})

    def _seek(self, index: int) -> None:
        if index < self._next:
            self._rest = self._space.grid(self._points)
            self._next = 0
        self._rest = itertools.islice(self._rest, index - self._next, None)
        self._next = index


def build_grid(spec: SamplerSpec) -> GridSearch:
    """Build the method `grid`; `points` is the number of values per real hyperparameter."""
    return GridSearch(spec.space, options_of("grid", spec.options)["points"])


class RandomSearch:
    """Draws from the distributions of the space; trial n of a seed is always the same."""

    def __init__(self, space: Space, seed: int):
        self._space, self._seed = space, seed

    def begin(self, batch: int, history: Sequence[Past]) -> Batch:
        return self

    def draw(self, trial: int, attempt: int) -> Draw | None:
        return Draw(self._space.draw(generator(self._seed, "random", trial, attempt)))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        pass


def build_random(spec: SamplerSpec) -> RandomSearch:
    return RandomSearch(spec.space, spec.seed)
