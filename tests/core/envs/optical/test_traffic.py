from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hpo.core.envs.optical.optical_environment import make_environment
from hpo.core.envs.optical.optical_settings import OpticalSettings
from hpo.core.envs.optical.spectrum import TICKS_PER_HOLDING
from hpo.core.envs.optical.topology import make_topology
from hpo.core.envs.optical.traffic import exponential, random_words, uniform
from hpo.core.envs.optical.traffic_files import (
    exact_ticks,
    pair_weights,
    read_requests,
    read_traffic_matrix,
)
from hpo.errors import ConfigError, UnknownNameError

pytestmark = pytest.mark.slow

DRAWS = 20_000


def test_random_words_match_jax_random_bits():
    @jax.jit
    def both(seed):
        key = jax.random.key(seed)
        return random_words(key, 37), jax.random.bits(key, (37,), jnp.uint32)

    for seed in (0, 1, 12345):
        np.testing.assert_array_equal(*both(seed))


def test_uniform_is_never_zero_and_at_most_one():
    edges = jnp.array([0, 255, 256, 0xFFFFFFFF], jnp.uint32)
    values = np.asarray(uniform(edges))
    assert values[0] == values[1] == 2.0**-25 and values[-1] <= 1.0
    assert np.isfinite(np.asarray(exponential(edges))).all()


def draw(keys: dict):
    env = make_environment(OpticalSettings.from_mapping({"warmup_requests": 0, **keys}))

    @jax.jit
    def drawn():
        words = random_words(jax.random.key(5), 4 * DRAWS).reshape(DRAWS, 4)
        shares = env.traffic.pair_shares(
            random_words(jax.random.key(6), env.traffic.words_at_reset)
        )
        zero = jnp.zeros((), jnp.int32)
        requests = jax.vmap(lambda w: env.traffic.request(w, zero, shares))(words)
        waits = jax.vmap(lambda w: env.traffic.wait(w, zero, env.default_params))(words)
        return requests, waits, shares

    return env, *jax.device_get(drawn())


def test_poisson_arrivals_and_exponential_holding():
    _, requests, waits, _ = draw({"load": 40.0})
    holding = requests.holding / TICKS_PER_HOLDING
    assert stats.kstest(holding, "expon").pvalue > 1e-3
    assert stats.kstest(waits * 40.0 / TICKS_PER_HOLDING, "expon").pvalue > 1e-3
    assert abs(np.corrcoef(holding, waits)[0, 1]) < 0.03


def test_truncated_holding_has_the_published_mean_and_bound():
    # Last of five exponentials below twice the mean: mean 0.687, zero with probability e**-10.
    _, requests, _, _ = draw({"truncate_holding_time": True})
    holding = requests.holding / TICKS_PER_HOLDING
    assert abs(holding.mean() - (1 - 3 * np.exp(-2)) / (1 - np.exp(-2))) < 0.02
    assert holding.max() < 2.0
    kept = 1 - np.exp(-2.0)
    assert stats.kstest(holding, lambda x: (1 - np.exp(-x)) / kept).pvalue > 1e-3


def test_bitrates_are_uniform_over_the_list_with_repeats_weighted():
    _, requests, _, _ = draw({})
    values, counts = np.unique(requests.bitrate, return_counts=True)
    assert values.tolist() == list(range(25, 101))
    assert stats.chisquare(counts).pvalue > 1e-3
    _, requests, _, _ = draw({"bitrates": [100, 100, 100, 400]})
    assert abs((requests.bitrate == 100).mean() - 0.75) < 0.02


def test_node_pairs_are_drawn_uniformly():
    env, requests, _, shares = draw({})
    assert shares is None
    counts = np.bincount(requests.pair, minlength=env.traffic.num_pairs)
    assert len(counts) == 182 and stats.chisquare(counts).pvalue > 1e-3


def test_random_matrix_is_redrawn_at_every_reset():
    env, requests, _, shares = draw({"traffic_matrix": "random"})
    weights = np.diff(np.asarray(shares, np.float64), prepend=0)
    counts = np.bincount(requests.pair, minlength=182)
    assert stats.chisquare(counts, DRAWS * weights / weights.sum()).pvalue > 1e-3

    @jax.jit
    def begun():
        keys = jax.random.split(jax.random.key(0), 2)
        return jax.vmap(env.reset, (0, None))(keys, env.default_params)[0]

    states = begun()
    assert not np.allclose(states.shares[0], states.shares[1])


@pytest.mark.parametrize("directed", [True, False])
def test_traffic_matrix_file_sets_pair_frequencies(tmp_path, directed):
    matrix = np.zeros((4, 4))
    matrix[0, 1], matrix[1, 0], matrix[2, 3], matrix[3, 3] = 1, 2, 5, 100
    np.savetxt(tmp_path / "m.csv", matrix, delimiter=",")
    topology = make_topology("ring4", directed)
    given_matrix = read_traffic_matrix(str(tmp_path / "m.csv"), topology)
    weights = pair_weights(given_matrix, topology)
    assert weights.sum() == pytest.approx(1)
    share = 1 / 8 if directed else 3 / 8  # both ways of an undirected pair add up
    assert weights[0] == pytest.approx(share)
    keys = {
        "topology": "ring4",
        "directed": directed,
        "k": 2,
        "slots": 8,
        "traffic_matrix": str(tmp_path / "m.csv"),
    }
    _, requests, _, _ = draw(keys)
    seen = np.bincount(requests.pair, minlength=len(weights)) / DRAWS
    np.testing.assert_allclose(seen, weights, atol=0.015)
    assert (seen[weights == 0] == 0).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,4\n", "4 rows of 4"),
        ("0,1,1,1\n" * 3 + "0,1,1,x\n", "must be a number"),
        ("0,0,0,0\n" * 4, "not all 0"),
        ("0,-1,0,1\n" * 4, "0 or more"),
    ],
)
def test_malformed_traffic_matrices_are_refused(tmp_path, text, message):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_traffic_matrix(str(tmp_path / "m.csv"), make_topology("ring4", True))
    with pytest.raises(UnknownNameError, match="uniform"):
        read_traffic_matrix("unifrom", make_topology("ring4", True))


TIMES = st.lists(
    st.tuples(st.floats(0, 10), st.one_of(st.floats(0, 30), st.just(0.0))), min_size=1, max_size=40
)


@given(TIMES, st.sampled_from([1.0, 1e-6, 3e8]))
@settings(max_examples=300, deadline=None)
def test_integer_ticks_preserve_departure_arrival_order(rows, scale):
    """For all i < j: `end_i <= arrival_j` in float64 exactly when it holds in integer ticks."""
    gaps, holding = (np.array(column) * scale for column in zip(*rows, strict=True))
    gaps = np.where(gaps < scale, 0.0, gaps)  # simultaneous arrivals happen too
    arrivals = np.cumsum(gaps)
    ticks, until_next, _ = exact_ticks(arrivals, holding)
    starts = np.concatenate([[0], np.cumsum(until_next[:-1], dtype=np.int64)])
    ends = starts + ticks
    for i in range(len(rows)):
        later = slice(i + 1, None)
        expected = arrivals[i] + holding[i] <= arrivals[later]
        np.testing.assert_array_equal(ends[i] <= starts[later], expected)


def test_ticks_order_arrivals_closer_than_one_tick():
    arrivals = np.array([0.0, 1e-9, 2e-9, 1e6])
    holding = np.array([1.5e-9, 1e6, 0.0, 1e6])
    ticks, until_next, _ = exact_ticks(arrivals, holding)
    starts = np.concatenate([[0], np.cumsum(until_next[:-1])])
    assert starts[1] < starts[2] and starts[1] < ticks[0] <= starts[2]
    assert starts[1] + ticks[1] > starts[3]  # 1e6 + 1e-9 ends just after the last arrival


HEADER = "source,destination,bitrate,arrival,holding\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source,destination\n", ":1: the header is"),
        (HEADER, "the list has no requests"),
        (HEADER + "1,2,100,5,1\n\n1,2,100,4,1\n", ":4: request 2 arrives at 4, before request 1"),
        (HEADER + "1,99,100,0,1\n", ":2: destination '99' is not a node"),
        (HEADER + "1,1,100,0,1\n", "are both '1'"),
        (HEADER + "1,2,100,0\n", ":2: 4 columns"),
        (HEADER + "1,2,x,0,1\n", "must be numbers"),
        (HEADER + "1,2,-5,0,1\n", r"bitrate \(-5\) must be above 0"),
        (HEADER + "1,2,5,0,-1\n", r"holding \(-1\) 0 or more"),
        (HEADER + "1,2,5,inf,1\n", "finite"),
    ],
)
def test_malformed_request_files_are_refused(tmp_path, text, message):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_requests(str(tmp_path / "r.csv"), make_topology("nsfnet_deeprmsa", True))
