"""From what is known of each link to one row per candidate path: membership and pooling."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...errors import ConfigError
from ..envs.contract import RoutedEnvironment, Routes

__all__ = ["Pooling", "marked_pairs", "membership", "pairs_by_ends", "routes_of"]

_FAR = np.float32(1e30)


def routes_of(env: Any, eval_env: Any) -> Routes | None:
    """Give the routes of an environment that has some.

    Raises:
        ConfigError: the environment that evaluates has other paths; a network of links is built
            for one set of them.
    """
    routes = env.routes if isinstance(env, RoutedEnvironment) else None
    other = eval_env.routes if isinstance(eval_env, RoutedEnvironment) else None
    if routes is None or other is None or routes is other:
        return routes
    names = ("senders", "receivers", "pairs", "hops", "hop_counts", "km")
    if not all(np.array_equal(getattr(routes, name), getattr(other, name)) for name in names):
        raise ConfigError(
            "eval_env has other links or candidate paths than env, for which networks of links "
            "are not built; leave out what changes them"
        )
    return routes


def membership(routes: Routes, pair: Int[Array, "..."]) -> Bool[Array, "... K links"]:
    """Say which links each candidate path of a pair takes; none where a path is missing."""
    hops = jnp.asarray(routes.hops, jnp.int32)[pair]  # [..., K, H]
    counts = jnp.asarray(routes.hop_counts, jnp.int32)[pair]
    places = jax.lax.broadcasted_iota(jnp.int32, hops.shape, hops.ndim - 1)
    links = jnp.arange(len(routes.km), dtype=jnp.int32).reshape((1,) * hops.ndim + (-1,))
    taken = jnp.where(places < counts[..., None], hops, -1)[..., None]
    return jnp.any(taken == links, axis=-2)


def pairs_by_ends(routes: Routes) -> np.ndarray:
    """Give the number of the pair of each source and destination, int32 [N, N]."""
    table = np.zeros((routes.num_nodes, routes.num_nodes), np.int32)
    numbers = np.arange(len(routes.pairs), dtype=np.int32)
    table[routes.pairs[:, 1], routes.pairs[:, 0]] = numbers  # where both ways share a pair
    table[routes.pairs[:, 0], routes.pairs[:, 1]] = numbers
    return table


def marked_pairs(routes: Routes, nodes: Float[Array, "... N F"]) -> Int[Array, "..."]:
    """Read the pair of the current request off the last two columns of the nodes."""
    source = jnp.argmax(nodes[..., -2], axis=-1)
    destination = jnp.argmin(nodes[..., -1], axis=-1)
    return jnp.asarray(pairs_by_ends(routes))[source, destination]


class Pooling(nn.Module):
    """One row of each group of items: their mean, sum, extremes, or what attention picks.

    Attributes:
        kind: `mean`, `sum`, `min_mean_max` (three times as wide) or `attention` (one learned
            query; Vaswani et al. 2017, eq. 1).
    """

    kind: str

    @nn.compact
    def __call__(
        self, items: Float[Array, "... n D"], groups: Bool[Array, "... G n"]
    ) -> Float[Array, "... G P"]:
        """Give a row for each group; zeros for one without items."""
        if self.kind == "attention":
            return self._attend(items, groups)
        weights = groups.astype(items.dtype)
        total = jnp.einsum("...gn,...nd->...gd", weights, items)
        if self.kind == "sum":
            return total
        count = jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), 1.0)
        mean = total / count
        if self.kind == "mean":
            return mean
        inside = groups[..., None]
        some = jnp.any(inside, axis=-2)
        wide = items[..., None, :, :]
        low = jnp.min(jnp.where(inside, wide, _FAR.astype(items.dtype)), axis=-2)
        high = jnp.max(jnp.where(inside, wide, -_FAR.astype(items.dtype)), axis=-2)
        low, high = (jnp.where(some, x, jnp.zeros_like(x)) for x in (low, high))
        return jnp.concatenate([low, mean, high], axis=-1)

    def _attend(self, items: Array, groups: Array) -> Array:
        width = items.shape[-1]
        query = self.param("query", nn.initializers.normal(width**-0.5), (width,))
        scores = jnp.einsum("...nd,d->...n", items, query)[..., None, :]
        far = jnp.asarray(-_FAR, items.dtype)
        weights = jax.nn.softmax(jnp.where(groups, scores, far), axis=-1)
        weights = jnp.where(groups, weights, jnp.zeros_like(weights))
        return jnp.einsum("...gn,...nd->...gd", weights, items)
