"""The flat observation of an optical network, one bit a slot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from ...observations import Flagged
from ...pytree import Pytree, pytree, static
from .bits import ONE, unpack

__all__ = ["PackedObservation"]

# A number of four bits, times the first, has each of them at the end of a byte of its own.
_APART, _FOUR_BITS, _A_BIT_A_BYTE = (np.uint32(x) for x in (0x00204081, 0xF, 0x01010101))


@pytree
class PackedObservation(Pytree):
    """The flat observation in a twenty-fifth of the memory; `as_vector` gives the floats back.

    A rollout of flat observations spends more time moving them than the environment takes to step.

    Attributes:
        request: source, bitrate, destination; float32 [3].
        words: bits of the slots in use; uint32 [links, W].
        slots: S, of which each link has a bit.
        unrolled: it is expanded number by number, in one kernel of a GPU, not word by word.
    """

    request: Float[Array, "... 3"]
    words: UInt32[Array, "... links W"]
    slots: int = static()
    unrolled: bool = static(default=False)

    @property
    def lead(self) -> tuple[int, ...]:
        """The leading axes."""
        return self.request.shape[:-1]

    def as_vector(self) -> Float[Array, "... n"]:
        """Return the flat observation, float32 [..., 3 + links * S], for any leading axes."""
        if self.unrolled:
            return self._number_by_number()
        flags = unpack(self.words, self.slots).astype(jnp.float32)
        return jnp.concatenate([self.request, flags.reshape(*self.lead, -1)], -1)

    def _number_by_number(self) -> Float[Array, "... n"]:
        # On a GPU a concatenation asks every number which of its parts it is from.
        place = np.arange(self.slots)
        flags = (self._words_of(place) >> self._shifts(place)) & ONE
        flags = flags.astype(jnp.float32).reshape((*self.lead, -1))
        lead = ((0, 0),) * (flags.ndim - 1)
        behind = jnp.pad(flags, (*lead, (self.request.shape[-1], 0)))
        return behind + jnp.pad(self.request, (*lead, (0, flags.shape[-1])))

    def as_flags(self) -> Flagged:
        """Return the flat observation as numbers and flags, for any leading axes.

        On a GPU bytes take a quarter of the time to write that floats do, and a quarter of that
        where four of them are made at once, as one word.
        """
        lead = self.lead
        if self.slots % 4:
            place = np.arange(self.slots)
            flags = ((self._words_of(place) >> self._shifts(place)) & ONE).astype(jnp.int8)
            return Flagged(self.request, flags.reshape((*lead, -1)))
        place = np.arange(0, self.slots, 4)
        four = (self._words_of(place) >> self._shifts(place)) & _FOUR_BITS
        four = ((four * _APART) & _A_BIT_A_BYTE).reshape((*lead, -1))
        flags = jax.lax.bitcast_convert_type(four, jnp.int8).reshape((*lead, -1))
        return Flagged(self.request, flags)

    def _words_of(self, place: np.ndarray) -> UInt32[Array, "... links p"]:
        return self.words[..., place // 32]

    def _shifts(self, place: np.ndarray) -> np.ndarray:
        return (place % 32).astype(np.uint32).reshape((1,) * (self.words.ndim - 1) + (-1,))
