"""Spaces in Optuna's words as people write them: values, not positions on axes.

For storages that others read. What Optuna has no word for becomes the nearest that it has, and is
told; `to_optuna` has the exact conversion that samplers use.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from .base import Distribution
from .lists import Categorical, Ordinal
from .ranges import IntUniform, LogIntUniform, LogUniform, Normal, Pow2, Uniform
from .space import Parameter, Space

__all__ = ["told_changes", "written_params"]

_SCALAR = (str, int, float, bool, type(None))


def written_params(
    space: Space, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return what `optuna.trial.create_trial` takes: values by key, and their distributions.

    A zero outside of its range is left out, as if the parameter were inactive.
    """
    values: dict[str, Any] = {}
    spread: dict[str, BaseDistribution] = {}

    def choose(key: str, parameter: Parameter) -> Any:
        value = params[parameter.name]
        if not (value == 0 and _zero_is_outside(parameter.distribution)):
            values[key] = _plain(value)
            spread[key] = _written(parameter.distribution)
        return value

    space.resolve(choose)
    return values, spread


def told_changes(space: Space) -> list[str]:
    """Return for every parameter what Optuna does not know about it."""
    return [
        f"{key}: {change}" for key, parameter in space.keyed if (change := _change(key, parameter))
    ]


def _change(key: str, parameter: Parameter) -> str:
    ours = parameter.distribution
    found: list[str] = []
    if not isinstance(ours, _KNOWN):
        found.append(f"{ours.kind} is uniform there")
    if isinstance(ours, LogUniform | LogIntUniform) and ours.q:
        found.append("its step is lost")
    if isinstance(ours, Pow2 | Ordinal):
        found.append("a list without an order there")
    if isinstance(ours, Categorical) and any(not isinstance(v, _SCALAR) for v in ours.values):
        found.append("lists are JSON texts there")
    if _zero_is_outside(ours):
        found.append("trials in which it is 0 are without it there")
    if "#" in key:
        found.append("one of several distributions of this knob")
    return ", ".join(found)


_KNOWN = (Uniform, LogUniform, IntUniform, LogIntUniform, Pow2, Categorical, Ordinal)


def _zero_is_outside(ours: Distribution) -> bool:
    if not ours.zero or isinstance(ours, Pow2):
        return False
    low, high = _bounds(ours)
    return not low <= 0 <= high


def _bounds(ours: Distribution) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a range, a zero beside it not counted."""
    if isinstance(ours, Normal):
        return ours.bounds
    own = dataclasses.replace(ours, zero=0.0).ends()
    return min(own), max(own)


def _plain(value: Any) -> Any:
    return value if isinstance(value, _SCALAR) else json.dumps(value)


def _written(ours: Distribution) -> BaseDistribution:
    if isinstance(ours, Categorical | Ordinal):
        return CategoricalDistribution([_plain(value) for value in ours.values])
    if isinstance(ours, Pow2):
        return CategoricalDistribution(list(ours.grid(64)))
    low, high = _bounds(ours)
    if isinstance(ours, LogIntUniform):
        return IntDistribution(int(low), int(high), log=True)
    if isinstance(ours, IntUniform):
        return IntDistribution(int(low), int(high), step=int(ours.q or 1))
    if isinstance(ours, LogUniform):
        return FloatDistribution(float(low), float(high), log=True)
    step = ours.q if isinstance(ours, Uniform) else None
    return FloatDistribution(float(low), float(high), step=step)
