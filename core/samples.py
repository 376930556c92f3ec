"""What a learner takes from a rollout: rows of single steps, or whole segments of one environment.

Rows hold what does not change while the networks do; what the current parameters say of them is
for the losses.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Bool, Float

from .masking import RowWeights
from .pytree import Pytree, pytree

__all__ = ["Samples", "Segments"]


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
