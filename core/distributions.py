"""Action distributions over the outputs of a policy head, as small frozen pytrees.

A distribution is sampled from random numbers drawn beforehand (`noise_shape`, `noise`), because
drawing those of a whole rollout at once is cheaper than splitting keys step by step.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .pytree import Pytree, pytree, static

__all__ = [
    "Categorical",
    "Distribution",
    "Gaussian",
    "MultiCategorical",
    "draw_entropy_noise",
    "draw_noise",
]

BETA_PROPOSALS = 6
"""Proposals of a Gamma draw, of which the first accepted one is taken."""

ENTROPY_DRAWS = 2
"""Draws that a sampled entropy is the mean of."""

_MASKED = -1e9  # finite: -inf gives NaN gradients of the entropy
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@runtime_checkable
class Distribution(Protocol):
    """Distribution of one action; leading axes are batch axes.

    An action is what `log_prob` takes: what the environment takes may be a function of it (see
    `actions.environment_action`).
    """

    def sample(self, noise: Array) -> Array:
        """Return an action from noise made by `draw_noise`."""
        ...

    def log_prob(self, action: Any) -> Array:
        """Return the log probability (density) of an action."""
        ...

    def entropy(self, noise: Any = None) -> Array:
        """Return the entropy in nats; where it is sampled, from noise of `draw_entropy_noise`."""
        ...

    def mode(self) -> Array:
        """Return the greedy action."""
        ...


@pytree
class Categorical(Pytree):
    """Categorical over A actions.

    Attributes:
        log_probs: normalised [..., A].
        selects: the one of an action is summed out of all, whose gradient a GPU makes together
            with that of the normalisation; else looked up, whose gradient is scattered.
    """

    log_probs: Float[Array, "... A"]
    selects: bool = static(default=False)

    @classmethod
    def make(
        cls,
        logits: Float[Array, "... A"],
        mask: Bool[Array, "... A"] | None = None,
        selects: bool = False,
    ) -> Categorical:
        """Normalise logits; masked actions get probability 0 and no gradient.

        Where a mask allows nothing, it is ignored: the raw policy acts and the action fails in
        the environment.
        """
        if mask is not None:
            usable = mask | ~jnp.any(mask, axis=-1, keepdims=True)
            logits = jnp.where(usable, logits, _MASKED)
        return cls(jax.nn.log_softmax(logits, axis=-1), selects)

    def sample(self, noise: Float[Array, "..."]) -> Int[Array, "..."]:
        """Invert the cumulative distribution at `noise` in [0, 1); never gives a masked action."""
        probs = jnp.exp(self.log_probs)
        possible = probs > 0.0
        # Sums of more than 256 terms are trees: a masked action may seem to add a rounding error
        # (and later sums may be smaller), so that only possible actions are looked at.
        cumulative = jnp.cumsum(probs, axis=-1)
        total = jnp.max(jnp.where(possible, cumulative, 0.0), axis=-1)
        point = (noise * total)[..., None]  # below the total, which one of them reaches
        places = jax.lax.broadcasted_iota(jnp.int32, probs.shape, probs.ndim - 1)
        above = jnp.where(possible & (cumulative > point), places, probs.shape[-1] - 1)
        return jnp.min(above, axis=-1)

    def log_prob(self, action: Int[Array, "..."]) -> Float[Array, "..."]:
        """Return log pi(action)."""
        if self.selects:
            places = jax.lax.broadcasted_iota(action.dtype, self.log_probs.shape, action.ndim)
            chosen = jnp.where(places == action[..., None], self.log_probs, 0.0)
            return jnp.sum(chosen, axis=-1)
        return jnp.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        """Return -sum p log p."""
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs, axis=-1)

    def mode(self) -> Int[Array, "..."]:
        """Return the most probable action (the first of equals)."""
        return jnp.argmax(self.log_probs, axis=-1).astype(jnp.int32)


@pytree
class MultiCategorical(Pytree):
    """C independent categoricals, one a component of the action, padded to the widest.

    `parts.log_probs` is [..., C, widest]; the padding has probability 0.
    """

    parts: Categorical

    @classmethod
    def make(
        cls,
        logits: Float[Array, "... P"],
        sizes: tuple[int, ...],
        mask: Bool[Array, "... P"] | None = None,
        selects: bool = False,
    ) -> MultiCategorical:
        """Normalise each component's logits; masks work in each as in `Categorical.make`.

        Args:
            logits: of all components, one after the other; P is the sum of sizes.
            sizes: actions of each component.
            mask: valid actions of each component, in the same order.
            selects: as in `Categorical`.
        """
        valid = None if mask is None else _by_component(mask, sizes, False)
        return cls(Categorical.make(_by_component(logits, sizes, _MASKED), valid, selects))

    def sample(self, noise: Float[Array, "... C"]) -> Int[Array, "... C"]:
        """Draw each component by its own number in [0, 1)."""
        return self.parts.sample(noise)

    def log_prob(self, action: Int[Array, "... C"]) -> Float[Array, "..."]:
        """Return the sum of the components' log probabilities."""
        return jnp.sum(self.parts.log_prob(action), axis=-1)

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        """Return the sum of the components' entropies."""
        return jnp.sum(self.parts.entropy(), axis=-1)

    def mode(self) -> Int[Array, "... C"]:
        """Return the most probable action of each component."""
        return self.parts.mode()


def _by_component(flat: Array, sizes: tuple[int, ...], fill: float | bool) -> Array:
    """Return [..., C, widest] from components one after the other, padded with `fill`."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    lead = [(0, 0)] * (flat.ndim - 1)
    parts = [
        jnp.pad(flat[..., end - size : end], [*lead, (0, max(sizes) - size)], constant_values=fill)
        for end, size in zip(ends, sizes, strict=True)
    ]
    return jnp.stack(parts, axis=-2)


@pytree
class Gaussian(Pytree):
    """Diagonal Gaussian by mean and log standard deviation [..., D].

    Its actions are unbounded; the environment adapter clips them to the action box (as SB3 does).
    """

    mean: Float[Array, "... D"]
    log_std: Float[Array, "... D"]

    def sample(self, noise: Float[Array, "... D"]) -> Float[Array, "... D"]:
        """Return mean + std * noise, noise standard normal."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, action: Float[Array, "... D"]) -> Float[Array, "..."]:
        """Return the log density, summed over components."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z * z - self.log_std - _HALF_LOG_2PI, axis=-1)

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        """Return sum(log_std + 0.5 log(2 pi e))."""
        return jnp.sum(self.log_std + (0.5 + _HALF_LOG_2PI), axis=-1)

    def mode(self) -> Float[Array, "... D"]:
        """Return the mean."""
        return self.mean


def draw_noise(
    kind: str, key: PRNGKeyArray, batch: tuple[int, ...], action_shape: tuple[int, ...]
) -> Array:
    """Draw what `sample` needs for a batch.

    Uniform [batch, *action_shape] for integers, standard normal for Gaussians; for a Beta
    [batch, D, 2, J, 2], a normal and a uniform number for each of J proposals of two Gamma draws.
    """
    if kind in ("categorical", "multi_discrete"):
        return jax.random.uniform(key, (*batch, *action_shape), jnp.float32)
    if kind == "beta":
        shape = (*batch, *action_shape, 2, BETA_PROPOSALS)
        normal = jax.random.normal(jax.random.fold_in(key, 0), shape, jnp.float32)
        uniform = jax.random.uniform(jax.random.fold_in(key, 1), shape, jnp.float32)
        return jnp.stack([normal, uniform], axis=-1)
    return jax.random.normal(key, (*batch, *action_shape), jnp.float32)


def draw_entropy_noise(
    kind: str, key: PRNGKeyArray, batch: tuple[int, ...], action_shape: tuple[int, ...]
) -> Array | None:
    """Draw what `entropy` needs for a batch, standard normal [batch, K, D], or None if nothing."""
    if kind != "tanh_gaussian":
        return None
    return jax.random.normal(key, (*batch, ENTROPY_DRAWS, *action_shape), jnp.float32)
