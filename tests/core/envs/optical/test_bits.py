from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpo.core.envs.optical import spectrum

pytestmark = pytest.mark.usefixtures("quickly_compiled")

SLOTS = st.sampled_from([1, 7, 31, 32, 33, 64, 100, 130])


@st.composite
def spectra(draw):
    slots = draw(SLOTS)
    density = draw(st.floats(0, 1))
    seed = draw(st.integers(0, 2**31))
    return np.random.default_rng(seed).random((3, slots)) < density


@jax.jit
def looked_at(flags):
    """Return what the module says of rows of flags, from one program a number of slots."""
    words, slots = spectrum.pack(flags), flags.shape[1]
    return {
        "flags": spectrum.unpack(words, slots),
        "rows": (spectrum.first_set(words), spectrum.last_set(words), spectrum.count_bits(words)),
        "nearest": spectrum.nearest_set(words, slots),
        "moved": spectrum.unpack(spectrum.shift_up(words), slots),
    }


@given(spectra())
@settings(max_examples=40, deadline=None)
def test_packed_bit_operations_match_numpy(flags):
    seen = jax.device_get(looked_at(flags))
    slots = flags.shape[1]
    np.testing.assert_array_equal(seen["flags"], flags)
    for row, first, last, count in zip(flags, *seen["rows"], strict=True):
        places = np.flatnonzero(row)
        assert first == (places[0] if len(places) else spectrum.NONE)
        assert last == (places[-1] if len(places) else -1)
        assert count == len(places)
    below, above = seen["nearest"]
    for row, low, high in zip(flags, below, above, strict=True):
        for slot in range(slots):
            assert low[slot] == max(np.flatnonzero(row[: slot + 1]), default=-1)
            assert high[slot] == slot + next(iter(np.flatnonzero(row[slot:])), slots - slot)
    up = seen["moved"]
    np.testing.assert_array_equal(up[:, 1:], flags[:, :-1])
    assert not up[:, 0].any()


@jax.jit
def free_starts(flags, needs):
    slots = flags.shape[1]
    words = spectrum.pack(flags)
    return [
        spectrum.unpack(spectrum.starts_of_free_runs(words, needs, slots, unrolled), slots)
        for unrolled in (False, True)
    ]


@given(spectra(), st.lists(st.integers(0, 140), min_size=3, max_size=3))
@settings(max_examples=50, deadline=None)
def test_free_starts_match_a_loop(flags, needs):
    slots = flags.shape[1]
    starts, unrolled = map(np.asarray, free_starts(flags, jnp.asarray(needs, jnp.int32)))
    np.testing.assert_array_equal(unrolled, starts)
    for row, need, found in zip(flags, needs, starts, strict=True):
        length = max(need, 1)
        expected = [
            start + length <= slots and row[start : start + length].all() for start in range(slots)
        ]
        assert found.tolist() == expected


@functools.partial(jax.jit, static_argnums=0)
def window_flags(slots, start, length):
    words = spectrum.word_count(slots)
    return spectrum.unpack(spectrum.window(words, start, length), words * 32)


@given(SLOTS, st.integers(0, 140), st.integers(0, 140))
@settings(max_examples=40, deadline=None)
def test_window_flags_match_a_loop(slots, start, length):
    found = np.flatnonzero(window_flags(slots, jnp.int32(start), jnp.int32(length)))
    inside = [s for s in range(start, start + length) if s < spectrum.word_count(slots) * 32]
    assert found.tolist() == inside


def test_band_words_set_one_bit_per_slot():
    assert spectrum.band_words(32).tolist() == [0xFFFFFFFF]
    assert spectrum.unpack(jnp.asarray(spectrum.band_words(33)), 64).sum() == 33
