from __future__ import annotations

import math

import numpy as np
import pytest

from hpo.core.envs.optical.heuristic_evaluation import (
    evaluate_heuristic,
    summarise_seeds,
    trace_heuristic,
)
from hpo.core.envs.optical.heuristics import HEURISTICS
from hpo.core.envs.optical.optical_environment import make_environment
from hpo.core.envs.optical.optical_settings import OpticalSettings
from hpo.errors import UnknownNameError


def make(**keys):
    return make_environment(OpticalSettings.from_mapping({"slots": 40, "k": 3, **keys}))


def test_heuristic_names_are_known_and_typos_get_suggestions():
    assert set(HEURISTICS) == {
        "ksp_ff",
        "ff_ksp",
        "ksp_lf",
        "ksp_bf",
        "bf_ksp",
        "ksp_mu",
        "mu_ksp",
        "kca_ff",
        "kmc_ff",
        "kmf_ff",
        "kme_ff",
    }
    with pytest.raises(UnknownNameError, match="did you mean 'kca_ff'"):
        evaluate_heuristic(make(), "kca_f")


def test_steady_state_blocking_is_near_the_published_figure():
    # 10 seeds x 20,000 requests elsewhere: 0.1152 at 250 Erlang, k 5, 100 slots.
    env = make_environment(OpticalSettings.from_mapping({}))
    found = evaluate_heuristic(env, "ksp_ff", seeds=8, steps=6000, utilisation=True)
    assert found.service_summary().mean == pytest.approx(0.1152, abs=0.008)
    assert found.bitrate_summary().mean > found.service_summary().mean  # wide services lose more
    assert 0.4 < found.utilisation.mean() < 0.8


def test_warmup_requests_are_excluded_from_heuristic_counts():
    env = make(load=90.0, warmup_requests=300)
    found = evaluate_heuristic(env, "ksp_ff", seeds=1, steps=700, seed=4)
    trace = trace_heuristic(env, "ksp_ff", steps=1000, seed=4)
    counted = slice(300, 1000)
    assert found.blocked[0, 0] == (~trace["accepted"][counted]).sum()
    assert found.bitrate[0, 0] == trace["bitrate"][counted].sum()
    lost = trace["bitrate"][counted][~trace["accepted"][counted]].sum()
    assert found.bitrate_blocked[0, 0] == lost
    assert found.requests == 700 and found.blocked[0, 0] > 0


def test_loads_and_heuristics_share_random_requests():
    env = make(warmup_requests=0)
    curve = evaluate_heuristic(env, "ksp_ff", seeds=3, steps=500, loads=[10.0, 80.0, 160.0])
    assert curve.blocked.shape == (3, 3)
    np.testing.assert_array_equal(curve.bitrate[0], curve.bitrate[2])  # the same requests
    assert (np.diff(curve.blocked.mean(1)) > 0).all()
    other = evaluate_heuristic(env, "ksp_lf", seeds=3, steps=500, loads=[80.0])
    np.testing.assert_array_equal(other.bitrate[0], curve.bitrate[1])
    alone = evaluate_heuristic(env, "ksp_ff", seeds=3, steps=500, loads=[80.0])
    np.testing.assert_array_equal(alone.blocked[0], curve.blocked[1])


def test_each_heuristic_episode_starts_with_an_empty_network():
    env = make(continuous=False, max_requests=50, load=500.0, slots=20)
    trace = trace_heuristic(env, "ksp_ff", steps=200)
    # Each episode starts with an empty network, so its first request is always accepted.
    assert trace["accepted"][[0, 50, 100, 150]].all() and not trace["accepted"].all()
    found = evaluate_heuristic(env, "ksp_ff", seeds=2, steps=200)
    assert (found.blocked > 0).all()


def test_seed_summary_has_a_student_t_interval():
    found = summarise_seeds(np.array([0.1, 0.2, 0.3, 0.2, 0.2]), 1000)
    assert found.mean == pytest.approx(0.2) and found.std == pytest.approx(math.sqrt(0.005))
    # t(0.975, 4 degrees of freedom) = 2.776
    assert found.high - found.mean == pytest.approx(2.776 * found.error, rel=1e-3)
    few = summarise_seeds(np.array([0.1, 0.2]), 1000)
    assert math.isnan(few.low) and few.mean == pytest.approx(0.15)
    none = summarise_seeds(np.zeros(10), 500)
    assert (none.mean, none.high) == (0.0, 3 / 5000)
    same = summarise_seeds(np.full(10, 0.002), 500)  # not [0.002, 0.002]: they show no spread
    assert same.mean == pytest.approx(0.002) and math.isnan(same.low) and math.isnan(same.high)
    near = summarise_seeds(np.array([0.0, 0.0, 0.0, 0.0, 0.01]), 500)
    assert near.low == 0.0 < near.mean < near.high
