"""Blocks of a pre-norm transformer (Xiong et al. 2020), with rotary positions and dropout.

Dropout draws its masks from words that belong to each sample, so that acting and learning drop the
same.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from ..plan import Plan
from ..pytree import Pytree, pytree
from .mlp import ACTIVATIONS, initialiser

__all__ = ["Blocks", "HeadLayers", "Keyed", "dropped", "rotated"]


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
    x: Float[Array, "B h n d"], angles: Float[Array, "B 1 n half"]
) -> Float[Array, "B h n d"]:
    """Turn pair i, the numbers i and i + d/2, of every token by its angle i."""
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cosine - second * sine, first * sine + second * cosine], axis=-1
    )


class Attention(nn.Module):
    """Scaled dot-product attention of several heads (Vaswani et al. 2017)."""

    plan: Plan
    number: int

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B n D"],
        positions: Float[Array, "B n P"] | None,
        words: UInt32[Array, "B 2"] | None,
    ) -> Float[Array, "B n D"]:
        """Give what each token gathers from all tokens.

        Args:
            x: tokens.
            positions: coordinates whose learned linear maps are the angles that queries and keys
                are turned by (Reid et al. 2025, "WIRE"), so that a score depends on differences
                of coordinates; values are not turned. None turns nothing.
            words: for dropout of attention weights.
        """
        plan, kernel_init = self.plan, initialiser(self.plan, 1.0)
        batch, count, width = x.shape
        heads = plan.transformer_heads
        depth = width // heads

        def by_head(name: str) -> Array:  # a bias of the keys would not change any weight
            y = nn.Dense(width, name != "key", kernel_init=kernel_init, name=name)(x)
            return jnp.swapaxes(y.reshape((batch, count, heads, depth)), 1, 2)

        query, key, value = by_head("query"), by_head("key"), by_head("value")
        if positions is not None:
            near = nn.initializers.normal(0.01)
            turn = nn.Dense(depth // 2, use_bias=False, kernel_init=near, name="angles")
            angles = turn(positions)[:, None]
            query, key = rotated(query, angles), rotated(key, angles)
        scores = jnp.einsum("bhqd,bhkd->bhqk", query * depth**-0.5, key)
        weights = jax.nn.softmax(scores, axis=-1)
        weights = dropped(weights, words, 3 * self.number, plan.transformer_attention_dropout)
        found = jnp.swapaxes(jnp.einsum("bhqk,bhkd->bhqd", weights, value), 1, 2)
        found = found.reshape((batch, count, width))
        return nn.Dense(width, kernel_init=kernel_init, name="out")(found)


class Blocks(nn.Module):
    """Attention and feed-forward halves, each normalised before and added behind."""

    plan: Plan

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B n D"],
        positions: Float[Array, "B n P"] | None = None,
        words: UInt32[Array, "B 2"] | None = None,
    ) -> Float[Array, "B n D"]:
        """Give tokens of the same width, layer-normalised."""
        plan, rate = self.plan, self.plan.transformer_dropout
        for i in range(plan.transformer_layers):
            seen = nn.LayerNorm(name=f"attention_norm_{i}")(x)
            found = Attention(plan, i, name=f"attention_{i}")(seen, positions, words)
            x = x + dropped(found, words, 3 * i + 1, rate)
            seen = nn.LayerNorm(name=f"forward_norm_{i}")(x)
            wide = nn.Dense(
                plan.transformer_intermediate_size,
                kernel_init=initialiser(plan, plan.hidden_gain), name=f"forward_in_{i}",
            )(seen)  # fmt: skip
            found = nn.Dense(
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
        """Give the last hidden layer."""
        plan = self.plan
        for i in range(self.depth):
            kernel_init = initialiser(plan, plan.hidden_gain)
            x = nn.Dense(self.width, kernel_init=kernel_init, name=f"dense_{i}")(x)
            if plan.layer_norm:
                x = nn.LayerNorm(name=f"norm_{i}")(x)
            x = ACTIVATIONS[plan.activation](x)
        return x
