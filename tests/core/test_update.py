"""Whole updates against a NumPy version of everything after the rollout, gradients included."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import countdown
from helpers.whole_update import Updates
from hpo.core.epochs import _split_minibatches, minibatch_shape
from hpo.core.minibatches import permutation
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.rollout import rollout
from hpo.core.update import learn, update

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

STATIC = {"num_envs": 3, "rollout_length": 7, "num_minibatches": 4, "hidden_sizes": [4],
          "policy_gain": 1.0}  # fmt: skip
FEATURES = ("normalise_observations", "normalise_rewards")
SIZE, MINIBATCHES = 21, 4  # minibatches of 6 rows, the last of 3
COMMON = {"learning_rate": 0.01, "adam_eps": 1e-3}
FIRST = {
    **COMMON,
    "update_epochs": 1,
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "ent_coef": 0.05,
    "ent_schedule": "linear",
    "normalise_rewards": True,
    "reward_scale": 0.5,
    "reward_clip": 1.5,
    "normalise_observations": True,
    "observation_clip": 1.2,
    "value_clip_eps": "same",
    "clip_eps": 0.1,
    "clip_eps_schedule": "linear",
    "lr_schedule": "cosine",
    "adv_clip": 1.5,
}
SECOND = {
    **COMMON,
    "update_epochs": 4,
    "reward_clip": 0.9,
    "value_clip_eps": 0.05,
    "clip_eps": 0.02,
    "gae_lambda_initial": 0.7,
    "gae_lambda_final": 0.9,
    "normalise_advantages": False,
    "max_grad_norm": 5.0,
    "lr_schedule": "warmup_cosine",
    "lr_warmup_start_fraction": 0.5,
}


@pytest.fixture(scope="module")
def pendulum():
    return Updates(EnvPlan("Pendulum-v1", (("max_steps_in_episode", 5),)), STATIC, FEATURES)


@pytest.fixture(scope="module")
def masked():
    return Updates(countdown.plan_of(), STATIC, FEATURES)


@pytest.fixture(scope="module", params=["pendulum", "masked"])
def case(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def three(case):
    return case.run([FIRST, SECOND], 3)


def test_update_equals_rollout_then_learn(pendulum):
    """The comparisons here are of `learn` after `rollout`; `update` is traced to the same."""

    def halves(hypers, state):
        return learn(pendulum.plan, hypers, rollout(pendulum.plan, hypers, state))

    lanes = pendulum.begin([FIRST, SECOND])
    whole = jax.make_jaxpr(lambda *lanes: update(pendulum.plan, *lanes))(*lanes)
    both = jax.make_jaxpr(halves)(*lanes)
    texts = [re.sub("0x[0-9a-f]+", "", str(traced)) for traced in (whole, both)]
    assert texts[0] == texts[1] and len(whole.eqns) > 50


@pytest.mark.parametrize("lane", [0, 1])
def test_three_updates_are_those_of_the_loops(case, three, lane):
    for row in three:
        case.check((FIRST, SECOND)[lane], row, lane)


def test_the_case_is_no_easy_one(three):
    """Else the comparison above would show little: everything that can happen does."""
    cut = np.concatenate([row[3].truncated & ~row[3].terminated for row in three])
    assert 0 < cut.sum() < cut.size
    _, after, metrics, _, _ = three[-1]
    assert np.all(np.asarray(metrics.clip_fraction)[1] > 0)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), after.params, three[0][0].params)
    assert min(jax.tree.leaves(moved)) > 1e-4


def test_each_lane_takes_its_own_number_of_gradient_steps(three):
    for i, (_, after, _, _, _) in enumerate(three):
        for moments in after.moments:
            np.testing.assert_array_equal(
                moments.count, [(i + 1) * 1 * MINIBATCHES, (i + 1) * 4 * MINIBATCHES]
            )


def test_observation_statistics_are_numpy_s(three):
    seen = np.concatenate([row[3].observation[:, 0].reshape(SIZE, -1) for row in three])
    statistics = jax.tree.map(lambda x: x[0], three[-1][1].observation_statistics)
    assert statistics.count == 3 * SIZE
    np.testing.assert_allclose(statistics.mean.ravel(), seen.mean(0), rtol=1e-4, atol=1e-5)
    std = np.sqrt(statistics.square.ravel() / statistics.count)
    np.testing.assert_allclose(std, seen.std(0), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("close_to", ["the step that stops", "the step before"])
def test_target_kl_stops_at_the_step_it_should(case, three, close_to):
    """1.5 times the target lies just below one step's KL, or just above all before it."""
    kls = case.check(SECOND, three[0], 1)
    highest = int(np.argmax(kls))
    before = max(kls[:highest])
    assert 0 < highest < 16 and 1.05 * before < kls[highest]
    limit = 0.98 * kls[highest] if close_to == "the step that stops" else 1.02 * before
    knobs = {**SECOND, "target_kl": limit / 1.5}
    (row,) = case.run([FIRST, knobs], 1)
    assert len(case.check(knobs, row, 1, limit)) == highest
    assert float(row[2].early_stopped[1]) == pytest.approx(1.0 - highest / 16)
    np.testing.assert_array_equal(row[1].moments[0].count, [MINIBATCHES, highest])
    # The neighbour, which has no limit, is not stopped.
    for left, right in zip(
        jax.tree.leaves(row[1].params), jax.tree.leaves(three[0][1].params), strict=True
    ):
        np.testing.assert_array_equal(left[0], right[0])


@pytest.mark.parametrize("on", [True, False])
def test_reward_scale_has_no_effect_with_normalised_rewards(pendulum, on):
    """`studies/unused_knobs.py` says so: lanes that differ in it alone learn alike."""
    given = {**FIRST, "normalise_rewards": on, "reward_clip": 1e6}
    lanes = [{**given, "reward_scale": scale} for scale in (0.5, 3.0)]
    [(_, after, metrics, _, _)] = pendulum.run(lanes, 1, replicates=[0, 0])
    targets = np.asarray(metrics.value_target_mean)
    params = np.concatenate(
        [np.reshape(leaf, (2, -1)) for leaf in jax.tree.leaves(after.params)], axis=1
    )
    same = np.allclose(params[0], params[1], rtol=1e-3, atol=1e-5)
    assert same == on and np.isclose(targets[0], targets[1], rtol=1e-3) == on


def test_warmup_updates_step_envs_without_learning(pendulum):
    rows = pendulum.run([FIRST, SECOND], 3, first=-2)
    for before, after, metrics, _, _ in rows[:2]:
        for name in ("params", "moments", "observation_statistics", "return_statistics"):
            for left, right in zip(
                jax.tree.leaves(getattr(before, name)),
                jax.tree.leaves(getattr(after, name)),
                strict=True,
            ):
                np.testing.assert_array_equal(left, right)
        assert not np.array_equal(before.observation, after.observation)
        assert np.all(np.asarray(metrics.learning_rate)[0] == np.float32(0.01))
    before, after, metrics, _, _ = rows[2]
    np.testing.assert_array_equal(before.updates, [0, 0])
    pendulum.check(FIRST, rows[2], 0)
    pendulum.check(SECOND, rows[2], 1)


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([1, 2, 3, 5, 8, 63, 64, 65, 1025]),  # each is compiled
    seed=st.integers(0, 2**31 - 1),
)
def test_permutation_contains_every_index_once(size, seed):
    order = np.asarray(permutation(jax.random.key(seed, impl="threefry2x32"), size))
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


def draws(size, count, seed=0):
    keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), count)
    return np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, size)))(keys))


def test_permutations_of_four_are_uniform():
    orders = draws(4, 24_000)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_permutation_positions_are_uniform():
    size, count = 37, 20_000
    orders = draws(size, count, seed=1)
    for place in (0, 17, 36):
        counts = np.bincount(orders[:, place], minlength=size)
        assert scipy.stats.chisquare(counts).pvalue > 1e-4
    # neighbours in the order are no neighbours in number
    gaps = np.abs(np.diff(orders, axis=1)).ravel()
    assert np.mean(gaps == 1) == pytest.approx(2.0 / size, rel=0.05)


@pytest.mark.parametrize(("rows", "weights"), [(6, 21), (7, None), (20, 21), (21, None)])
def test_minibatches_use_every_row_once(rows, weights):
    plan = make_plan(
        {"num_envs": 3, "rollout_length": 7, "minibatch_size": rows}, EnvPlan("CartPole-v1")
    )
    order = draws(SIZE, 2, seed=2)
    places, weight = _split_minibatches(plan, jnp.asarray(order), *minibatch_shape(plan, SIZE))
    assert places.shape == (math.ceil(SIZE / rows), 2, rows)
    assert (weight is None) == (weights is None)
    for lane in range(2):
        used = np.asarray(places)[:, lane].ravel()
        if weight is not None:
            assert float(weight.sum()) == weights
            used = used[np.asarray(weight).ravel() == 1.0]
        np.testing.assert_array_equal(np.sort(used), np.arange(SIZE))
