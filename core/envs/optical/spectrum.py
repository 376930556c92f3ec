"""The spectrum of a network: which slots are in use, and for how long.

There are two tables. The occupancy, as packed bits per link, determines whether a request is
accepted. The `Clock` contains the remaining time of every slot. Times are int32 ticks relative to
the current request, so nothing is rounded. A service enters the time table one step late, from
bits kept in the state. If it entered within the same step, XLA would recompute those bits for
every slot, which would be five times slower.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, UInt32

from ...pytree import Pytree, pytree

NONE = 1 << 20  # result of `first_set` if no bit is set: larger than any slot number

ONE = np.uint32(1)
ZERO = np.uint32(0)
ALL = np.uint32(0xFFFFFFFF)
TURNS = 2


def word_count(slots: int) -> int:
    return -(-slots // 32)


def band_words(slots: int) -> np.ndarray:
    bits = np.zeros(word_count(slots) * 32, bool)
    bits[:slots] = True
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


def _word_offsets(words: int) -> Int[Array, " W"]:
    return 32 * jnp.arange(words, dtype=jnp.int32)


def first_set(words: UInt32[Array, "*batch W"]) -> Int[Array, "*batch"]:
    offsets = _word_offsets(words.shape[-1]).reshape((1,) * (words.ndim - 1) + (-1,))
    return jnp.where(words != ZERO, _lowest_set_bit(words) + offsets, NONE).min(-1)


def last_set(words: UInt32[Array, "*batch W"]) -> Int[Array, "*batch"]:
    offsets = _word_offsets(words.shape[-1]).reshape((1,) * (words.ndim - 1) + (-1,))
    return jnp.where(words != ZERO, _highest_set_bit(words) + offsets, -1).max(-1)


def nearest_set(
    words: UInt32[Array, "*batch W"], slots: int
) -> tuple[Int[Array, "*batch S"], Int[Array, "*batch S"]]:
    """Return each slot's nearest set bit at or below it (else -1) and at or above it (else S)."""
    below, above = [], []
    nearest = jnp.full_like(words[..., :1], -1, jnp.int32)
    for word in range(words.shape[-1]):
        own, places = (
            words[..., word : word + 1],
            _bit_positions(words.ndim, min(32, slots - 32 * word)),
        )
        inside = own & (ALL >> (np.uint32(31) - places))
        below.append(jnp.where(inside != ZERO, 32 * word + _highest_set_bit(inside), nearest))
        nearest = jnp.where(own != ZERO, 32 * word + _highest_set_bit(own), nearest)
    nearest = jnp.full_like(words[..., :1], slots, jnp.int32)
    for word in reversed(range(words.shape[-1])):
        own, places = (
            words[..., word : word + 1],
            _bit_positions(words.ndim, min(32, slots - 32 * word)),
        )
        inside = own & (ALL << places)
        above.append(jnp.where(inside != ZERO, 32 * word + _lowest_set_bit(inside), nearest))
        nearest = jnp.where(own != ZERO, 32 * word + _lowest_set_bit(own), nearest)
    return jnp.concatenate(below, -1), jnp.concatenate(above[::-1], -1)


def _bit_positions(dims: int, width: int) -> UInt32[Array, "*ones n"]:
    return jnp.arange(width, dtype=jnp.uint32).reshape((1,) * (dims - 1) + (width,))


def _lowest_set_bit(words: UInt32[Array, "*batch"]) -> Int[Array, "*batch"]:
    """Return the index of the lowest set bit of each word (32 if none)."""
    return lax.population_count((words & (~words + ONE)) - ONE).astype(jnp.int32)


def _highest_set_bit(words: UInt32[Array, "*batch"]) -> Int[Array, "*batch"]:
    """Return the index of the highest set bit of each word (-1 if none)."""
    return 31 - lax.clz(words).astype(jnp.int32)


def count_bits(words: UInt32[Array, "*batch W"]) -> Int[Array, "*batch"]:
    return lax.population_count(words).astype(jnp.int32).sum(-1)


def _mask_below(words: int, position: Int[Array, ""]) -> UInt32[Array, " W"]:
    inside = jnp.clip(position - _word_offsets(words), 0, 32)
    partial = (ONE << jnp.minimum(inside, 31).astype(jnp.uint32)) - ONE
    return jnp.where(inside >= 32, ALL, partial)


def window(words: int, start: Int[Array, ""], length: Int[Array, ""]) -> UInt32[Array, " W"]:
    """Return W words with bits start .. start+length-1 set, as far as they fit."""
    return _mask_below(words, start + length) & ~_mask_below(words, start)


def shift_up(words: UInt32[Array, "*batch W"]) -> UInt32[Array, "*batch W"]:
    """Move every slot's bit up by one, and set the lowest bit to 0."""
    below = jnp.concatenate([jnp.zeros_like(words[..., :1]), words[..., :-1]], -1)
    return (words << ONE) | (below >> np.uint32(31))


def starts_of_free_runs(
    free: UInt32[Array, "K W"], need: Int[Array, " K"], slots: int, unrolled: bool = False
) -> UInt32[Array, "K W"]:
    """Return the bits of slots where a run of `need` free slots starts.

    The known run length doubles each round (x &= x >> s), so about log2(slots) rounds suffice for
    every need up to `slots`; a need of 0 or 1 returns `free` unchanged.
    """
    # The rounds run in a loop of two iterations: on a CPU, XLA would fuse straight-line code into
    # each reader of the result and repeat it for every slot read. On a GPU an iteration costs
    # three launches, so the rounds are unrolled there, and a barrier keeps them in one kernel.
    rounds, known = 0, 1
    while known < slots:
        rounds, known = rounds + 1, known + min(known, 31)
    per_turn = -(-rounds // TURNS)

    def turn(
        number: Int[Array, ""] | int, carry: tuple[UInt32[Array, "K W"], Int[Array, " K"]]
    ) -> tuple[UInt32[Array, "K W"], Int[Array, " K"]]:
        words, have = [carry[0][:, w] for w in range(free.shape[-1])], carry[1]
        for _ in range(per_turn):
            step = jnp.clip(need - have, 0, jnp.minimum(have, 31))
            shift = step.astype(jnp.uint32)
            above = [*words[1:], jnp.zeros_like(words[0])]
            words = [
                word & ((word >> shift) | ((next_word << ONE) << (np.uint32(31) - shift)))
                for word, next_word in zip(words, above, strict=True)
            ]
            have = have + step
        return jnp.stack(words, -1), have

    served = jnp.where((need <= slots)[:, None], free, ZERO)
    start = (served, jnp.ones_like(need))
    if unrolled:
        return lax.optimization_barrier(turn(1, turn(0, start))[0])
    return lax.fori_loop(0, TURNS, turn, start)[0]


def unpack(words: UInt32[Array, "*batch W"], slots: int) -> Bool[Array, "*batch S"]:
    columns = []
    for word in range(words.shape[-1]):  # word by word: half the cost of one reshape
        places = _bit_positions(words.ndim, min(32, slots - 32 * word))
        columns.append((words[..., word : word + 1] >> places) & ONE)
    return jnp.concatenate(columns, -1) != ZERO


def pack(flags: Bool[Array, "*batch S"]) -> UInt32[Array, "*batch W"]:
    *batch, slots = flags.shape
    words = word_count(slots)
    padded = jnp.concatenate([flags, jnp.zeros((*batch, words * 32 - slots), bool)], -1)
    padded = padded.reshape(*batch, words, 32)
    places = jnp.arange(32, dtype=jnp.uint32).reshape((1,) * (len(batch) + 1) + (32,))
    return (padded.astype(jnp.uint32) << places).sum(-1, dtype=jnp.uint32)


# Ticks in one mean holding time: as fine as float32 draws, and 127 means fit into int32
TICKS_PER_HOLDING = 2.0**24

PLANES = np.arange(32, dtype=np.uint32)[:, None]
PLANE_GROUPS = 2


@pytree
class Clock(Pytree):
    """How long each slot stays in use; X = links * W, with W words of 32 slots per link."""

    # time left at the previous request, without `placed`; 0 means free; int32 [32, X], slot 32 w +
    # b of link l at [b, l * W + w]
    ticks: Int[Array, "32 X"]
    placed: UInt32[Array, " X"]  # bits of the service placed last, not yet in `ticks`
    placed_ticks: Int[Array, ""]  # its holding time
    elapsed: Int[Array, ""]  # ticks from the previous request to the current one


@pytree
class Spectrum(Pytree):
    occupancy: UInt32[Array, " X"]  # bits taken now
    clock: Clock | None  # None where services never end


def empty_spectrum(words: int, services_end: bool) -> Spectrum:
    none, zero = jnp.zeros(words, jnp.uint32), jnp.zeros((), jnp.int32)
    if not services_end:
        return Spectrum(none, None)
    return Spectrum(none, Clock(jnp.zeros((32, words), jnp.int32), none, zero, zero))


def advance(
    spectrum: Spectrum,
    placed: UInt32[Array, " X"],
    holding: Int[Array, ""],
    elapsed: Int[Array, ""],
    unrolled: bool = False,
) -> Spectrum:
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
    """Return the bits of slots with more than `elapsed` ticks left, and of new services."""
    # The loop over two groups of planes keeps XLA from fusing the sum into the next reader of the
    # occupancy, which would repeat it for every slot read (on a CPU a step costs less than half).
    # On a GPU a barrier does the same, and the sum is part of the kernel that writes the table.
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
    entered = ((clock.placed[None, :] >> PLANES) & ONE) != ZERO
    ticks = jnp.where(entered, clock.placed_ticks, clock.ticks)
    return jnp.maximum(ticks - clock.elapsed, 0)


def slot_ticks(clock: Clock, links: int, slots: int) -> Int[Array, "links S"]:
    table = _time_left(clock).reshape(32, links, -1)
    return table.transpose(1, 2, 0).reshape(links, -1)[:, :slots]
