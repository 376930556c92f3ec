"""The order in which an epoch trains on the rows of a rollout (steps, or whole segments).

Rows are permuted in each epoch. With priorities, they are first drawn once per rollout, with
replacement. Rows with larger advantages are drawn more often and get smaller weights (Schaul et
al. 2016, equations 1 and 2).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .masking import RowWeights
from .pytree import Pytree, pytree


def permutation(key: Array, size: int) -> Int[Array, " N"]:
    """Return a random permutation of 0 .. size-1, computed by sorting random words once.

    The low bits of each word are the index, and the high bits are random. Sorting single words is
    several times faster than `jax.random.permutation`, which sorts key-value pairs twice.

    Words with equal high bits keep their order. On average, a row shares its high bits with one
    other row if there are 2^16 rows, and with 256 other rows if there are 2^20. Only rows at the
    boundary between two minibatches are affected.
    """
    bits = max(1, (size - 1).bit_length())
    low = np.uint32((1 << bits) - 1)
    words = (jax.random.bits(key, (size,)) & ~low) | jnp.arange(size, dtype=jnp.uint32)
    return (jnp.sort(words) & low).astype(jnp.int32)


_LEAST = 1e-6  # added to |A|, so that every row can be drawn


def probabilities(advantage: Float[Array, "N *T"], alpha: Float[Array, ""]) -> Float[Array, " N"]:
    """Return P(i) = p_i / sum p, p_i = (|A|_i + 1e-6)^alpha; a segment sums |A| over its steps.

    If alpha is above 1, powers are taken of |A|_i / max |A|, which cannot overflow.
    """
    size = _advantage_sizes(advantage)
    size = jnp.where(alpha > 1.0, size / jnp.max(size), size)
    weight = size**alpha
    return weight / jnp.sum(weight)


def priorities(advantage: Float[Array, "N *T"], alpha: Float[Array, ""]) -> Float[Array, " N"]:
    return _advantage_sizes(advantage) ** alpha


def _advantage_sizes(advantage: Float[Array, "N *T"]) -> Float[Array, " N"]:
    return jnp.sum(jnp.abs(advantage).reshape((advantage.shape[0], -1)), axis=1) + _LEAST


def importance_weights(
    probability: Float[Array, " N"], beta: Float[Array, ""]
) -> Float[Array, " N"]:
    return (probability * probability.shape[0]) ** -beta


def draw_rows(
    key: PRNGKeyArray, probability: Float[Array, " N"], count: int
) -> Int[Array, " count"]:
    cumulative = jnp.cumsum(probability)
    point = jax.random.uniform(key, (count,), jnp.float32) * cumulative[-1]
    rows = jnp.searchsorted(cumulative, point, side="right")
    return jnp.minimum(rows, probability.shape[0] - 1).astype(jnp.int32)


def choose_rows(
    key: PRNGKeyArray, advantage: Float[Array, "N *T"], alpha: Float[Array, ""], count: int
) -> Int[Array, " count"]:
    """Return the rows of one update's epochs, drawn by priority (alpha 0: equally often)."""
    rows = advantage.shape[0]
    plain = jnp.arange(count, dtype=jnp.int32) % rows
    if count != rows:
        plain = permutation(jax.random.fold_in(key, 1), rows)[plain]
    drawn = draw_rows(key, probabilities(advantage, alpha), count)
    return jnp.where(alpha > 0.0, drawn, plain)


@pytree
class Segments(Pytree):
    """Whole segments for V-trace, [B, T] or [N, T]; the fields are those of `Trajectory`."""

    reward: Float[Array, "B T"]  # as used for learning
    terminated: Bool[Array, "B T"]
    truncated: Bool[Array, "B T"]
    bootstrap: Float[Array, "B T"]


@pytree
class Samples(Pytree):
    """Rows of a rollout, [B, ...] or [N, ...]; with whole segments [B, T, ...] or [N, T, ...]."""

    # as the network saw it; for V-trace, row T is the observation after the rollout
    observation: Any
    action: Array
    mask: Array | None  # valid actions
    log_prob: Float[Array, "B *T"]  # under the policy that took the action
    value: Float[Array, "B *T"]  # V_old
    advantage: Float[Array, "B *T"]
    # R = A + V_old, with the A of the critic's own lambda if it has one
    target: Float[Array, "B *T"]
    noise: Array | None = None  # from `Family.entropy_noise`
    # whether an episode starts at this step, for networks with a memory
    first: Bool[Array, "B T"] | None = None
    carry: Any = ()  # the memory before the segment, [B, 1, ...]
    weights: RowWeights | None = None  # None without masks
    # weight of the row in the policy loss; None without priorities
    importance: Float[Array, " B"] | None = None
    segments: Segments | None = None  # for V-trace
    # the shadows' advantages, already subtracted from `advantage`
    shadow: Float[Array, "B *T"] | None = None
