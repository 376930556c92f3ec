"""Search methods without a model: random, grid, Sobol."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import ConfigError
from ...spaces.space import Parameter
from ..seeds import generator
from .registry import Draw, PriorTrial, ProposalBatch, SamplerSpec, options_of

_MOST_POINTS = 2**30


class Walk:
    """Proposes the points of a sequence; each trial stores its position as `INDEX`."""

    INDEX = ""
    _place = 0

    def begin(self, batch: int, history: Sequence[PriorTrial]) -> ProposalBatch:
        """See `Sampler.begin`; continues after the last point that became a trial."""
        used = [past.attributes[self.INDEX] for past in history if self.INDEX in past.attributes]
        place = 1 + max(used, default=-1)
        if place < self._place:
            self._restart_walk()
            self._place = 0
        if place > self._place:
            self._skip_points(place - self._place)
            self._place = place
        return self

    def draw(self, trial: int, attempt: int) -> Draw | None:
        params = self._next_params()
        if params is None:
            return None
        self._place += 1
        return Draw(params, {self.INDEX: self._place - 1})

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        pass

    def _next_params(self) -> dict[str, Any] | None:
        raise NotImplementedError

    def _restart_walk(self) -> None:
        raise NotImplementedError

    def _skip_points(self, count: int) -> None:
        raise NotImplementedError


class GridSearch(Walk):
    """Proposes every allowed combination once; the file's last parameter varies fastest."""

    INDEX = "grid:index"

    def __init__(self, spec: SamplerSpec):
        # number of values per real-valued hyperparameter
        self._space, self._points = spec.space, options_of("grid", spec.options)["points"]
        self._restart_walk()

    def _next_params(self) -> dict[str, Any] | None:
        return next(self._rest, None)

    def _restart_walk(self) -> None:
        self._rest = self._space.grid(self._points)

    def _skip_points(self, count: int) -> None:
        self._rest = itertools.islice(self._rest, count, None)


class RandomSearch:
    """Draws from the space's distributions; trial n depends only on n and the seed."""

    def __init__(self, spec: SamplerSpec):
        self._space, self._seed = spec.space, spec.seed

    def begin(self, batch: int, history: Sequence[PriorTrial]) -> ProposalBatch:
        return self

    def draw(self, trial: int, attempt: int) -> Draw | None:
        return Draw(self._space.draw(generator(self._seed, "random", trial, attempt)))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        pass


class SobolSearch(Walk):
    """Scrambled low-discrepancy points, with one coordinate per parameter.

    Categorical and conditional parameters also have coordinates, so that every projection of the
    space is covered evenly (Sobol' 1967; scrambling after Owen 1998). The points equal
    `scipy.stats.qmc.Sobol(d, rng=seed)` with the study's seed.
    """

    INDEX = "sobol:index"

    def __init__(self, spec: SamplerSpec):
        from scipy.stats import qmc  # imported on use: random search starts faster

        self._space = spec.space
        dimensions = len(spec.space.keyed)
        if dimensions > qmc.Sobol.MAXDIM:
            raise ConfigError(
                f"sobol: the space has {dimensions} parameters; allowed: at most "
                f"{qmc.Sobol.MAXDIM}; search fewer, or use method: random"
            )
        self._engine = qmc.Sobol(max(1, dimensions), rng=spec.seed)

    def _next_params(self) -> dict[str, Any] | None:
        if self._place >= _MOST_POINTS:
            return None
        with warnings.catch_warnings():
            # The balance of 2^n points is lost in any case, because a study may end after any
            # trial.
            warnings.simplefilter("ignore", UserWarning)
            point = self._engine.random(1)[0]
        coordinate = {key: index for index, (key, _) in enumerate(self._space.keyed)}

        def choose(key: str, parameter: Parameter) -> Any:
            share = float(point[coordinate[key]])
            return parameter.distribution.outward(parameter.distribution.axis.at(share))

        return self._space.resolve(choose)

    def _restart_walk(self) -> None:
        self._engine.reset()

    def _skip_points(self, count: int) -> None:
        self._engine.fast_forward(count)
