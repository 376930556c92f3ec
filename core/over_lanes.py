"""`over_lanes`: `jax.vmap` that leaves the lane axis out where there is a single lane.

A tile of one lane is what large networks get on a CPU, and XLA's kernels for reductions there take
ten times as long where the first axis has length 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["over_lanes"]

Axes = int | None | tuple[int | None, ...]


def over_lanes(
    function: Callable[..., Any], in_axes: Axes = 0, out_axes: int = 0
) -> Callable[..., Any]:
    """Return a function of one lane as one of lanes; see `jax.vmap`.

    Args:
        function: of trees of arrays.
        in_axes: the lane axis of each argument, None where an argument is that of all lanes.
        out_axes: the lane axis of what it gives.

    >>> over_lanes(lambda x, y: x + y, (0, None))(jnp.zeros((1, 3)), jnp.ones(3)).shape
    (1, 3)
    """

    def mapped(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        pairs = list(zip(args, axes, strict=True))
        sizes = {
            leaf.shape[axis]
            for arg, axis in pairs
            if axis is not None
            for leaf in jax.tree.leaves(arg)
        }
        if sizes != {1}:
            return jax.vmap(function, in_axes, out_axes)(*args)
        alone = [
            arg if axis is None else jax.tree.map(lambda x, at=axis: jnp.squeeze(x, at), arg)
            for arg, axis in pairs
        ]
        return jax.tree.map(lambda x: jnp.expand_dims(x, out_axes), function(*alone))

    return mapped
