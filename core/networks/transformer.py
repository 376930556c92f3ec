"""Transformers over the links of an optical network or over a history of observations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from ..envs.contract import Routes
from ..plan import Plan
from ..pytree import Pytree, pytree
from . import path_pooling
from .layers import Dense, Outputs, Weights, side_by_side
from .mlp import Head, activated, both_towers, initialiser, value_head
from .path_pooling import SHARES, Nearby, Pooling, further_actions, nearby, shares

Chosen = Callable[[Float[Array, "B n D"]], Float[Array, "B m D"]]


@pytree
class Keyed(Pytree):
    observation: object
    words: UInt32[Array, "... 2"]  # raw threefry keys


def dropped(
    x: Float[Array, "B *shape"], words: UInt32[Array, "B 2"] | None, use: int, rate: float
) -> Float[Array, "B *shape"]:
    """Zero each number with probability `rate`; the random key is `words` folded with `use`."""
    if words is None or rate == 0.0:
        return x

    def kept(raw: Array) -> Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(raw, impl="threefry2x32"), use)
        return jax.random.bernoulli(key, 1.0 - rate, x.shape[1:])

    scale = jnp.asarray(1.0 / (1.0 - rate), x.dtype)
    return jnp.where(jax.vmap(kept)(words), x * scale, jnp.zeros_like(x))


def rotated(
    x: Float[Array, "B n h d"],
    cosine: Float[Array, "#B n h half"],
    sine: Float[Array, "#B n h half"],
) -> Float[Array, "B n h d"]:
    """Rotate each pair of numbers (i and i + d/2) in every token by the given angles."""
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cosine - second * sine, first * sine + second * cosine], axis=-1
    )


class Turns(nn.Module):
    """Cosines and sines of learned linear maps of positions, shared by all heads and samples.

    A product with zeros and ones distributes the cosines and sines to the heads. XLA would fuse
    any other operation into its consumers and recompute it for every sample and head.
    """

    heads: int
    pairs: int

    @nn.compact
    def __call__(self, positions: Float[Array, "n P"]) -> tuple[Array, Array]:
        near = nn.initializers.normal(0.01)
        kernel = self.param("kernel", near, (positions.shape[-1], self.pairs), jnp.float32)
        angles = positions @ kernel
        to_heads = jnp.tile(jnp.eye(self.pairs, dtype=angles.dtype), (1, self.heads))

        def spread(x: Array) -> Array:
            exact = jnp.matmul(x, to_heads, precision=jax.lax.Precision.HIGHEST)
            return exact.reshape((-1, self.heads, self.pairs))

        return spread(jnp.cos(angles)), spread(jnp.sin(angles))


class Attention(nn.Module):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017)."""

    plan: Plan
    number: int

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B n D"],
        positions: Float[Array, "n P"] | None,
        words: UInt32[Array, "B 2"] | None,
        chosen: Chosen | None = None,
    ) -> Float[Array, "B m D"]:
        """Return each token's attention over all tokens.

        `positions` are coordinates, the same in all samples. Queries and keys are rotated by
        learned linear maps of the coordinates (Reid et al. 2025, "WIRE"), so a score depends on
        coordinate differences; values are not rotated. If `positions` is None, nothing is rotated.
        `chosen` selects the m tokens that have queries; None selects all tokens.
        """
        plan, kernel_init = self.plan, initialiser(self.plan, 1.0)
        width, heads = x.shape[-1], plan.transformer_heads
        depth = width // heads
        # A bias of the keys would not change any attention weight.
        query, key, value = (
            Weights(width, kernel_init, name != "key", name=name)(width)
            for name in ("query", "key", "value")
        )
        if chosen is None:
            asked, known, read = side_by_side(x, query, key, value)
        else:
            (asked,), (known, read) = side_by_side(chosen(x), query), side_by_side(x, key, value)
        asked, known, read = (
            y.reshape((*y.shape[:2], heads, depth)) for y in (asked, known, read)
        )
        if positions is not None:
            turns = Turns(heads, depth // 2, name="angles")(positions)
            known = rotated(known, *(y[None] for y in turns))
            if chosen is None:
                asked = rotated(asked, *(y[None] for y in turns))
            else:
                asked = rotated(asked, *(_of_samples(y, len(x), chosen) for y in turns))
        scores = jnp.einsum("bqhd,bkhd->bhqk", asked * depth**-0.5, known)
        weights = jax.nn.softmax(scores, axis=-1)
        weights = dropped(weights, words, 3 * self.number, plan.transformer_attention_dropout)
        found = jnp.einsum("bhqk,bkhd->bqhd", weights, read)
        found = found.reshape((*found.shape[:2], width))
        return Dense(width, kernel_init=kernel_init, name="out")(found)


def _of_samples(x: Float[Array, "n h half"], batch: int, chosen: Chosen) -> Array:
    rows = jnp.broadcast_to(x.reshape((1, len(x), -1)), (batch, len(x), x[0].size))
    found = chosen(rows)
    return found.reshape((*found.shape[:2], *x.shape[1:]))


class Blocks(nn.Module):
    plan: Plan

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B n D"],
        positions: Float[Array, "n P"] | None = None,
        words: UInt32[Array, "B 2"] | None = None,
        chosen: Chosen | None = None,
    ) -> Float[Array, "B m D"]:
        plan, rate = self.plan, self.plan.transformer_dropout
        for i in range(plan.transformer_layers):
            last = None
            if i == plan.transformer_layers - 1:
                last = chosen
            normalised = nn.LayerNorm(name=f"attention_norm_{i}")(x)
            found = Attention(plan, i, name=f"attention_{i}")(normalised, positions, words, last)
            if last is not None:
                x = last(x)
            x = x + dropped(found, words, 3 * i + 1, rate)
            normalised = nn.LayerNorm(name=f"forward_norm_{i}")(x)
            wide = Dense(
                plan.transformer_intermediate_size,
                kernel_init=initialiser(plan, plan.hidden_gain),
                name=f"forward_in_{i}",
            )(normalised)
            found = Dense(
                x.shape[-1], kernel_init=initialiser(plan, 1.0), name=f"forward_out_{i}"
            )(jax.nn.gelu(wide))
            x = x + dropped(found, words, 3 * i + 2, rate)
        return nn.LayerNorm(name="norm")(x)


class HeadLayers(nn.Module):
    plan: Plan
    width: int
    depth: int

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... W"]:
        plan = self.plan
        for i in range(self.depth):
            kernel_init = initialiser(plan, plan.hidden_gain)
            x = Dense(self.width, kernel_init=kernel_init, name=f"dense_{i}")(x)
            x = activated(plan, x, f"norm_{i}")
        return x


class LinkEncoder(nn.Module):
    plan: Plan

    @nn.compact
    def __call__(
        self,
        columns: tuple[Array, ...],
        position: Float[Array, "links P"],
        words: UInt32[Array, "B 2"] | None,
        chosen: Chosen | None = None,
    ) -> Float[Array, "B m D"]:
        plan = self.plan
        kernel_init = initialiser(plan, plan.hidden_gain)
        embed = Dense(plan.transformer_embedding_size, kernel_init=kernel_init, name="embed")
        tokens = jax.nn.gelu(embed(jnp.concatenate(columns, axis=-1)))
        tokens = nn.LayerNorm(name="embed_norm")(tokens)
        turned = position[..., : plan.transformer_wire_features]
        if not turned.shape[-1]:
            turned = None
        return Blocks(plan, name="blocks")(tokens, turned, words, chosen)


class LinkTransformer(nn.Module):
    """Maps `LinkTokens` to policy outputs and a value.

    The logits of a candidate path's options come from a linear layer over its pooled links, and
    those of actions without a path from all links. The value is also computed from all links. A
    separate critic does not see the request columns (as published). With `link_critic_sees:
    shares` it sees how full each link is instead of its slots.
    """

    plan: Plan
    outputs: int
    routes: Routes

    @nn.compact
    def __call__(self, observation: Any) -> Outputs:
        plan = self.plan
        observation, words = _split_keyed(observation)
        lead = observation.slots.shape[:-2]
        lines = jax.tree.map(lambda x: x.reshape((-1, *x.shape[len(lead) :])), observation)
        if words is not None:
            words = words.reshape((-1, 2))
        columns = (lines.position, lines.slots, lines.marginals, lines.request)
        both = plan.shared_encoder
        near = chosen = None
        if not (both or further_actions(self.routes, self.outputs)):
            near = nearby(self.routes)
        if near is not None:
            chosen = partial(near.of_tokens, pair=lines.pair)
        position = jnp.asarray(self.routes.coordinates, lines.position.dtype)
        encoder = LinkEncoder(plan, name="encoder" if both else "actor")
        critic = actor = encoder(columns, position, words, chosen)
        if not both:
            slots = lines.slots
            if plan.link_critic_sees == SHARES:
                slots = shares(slots)
            critic_input = (lines.position, slots, lines.marginals)
            critic = LinkEncoder(plan, name="critic")(critic_input, position, words)
        policy = self._logits(actor, lines.pair, near)
        value = _critic_value(plan, critic)
        return Outputs(policy.reshape((*lead, self.outputs)), value.reshape(lead))

    def _logits(
        self, links: Float[Array, "B m D"], pair: Array, near: Nearby | None
    ) -> Float[Array, "B A"]:
        plan, routes = self.plan, self.routes
        hidden = _head_layers(plan, "actor")(links)
        links_of = None if near is None else jnp.asarray(near.links)[pair]
        inside = path_pooling.membership(routes, pair, links_of)
        paths = Pooling(plan.transformer_actor_pooling, name="actor_pooling")(hidden, inside)
        mean = partial(jnp.mean, hidden, axis=1)
        return path_pooling.path_logits(plan, routes, self.outputs, paths, mean)


class SequenceEncoder(nn.Module):
    plan: Plan

    @nn.compact
    def __call__(
        self, tokens: Float[Array, "B n F"], words: UInt32[Array, "B 2"] | None
    ) -> Float[Array, "B n D"]:
        plan = self.plan
        width, count = plan.transformer_embedding_size, tokens.shape[1]
        embedded = Dense(width, kernel_init=initialiser(plan, 1.0), name="embed")(tokens)
        near = nn.initializers.normal(0.02)
        positions = self.param("positions", near, (count, width), jnp.float32)
        return Blocks(plan, name="blocks")(embedded + positions[None], None, words)


class SequenceTransformer(nn.Module):
    plan: Plan
    outputs: int
    # shape of one observation; its first axis counts tokens if `history` is above 1
    shape: tuple[int, ...]
    tokens: int

    @nn.compact
    def __call__(self, observation: Any) -> Outputs:
        plan = self.plan
        observation, words = _split_keyed(observation)
        lead = observation.shape[: observation.ndim - len(self.shape)]
        rows = observation.reshape((-1, self.tokens, int(np.prod(self.shape)) // self.tokens))
        rows = rows.astype(plan.dtype)
        if words is not None:
            words = words.reshape((-1, 2))
        actor, critic = both_towers(plan, partial(SequenceEncoder, plan), rows, words)
        hidden = _pooled_layers(plan, "actor", actor)
        policy = Head(self.outputs, initialiser(plan, plan.policy_gain), name="actor_head")(hidden)
        value = _critic_value(plan, critic)
        return Outputs(policy.reshape((*lead, self.outputs)), value.reshape(lead))


def _critic_value(plan: Plan, tokens: Float[Array, "B n D"]) -> Float[Array, " B"]:
    return value_head(plan, _pooled_layers(plan, "critic", tokens))[..., 0]


def _pooled_layers(plan: Plan, side: str, tokens: Float[Array, "B n D"]) -> Float[Array, "B W"]:
    everything = jnp.ones((tokens.shape[0], 1, tokens.shape[1]), bool)
    pooling = Pooling(getattr(plan, f"transformer_{side}_pooling"), name=f"{side}_pooling")
    return _head_layers(plan, side)(pooling(tokens, everything)[:, 0])


def _head_layers(plan: Plan, side: str) -> HeadLayers:
    width, depth = (getattr(plan, f"transformer_{side}_mlp_{size}") for size in ("width", "depth"))
    return HeadLayers(plan, width, depth, name=f"{side}_mlp")


def _split_keyed(observation: Any) -> tuple[Any, Array | None]:
    if isinstance(observation, Keyed):
        return observation.observation, observation.words
    return observation, None
