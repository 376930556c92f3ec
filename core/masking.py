"""Action masks: the probability of valid actions, and weights of rows with few valid actions.

The valid mass of a state is the raw (unmasked) policy's probability of its valid actions. If this
mass is nearly 0, the masked policy learns from rounding errors. If an action has several
components, all must be valid. `sizes` contains the number of choices for each action component;
None means a single choice. Logits and masks are concatenated over the components.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .hypers import Hypers
from .pytree import Pytree, pytree

Sizes = tuple[int, ...] | None

_MASKED = -1e9  # finite: see distributions.py
_MOST_ACTIONS = 2.0**24  # largest count, and largest `masking_gate_min_actions`


@pytree
class RowWeights(Pytree):
    """Row weights from 0 to 1; all except `policy` are 0 or 1."""

    # in the policy loss, the entropy bonus and the statistics of the advantages
    policy: Float[Array, "..."]
    value: Float[Array, "..."]  # in the value loss, the KL and the statistics of the ratios
    mass: Float[Array, "..."]  # in the valid-mass loss
    choice: Float[Array, "..."]  # in statistics over steps with two or more valid actions


def log_valid_mass(
    logits: Float[Array, "*batch A"], mask: Bool[Array, "*batch A"], sizes: Sizes = None
) -> Float[Array, "*batch"]:
    """Return the raw policy's log valid mass, summed over components (0 if no action is valid)."""
    masses = []
    for part, valid in zip(
        _split_components(logits, sizes), _split_components(mask, sizes), strict=True
    ):
        usable = valid | ~jnp.any(valid, axis=-1, keepdims=True)
        masked = jnp.where(usable, part, _MASKED)
        masses.append(jax.nn.logsumexp(masked, axis=-1) - jax.nn.logsumexp(part, axis=-1))
    return masses[0] if sizes is None else jnp.sum(jnp.stack(masses), axis=0)


def _split_components(flat: Array, sizes: Sizes) -> list[Array]:
    if sizes is None:
        return [flat]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [flat[..., end - size : end] for end, size in zip(ends, sizes, strict=True)]


def valid_mass_of(
    logits: Float[Array, "*batch A"], mask: Bool[Array, "*batch A"], sizes: Sizes = None
) -> Float[Array, "*batch"]:
    some = valid_actions(mask, sizes) > 0
    return jnp.where(some, jnp.exp(log_valid_mass(logits, mask, sizes)), 0.0)


def valid_actions(mask: Bool[Array, "*batch A"], sizes: Sizes = None) -> Int[Array, "*batch"]:
    counts = [jnp.sum(part, axis=-1, dtype=jnp.int32) for part in _split_components(mask, sizes)]
    if sizes is None:
        return counts[0]
    total = jnp.ones_like(counts[0])
    for count in counts:  # float32 is exact up to the limit, and above it only the order matters
        product = total.astype(jnp.float32) * count.astype(jnp.float32)
        total = jnp.minimum(product, _MOST_ACTIONS).astype(jnp.int32)
    return total


def valid_fraction(mask: Bool[Array, "*batch A"], sizes: Sizes = None) -> Float[Array, "*batch"]:
    parts = [
        jnp.mean(part.astype(jnp.float32), axis=-1) for part in _split_components(mask, sizes)
    ]
    return parts[0] if sizes is None else jnp.prod(jnp.stack(parts), axis=0)


def are_valid(
    mask: Bool[Array, "*batch A"], action: Int[Array, "..."], sizes: Sizes = None
) -> Bool[Array, "*batch"]:
    if sizes is None:
        return jnp.take_along_axis(mask, action[..., None], axis=-1)[..., 0]
    each = [
        jnp.take_along_axis(part, action[..., i : i + 1], axis=-1)[..., 0]
        for i, part in enumerate(_split_components(mask, sizes))
    ]
    return jnp.all(jnp.stack(each), axis=0)


def row_weights(
    hypers: Hypers,
    mask: Bool[Array, "*batch A"],
    valid_mass: Float[Array, "*batch"],
    sizes: Sizes = None,
) -> RowWeights:
    """Return the weights of one lane's rows; `valid_mass` belongs to the acting policy.

    With `masking_gating`, rows with fewer valid actions than `masking_gate_min_actions` do not
    contribute to the policy and entropy losses, and rows without any do not contribute to the
    value loss. With `masking_damping`, the remaining rows have weight min(1, valid mass /
    valid_mass_target). If `action_masking` is off, every row counts in full.
    """
    count = valid_actions(mask, sizes)
    some = count > 0
    gated = (hypers.masking_gating > 0.0) & (hypers.action_masking > 0.0)
    damped = (hypers.masking_damping > 0.0) & (hypers.action_masking > 0.0)
    open_ = jnp.where(gated, count >= hypers.masking_gate_min_actions, True)
    damping = jnp.where(damped, jnp.minimum(1.0, valid_mass / hypers.valid_mass_target), 1.0)
    return RowWeights(
        policy=open_.astype(jnp.float32) * damping,
        value=jnp.where(gated, some, True).astype(jnp.float32),
        mass=some.astype(jnp.float32),
        choice=(count > 1).astype(jnp.float32),
    )
