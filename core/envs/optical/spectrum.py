"""The spectrum of one network: which slots are taken, and how long each of them stays taken.

Two tables: occupancy as packed bits per link, which decides every request, and the time left of
every slot, which only the clock touches. Times are int32 ticks relative to the current request,
so nothing is ever rounded and no run is too long. A service is entered in the time table one step
late, from bits kept in the state: inside one step XLA would recompute those bits for every slot of
the table (measured: five times slower).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int, UInt32

from ...pytree import Pytree, pytree
from .bits import ONE, ZERO

__all__ = ["TICKS_PER_HOLDING", "Clock", "Spectrum", "advance", "empty_spectrum", "slot_ticks"]

TICKS_PER_HOLDING = 2.0**24
"""Ticks in one mean holding time: as fine as float32 draws, and 127 means fit into int32."""

PLANES = np.arange(32, dtype=np.uint32)[:, None]
PLANE_GROUPS = 2


@pytree
class Clock(Pytree):
    """How long slots stay taken; X = links * W words, word l * W + w for slots 32 w .. of link l.

    Attributes:
        ticks: time left at the request before, without `placed`; 0 is free; int32 [32, X], slot
            32 w + b of link l at [b, l * W + w].
        placed: bits of the service placed last, not yet in `ticks`; uint32 [X].
        placed_ticks: its holding time; int32 [].
        elapsed: ticks from the request before to the current one; int32 [].
    """

    ticks: Int[Array, "32 X"]
    placed: UInt32[Array, " X"]
    placed_ticks: Int[Array, ""]
    elapsed: Int[Array, ""]


@pytree
class Spectrum(Pytree):
    """State of all slots.

    Attributes:
        occupancy: bits taken now; uint32 [X].
        clock: None where services never end.
    """

    occupancy: UInt32[Array, " X"]
    clock: Clock | None


def empty_spectrum(words: int, services_end: bool) -> Spectrum:
    """Return a spectrum of `words` words (X) with every slot free."""
    none, zero = jnp.zeros(words, jnp.uint32), jnp.zeros((), jnp.int32)
    clock = Clock(jnp.zeros((32, words), jnp.int32), none, zero, zero)
    return Spectrum(none, clock if services_end else None)


def advance(
    spectrum: Spectrum,
    placed: UInt32[Array, " X"],
    holding: Int[Array, ""],
    elapsed: Int[Array, ""],
    unrolled: bool = False,
) -> Spectrum:
    """Place a service now and let the clock run to the next request.

    Args:
        spectrum: at the current request.
        placed: the service's bits, all free until now; all 0 places nothing.
        holding: how long it stays, ticks.
        elapsed: ticks to the next request; a slot whose time left is not longer becomes free.
        unrolled: without loops, for a GPU.
    """
    if spectrum.clock is None:
        return Spectrum(spectrum.occupancy | placed, None)
    ticks = _time_left(spectrum.clock)
    entered = jnp.where(holding > elapsed, placed, ZERO)
    occupancy = _still_taken(ticks, elapsed, entered, unrolled)
    return Spectrum(occupancy, Clock(ticks, placed, holding, elapsed))


def _still_taken(
    ticks: Int[Array, "32 X"],
    elapsed: Int[Array, ""],
    entered: UInt32[Array, " X"],
    unrolled: bool,
) -> UInt32[Array, " X"]:
    """Return bits of the slots whose time left exceeds `elapsed`, and of what just entered.

    The loop over two groups of planes keeps XLA from melting the sum into whatever reads the
    occupancy next, which would repeat all of it for every slot read (measured on a CPU: less than
    half the price of a step). On a GPU a barrier does, and the sum is part of the kernel that
    writes the table.
    """
    if unrolled:
        stays = (ticks > elapsed).astype(jnp.uint32) << PLANES
        return lax.optimization_barrier(entered | stays.sum(0, dtype=jnp.uint32))
    height = 32 // PLANE_GROUPS

    def group(number: Int[Array, ""], bits: UInt32[Array, " X"]) -> UInt32[Array, " X"]:
        planes = lax.dynamic_slice_in_dim(ticks, number * height, height)
        stays = (planes > elapsed).astype(jnp.uint32) << PLANES[:height]
        return bits | (stays.sum(0, dtype=jnp.uint32) << (number * height).astype(jnp.uint32))

    return lax.fori_loop(0, PLANE_GROUPS, group, entered)


def _time_left(clock: Clock) -> Int[Array, "32 X"]:
    """Ticks of every slot at the current request."""
    entered = ((clock.placed[None, :] >> PLANES) & ONE) != ZERO
    ticks = jnp.where(entered, clock.placed_ticks, clock.ticks)
    return jnp.maximum(ticks - clock.elapsed, 0)


def slot_ticks(clock: Clock, links: int, slots: int) -> Int[Array, "links S"]:
    """Return time left per link and slot at the current request, 0 where free."""
    table = _time_left(clock).reshape(32, links, -1)
    return table.transpose(1, 2, 0).reshape(links, -1)[:, :slots]
