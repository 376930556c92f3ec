"""Features that only some plans have: against the loops, on and off in one program."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import countdown
from helpers import whole_update as whole
from hpo.core.minibatches import probabilities
from hpo.core.plan import FEATURES, EnvPlan
from hpo.core.rollout import EpisodeSums, Rollout
from hpo.core.update import inspect_lane, prepare
from hpo.knobs import complete

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

COMMON = {
    "learning_rate": 0.02, "adam_eps": 1e-3, "update_epochs": 2, "normalise_rewards": False,
}  # fmt: skip
# Everything that single steps allow, over an environment with masks; the policy is far from
# uniform, so that valid mass varies.
BY_STEPS = {"num_envs": 3, "rollout_length": 7, "num_minibatches": 4, "hidden_sizes": [4],
            "policy_gain": 4.0, "gradient_accumulation": 2}  # fmt: skip
STEP_FEATURES = ("normalise_rewards", "off_policy_masking", "priority", "raw_reward_deviation",
                 "reward_centering",
                 "schedule_on_gradient_steps", "valid_mass_loss", "vf_gae_lambda")  # fmt: skip
STEP_LANES = (
    {**COMMON},
    {
        **COMMON,
        "reward_centering": True,
        "average_reward_initial": 0.5,
        "average_reward_step": 0.2,
        "priority_alpha": 0.7,
        "priority_beta0": 0.4,
        "off_policy_masking": True,
        "valid_mass_coef": 0.3,
        "valid_mass_schedule": "linear",
        "valid_mass_target": 0.9,
        "schedule_on_gradient_steps": True,
        "lr_schedule": "linear",
        "ent_coef": 0.1,
        "ent_schedule": "cosine",
        "clip_eps_schedule": "linear",
        "gae_lambda": 0.3,
        "vf_gae_lambda": 0.9,
    },
    {
        **COMMON,
        "reward_centering": True,
        "priority_alpha": 1.0,
        "priority_beta0": 0.6,
        "anneal_priority_beta": False,
        "valid_mass_coef": 0.1,
        "masking_gating": False,
        "normalise_rewards": True,
        "raw_reward_deviation": True,
        "reward_clip": 1.2,
        "valid_mass_target": 0.5,
        "value_clip_eps": 0.1,
        "lr_schedule": "linear",
        "gae_lambda_initial": 0.2,
        "gae_lambda_final": 0.6,
        "vf_gae_lambda": 0.95,
        "gae_lambda_schedule_multiplier": 0.1,
    },
    {
        **COMMON,
        "masking_damping": False,
        "masking_gate_min_actions": 4,
        "ent_coef": 0.05,
        "off_policy_masking": True,
        "schedule_on_gradient_steps": True,
        "update_epochs": 1,
        "normalise_advantages": False,
    },
)
# Everything that needs whole segments; the last minibatch has one of them.
BY_SEGMENTS = {"num_envs": 5, "rollout_length": 6, "num_minibatches": 3, "hidden_sizes": [4],
               "priority_over": "segments", "gradient_accumulation": 2}  # fmt: skip
SEGMENT_FEATURES = (
    "normalise_observations",
    "normalise_rewards",
    "priority",
    "raw_reward_deviation",
    "v_trace",
    "vf_gae_lambda",
)
V_TRACE = {"rho_clip": 0.98, "c_clip": 0.95, "learning_rate": 0.05}
SEGMENT_LANES = (
    {**COMMON},
    {
        **COMMON,
        **V_TRACE,
        "gae_lambda": 0.2,
        "vf_gae_lambda": 0.9,
        "normalise_observations": True,
        "value_clip_eps": "same",
        "normalise_rewards": True,
        "raw_reward_deviation": True,
        "reward_scale": 0.1,
    },
    {
        **COMMON,
        "priority_alpha": 0.8,
        "priority_beta0": 0.3,
        "gae_lambda": 0.0,
        "vf_gae_lambda": 1.0,
        "normalise_rewards": True,
        "gamma": 0.9,
    },
    {
        **COMMON,
        **V_TRACE,
        "rho_clip": 2.0,
        "priority_alpha": 0.5,
        "gae_lambda_initial": 0.5,
        "gae_lambda_final": 1.0,
    },
    {
        **COMMON,
        "rho_clip": 0.5,
        "c_clip": 0.6,
        "learning_rate": 0.05,
        "priority_alpha": 1.7,
        "priority_beta0": 0.4,
        "gae_lambda": 0.9,
        "vf_gae_lambda": 0.6,
    },
)


# Masks, whole segments, V-trace and priorities in one program; forced steps among all.
CROSSED = {"num_envs": 4, "rollout_length": 6, "num_minibatches": 3, "hidden_sizes": [4],
           "policy_gain": 4.0}  # fmt: skip
CROSSED_FEATURES = ("off_policy_masking", "priority", "v_trace", "valid_mass_loss")
CROSSED_LANES = (
    {
        **COMMON,
        **V_TRACE,
        "priority_alpha": 0.8,
        "priority_beta0": 0.3,
        "masking_gate_min_actions": 4,
        "valid_mass_target": 0.9,
    },
    {
        **COMMON,
        **V_TRACE,
        "off_policy_masking": True,
        "valid_mass_coef": 0.2,
        "masking_damping": False,
    },
    {**COMMON, "priority_alpha": 1.2, "masking_gating": False, "ent_coef": 0.05},
)


@pytest.fixture(scope="module")
def steps():
    case = whole.Updates(countdown.plan_of(), BY_STEPS, STEP_FEATURES)
    return case, case.run(STEP_LANES, 2)


@pytest.fixture(scope="module")
def segments():
    where = EnvPlan("Pendulum-v1", (("max_steps_in_episode", 4),))
    case = whole.Updates(where, BY_SEGMENTS, SEGMENT_FEATURES)
    return case, case.run(SEGMENT_LANES, 2)


@pytest.fixture(scope="module")
def crossed():
    case = whole.Updates(countdown.plan_of(), CROSSED, CROSSED_FEATURES)
    return case, case.run(CROSSED_LANES, 2)


@pytest.mark.parametrize("lane", range(len(CROSSED_LANES)))
def test_masks_v_trace_and_priorities_combine_like_the_reference(crossed, lane):
    case, rows = crossed
    for row in rows:
        case.check(CROSSED_LANES[lane], row, lane)


def test_average_reward_starts_at_its_knob_or_the_first_rollout(steps):
    """Given, every step has the size of the knob; else the first one has size 1."""
    case, rows = steps
    start = rows[0][0]
    np.testing.assert_array_equal(start.average_reward, np.float32([0.0, 0.5, 0.0, 0.0]))
    np.testing.assert_array_equal(start.average_trace, np.float32([0.0, 1.0, 0.0, 0.0]))
    for lane, size in ((1, 0.2), (2, 1.0)):
        given = {**BY_STEPS, **STEP_LANES[lane]}
        before, after, _, seen, last = whole.lane_of(rows[0], lane)
        loops = whole.Expected(case.plan, given, before, after, seen, last)
        rewards = loops.rewards() - float(before.average_reward)
        following = np.where(seen.truncated, seen.bootstrap, [*seen.value[1:], last])
        ahead = loops.knobs["gamma"] * (1.0 - seen.terminated) * following
        moved = float(before.average_reward) + size * (rewards + ahead - seen.value).mean()
        assert float(after.average_reward) == pytest.approx(moved, abs=1e-5)
        assert abs(moved - float(before.average_reward)) > 0.01


@pytest.mark.parametrize("lane", range(len(STEP_LANES)))
def test_lanes_of_single_steps_do_what_their_own_switches_say(steps, lane):
    case, rows = steps
    for row in rows:
        case.check(STEP_LANES[lane], row, lane)


@pytest.mark.parametrize("lane", range(len(SEGMENT_LANES)))
def test_lanes_of_whole_segments_do_what_their_own_switches_say(segments, lane):
    case, rows = segments
    for row in rows:
        case.check(SEGMENT_LANES[lane], row, lane)


def test_priorities_beside_v_trace_are_of_the_clipped_advantages(segments):
    """P(i) and the weights by hand: |A| where every ratio is 1, with rho and c below it."""
    case, rows = segments
    lane, knobs = 4, complete({**BY_SEGMENTS, **SEGMENT_LANES[4]})
    before, _, metrics, seen, last = whole.lane_of(rows[1], lane)
    hypers, _ = case.begin(SEGMENT_LANES)
    one = jax.tree.map(lambda x: jnp.asarray(x)[None], before)
    batch = jax.tree.map(lambda x: jnp.asarray(x)[:, None], seen)
    hypers = jax.tree.map(lambda x: x[lane : lane + 1], hypers)
    played = Rollout(one, batch, EpisodeSums.of_none(1), jnp.asarray(last)[None])
    _, _, made = jax.jit(partial(prepare, case.plan))(hypers, played)
    advantage = np.zeros((case.plan.rollout_length + 1, case.plan.num_envs))
    following = np.where(seen.truncated, seen.bootstrap, [*seen.value[1:], last])
    for t in reversed(range(case.plan.rollout_length)):
        delta = seen.reward[t] + knobs["gamma"] * following[t] - seen.value[t]
        decay = knobs["gamma"] * knobs["gae_lambda"] * 0.6 * ~seen.truncated[t]
        advantage[t] = 0.5 * delta + decay * advantage[t + 1]
    assert not seen.terminated.any()
    size = (np.abs(advantage[:-1]).sum(axis=0) + 1e-6) ** 1.7
    beta = 0.4 + 0.6 * 1 / whole.TOTAL
    np.testing.assert_allclose(made.advantage[0], advantage[:-1].T, rtol=1e-4, atol=1e-5)
    chances = probabilities(made.advantage[0], jnp.asarray(hypers.priority_alpha[0]))
    np.testing.assert_allclose(chances, size / size.sum(), rtol=1e-4)
    weights = (case.plan.num_envs * size / size.sum()) ** -beta
    np.testing.assert_allclose(made.importance[0], weights, rtol=1e-4)
    assert weights.max() > 1.2 * weights.min()
    assert metrics.advantage_mean == pytest.approx(advantage[:-1].mean(), rel=1e-4)


def test_rewards_are_divided_by_their_own_deviation(segments):
    """Of all of them so far; beside it a lane that divides by that of discounted returns."""
    _, rows = segments
    for count in (1, 2):
        seen = np.concatenate(
            [row[3].reward.reshape(-1, *row[3].reward.shape[1:]) for row in rows[:count]]
        )
        statistics = rows[count - 1][1].return_statistics
        made = np.sqrt(statistics.square / statistics.count)
        assert made[1] == pytest.approx(np.std(0.1 * seen[:, 1].astype(np.float64)), rel=1e-4)
        assert made[2] > 1.5 * np.std(seen[:, 2])
        assert np.all(statistics.count == seen[:, 0].size)


def test_inspection_applies_no_priority_weights(segments):
    """Weights belong to rows that were drawn; a mean over each once is that of the advantages."""
    case, rows = segments
    lane, state = 4, jax.tree.map(lambda x: x[4], rows[1][0])
    hypers = jax.tree.map(lambda x: x[lane], case.begin(SEGMENT_LANES)[0])
    parts = jax.jit(partial(inspect_lane, case.plan))(hypers, state)
    spread = parts["advantages"]["advantage"]
    assert np.std(np.abs(spread).sum(axis=0)) > 0.1 and parts["losses"].value_loss > 0.1
    assert parts["losses"].policy_loss == pytest.approx(0.0, abs=1e-5)  # -mean of what has mean 0


def test_feature_cases_cover_masks_truncations_and_clipped_ratios(steps, segments):
    """Else the comparisons above would show little: everything that can happen does."""
    _, rows = steps
    for row in rows:
        mask, mass = row[3].mask, row[3].valid_mass
        counts = mask.sum(axis=-1)
        assert {0, 3} <= set(np.unique(counts).tolist())
        assert mass[counts > 0].min() < 0.5 < mass.max()
        assert np.all(mass[counts == 0] == 0.0)
    assert np.all(np.abs(rows[-1][2].features["average_reward"][1:3]) > 0.05)
    _, rows = segments
    cut = np.concatenate([row[3].truncated for row in rows])
    assert 0 < cut.sum() < cut.size
    ratio = np.asarray(rows[-1][2].ratio_min)[[1, 3]]
    assert np.all(ratio < 0.95) and np.all(np.asarray(rows[-1][2].ratio_max)[[1, 3]] > 1.02)


@pytest.mark.parametrize("name", ["steps", "segments"])
def test_switching_a_lane_compiles_nothing_and_changes_no_other_lane(name, request):
    case, rows = request.getfixturevalue(name)
    lanes = list({"steps": STEP_LANES, "segments": SEGMENT_LANES}[name])
    compiled = case.both._cache_size()
    lanes[0] = lanes[1]  # everything on, where everything was off
    again = case.run(lanes, 2)
    assert case.both._cache_size() == compiled == 1
    for row, other in zip(rows, again, strict=True):
        for left, right in zip(
            jax.tree.leaves(row[1:3]), jax.tree.leaves(other[1:3]), strict=True
        ):
            np.testing.assert_array_equal(left[1:], right[1:])
        assert not np.array_equal(row[2].loss[0], other[2].loss[0])


def test_recurrent_v_trace_on_policy_equals_gae():
    """The memory is carried to the observation after the rollout, emptied where an episode ended.

    Two lanes of the same seed, one with V-trace: in the first gradient step of each update, and of
    updates that change nothing, every ratio is 1.
    """
    sizes = {"num_envs": 4, "rollout_length": 6, "num_minibatches": 1, "hidden_sizes": [4],
             "network": "lstm", "recurrent_size": 4, "policy_gain": 1.0}  # fmt: skip
    where = EnvPlan("Pendulum-v1", (("max_steps_in_episode", 4),))
    case = whole.Updates(where, sizes, ("v_trace",))
    still = {"update_epochs": 1, "learning_rate": 1e-30, "normalise_advantages": False}
    traced = {**still, "rho_clip": 1.5, "c_clip": 1.0}
    for row in case.run([still, traced], 3, replicates=[0, 0]):
        metrics, last = row[2], row[4]
        assert np.all(metrics.ratio_start_error <= 1e-4)
        for name in ("policy_loss", "value_loss", "grad_norm"):
            plain, v_trace = getattr(metrics, name)
            assert plain == pytest.approx(v_trace, rel=1e-4, abs=1e-5), name
        assert np.ptp(last[0]) > 1e-3  # values after the rollout differ between environments


def test_feature_cases_cover_all_features():
    assert {*STEP_FEATURES, *SEGMENT_FEATURES} == set(FEATURES)
