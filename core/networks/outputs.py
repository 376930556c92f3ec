"""What every actor-critic network gives."""

from __future__ import annotations

from jaxtyping import Array, Float

from ..pytree import Pytree, pytree

__all__ = ["Outputs"]


@pytree
class Outputs(Pytree):
    """Outputs of one forward pass.

    Attributes:
        policy: logits, or means, [..., A].
        value: V(s), [...].
    """

    policy: Float[Array, "... A"]
    value: Float[Array, "..."]
