"""Spaces in Ray Tune's words: one domain per key of `Space.keyed`, on the axis of its kind.

As with Optuna, Ray's searchers see positions on axes, and `to_optuna.from_internal` gives the
configuration for them.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# Ray leaves out what a choice is among.

from __future__ import annotations

from typing import Any

from ray import tune  # pyright: ignore[reportMissingImports]

from .base import Axis
from .space import Space


def domains(space: Space) -> dict[str, Any]:
    """Return the domain of every key, whether its parameter is active or not."""
    return {key: _on_axis(parameter.distribution.axis) for key, parameter in space.keyed}


def _on_axis(axis: Axis) -> Any:
    if axis.kind == "choice":
        return tune.choice(list(range(int(axis.high) + 1)))
    if axis.kind == "integer":  # Ray's upper end is left out
        draw = tune.lograndint if axis.log else tune.randint
        return draw(int(axis.low), int(axis.high) + 1)
    return (tune.loguniform if axis.log else tune.uniform)(axis.low, axis.high)
