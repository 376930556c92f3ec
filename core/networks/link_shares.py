"""What a separate critic may see of links: how full each one is, in the place of every slot.

What a network is worth before a request arrives depends mostly on how full its links are; a critic
that sees every slot does not find that out in 100,000 env steps (docs/networks.md).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["SHARES", "shares"]

SHARES = "shares"
"""`link_critic_sees` where the critic gets `shares`."""


def shares(slots: Float[Array, "*B S"]) -> Float[Array, "*B 1"]:
    """Return 4 u - 2, where u is the share of the last axis above 0.

    That is the logit of u to first order at one half, so that links as full as they usually are
    have numbers around 0 that differ by about 1.

    >>> shares(jnp.array([[0.0, 0.3, 0.0, 0.0], [0.5, 0.3, 0.1, 1.0]])).tolist()
    [[-1.0], [2.0]]
    """
    used = jnp.mean((slots > 0.0).astype(slots.dtype), axis=-1, keepdims=True)
    return 4.0 * used - 2.0
