"""Prioritised sampling: rows with larger advantages are drawn more often, and weigh less for it.

Schaul et al. 2016 (equations 1 and 2), over the rows of one rollout: single steps, or whole
segments. Drawn once a rollout, with replacement.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .shuffle import permutation

__all__ = ["choose_rows", "draw_rows", "importance_weights", "priorities", "probabilities"]

_LEAST = 1e-6  # added to |A|, so that every row can be drawn


def probabilities(advantage: Float[Array, "N *T"], alpha: Float[Array, ""]) -> Float[Array, " N"]:
    """Return P(i) = p_i / sum p, p_i = (|A|_i + 1e-6)^alpha; |A|_i of a segment sums its steps.

    With alpha above 1 they are powers of the share of the largest, which cannot overflow.
    """
    size = _sizes(advantage)
    size = jnp.where(alpha > 1.0, size / jnp.max(size), size)
    weight = size**alpha
    return weight / jnp.sum(weight)


def priorities(advantage: Float[Array, "N *T"], alpha: Float[Array, ""]) -> Float[Array, " N"]:
    """Return p_i = (|A|_i + 1e-6)^alpha, whose shares `probabilities` are."""
    return _sizes(advantage) ** alpha


def _sizes(advantage: Float[Array, "N *T"]) -> Float[Array, " N"]:
    return jnp.sum(jnp.abs(advantage).reshape((advantage.shape[0], -1)), axis=1) + _LEAST


def importance_weights(
    probability: Float[Array, " N"], beta: Float[Array, ""]
) -> Float[Array, " N"]:
    """Return (N P(i))^-beta, which undoes at beta 1 what drawing by P does to a mean."""
    return (probability * probability.shape[0]) ** -beta


def draw_rows(
    key: PRNGKeyArray, probability: Float[Array, " N"], count: int
) -> Int[Array, " count"]:
    """Draw rows by their probability, with replacement: the cumulative distribution inverted."""
    cumulative = jnp.cumsum(probability)
    point = jax.random.uniform(key, (count,), jnp.float32) * cumulative[-1]
    rows = jnp.searchsorted(cumulative, point, side="right")
    return jnp.minimum(rows, probability.shape[0] - 1).astype(jnp.int32)


def choose_rows(
    key: PRNGKeyArray, advantage: Float[Array, "N *T"], alpha: Float[Array, ""], count: int
) -> Int[Array, " count"]:
    """Return the rows that the epochs of one update go over.

    Drawn by priority; at alpha 0 every row once, or, where `count` is not their number, as many of
    a permutation of them, over and over.
    """
    rows = advantage.shape[0]
    plain = jnp.arange(count, dtype=jnp.int32) % rows
    if count != rows:
        plain = permutation(jax.random.fold_in(key, 1), rows)[plain]
    drawn = draw_rows(key, probabilities(advantage, alpha), count)
    return jnp.where(alpha > 0.0, drawn, plain)
