import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpo.studies.chunk_sizes import chunk_sizes_of, rung_steps, rungs, updates_per_chunk
from hpo.studies.load import loads


def study(env_steps, first=None, eta=4, every="rungs"):
    early = "null" if first is None else f"{{type: asha, min: {first}, eta: {eta}}}"
    return loads(
        f"env: CartPole-v1\nenv_steps: {env_steps}\nearly_terminate: {early}\n"
        f"evaluation: {{every: {every}}}\n"
    )


def test_rungs_are_min_times_powers_of_eta_below_the_run():
    assert rung_steps(study(800_000, 50_000)) == (50_000, 200_000)
    assert rung_steps(study(800_001, 50_000)) == (50_000, 200_000, 800_000)
    assert rung_steps(study(800_000)) == ()
    # 50,000 env steps are 48.8 chunks of 1,024; a run is 781.25 of them.
    assert rungs(study(800_000, 50_000), 1024) == (49 * 1024, 196 * 1024)


@pytest.mark.parametrize(
    ("env_steps", "first", "steps_per_update", "k", "chunks", "rung_chunks"),
    [
        # 49 updates to the first rung, 782 in all: 49 leaves 16 chunks and moves the end by 0.3 %.
        (800_000, 50_000, 1024, 49, 16, (1, 4)),
        # Round numbers: one rung is one chunk.
        (320_000, 20_000, 1000, 20, 16, (1, 4)),
        # 13 updates to the first rung: 13 moves the second (49) to 52, by 6 %; 1 is the next
        # divisor but leaves 196 chunks; no other K moves the first by 5 % or less.
        (800_000, 50_000, 4096, 1, 196, (13, 49)),
        # An update longer than the rung: coarse, but it works.
        (100_000, 10_000, 65_536, 1, 2, (1,)),
        # Without rungs a sixteenth of the run.
        (1_000_000, None, 1000, 63, 16, ()),
    ],
)
def test_chunk_sizes_are_the_expected_ones(
    env_steps, first, steps_per_update, k, chunks, rung_chunks
):
    chunk_sizes = chunk_sizes_of(study(env_steps, first), steps_per_update)
    assert (chunk_sizes.updates_per_chunk, chunk_sizes.chunks, chunk_sizes.rung_chunks) == (
        k,
        chunks,
        rung_chunks,
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(
    env_steps=st.integers(10_000, 10**8),
    share=st.floats(0.005, 0.5),
    eta=st.sampled_from([2, 3, 4]),
    steps_per_update=st.integers(16, 20_000),
    every=st.none() | st.floats(0.01, 0.5),
)
def test_rungs_and_end_are_whole_chunks_within_5_percent(
    env_steps, share, eta, steps_per_update, every
):
    first = max(1, int(env_steps * share))
    points = "rungs" if every is None else max(1, int(env_steps * every))
    given_study = study(env_steps, first, eta, points)
    chunk_sizes = chunk_sizes_of(given_study, steps_per_update)
    assert chunk_sizes.updates_per_chunk == updates_per_chunk(given_study, steps_per_update)
    assert chunk_sizes.env_steps >= env_steps
    whole = -(-env_steps // steps_per_update) * steps_per_update
    assert chunk_sizes.env_steps <= 1.05 * whole + 1e-6
    # Rungs rise strictly below the end; each is asked for and at most 5 % and an update late.
    assert list(chunk_sizes.rung_chunks) == sorted(set(chunk_sizes.rung_chunks))
    assert all(0 < chunks < chunk_sizes.chunks for chunks in chunk_sizes.rung_chunks)
    for asked in rung_steps(given_study):
        near = min(
            (r for r in (*chunk_sizes.rungs, chunk_sizes.env_steps) if r >= asked), default=None
        )
        assert near is not None
        assert near <= 1.05 * (asked + steps_per_update) + 1e-6
    updates = -(-env_steps // steps_per_update)
    assert chunk_sizes.chunks >= min(16, updates)
