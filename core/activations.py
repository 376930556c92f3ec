"""How many numbers a network computes of observations, told from shapes alone."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax

from . import policy
from .envs import registry as environments
from .plan import Plan

__all__ = ["computed_numbers"]


def computed_numbers(plan: Plan, params: Any, rows: int) -> int:
    """Return how many numbers one forward pass over some rows computes; nothing is computed here.

    Args:
        plan: names the network.
        params: of one lane; shapes suffice.
        rows: observations.
    """
    struct = environments.make(plan.env).observation_struct
    batch = jax.tree.map(lambda s: jax.ShapeDtypeStruct((rows, *s.shape), s.dtype), struct)
    return _computed(jax.make_jaxpr(partial(policy.apply, plan))(params, batch).jaxpr)


def _computed(jaxpr: Any) -> int:
    """Count the numbers that the operations of a program give."""
    total = 0
    for equation in jaxpr.eqns:
        inner = [getattr(value, "jaxpr", None) for value in equation.params.values()]
        nested = [found for found in inner if hasattr(found, "eqns")]
        if nested:
            total += sum(_computed(found) for found in nested)
        else:
            total += sum(math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars)
    return total
