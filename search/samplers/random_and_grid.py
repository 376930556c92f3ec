"""Random search, and grid search: every combination once, the file's last parameter fastest.

Combinations that a rule forbids are left out, and the study ends when the grid does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..seeds import generator
from .registry import Batch, Draw, Past, SamplerSpec, options_of


class Walk:
    """Walks along a sequence of points; each trial remembers its place, as `INDEX`."""

    INDEX = ""
    _place = 0

    def begin(self, batch: int, history: Sequence[Past]) -> Batch:
        """See `Sampler.begin`; goes to the point after the last one that became a trial."""
        used = [past.attributes[self.INDEX] for past in history if self.INDEX in past.attributes]
        place = 1 + max(used, default=-1)
        if place < self._place:
            self._restart()
            self._place = 0
        if place > self._place:
            self._skip(place - self._place)
            self._place = place
        return self

    def draw(self, trial: int, attempt: int) -> Draw | None:
        params = self._next()
        if params is None:
            return None
        self._place += 1
        return Draw(params, {self.INDEX: self._place - 1})

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        pass

    def _next(self) -> dict[str, Any] | None:
        raise NotImplementedError

    def _restart(self) -> None:
        raise NotImplementedError

    def _skip(self, count: int) -> None:
        raise NotImplementedError


class GridSearch(Walk):
    INDEX = "grid:index"

    def __init__(self, spec: SamplerSpec):
        # values of each real hyperparameter
        self._space, self._points = spec.space, options_of("grid", spec.options)["points"]
        self._restart()

    def _next(self) -> dict[str, Any] | None:
        return next(self._rest, None)

    def _restart(self) -> None:
        self._rest = self._space.grid(self._points)

    def _skip(self, count: int) -> None:
        self._rest = itertools.islice(self._rest, count, None)


class RandomSearch:
    """Draws from the distributions of the space; trial n of a seed is always the same."""

    def __init__(self, spec: SamplerSpec):
        self._space, self._seed = spec.space, spec.seed

    def begin(self, batch: int, history: Sequence[Past]) -> Batch:
        return self

    def draw(self, trial: int, attempt: int) -> Draw | None:
        return Draw(self._space.draw(generator(self._seed, "random", trial, attempt)))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        pass
