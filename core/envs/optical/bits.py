"""Spectrum as packed bits: slot s of a link is bit s % 32 of word s // 32 (W words a link).

Thirty-two slots per operation is what makes a step cheap; a search for n free slots in a row is a
few shifts instead of a loop over slots. Functions take one environment; callers map over them.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, UInt32

__all__ = [
    "NONE",
    "ONE",
    "band_words",
    "count_bits",
    "first_set",
    "last_set",
    "nearest_set",
    "pack",
    "shift_down",
    "shift_up",
    "starts_of_free_runs",
    "unpack",
    "window",
    "word_count",
]

NONE = 1 << 20
"""What `first_set` gives when no bit is set: larger than any slot number."""

ONE = np.uint32(1)
ZERO = np.uint32(0)
ALL = np.uint32(0xFFFFFFFF)
TURNS = 2


def word_count(slots: int) -> int:
    """W, words that hold `slots` bits.

    >>> word_count(100)
    4
    """
    return -(-slots // 32)


def band_words(slots: int) -> np.ndarray:
    """Return uint32 [W] with the bits 0 .. slots-1 set.

    >>> band_words(33).tolist()
    [4294967295, 1]
    """
    bits = np.zeros(word_count(slots) * 32, bool)
    bits[:slots] = True
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


def _offsets(words: int) -> Int[Array, " W"]:
    return 32 * jnp.arange(words, dtype=jnp.int32)


def first_set(words: UInt32[Array, "*batch W"]) -> Int[Array, "*batch"]:
    """Position of the lowest set bit, or `NONE`."""
    offsets = _offsets(words.shape[-1]).reshape((1,) * (words.ndim - 1) + (-1,))
    return jnp.where(words != ZERO, _lowest(words) + offsets, NONE).min(-1)


def last_set(words: UInt32[Array, "*batch W"]) -> Int[Array, "*batch"]:
    """Position of the highest set bit, or -1."""
    offsets = _offsets(words.shape[-1]).reshape((1,) * (words.ndim - 1) + (-1,))
    return jnp.where(words != ZERO, _highest(words) + offsets, -1).max(-1)


def nearest_set(
    words: UInt32[Array, "*batch W"], slots: int
) -> tuple[Int[Array, "*batch S"], Int[Array, "*batch S"]]:
    """For each slot the nearest set bit at or below it (-1 if none), and at or above it (else S).

    A slot's own word answers, or else what is known of the words on that side.
    """
    below, above = [], []
    nearest = jnp.full_like(words[..., :1], -1, jnp.int32)
    for word in range(words.shape[-1]):
        own, places = words[..., word : word + 1], _places(words.ndim, min(32, slots - 32 * word))
        inside = own & (ALL >> (np.uint32(31) - places))
        below.append(jnp.where(inside != ZERO, 32 * word + _highest(inside), nearest))
        nearest = jnp.where(own != ZERO, 32 * word + _highest(own), nearest)
    nearest = jnp.full_like(words[..., :1], slots, jnp.int32)
    for word in reversed(range(words.shape[-1])):
        own, places = words[..., word : word + 1], _places(words.ndim, min(32, slots - 32 * word))
        inside = own & (ALL << places)
        above.append(jnp.where(inside != ZERO, 32 * word + _lowest(inside), nearest))
        nearest = jnp.where(own != ZERO, 32 * word + _lowest(own), nearest)
    return jnp.concatenate(below, -1), jnp.concatenate(above[::-1], -1)


def _places(dims: int, width: int) -> UInt32[Array, "*ones n"]:
    """Bit numbers 0 .. width-1 along the last of `dims` axes."""
    return jnp.arange(width, dtype=jnp.uint32).reshape((1,) * (dims - 1) + (width,))


def _lowest(words: UInt32[Array, "*batch"]) -> Int[Array, "*batch"]:
    """Number of the lowest set bit of each word (32 if none)."""
    return lax.population_count((words & (~words + ONE)) - ONE).astype(jnp.int32)


def _highest(words: UInt32[Array, "*batch"]) -> Int[Array, "*batch"]:
    """Number of the highest set bit of each word (-1 if none)."""
    return 31 - lax.clz(words).astype(jnp.int32)


def count_bits(words: UInt32[Array, "*batch W"]) -> Int[Array, "*batch"]:
    """Number of set bits."""
    return lax.population_count(words).astype(jnp.int32).sum(-1)


def _below(words: int, position: Int[Array, ""]) -> UInt32[Array, " W"]:
    """Return bits smaller than a position set."""
    inside = jnp.clip(position - _offsets(words), 0, 32)
    partial = (ONE << jnp.minimum(inside, 31).astype(jnp.uint32)) - ONE
    return jnp.where(inside >= 32, ALL, partial)


def window(words: int, start: Int[Array, ""], length: Int[Array, ""]) -> UInt32[Array, " W"]:
    """Return bits start .. start+length-1 set; what lies beyond W words is dropped."""
    return _below(words, start + length) & ~_below(words, start)


def shift_down(words: UInt32[Array, "*batch W"]) -> UInt32[Array, "*batch W"]:
    """Every slot takes the bit of the slot above it; the highest takes 0."""
    above = jnp.concatenate([words[..., 1:], jnp.zeros_like(words[..., :1])], -1)
    return (words >> ONE) | (above << np.uint32(31))


def shift_up(words: UInt32[Array, "*batch W"]) -> UInt32[Array, "*batch W"]:
    """Every slot takes the bit of the slot below it; the lowest takes 0."""
    below = jnp.concatenate([jnp.zeros_like(words[..., :1]), words[..., :-1]], -1)
    return (words << ONE) | (below >> np.uint32(31))


def starts_of_free_runs(
    free: UInt32[Array, "K W"], need: Int[Array, " K"], slots: int, unrolled: bool = False
) -> UInt32[Array, "K W"]:
    """Return bits of the slots from which `need` slots in a row are free.

    The run length that is known doubles each round (x &= x >> s), so about log2(slots) rounds
    serve every need up to `slots`; a need of 0 or 1 leaves `free` as it is. The rounds run in two
    turns of a loop: on a CPU straight-line code would be melted into whatever reads the result,
    and done again for every slot read. On a GPU a turn costs three launches, and a barrier keeps
    what is written out in one kernel.

    Args:
        free: bits of free slots, none set beyond the band.
        need: slots in a row, per row of `free`.
        slots: S, the largest need that can be met at all.
        unrolled: write the rounds out.
    """
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
    """One bool per slot."""
    columns = []
    for word in range(words.shape[-1]):  # word by word: half the price of one reshape
        places = _places(words.ndim, min(32, slots - 32 * word))
        columns.append((words[..., word : word + 1] >> places) & ONE)
    return jnp.concatenate(columns, -1) != ZERO


def pack(flags: Bool[Array, "*batch S"]) -> UInt32[Array, "*batch W"]:
    """Return the inverse of `unpack`; bits beyond the band are 0."""
    *batch, slots = flags.shape
    words = word_count(slots)
    padded = jnp.concatenate([flags, jnp.zeros((*batch, words * 32 - slots), bool)], -1).reshape(
        *batch, words, 32
    )
    places = jnp.arange(32, dtype=jnp.uint32).reshape((1,) * (len(batch) + 1) + (32,))
    return (padded.astype(jnp.uint32) << places).sum(-1, dtype=jnp.uint32)
