"""Actions of `AutoRLEnv`: three forms, each converted to one configuration per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ...errors import ConfigError, listed, suggestion
from ...spaces.space import Parameter, Space

Action = Mapping[str, Any] | Sequence[Mapping[str, Any]] | np.ndarray
"""One mapping for all runs, one per run, or numbers from 0 to 1 [runs, knobs]."""
Configuration = dict[str, Any]


class ActionReader:
    """Reads actions for several runs; array entries are in the order of `knobs`."""

    def __init__(self, space: Space, runs: int):
        for parameter in space.parameters:
            if parameter.when:
                raise ConfigError(
                    f"{parameter.name} has a `when`, but AutoRLEnv changes only hyperparameters "
                    "that are always active; remove `when`"
                )
        self._space, self._runs = space, runs
        self._parameters = {parameter.name: parameter for parameter in space.parameters}
        self.knobs = tuple(self._parameters)

    def read(
        self, given: Action | None, before: Sequence[Mapping[str, Any]]
    ) -> list[Configuration]:
        """Return a complete configuration per run; omitted values are taken from `before`."""
        if given is None:
            return [dict(params) for params in before]
        if isinstance(given, np.ndarray):
            return self._from_array(given)
        if isinstance(given, Mapping):
            given = [given] * self._runs
        rows = list(given)
        if len(rows) != self._runs:
            raise ConfigError(f"{len(rows)} configurations were given for {self._runs} runs")
        return [self._apply_changes(old, row) for old, row in zip(before, rows, strict=True)]

    def shares(self, params: Sequence[Mapping[str, Any]]) -> Float[np.ndarray, "runs knobs"]:
        """Convert configurations to axis positions from 0 to 1."""
        found = np.zeros((len(params), len(self.knobs)))
        for column, parameter in enumerate(self._parameters.values()):
            for run, own in enumerate(params):
                found[run, column] = parameter.distribution.share(own[parameter.name])
        return found

    def _from_array(self, given: np.ndarray) -> list[Configuration]:
        shape = (self._runs, len(self.knobs))
        if given.shape != shape or not np.all(np.isfinite(given)):
            raise ConfigError(
                f"an action has shape {given.shape}; allowed: finite numbers in an array of shape "
                f"{shape}"
            )
        return [self._from_shares(row) for row in np.clip(given.astype(np.float64), 0.0, 1.0)]

    def _from_shares(self, row: Float[np.ndarray, " knobs"]) -> Configuration:
        """Return the configuration at these axis positions."""
        share = dict(zip(self.knobs, row.tolist(), strict=True))

        def choose(_: str, parameter: Parameter) -> Any:
            axis = parameter.distribution.axis
            return parameter.distribution.outward(axis.at(share[parameter.name]))

        return self._space.complete(self._space.resolve(choose))

    def _apply_changes(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> Configuration:
        for name in new:
            if name not in self._parameters:
                hint = suggestion(name, self.knobs)
                raise ConfigError(
                    f"{name!r} is not in the space;{hint} {listed(name, self.knobs)}"
                )
        return self._space.complete({**old, **new})
