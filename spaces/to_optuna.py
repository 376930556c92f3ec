"""Spaces in Optuna's words: parameters are suggested define-by-run, on the axes of their kinds.

What Optuna stores are positions on axes under the keys of `Space.keyed`. `internal_params` is the
exact inverse of `suggest` on configurations of the space, so a trial can be rebuilt from its
configuration alone; build every trial a sampler learns from that way, live ones too, since the
position that was suggested may be finer than the value it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import BaseTrial

from .axis import Axis
from .space import Parameter, Space

__all__ = ["distributions", "from_internal", "internal_params", "suggest"]


def suggest(trial: BaseTrial, space: Space) -> dict[str, Any]:
    """Ask a trial for a configuration: active parameters only, rules not looked at."""

    def choose(key: str, parameter: Parameter) -> Any:
        return parameter.distribution.outward(_ask(trial, key, parameter.distribution.axis))

    return space.resolve(choose)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the distribution of every key, whether its parameter is active or not."""
    return {key: _on_axis(parameter.distribution.axis) for key, parameter in space.keyed}


def internal_params(
    space: Space, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return what `optuna.trial.create_trial` takes for a configuration of the space."""
    positions: dict[str, Any] = {}
    spread: dict[str, BaseDistribution] = {}

    def choose(key: str, parameter: Parameter) -> Any:
        value = params[parameter.name]
        positions[key] = parameter.distribution.inward(value)
        spread[key] = _on_axis(parameter.distribution.axis)
        return value

    space.resolve(choose)
    return positions, spread


def from_internal(space: Space, positions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of what Optuna stored (`trial.params`)."""
    return space.resolve(lambda key, parameter: parameter.distribution.outward(positions[key]))


def _on_axis(axis: Axis) -> BaseDistribution:
    if axis.kind == "choice":
        return CategoricalDistribution(tuple(range(int(axis.high) + 1)))
    if axis.kind == "integer":
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _ask(trial: BaseTrial, key: str, axis: Axis) -> float | int:
    if axis.kind == "choice":
        return trial.suggest_categorical(key, tuple(range(int(axis.high) + 1)))
    if axis.kind == "integer":
        return trial.suggest_int(key, int(axis.low), int(axis.high), log=axis.log)
    return trial.suggest_float(key, axis.low, axis.high, log=axis.log)
