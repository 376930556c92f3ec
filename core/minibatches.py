"""Prioritised sampling: rows with larger advantages are drawn more often, and weigh less for it.

Schaul et al. 2016 (equations 1 and 2), over the rows of one rollout: single steps, or whole
segments. Drawn once a rollout, with replacement.
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
    """Return a random permutation of 0 .. size-1 by one sort of random words.

    The low bits of each word hold the index, the high bits are random; sorting single words is
    several times faster than `jax.random.permutation`, which sorts keys with values, twice.

    Words with equal high bits keep their order. Of 2^16 rows each shares them with one other on
    average, of 2^20 with 256; cut into minibatches, only those at a cut are not placed at random.
    """
    bits = max(1, (size - 1).bit_length())
    low = np.uint32((1 << bits) - 1)
    words = (jax.random.bits(key, (size,)) & ~low) | jnp.arange(size, dtype=jnp.uint32)
    return (jnp.sort(words) & low).astype(jnp.int32)


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


@pytree
class Segments(Pytree):
    """What V-trace needs of whole segments, [B, T] or [N, T].

    Attributes:
        reward: as the learner sees it.
        terminated: the episode ended by its rules.
        truncated: it was cut.
        bootstrap: V of the final observation where it was cut, when it was cut.
    """

    reward: Float[Array, "B T"]
    terminated: Bool[Array, "B T"]
    truncated: Bool[Array, "B T"]
    bootstrap: Float[Array, "B T"]


@pytree
class Samples(Pytree):
    """Rows of a rollout, [B, ...] or [N, ...]; with whole segments [B, T, ...] or [N, T, ...].

    Attributes:
        observation: as the network saw it (normalised); with V-trace that after the rollout is
            the last of T + 1.
        action: taken.
        mask: valid actions then, or None.
        log_prob: of the action under the policy that took it.
        value: V_old.
        advantage: A.
        target: R = A + V_old, with the A of the critic's own lambda where it has one.
        noise: for entropies that are sampled, or None (see `distributions.draw_entropy_noise`).
        first: for networks with a memory: an episode begins at this step, [B, T].
        carry: likewise: the memory before the segment, [B, 1, ...].
        weights: what rows count for, by their valid actions; None without masks.
        importance: weight of the row in the policy loss, [B] or [N]; None without priorities.
        segments: for V-trace, else None.
        shadow: what was subtracted from A for the shadows, already in `advantage`; None without.
    """

    observation: Any
    action: Array
    mask: Array | None
    log_prob: Float[Array, "B *T"]
    value: Float[Array, "B *T"]
    advantage: Float[Array, "B *T"]
    target: Float[Array, "B *T"]
    noise: Array | None = None
    first: Bool[Array, "B T"] | None = None
    carry: Any = ()
    weights: RowWeights | None = None
    importance: Float[Array, " B"] | None = None
    segments: Segments | None = None
    shadow: Float[Array, "B *T"] | None = None
