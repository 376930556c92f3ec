import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpo.core.lane_state import RunningStatistics

CLIP = jnp.float32(10.0)
merge = jax.jit(RunningStatistics.merge)


def merged(data, cuts, shape=()):
    statistics = RunningStatistics.empty(shape)
    for part in np.split(data, sorted(set(cuts))):
        if len(part):
            statistics = merge(statistics, np.asarray(part, np.float32))
    return statistics


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    cuts=st.sampled_from([[], [1], [59], [20, 40], [7, 8, 30, 59]]),  # each is compiled
    centre=st.floats(-100, 100),
    scale=st.floats(0.1, 50),
)
def test_any_split_gives_numpy_s_mean_and_deviation(seed, cuts, centre, scale):
    data = np.random.default_rng(seed).normal(centre, scale, size=(60, 2)).astype(np.float32)
    statistics = merged(data, cuts, (2,))
    wide = data.astype(np.float64)
    assert float(statistics.count) == 60.0
    np.testing.assert_allclose(statistics.mean, wide.mean(0), rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(statistics.std(), wide.std(0), rtol=1e-3)


def test_running_std_is_accurate_for_large_offsets():
    # E[x^2] - E[x]^2 would lose everything here in float32.
    data = np.random.default_rng(0).normal(10_000.0, 1.0, size=(4000,)).astype(np.float32)
    statistics = merged(data, [100, 1000, 2500])
    assert float(statistics.std()) == pytest.approx(data.astype(np.float64).std(), rel=1e-2)


def test_empty_statistics_leave_values_unchanged():
    statistics = RunningStatistics.empty((3,))
    np.testing.assert_array_equal(statistics.std(), np.ones(3))
    values = jnp.asarray([[1.0, -2.0, 3.0]])
    np.testing.assert_array_equal(statistics.normalise(values, CLIP), values)


def test_normalised_values_are_clipped():
    data = np.random.default_rng(1).normal(5.0, 2.0, size=(500, 1)).astype(np.float32)
    statistics = merged(data, [], (1,))
    clean = np.asarray(statistics.normalise(jnp.asarray(data), CLIP))
    assert abs(clean.mean()) < 1e-5 and clean.std() == pytest.approx(1.0, abs=1e-5)
    far = statistics.normalise(jnp.asarray([[1e6], [-1e6]]), jnp.float32(3.0))
    np.testing.assert_array_equal(far, [[3.0], [-3.0]])
    free = statistics.normalise(jnp.asarray([[1e6]]), jnp.float32(np.inf))
    assert float(free[0, 0]) > 1e5


def test_normalise_treats_leading_axes_as_batch():
    data = np.random.default_rng(2).normal(size=(40, 2, 3)).astype(np.float32)
    statistics = merged(data, [7], (2, 3))
    batch = jnp.asarray(data.reshape(4, 10, 2, 3))
    expected = (data - data.mean(0)) / data.std(0)
    made = np.asarray(statistics.normalise(batch, CLIP)).reshape(40, 2, 3)
    np.testing.assert_allclose(made, expected, atol=1e-4)


def test_constant_input_normalises_to_finite_values():
    statistics = merged(np.full((64, 1), 0.1, np.float32), [10, 20], (1,))
    clean = statistics.normalise(jnp.full((2, 1), 0.1, jnp.float32), CLIP)
    assert np.all(np.abs(np.asarray(clean)) < 1e-2)


def test_lanes_are_independent_under_vmap():
    data = np.random.default_rng(3).normal(size=(2, 30)).astype(np.float32)
    both = jax.vmap(lambda x: RunningStatistics.empty(()).merge(x))(jnp.asarray(data))
    for lane in range(2):
        np.testing.assert_allclose(both.mean[lane], data[lane].mean(), atol=1e-6)
