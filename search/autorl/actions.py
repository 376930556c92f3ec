"""What an action on running PPO may look like, and the configuration each run gets from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError, suggestion
from ...spaces.space import Parameter, Space

__all__ = ["Action", "Actions"]

Action = Mapping[str, Any] | Sequence[Mapping[str, Any]] | np.ndarray
"""One mapping of knobs for all runs, one a run, or numbers from 0 to 1 [runs, knobs]."""


class Actions:
    """Reads actions for a number of runs.

    Attributes:
        knobs: names of what may be set, in the order of arrays.

    Raises:
        ConfigError: a parameter has a condition, so that an array could not say what it means.
    """

    def __init__(self, space: Space, runs: int):
        for parameter in space.parameters:
            if parameter.when:
                raise ConfigError(
                    f"{parameter.name} has a `when`; here every knob must always be active"
                )
        self._space, self._runs = space, runs
        self._parameters = {parameter.name: parameter for parameter in space.parameters}
        self.knobs = tuple(self._parameters)

    def read(self, given: Action, before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return one whole configuration a run.

        Args:
            given: the action; knobs that a mapping leaves out keep their values.
            before: what every run has.

        Raises:
            ConfigError: a knob is unknown or a value does not belong to the space.
        """
        if isinstance(given, np.ndarray):
            return [self._of_shares(row) for row in self._checked(given)]
        rows = [given] * self._runs if isinstance(given, Mapping) else list(given)
        if len(rows) != self._runs:
            raise ConfigError(f"{len(rows)} configurations were given for {self._runs} runs")
        return [self._changed(old, row) for old, row in zip(before, rows, strict=True)]

    def shares(self, params: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Return configurations as numbers from 0 to 1 [runs, knobs]."""
        rows = [
            [self._parameters[name].distribution.share(row[name]) for name in self.knobs]
            for row in params
        ]
        return np.asarray(rows, np.float64).reshape(len(params), len(self.knobs))

    def _changed(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
        for name in new:
            if name not in self._parameters:
                hint, known = suggestion(name, self.knobs), ", ".join(self.knobs)
                raise ConfigError(f"{name!r} is not in the space;{hint} Known: {known}")
        return self._space.complete({**old, **new})

    def _checked(self, given: np.ndarray) -> np.ndarray:
        shape = (self._runs, len(self.knobs))
        if given.shape != shape or not np.all(np.isfinite(given)):
            raise ConfigError(
                f"an action is an array of shape {given.shape}; allowed: finite, of shape {shape}"
            )
        return np.clip(given.astype(np.float64), 0.0, 1.0)

    def _of_shares(self, row: np.ndarray) -> dict[str, Any]:
        share = dict(zip(self.knobs, row, strict=True))

        def choose(_: str, parameter: Parameter) -> Any:
            axis = parameter.distribution.axis
            return parameter.distribution.outward(axis.at(float(share[parameter.name])))

        return self._space.complete(self._space.resolve(choose))
