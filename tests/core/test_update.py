"""Whole updates against a NumPy version of everything after the rollout, gradients included."""

import math
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from hpo.core.envs import registry
from hpo.core.population import init_lane
from hpo.core.rollout import rollout
from hpo.core.state import EnvPlan, make_hypers, make_plan, stack, use_key
from hpo.core.update import SHUFFLE, _split, permutation, update
from hpo.knobs import complete

slow = SimpleNamespace(**run_path(str(Path(__file__).with_name("slow.py"))))
countdown = SimpleNamespace(**run_path(str(Path(__file__).with_name("countdown.py"))))
STATIC = {"num_envs": 3, "rollout_length": 7, "num_minibatches": 4, "hidden_sizes": [4],
          "policy_gain": 1.0}  # fmt: skip
ROWS, SIZE, MINIBATCHES = 6, 21, 4  # the last minibatch has 3 rows
TOTAL = 5
COMMON = {"learning_rate": 0.01, "adam_eps": 1e-3}
FIRST = {
    **COMMON, "update_epochs": 1, "gamma": 0.9, "gae_lambda": 0.8, "ent_coef": 0.05,
    "ent_schedule": "linear", "normalise_rewards": True, "reward_scale": 0.5, "reward_clip": 1.5,
    "normalise_observations": True, "observation_clip": 1.2, "value_clip_eps": "same",
    "clip_eps": 0.1, "clip_eps_schedule": "linear", "lr_schedule": "cosine", "adv_clip": 1.5,
}  # fmt: skip
SECOND = {
    **COMMON, "update_epochs": 4, "reward_clip": 0.9, "value_clip_eps": 0.05, "clip_eps": 0.02,
    "gae_lambda_initial": 0.7, "gae_lambda_final": 0.9, "normalise_advantages": False,
    "max_grad_norm": 5.0, "lr_schedule": "warmup_cosine", "lr_warmup_start_fraction": 0.5,
}  # fmt: skip


class Updates:
    """A compiled update of two lanes, which also gives the rollout that it made."""

    def __init__(self, where):
        features = ("normalise_observations", "normalise_rewards")
        self.plan = make_plan(STATIC, where, features=features)
        self.params = registry.make(where).default_params

        def start(args):
            hypers, replicate, updates = args
            many = jnp.int32(TOTAL)
            return init_lane(
                self.plan, jnp.int32(3), hypers, jnp.int32(0), replicate, updates, many
            )

        def both(hypers, state):
            _, trajectory, _, last = rollout(self.plan, hypers, state)
            return update(self.plan, hypers, state), trajectory, last

        self._start = jax.jit(lambda *args: jax.lax.map(start, args))
        self._both = jax.jit(both)

    def run(self, lanes, count, first=0):
        """Give (state before, state after, metrics, trajectory, last value) an update."""
        hypers = stack([make_hypers({**STATIC, **k}, self.params, self.params) for k in lanes])
        state = self._start(
            hypers, np.arange(len(lanes), dtype=np.int32), np.full(len(lanes), first, np.int32)
        )
        rows = []
        for _ in range(count):
            (after, metrics), trajectory, last = self._both(hypers, state)
            rows.append(jax.device_get((state, after, metrics, trajectory, last)))
            state = after
        return rows


def lane_of(row, lane):
    """Give one lane of what `Updates.run` gives; trajectories lead with time."""
    axes = (0, 0, 0, 1, 0)
    return [
        jax.tree.map(lambda x, a=axis: np.take(x, lane, axis=a), tree)
        for tree, axis in zip(row, axes, strict=True)
    ]


@pytest.fixture(scope="module")
def pendulum():
    return Updates(EnvPlan("Pendulum-v1", (("max_steps_in_episode", 5),)))


@pytest.fixture(scope="module")
def masked():
    return Updates(countdown.plan_of())


@pytest.fixture(scope="module", params=["pendulum", "masked"])
def case(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def three(case):
    return case.run([FIRST, SECOND], 3)


def expected_samples(knobs, state, trajectory, last, gae_lambda):
    """Give (rows, running discounted returns) of one lane in NumPy."""
    rewards = trajectory.reward.astype(np.float64) * knobs["reward_scale"]
    ended = trajectory.terminated | trajectory.truncated
    returns, running = [], state.discounted_return.astype(np.float64)
    for t in range(len(rewards)):
        running = knobs["gamma"] * running + rewards[t]
        returns.append(running)
        running = np.where(ended[t], 0.0, running)
    returns = np.concatenate([x.ravel() for x in returns])
    if knobs["normalise_rewards"]:
        statistics = state.return_statistics
        count, mean, square = (float(x) for x in (statistics.count, statistics.mean,
                                                  statistics.square))  # fmt: skip
        total = count + len(returns)
        # variance of the union: E[x^2] - E[x]^2, all in float64
        second = (square + count * mean**2 + (returns**2).sum()) / total
        first = (count * mean + returns.sum()) / total
        rewards = rewards / math.sqrt(second - first**2)
    if knobs["reward_clip"] is not None:
        rewards = np.clip(rewards, -knobs["reward_clip"], knobs["reward_clip"])
    following = np.concatenate([trajectory.value[1:], last[None]])
    following = np.where(trajectory.truncated, trajectory.bootstrap, following)
    advantage = slow.gae(
        rewards, trajectory.value.astype(np.float64), following, trajectory.terminated,
        trajectory.truncated, knobs["gamma"], gae_lambda,
    )  # fmt: skip
    observation = trajectory.observation.astype(np.float64)
    if knobs["normalise_observations"] and state.observation_statistics.count > 0:
        statistics = state.observation_statistics
        std = np.sqrt(statistics.square / statistics.count)
        observation = (observation - statistics.mean) / std
    if knobs["normalise_observations"]:
        clip = knobs["observation_clip"]
        observation = np.clip(observation, -clip, clip)
    rows = {
        "observation": observation, "action": trajectory.action, "mask": trajectory.mask,
        "log_prob": trajectory.log_prob, "value": trajectory.value, "advantage": advantage,
        "target": advantage + trajectory.value,
    }  # fmt: skip
    flat = {k: None if v is None else v.reshape(-1, *v.shape[2:]) for k, v in rows.items()}
    return flat, running


def scheduled(knobs, name, updates, end, kind, **rest):
    return slow.schedule(knobs[kind], knobs[name], updates / TOTAL, end=knobs[end],
                         warmup=knobs["lr_warmup_fraction"],
                         start=knobs["lr_warmup_start_fraction"], **rest)  # fmt: skip


def expected_update(given, state, trajectory, last, kl_limit=math.inf):
    """Give (parameters, numbers) of one lane after one update in NumPy."""
    knobs, updates = complete({**STATIC, **given}), int(state.updates)
    size = scheduled(knobs, "learning_rate", updates, "lr_end_fraction", "lr_schedule")
    eps = scheduled(knobs, "clip_eps", updates, "clip_eps_end_fraction", "clip_eps_schedule")
    ent = scheduled(knobs, "ent_coef", updates, "ent_end_fraction", "ent_schedule")
    lam = knobs["gae_lambda"]
    if knobs["gae_lambda_initial"] is not None:
        lam = slow.annealed_lambda(
            knobs["gae_lambda_initial"], knobs["gae_lambda_final"], updates / TOTAL
        )
    rows, running = expected_samples(knobs, state, trajectory, last, lam)
    params = slow.as_float64(state.params)
    adam = slow.Adam(params, clip=knobs["max_grad_norm"], eps=knobs["adam_eps"])
    adam.count = int(state.moments[0].count)
    first, second = ({**state.moments[0]._asdict()[m], **state.moments[1]._asdict()[m]}
                     for m in ("mu", "nu"))  # fmt: skip
    adam.first, adam.second = (slow.leaves(slow.as_float64(x)) for x in (first, second))
    value_clip = eps if knobs["value_clip_eps"] == "same" else knobs["value_clip_eps"]
    how = {"clip_eps": eps, "value_clip": value_clip, "ent_coef": ent,
           "normalise": knobs["normalise_advantages"], "adv_clip": knobs["adv_clip"]}  # fmt: skip
    parts, norms, stopped = [], [], 0
    for epoch in range(knobs["update_epochs"]):
        key = jax.random.fold_in(use_key(state.key, SHUFFLE, updates), epoch)
        order = np.asarray(permutation(key, SIZE))
        for start in range(0, SIZE, ROWS):
            at = order[start : start + ROWS]
            batch = {k: None if v is None else v[at] for k, v in rows.items()}
            shown = slow.ppo_loss(params, batch, **how)[1]
            if stopped or shown["approx_kl"] > kl_limit:
                stopped += 1
                continue
            slopes = slow.gradient(lambda p, b=batch: slow.ppo_loss(p, b, **how)[0], params)
            norms.append(adam.step(params, slopes, size))
            parts.append(shown)
    numbers = {name: np.mean([p[name] for p in parts]) for name in parts[0]}
    numbers["ratio_min"] = min(p["ratio_min"] for p in parts)
    numbers["ratio_max"] = max(p["ratio_max"] for p in parts)
    target, value = rows["target"], rows["value"]
    numbers |= {
        "grad_norm": np.mean(norms), "learning_rate": size, "clip_eps": eps, "ent_coef": ent,
        "gae_lambda": lam, "advantage_mean": rows["advantage"].mean(),
        "advantage_std": rows["advantage"].std(), "value_target_mean": target.mean(),
        "explained_variance": 1 - np.var(target - value) / np.var(target),
        "reward_mean": trajectory.reward.mean(),
        "early_stopped": stopped / (stopped + len(parts)),
        "param_norm": math.sqrt(sum((leaf**2).sum() for leaf in slow.leaves(params))),
    }  # fmt: skip
    return params, numbers, running, [p["approx_kl"] for p in parts]


def check(given, row, lane, kl_limit=math.inf):
    """Compare one update of one lane; gives the KL of each gradient step taken."""
    before, after, metrics, trajectory, last = lane_of(row, lane)
    params, numbers, running, kls = expected_update(given, before, trajectory, last, kl_limit)
    for made, leaf in zip(slow.leaves(after.params), slow.leaves(params), strict=True):
        np.testing.assert_allclose(made, leaf, rtol=1e-3, atol=1e-4)
    for name, number in numbers.items():
        made = float(getattr(metrics, name))
        assert made == pytest.approx(number, rel=2e-3, abs=2e-4), name
    if complete(given)["normalise_rewards"]:
        np.testing.assert_allclose(after.discounted_return, running, rtol=1e-4, atol=1e-4)
    assert int(after.updates) == int(before.updates) + 1
    assert not metrics.diverged and metrics.ratio_start_error <= 1e-6
    return kls


@pytest.mark.parametrize("lane", [0, 1])
def test_three_updates_are_those_of_the_loops(three, lane):
    for row in three:
        check((FIRST, SECOND)[lane], row, lane)


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
    kls = check(SECOND, three[0], 1)
    highest = int(np.argmax(kls))
    before = max(kls[:highest])
    assert 0 < highest < 16 and 1.05 * before < kls[highest]
    limit = 0.98 * kls[highest] if close_to == "the step that stops" else 1.02 * before
    knobs = {**SECOND, "target_kl": limit / 1.5}
    (row,) = case.run([FIRST, knobs], 1)
    assert len(check(knobs, row, 1, limit)) == highest
    assert float(row[2].early_stopped[1]) == pytest.approx(1.0 - highest / 16)
    np.testing.assert_array_equal(row[1].moments[0].count, [MINIBATCHES, highest])
    # The neighbour, which has no limit, is not stopped.
    for left, right in zip(
        jax.tree.leaves(row[1].params), jax.tree.leaves(three[0][1].params), strict=True
    ):
        np.testing.assert_array_equal(left[0], right[0])


def test_lanes_that_warm_up_step_but_learn_nothing(pendulum):
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
    check(FIRST, rows[2], 0)
    check(SECOND, rows[2], 1)


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([1, 2, 3, 5, 8, 63, 64, 65, 1025]),  # each is compiled
    seed=st.integers(0, 2**31 - 1),
)
def test_a_permutation_holds_every_number_once(size, seed):
    order = np.asarray(permutation(jax.random.key(seed, impl="threefry2x32"), size))
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


def draws(size, count, seed=0):
    keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), count)
    return np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, size)))(keys))


def test_all_orders_of_four_are_equally_likely():
    orders = draws(4, 24_000)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_every_number_is_equally_likely_in_every_place():
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
    places, weight = _split(plan, jnp.asarray(order))
    assert places.shape == (math.ceil(SIZE / rows), 2, rows)
    assert (weight is None) == (weights is None)
    for lane in range(2):
        used = np.asarray(places)[:, lane].ravel()
        if weight is not None:
            assert float(weight.sum()) == weights
            used = used[np.asarray(weight).ravel() == 1.0]
        np.testing.assert_array_equal(np.sort(used), np.arange(SIZE))
