"""Blocks of a pre-norm transformer (Xiong et al. 2020), with rotary positions and dropout.

Dropout draws its masks from words that belong to each sample, so that acting and learning drop the
same.
"""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from ..plan import Plan
from ..pytree import Pytree, pytree
from .dense import Dense, Weights, side_by_side
from .mlp import ACTIVATIONS, initialiser

__all__ = ["Blocks", "Chosen", "HeadLayers", "Keyed", "dropped", "rotated"]

Chosen = Callable[[Float[Array, "B n D"]], Float[Array, "B m D"]]


@pytree
class Keyed(Pytree):
    """An observation with the words that its dropout masks are drawn from.

    Attributes:
        observation: as the network reads it, [..., ...].
        words: raw threefry keys, [..., 2].
    """

    observation: object
    words: UInt32[Array, "... 2"]


def dropped(
    x: Float[Array, "B *shape"], words: UInt32[Array, "B 2"] | None, use: int, rate: float
) -> Float[Array, "B *shape"]:
    """Zero each number with probability `rate` and scale the others up; nothing without words.

    Args:
        x: numbers of each sample.
        words: raw key of each sample, or None in evaluation.
        use: tells the places of a network apart.
        rate: probability.
    """
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
    """Turn pair i, the numbers i and i + d/2, of every token by the angle of these."""
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cosine - second * sine, first * sine + second * cosine], axis=-1
    )


class Turns(nn.Module):
    """Cosines and sines of learned linear maps of positions, the same for all heads and samples.

    They reach the heads by a product with zeros and ones: XLA would fuse anything else into what
    reads them, and compute each of them anew for every sample and head.
    """

    heads: int
    pairs: int

    @nn.compact
    def __call__(self, positions: Float[Array, "n P"]) -> tuple[Array, Array]:
        """Return both, [n, heads, pairs]."""
        near = nn.initializers.normal(0.01)
        kernel = self.param("kernel", near, (positions.shape[-1], self.pairs), jnp.float32)
        angles = positions @ kernel
        to_heads = jnp.tile(jnp.eye(self.pairs, dtype=angles.dtype), (1, self.heads))

        def spread(x: Array) -> Array:
            exact = jnp.matmul(x, to_heads, precision=jax.lax.Precision.HIGHEST)
            return exact.reshape((-1, self.heads, self.pairs))

        return spread(jnp.cos(angles)), spread(jnp.sin(angles))


class Attention(nn.Module):
    """Scaled dot-product attention of several heads (Vaswani et al. 2017)."""

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
        """Return what each token gathers from all tokens.

        Args:
            x: tokens.
            positions: coordinates, the same in all samples, whose learned linear maps are the
                angles that queries and keys are turned by (Reid et al. 2025, "WIRE"), so that a
                score depends on differences of coordinates; values are not turned. None turns
                nothing.
            words: for dropout of attention weights.
            chosen: gives, of rows for all tokens, those of the m tokens that ask; None: all do.
        """
        plan, kernel_init = self.plan, initialiser(self.plan, 1.0)
        width, heads = x.shape[-1], plan.transformer_heads
        depth = width // heads
        # A bias of the keys would not change any weight.
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
    """Return the rows of tokens that each sample chooses, [B, m, h, half]."""
    rows = jnp.broadcast_to(x.reshape((1, len(x), -1)), (batch, len(x), x[0].size))
    found = chosen(rows)
    return found.reshape((*found.shape[:2], *x.shape[1:]))


class Blocks(nn.Module):
    """Attention and feed-forward halves, each normalised before and added behind."""

    plan: Plan

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B n D"],
        positions: Float[Array, "n P"] | None = None,
        words: UInt32[Array, "B 2"] | None = None,
        chosen: Chosen | None = None,
    ) -> Float[Array, "B m D"]:
        """Return tokens of the same width, layer-normalised.

        Args:
            x: tokens.
            positions: see `Attention`.
            words: for dropout.
            chosen: gives, of rows for all tokens, those of the m tokens to give; None: all.
        """
        plan, rate = self.plan, self.plan.transformer_dropout
        for i in range(plan.transformer_layers):
            last = chosen if i == plan.transformer_layers - 1 else None
            seen = nn.LayerNorm(name=f"attention_norm_{i}")(x)
            found = Attention(plan, i, name=f"attention_{i}")(seen, positions, words, last)
            x = x if last is None else last(x)
            x = x + dropped(found, words, 3 * i + 1, rate)
            seen = nn.LayerNorm(name=f"forward_norm_{i}")(x)
            wide = Dense(
                plan.transformer_intermediate_size,
                kernel_init=initialiser(plan, plan.hidden_gain), name=f"forward_in_{i}",
            )(seen)  # fmt: skip
            found = Dense(
                x.shape[-1], kernel_init=initialiser(plan, 1.0), name=f"forward_out_{i}"
            )(jax.nn.gelu(wide))
            x = x + dropped(found, words, 3 * i + 2, rate)
        return nn.LayerNorm(name="norm")(x)


class HeadLayers(nn.Module):
    """Hidden layers of equal width in front of a head."""

    plan: Plan
    width: int
    depth: int

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... W"]:
        """Return the last hidden layer."""
        plan = self.plan
        for i in range(self.depth):
            kernel_init = initialiser(plan, plan.hidden_gain)
            x = Dense(self.width, kernel_init=kernel_init, name=f"dense_{i}")(x)
            if plan.layer_norm:
                x = nn.LayerNorm(name=f"norm_{i}")(x)
            x = ACTIVATIONS[plan.activation](x)
        return x
