"""Sobol search: scrambled low-discrepancy points, one coordinate for every parameter.

Categorical and conditional parameters have coordinates as well, so that every
projection of the space is covered evenly (Sobol' 1967; scrambling after Owen 1998). The points are
those of `scipy.stats.qmc.Sobol(d, rng=seed)` with the study's seed.
"""

from __future__ import annotations

import warnings
from typing import Any

from scipy.stats import qmc

from ...errors import ConfigError
from ...spaces.space import Parameter
from .random_and_grid import Walk
from .registry import SamplerSpec

_MOST_POINTS = 2**30


class SobolSearch(Walk):
    INDEX = "sobol:index"

    def __init__(self, spec: SamplerSpec):
        self._space = spec.space
        dimensions = len(spec.space.keyed)
        if dimensions > qmc.Sobol.MAXDIM:
            raise ConfigError(
                f"sobol: the space has {dimensions} parameters, at most {qmc.Sobol.MAXDIM} are "
                "possible; search fewer, or type method: random"
            )
        self._engine = qmc.Sobol(max(1, dimensions), rng=spec.seed)

    def _next(self) -> dict[str, Any] | None:
        if self._place >= _MOST_POINTS:
            return None
        with warnings.catch_warnings():
            # The balance of 2^n points is lost anyway once a study may end at any trial.
            warnings.simplefilter("ignore", UserWarning)
            point = self._engine.random(1)[0]
        coordinate = {key: index for index, (key, _) in enumerate(self._space.keyed)}

        def choose(key: str, parameter: Parameter) -> Any:
            share = float(point[coordinate[key]])
            return parameter.distribution.outward(parameter.distribution.axis.at(share))

        return self._space.resolve(choose)

    def _restart(self) -> None:
        self._engine.reset()

    def _skip(self, count: int) -> None:
        self._engine.fast_forward(count)
