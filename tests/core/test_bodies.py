"""Several bodies an environment: each is a segment of its own wherever something is learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import dials, slow
from hpo.core.envs import registry
from hpo.core.envs.contract import agents_of, mean_over_bodies, per_body
from hpo.core.evaluation import Policies, evaluate
from hpo.core.hypers import make_hypers
from hpo.core.lane_state import use_key
from hpo.core.memory import estimate_memory
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.population import init_lane
from hpo.core.pytree import stack
from hpo.core.rollout import ROLLOUT_STEPS, rollout
from hpo.core.update import learn
from hpo.testing.environments import EnvironmentContract

pytestmark = pytest.mark.usefixtures("quickly_compiled")

ENVS, STEPS, BODIES, LANES, EPISODES = 3, 12, dials.BODIES, 2, 3
KNOBS = {
    "num_envs": ENVS, "rollout_length": STEPS, "num_minibatches": 2, "hidden_sizes": [6],
    "policy_gain": 1.0, "normalise_observations": True, "normalise_rewards": True, "gamma": 0.9,
    "gae_lambda": 0.8, "learning_rate": 0.01,
}  # fmt: skip


class TestDials(EnvironmentContract):
    @pytest.fixture
    def environment(self):
        return dials.Dials()


class Played:
    """Two lanes of dials: state, rollout, two updates, evaluation; a program each."""

    def __init__(self):
        features = ("normalise_observations", "normalise_rewards")
        self.plan = make_plan(KNOBS, dials.plan_of(), features=features)
        self.env = registry.make(self.plan.env)
        params = self.env.default_params
        hypers = stack([make_hypers(KNOBS, params, params)] * LANES)

        def start(args):
            hypers, replicate = args
            zero, many = jnp.int32(0), jnp.int32(10)
            return init_lane(self.plan, jnp.int32(5), hypers, zero, replicate, zero, many)

        @jax.jit
        def begin(hypers):
            return jax.lax.map(start, (hypers, jnp.arange(LANES, dtype=jnp.int32)))

        @jax.jit
        def once(hypers, state):
            rolled = rollout(self.plan, hypers, state)
            return learn(self.plan, hypers, rolled), rolled

        @jax.jit
        def played(hypers, state):
            policies = Policies(hypers, state.params, state.observation_statistics, state.key)
            return evaluate(self.plan, policies, EPISODES, True)

        state = begin(hypers)
        updated, seen = once(hypers, state)
        again, _ = once(hypers, updated[0])
        parts = jax.device_get((state, seen, updated, again, played(hypers, state)))
        self.state, self.seen, self.updated, self.again, self.evaluated = parts


@pytest.fixture(scope="module")
def played():
    return Played()


def lane_of(tree, lane, axis=0):
    return jax.tree.map(lambda x: np.take(x, lane, axis=axis), tree)


def reset_key(words):
    words = words ^ np.array([0, 0x9E3779B9], np.uint32)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def test_segments_are_the_bodies_stepped_by_hand(played):
    """Observations, masks, rewards, endings and resets of each body, next to its fellow's."""
    env, params = played.env, jax.tree.map(np.float32, played.env.default_params)
    step, reset, mask_of = (jax.jit(f) for f in (env.step, env.reset, env.action_mask))
    ends = cuts = 0
    for lane in range(LANES):
        state = lane_of(played.state, lane)
        after = lane_of(played.seen.state, lane)
        trajectory = lane_of(played.seen.trajectory, lane, 1)
        assert trajectory.action.shape == (STEPS, ENVS * BODIES, 2)
        words = np.asarray(jax.random.bits(use_key(state.key, ROLLOUT_STEPS, 0), (STEPS, ENVS, 2)))
        for e in range(ENVS):
            bodies = slice(e * BODIES, (e + 1) * BODIES)
            own = jax.tree.map(lambda x, e=e: x[e], state.env_state)
            observation = state.observation[bodies]
            for t in range(STEPS):
                np.testing.assert_array_equal(trajectory.observation[t, bodies], observation)
                np.testing.assert_array_equal(trajectory.mask[t, bodies], mask_of(own, params))
                key = jax.random.wrap_key_data(words[t, e], impl="threefry2x32")
                made = step(key, own, trajectory.action[t, bodies], params)
                np.testing.assert_allclose(trajectory.reward[t, bodies], made.reward, rtol=1e-6)
                assert np.all(trajectory.terminated[t, bodies] == made.terminated)
                assert np.all(trajectory.truncated[t, bodies] == made.truncated)
                own, observation = made.state, made.observation
                ends, cuts = ends + int(made.terminated), cuts + int(made.truncated)
                if made.terminated | made.truncated:
                    own, observation = reset(reset_key(words[t, e]), params)
            np.testing.assert_array_equal(after.observation[bodies], observation)
    assert ends > 0 and cuts > 0


def test_only_valid_components_are_taken_and_log_probabilities_are_the_network_s(played):
    for lane in range(LANES):
        trajectory = lane_of(played.seen.trajectory, lane, 1)
        params = slow.as_float64(lane_of(played.state, lane).params)
        flat = {
            name: getattr(trajectory, name).reshape(STEPS * ENVS * BODIES, -1)
            for name in ("observation", "mask", "action")
        }
        logits, value = slow.network(params, flat["observation"])
        expected = 0.0
        for component, part in enumerate((slice(0, 3), slice(3, 5))):
            taken = flat["action"][:, component]
            log_probs = slow.log_softmax(logits[:, part], flat["mask"][:, part])
            expected = expected + log_probs[np.arange(len(taken)), taken]
            allowed = flat["mask"][:, part]
            assert np.all(allowed[np.arange(len(taken)), taken] | ~allowed.any(axis=1))
        assert np.all(np.isfinite(expected))
        np.testing.assert_allclose(trajectory.log_prob.ravel(), expected, atol=1e-4)
        np.testing.assert_allclose(trajectory.value.ravel(), value, atol=1e-4)


def test_valid_actions_are_those_whose_components_all_are(played):
    """Mass, number and share taken, by the table of all combinations of a body's components."""
    for lane in range(LANES):
        trajectory = lane_of(played.seen.trajectory, lane, 1)
        flat = {
            name: getattr(trajectory, name).reshape(STEPS * ENVS * BODIES, -1)
            for name in ("observation", "mask", "action")
        }
        logits, _ = slow.network(
            slow.as_float64(lane_of(played.state, lane).params), flat["observation"]
        )
        combined = slow.joint(flat["mask"], dials.SIZES, np.logical_and)
        mass = slow.valid_mass(slow.joint(logits, dials.SIZES, np.add), combined)
        np.testing.assert_allclose(trajectory.valid_mass.ravel(), mass, atol=1e-5)
        taken = np.ravel_multi_index(flat["action"].T, dials.SIZES)
        features = lane_of(played.updated[1].features, lane)
        assert features["valid_actions"] == pytest.approx(combined.sum(axis=-1).mean(), rel=1e-6)
        assert features["valid_fraction"] == pytest.approx(combined.mean(), rel=1e-6)
        invalid = 1.0 - combined[np.arange(len(taken)), taken].mean()
        assert features["invalid_actions"] == pytest.approx(invalid, abs=1e-6)
        assert features["valid_mass_mean"] == pytest.approx(mass.mean(), rel=1e-4)


def test_truncated_agents_are_bootstrapped_and_terminated_are_not(played):
    trajectory = played.seen.trajectory
    cut = trajectory.truncated & ~trajectory.terminated
    assert cut.any() and np.all(trajectory.bootstrap[cut] != 0.0)
    assert np.all(trajectory.bootstrap[~cut] == 0.0)
    first, second = trajectory.bootstrap[..., ::2], trajectory.bootstrap[..., 1::2]
    assert np.all(first[cut[..., ::2]] != second[cut[..., ::2]])


def test_multi_agent_episode_counts_once_with_mean_return(played):
    for lane in range(LANES):
        trajectory, sums = (
            lane_of(played.seen.trajectory, lane, 1),
            lane_of(played.seen.sums, lane),
        )
        running, length = np.zeros(ENVS * BODIES), np.zeros(ENVS, int)
        episodes, returns, lengths = 0, 0.0, 0
        for t in range(STEPS):
            running, length = running + trajectory.reward[t], length + 1
            for e in range(ENVS):
                bodies = slice(e * BODIES, (e + 1) * BODIES)
                if trajectory.terminated[t, bodies][0] or trajectory.truncated[t, bodies][0]:
                    episodes, lengths = episodes + 1, lengths + length[e]
                    returns += running[bodies].mean()
                    running[bodies], length[e] = 0.0, 0
        assert episodes > 0
        assert (sums.episodes, sums.lengths) == (episodes, lengths)
        assert sums.returns == pytest.approx(returns, rel=1e-5)


def test_advantages_are_of_each_body_by_itself(played):
    knobs = KNOBS
    for lane in range(LANES):
        trajectory, last = lane_of(played.seen.trajectory, lane, 1), played.seen.last_value[lane]
        ended = trajectory.terminated | trajectory.truncated
        returns, running = [], np.zeros(ENVS * BODIES)
        for t in range(STEPS):
            running = knobs["gamma"] * running + trajectory.reward[t]
            returns.append(running)
            running = np.where(ended[t], 0.0, running)
        rewards = np.clip(trajectory.reward / np.std(returns), -10.0, 10.0)
        following = np.concatenate([trajectory.value[1:], last[None]])
        following = np.where(trajectory.truncated, trajectory.bootstrap, following)
        advantage = slow.gae(
            rewards.astype(np.float64),
            trajectory.value,
            following,
            trajectory.terminated,
            trajectory.truncated,
            knobs["gamma"],
            knobs["gae_lambda"],
        )
        metrics = lane_of(played.updated[1], lane)
        assert metrics.advantage_mean == pytest.approx(advantage.mean(), rel=1e-3, abs=1e-4)
        assert metrics.advantage_std == pytest.approx(advantage.std(), rel=1e-3)
        target = advantage + trajectory.value
        assert metrics.value_target_mean == pytest.approx(target.mean(), rel=1e-3, abs=1e-4)
        assert metrics.reward_mean == pytest.approx(trajectory.reward.mean(), rel=1e-5)


def test_statistics_see_every_body_and_minibatches_hold_all_of_them(played):
    state, metrics = played.updated
    np.testing.assert_array_equal(state.observation_statistics.count, [STEPS * ENVS * BODIES] * 2)
    np.testing.assert_array_equal(state.return_statistics.count, [STEPS * ENVS * BODIES] * 2)
    seen = played.seen.trajectory.observation[:, 0].reshape(-1, 3)
    np.testing.assert_allclose(state.observation_statistics.mean[0], seen.mean(0), rtol=1e-4)
    assert np.all(metrics.ratio_start_error <= 1e-6) and not metrics.diverged.any()
    # 4 epochs of 2 gradient steps, each over half of the 72 samples
    np.testing.assert_array_equal(state.moments[0].count, [8, 8])
    assert np.all(played.again[1].ratio_start_error <= 1e-6)


def test_an_evaluated_return_is_the_mean_over_the_bodies(played):
    made = played.evaluated
    assert made.returns.shape == made.lengths.shape == (LANES, EPISODES)
    assert np.isfinite(made.returns).all() and set(made.lengths.ravel()) <= {3, 4, 5}
    assert made.metrics["invalid_share"].shape == (LANES, EPISODES)
    for lane in range(LANES):
        for episode in range(EPISODES):
            total, length = greedy_episode(played, lane, episode)
            assert made.lengths[lane, episode] == length
            assert made.returns[lane, episode] == pytest.approx(total, rel=1e-5)


def greedy_episode(played, lane, episode):
    """Play one episode in a Python loop; gives (mean return of the bodies, length)."""
    from hpo.core.evaluation import EVALUATION

    env, params = played.env, jax.tree.map(np.float32, played.env.default_params)
    one = lane_of(played.state, lane)
    weights = slow.as_float64(one.params)
    keys = jax.random.split(use_key(one.key, EVALUATION, 0), EPISODES)
    state, observation = env.reset(keys[episode], params)
    total, t = np.zeros(BODIES), 0
    while True:
        mask = np.asarray(env.action_mask(state, params))
        clean = np.clip(np.asarray(observation, np.float64), -10.0, 10.0)
        logits = slow.network(weights, clean)[0]
        action = [
            slow.log_softmax(logits[:, part], mask[:, part]).argmax(-1)
            for part in (slice(0, 3), slice(3, 5))
        ]
        key = use_key(one.key, EVALUATION, t + 1)
        words = jax.random.bits(key, (EPISODES, 2))[episode]
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        after = env.step(key, state, jnp.asarray(np.stack(action, -1), jnp.int32), params)
        state, observation, t = after.state, after.observation, t + 1
        total += np.asarray(after.reward)
        if after.terminated or after.truncated:
            return total.mean(), t


def test_per_body_and_mean_over_bodies_keep_agents_grouped():
    env = dials.Dials()
    flags = jnp.asarray([True, False, True])
    np.testing.assert_array_equal(per_body(env, flags), [True, True, False, False, True, True])
    values = jnp.asarray([1.0, 3.0, 5.0, 9.0])
    np.testing.assert_array_equal(mean_over_bodies(env, values), [2.0, 7.0])
    assert (agents_of(env), agents_of(registry.make(EnvPlan("CartPole-v1")))) == (2, 1)


def test_memory_estimate_grows_with_agents():
    def estimate(agents):
        plan = make_plan(
            {"num_envs": 16, "rollout_length": 128},
            EnvPlan("navigators", (("agents", agents), ("neighbours", 1))),
        )
        params = registry.make(plan.env).default_params
        return estimate_memory(plan, make_hypers({}, params, params), 4, 2, 2)

    assert 2.5 < estimate(8) / estimate(2) < 4.5
