"""A table's space for ConfigSpace (extra `configspace`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ConfigSpace as CS

from .space import Hyperparameter, Space


def as_configspace(space: Space, seed: int | None = None) -> CS.ConfigurationSpace:
    found = CS.ConfigurationSpace(seed=seed)
    found.add(*(_node(one) for one in space.hyperparameters))
    return found


def _node(one: Hyperparameter) -> Any:
    if one.kind == "choice":
        words = [_word(value) for value in one.values]
        return CS.CategoricalHyperparameter(one.name, words, default_value=_word(one.default))
    if one.kind == "integer":
        bounds = (int(one.low), int(one.high))
        return CS.UniformIntegerHyperparameter(
            one.name, *bounds, default_value=int(one.default), log=one.log
        )
    return CS.UniformFloatHyperparameter(
        one.name, one.low, one.high, default_value=one.default, log=one.log
    )


def from_configspace(space: Space, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a ConfigSpace configuration to the form used by a table."""
    found = dict[str, Any]()
    for one in space.hyperparameters:
        value = configuration[one.name]
        if one.kind == "choice":
            found[one.name] = {_word(known): known for known in one.values}[str(value)]
        elif one.kind == "integer":
            found[one.name] = int(value)
        else:
            found[one.name] = float(value)
    return found


def _word(value: Any) -> str:
    """Return a choice as a word, because ConfigSpace treats True as 1."""
    return str(value)
