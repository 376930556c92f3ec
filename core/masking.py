"""Valid actions: how much of the raw policy they hold, and how much a row with few of them counts.

The valid mass of a state is the probability that the raw (unmasked) policy gives to its valid
actions. A masked policy whose raw policy leaves it no mass learns from rounding errors.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .hypers import Hypers
from .pytree import Pytree, pytree

__all__ = ["RowWeights", "log_valid_mass", "row_weights", "valid_mass_of"]

_MASKED = -1e9  # finite: see distributions.py


@pytree
class RowWeights(Pytree):
    """What each row counts for, in 0 .. 1.

    Attributes:
        policy: in the policy loss and the entropy bonus.
        value: in the value loss, the KL and the statistics of the advantages (0 or 1).
        mass: in the valid-mass loss (0 or 1).
    """

    policy: Float[Array, "..."]
    value: Float[Array, "..."]
    mass: Float[Array, "..."]


def log_valid_mass(
    logits: Float[Array, "*batch A"], mask: Bool[Array, "*batch A"]
) -> Float[Array, "*batch"]:
    """Give log sum over valid actions of the raw policy: logsumexp(masked) - logsumexp(all).

    Where nothing is valid, the raw policy acts, and it is 0.
    """
    usable = mask | ~jnp.any(mask, axis=-1, keepdims=True)
    masked = jnp.where(usable, logits, _MASKED)
    return jax.nn.logsumexp(masked, axis=-1) - jax.nn.logsumexp(logits, axis=-1)


def valid_mass_of(
    logits: Float[Array, "*batch A"], mask: Bool[Array, "*batch A"]
) -> Float[Array, "*batch"]:
    """Give the valid mass itself; 0 where nothing is valid."""
    return jnp.where(jnp.any(mask, axis=-1), jnp.exp(log_valid_mass(logits, mask)), 0.0)


def row_weights(
    hypers: Hypers, mask: Bool[Array, "*batch A"], valid_mass: Float[Array, "*batch"]
) -> RowWeights:
    """Give what the rows of one lane count for.

    With `masking_gating`, rows with fewer valid actions than `masking_gate_min_actions` give no
    gradient to policy and entropy, and rows without any give none to the value either. With
    `masking_damping`, the others weigh min(1, valid mass / valid_mass_target). Where
    `action_masking` is off, every row counts in full.

    Args:
        hypers: of the lane.
        mask: valid actions.
        valid_mass: of the policy that acted.
    """
    count = jnp.sum(mask, axis=-1, dtype=jnp.int32)
    some = count > 0
    gated = (hypers.masking_gating > 0.0) & (hypers.action_masking > 0.0)
    damped = (hypers.masking_damping > 0.0) & (hypers.action_masking > 0.0)
    open_ = jnp.where(gated, count >= hypers.masking_gate_min_actions, True)
    damping = jnp.where(damped, jnp.minimum(1.0, valid_mass / hypers.valid_mass_target), 1.0)
    return RowWeights(
        policy=open_.astype(jnp.float32) * damping,
        value=jnp.where(gated, some, True).astype(jnp.float32),
        mass=some.astype(jnp.float32),
    )
