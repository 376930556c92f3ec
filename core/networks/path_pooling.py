"""Path membership of links, and pooling of link features into one row per candidate path."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...errors import ConfigError
from ..envs.contract import RoutedEnvironment, Routes, unwrapped
from ..plan import Plan
from .mlp import Head, initialiser

_FAR = np.float32(1e30)
_WORTH = 0.75  # picking out links pays up to this share of all links


def _routes_of_one(env: Any) -> Routes | None:
    if isinstance(env, RoutedEnvironment):
        return env.routes
    return None


def routes_of(env: Any, eval_env: Any) -> Routes | None:
    routes, other = _routes_of_one(unwrapped(env)), _routes_of_one(unwrapped(eval_env))
    if routes is None or other is None or routes is other:
        return routes
    names = ("senders", "receivers", "pairs", "hops", "hop_counts", "km", "coordinates")
    if not all(np.array_equal(getattr(routes, name), getattr(other, name)) for name in names):
        raise ConfigError(
            "eval_env has different links or candidate paths than env, for which the network is "
            "built; remove the keys that change them"
        )
    return routes


def membership(
    routes: Routes, pair: Int[Array, "..."], links: Int[Array, "... U"] | None = None
) -> Bool[Array, "... K U"]:
    """Return which links each candidate path of a pair uses, among `links` or all links."""
    hops = jnp.asarray(routes.hops, jnp.int32)[pair]  # [..., K, H]
    counts = jnp.asarray(routes.hop_counts, jnp.int32)[pair]
    places = jax.lax.broadcasted_iota(jnp.int32, hops.shape, hops.ndim - 1)
    if links is None:
        links = jnp.arange(len(routes.km), dtype=jnp.int32).reshape((1,) * pair.ndim + (-1,))
    taken = jnp.where(places < counts[..., None], hops, -1)[..., None]
    return jnp.any(taken == links[..., None, None, :], axis=-2)


@dataclass(frozen=True, eq=False)
class Nearby:
    """The links used by any candidate path of a pair; the pair's logits need no others."""

    links: np.ndarray  # int32 [R, U], ascending, padded with unused links
    places: np.ndarray  # int32 [R, links], each link's index in `links`; U if it has none

    def both_ways(self) -> Nearby:
        count, most = self.places.shape[1], self.links.shape[1]
        there = self.places < most
        links = np.concatenate([self.links, self.links + count], axis=1)
        places = [np.where(there, self.places + way, 2 * most) for way in (0, most)]
        return Nearby(links, np.concatenate(places, axis=1))

    def of_tokens(self, tokens: Float[Array, "B n D"], pair: Int[Array, " B"]) -> Array:
        batch, count, width = tokens.shape
        at, back = jnp.asarray(self.links)[pair], jnp.asarray(self.places)[pair]
        sample = jnp.arange(batch, dtype=jnp.int32)[:, None]
        back = jnp.where(back < at.shape[1], back + sample * at.shape[1], at.size)
        return picked(tokens.reshape((-1, width)), at + sample * count, back.reshape(-1))

    def of_entities(self, edges: Float[Array, "n B D"], pair: Int[Array, " B"]) -> Array:
        batch, width = edges.shape[1:]
        at, back = jnp.asarray(self.links)[pair].T, jnp.asarray(self.places)[pair].T
        sample = jnp.arange(batch, dtype=jnp.int32)[None]
        back = back * batch + sample  # without a place: at least U * batch
        return picked(edges.reshape((-1, width)), at * batch + sample, back.reshape(-1))


@functools.lru_cache(maxsize=64)
def nearby(routes: Routes) -> Nearby | None:
    """Return the `Nearby` links of all pairs; None if a pair's paths use most of the network."""
    some = np.zeros((len(routes.pairs), len(routes.km)), bool)
    for hop in range(routes.hops.shape[2]):
        pair, path = np.nonzero(routes.hop_counts > hop)
        some[pair, routes.hops[pair, path, hop]] = True
    most = int(some.sum(axis=1).max())
    if most > _WORTH * len(routes.km):
        return None
    links = np.argsort(~some, axis=1, kind="stable")[:, :most]
    places = np.where(some, np.cumsum(some, axis=1) - 1, most)
    return Nearby(links.astype(np.int32), places.astype(np.int32))


@jax.custom_vjp
def picked(
    rows: Float[Array, "M D"], at: Int[Array, "*C"], back: Int[Array, " M"]
) -> Float[Array, "*C D"]:
    """Return the rows at indices `at`; the gradient is another gather instead of a scatter-add.

    For each row, `back` is its position in the flattened `at`, or the size of `at` if the row was
    not picked. Entries of `at` that `back` does not reach are padding and receive no gradient.
    """
    return rows.at[at].get(mode="promise_in_bounds")


def _picked_forward(rows: Array, at: Array, back: Array) -> tuple[Array, Array]:
    return picked(rows, at, back), back


def _picked_backward(back: Array, change: Array) -> tuple[Array, None, None]:
    flat = change.reshape((-1, change.shape[-1]))
    found = flat.at[jnp.minimum(back, len(flat) - 1)].get(mode="promise_in_bounds")
    there = (back < len(flat))[:, None]
    return jnp.where(there, found, jnp.zeros_like(found)), None, None


picked.defvjp(_picked_forward, _picked_backward)


def pairs_by_ends(routes: Routes) -> np.ndarray:
    table = np.zeros((routes.num_nodes, routes.num_nodes), np.int32)
    numbers = np.arange(len(routes.pairs), dtype=np.int32)
    table[routes.pairs[:, 1], routes.pairs[:, 0]] = numbers  # both directions share a pair
    table[routes.pairs[:, 0], routes.pairs[:, 1]] = numbers
    return table


def marked_pairs(routes: Routes, nodes: Float[Array, "... N F"]) -> Int[Array, "..."]:
    source = jnp.argmax(nodes[..., -2], axis=-1)
    destination = jnp.argmin(nodes[..., -1], axis=-1)
    return jnp.asarray(pairs_by_ends(routes))[source, destination]


class Pooling(nn.Module):
    """Pools items into one row per group; the row of an empty group is 0."""

    kind: str  # mean, sum, min_mean_max (three times as wide) or attention (one learned query)

    @nn.compact
    def __call__(
        self, items: Float[Array, "... n D"], groups: Bool[Array, "... G n"]
    ) -> Float[Array, "... G P"]:
        if self.kind == "attention":
            return self._pool_by_attention(items, groups)
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

    def _pool_by_attention(self, items: Array, groups: Array) -> Array:
        width = items.shape[-1]
        query = self.param("query", nn.initializers.normal(width**-0.5), (width,))
        scores = jnp.einsum("...nd,d->...n", items, query)[..., None, :]
        far = jnp.asarray(-_FAR, items.dtype)
        weights = jax.nn.softmax(jnp.where(groups, scores, far), axis=-1)
        weights = jnp.where(groups, weights, jnp.zeros_like(weights))
        return jnp.einsum("...gn,...nd->...gd", weights, items)


def further_actions(routes: Routes, outputs: int) -> int:
    return outputs - routes.hops.shape[1] * routes.outputs


def path_logits(
    plan: Plan, routes: Routes, outputs: int, paths: Array, rest: Callable[[], Array]
) -> Float[Array, "B A"]:
    kernel_init = initialiser(plan, plan.policy_gain)
    logits = Head(routes.outputs, kernel_init, name="actor_head")(paths)
    logits = logits.reshape((logits.shape[0], -1))
    further = further_actions(routes, outputs)
    if not further:
        return logits
    others = Head(further, kernel_init, name="actor_further")(rest())
    return jnp.concatenate([logits, others], axis=-1)


SHARES = "shares"  # value of `link_critic_sees`: the critic gets `shares`


def shares(slots: Float[Array, "*B S"]) -> Float[Array, "*B 1"]:
    """Return 4 u - 2, where u is the share of the last axis above 0.

    This is the first-order expansion of logit(u) around u = 1/2, so typically loaded links get
    numbers around 0 that differ by about 1.

    >>> shares(jnp.array([[0.0, 0.3, 0.0, 0.0], [0.5, 0.3, 0.1, 1.0]])).tolist()
    [[-1.0], [2.0]]
    """
    used = jnp.mean((slots > 0.0).astype(slots.dtype), axis=-1, keepdims=True)
    return 4.0 * used - 2.0
