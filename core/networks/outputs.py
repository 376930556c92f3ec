"""What every actor-critic network gives."""

from __future__ import annotations

from flax import struct
from jaxtyping import Array, Float

__all__ = ["Outputs"]


@struct.dataclass
class Outputs:
    """Outputs of one forward pass.

    Attributes:
        policy: logits, or means, [..., A].
        value: V(s), [...].
    """

    policy: Float[Array, "... A"]
    value: Float[Array, "..."]
