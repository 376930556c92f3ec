import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import countdown, slow
from hpo.core import epochs, evaluation, population, rollout, update
from hpo.core.envs import registry
from hpo.core.envs.contract import Discrete, Step
from hpo.core.envs.foreign import EpisodicEnvironment, made_params
from hpo.core.evaluation import Players, Policies, evaluate, play
from hpo.core.hypers import make_hypers
from hpo.core.lane_state import RunningStatistics, lane_key, use_key
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.policy import init_params
from hpo.core.pytree import stack

pytestmark = pytest.mark.usefixtures("quickly_compiled")

EPISODES = 4
CONFIG = {"hidden_sizes": [6], "policy_gain": 1.0, "normalise_observations": True}


def policies_of(plan, eval_params=None, **knobs):
    """Return three lanes with different parameters; lane 2 has another key."""
    env = registry.make(plan.env)
    params = env.default_params
    hypers = make_hypers({**CONFIG, **knobs}, params, eval_params or params)
    rng = np.random.default_rng(0)
    shape = env.observation_struct.shape
    frozen = jax.tree.map(
        np.asarray,
        RunningStatistics.empty(shape).merge(
            jnp.asarray(rng.normal(0.1, 0.5, size=(100, *shape)), jnp.float32)
        ),
    )
    lanes = []
    for lane in range(3):
        key = jax.random.key(lane, impl="threefry2x32")
        made = jax.tree.map(jnp.asarray, hypers)
        weights = jax.device_get(init_params(plan, made, key))
        raw = lane_key(jnp.int32(9), jnp.int32(0), jnp.int32(lane // 2))
        lanes.append(Policies(hypers, weights, frozen, raw))
    return jax.tree.map(jnp.asarray, stack(lanes))


def lane_of(tree, lane):
    return jax.tree.map(lambda x: x[lane], tree)


class Evaluated:
    """Results of CartPole policies, evaluated with a time limit and a gravity of their own."""

    def __init__(self):
        short = EnvPlan("CartPole-v1", (("max_steps_in_episode", 60),))
        self.plan = make_plan(CONFIG, EnvPlan("CartPole-v1"), short)
        self.env = registry.make(short)
        self.params = registry.params_of(self.env, {"gravity": 15.0})
        self.lanes = policies_of(self.plan, self.params)
        self.step = jax.jit(self.env.step)
        self.sample = jax.jit(lambda lanes: evaluate(self.plan, lanes, EPISODES, greedy=False))
        greedy = jax.jit(lambda lanes: evaluate(self.plan, lanes, EPISODES, greedy=True))
        self.greedy, self.sampled = jax.device_get((greedy(self.lanes), self.sample(self.lanes)))


@pytest.fixture(scope="module")
def evaluated():
    return Evaluated()


def played(evaluated, lane, episode, greedy=True):
    """Play one episode in a Python loop; gives (return, length)."""
    env, params = evaluated.env, jax.tree.map(np.float32, evaluated.params)
    one = lane_of(jax.device_get(evaluated.lanes), lane)
    weights, statistics = slow.as_float64(one.params), one.observation_statistics
    std = np.sqrt(statistics.square.astype(np.float64) / statistics.count)
    keys = jax.random.split(use_key(one.key, evaluation.EVALUATION, 0), EPISODES)
    state, observation = env.reset(keys[episode], params)
    total, t = 0.0, 0
    while True:
        clean = np.clip((np.asarray(observation) - statistics.mean) / std, -10, 10)
        logits = slow.network(weights, clean[None])[0][0]
        key = use_key(one.key, evaluation.EVALUATION, t + 1)
        action = int(np.argmax(logits))
        if not greedy:
            noise = jax.random.uniform(jax.random.fold_in(key, 1), (EPISODES,), jnp.float32)
            probs = np.exp(slow.log_softmax(logits))
            action = int(np.sum(np.cumsum(probs) <= float(noise[episode])))
        words = jax.random.bits(key, (EPISODES, 2))[episode]
        after = evaluated.step(
            jax.random.wrap_key_data(words, impl="threefry2x32"), state, jnp.int32(action), params
        )
        state, observation, t = after.state, after.observation, t + 1
        total += float(after.reward)
        if after.terminated or after.truncated:
            return total, t


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(("lane", "episode"), [(0, 0), (1, 2), (2, 3)])
def test_evaluation_episode_matches_a_python_loop(evaluated, greedy, lane, episode):
    made = evaluated.greedy if greedy else evaluated.sampled
    total, length = played(evaluated, lane, episode, greedy)
    assert (made.returns[lane, episode], made.lengths[lane, episode]) == (total, length)


def test_evaluation_has_expected_shapes_dtypes_and_length_limit(evaluated):
    for made in (evaluated.greedy, evaluated.sampled):
        assert made.returns.shape == made.lengths.shape == (3, EPISODES)
        assert made.returns.dtype == np.float32 and made.lengths.dtype == np.int32
        np.testing.assert_array_equal(made.returns, made.lengths)  # CartPole pays 1 a step
        assert made.lengths.max() <= 60 and made.metrics == {}


def test_max_steps_truncates_evaluation_episodes(evaluated):
    cut = max(2, int(np.median(evaluated.greedy.lengths)))
    run = jax.jit(lambda lanes: evaluate(evaluated.plan, lanes, EPISODES, True, cut_after=cut))
    made = jax.device_get(run(evaluated.lanes))
    np.testing.assert_array_equal(made.lengths, np.minimum(evaluated.greedy.lengths, cut))
    shorter = evaluated.greedy.lengths < cut
    assert shorter.any() and (evaluated.greedy.lengths > cut).any()
    np.testing.assert_array_equal(made.returns[shorter], evaluated.greedy.returns[shorter])


def test_greedy_differs_from_sampled(evaluated):
    assert not np.array_equal(evaluated.greedy.returns, evaluated.sampled.returns)


def test_evaluation_seeds_depend_only_on_the_lane_key(evaluated):
    """With the policy of lane 0 in all lanes: equal keys equal rows, another key others."""
    zeroth = lane_of(evaluated.lanes.params, 0)
    params = jax.tree.map(lambda x: jnp.stack([x] * 3), zeroth)
    lanes = evaluated.lanes.replace(params=params)
    made = evaluated.sample(lanes)
    np.testing.assert_array_equal(made.returns[0], evaluated.sampled.returns[0])
    np.testing.assert_array_equal(made.returns[1], made.returns[0])
    assert not np.array_equal(made.returns[2], made.returns[0])


def test_evaluation_and_training_keys_are_disjoint():
    """No raw key that training's resets, steps and draws use is one of evaluation's."""
    raw = lane_key(jnp.int32(9), jnp.int32(0), jnp.int32(0))
    shape = (16, 8, 2)

    def words(keys):
        return {tuple(row) for row in np.asarray(jax.random.key_data(keys)).reshape(-1, 2)}

    training, tests = set(), set()
    training |= words(jax.random.split(use_key(raw, population.ENV_RESET), 64))
    training |= words(use_key(raw, population.INIT)[None])
    for counter in range(40):
        steps = use_key(raw, rollout.ROLLOUT_STEPS, counter)
        bits = np.asarray(jax.random.bits(steps, shape)).reshape(-1, 2)
        training |= {tuple(row) for row in bits}
        training |= {tuple(row) for row in bits ^ np.array([0, rollout._RESET_WORD], np.uint32)}
        for use in (rollout.ROLLOUT_NOISE, epochs.SHUFFLE, epochs.PRIORITY, update.ENTROPY_NOISE):
            training |= words(use_key(raw, use, counter)[None])
    tests |= words(jax.random.split(use_key(raw, evaluation.EVALUATION), 64))
    for step in range(200):
        key = use_key(raw, evaluation.EVALUATION, step + 1)
        tests |= words(key[None]) | words(jax.random.fold_in(key, 1)[None])
        tests |= {tuple(row) for row in np.asarray(jax.random.bits(key, (64, 2)))}
    assert len(training) > 10_000 and len(tests) > 10_000
    assert not training & tests
    uses = (population.INIT, population.ENV_RESET, rollout.ROLLOUT_NOISE, rollout.ROLLOUT_STEPS,
            epochs.SHUFFLE, epochs.PRIORITY, update.ENTROPY_NOISE,
            evaluation.EVALUATION)  # fmt: skip
    assert len(set(uses)) == len(uses)


def test_lane_keys_are_distinct_per_seed_stream_and_replicate():
    keys = {
        tuple(np.asarray(lane_key(jnp.int32(seed), jnp.int32(stream), jnp.int32(replicate))))
        for seed in range(3)
        for stream in range(4)
        for replicate in range(5)
    }
    assert len(keys) == 60


@pytest.fixture(scope="module")
def counted():
    """Countdown policies: an episode each, then seven steps each in continuous operation."""
    config = {**CONFIG, "normalise_observations": False}
    plan = make_plan(config, countdown.plan_of(), features=())
    lanes = policies_of(plan, normalise_observations=False)
    empty = jax.tree.map(lambda x: jnp.stack([x] * 3), RunningStatistics.empty(()))
    lanes = lanes.replace(observation_statistics=empty)

    def both(lanes):
        whole = evaluate(plan, lanes, EPISODES, True)
        return whole, evaluate(plan, lanes, EPISODES, True, steps=7)

    return jax.device_get(jax.jit(both)(lanes))


def test_steps_after_the_episode_end_are_ignored(counted):
    """The environment gives NaN there; shorter episodes wait for longer ones."""
    whole, _ = counted
    assert np.isfinite(whole.returns).all()
    assert len(np.unique(whole.lengths)) > 1 and set(whole.lengths.ravel()) <= {3, 4, 5}


def test_env_metrics_are_averaged_per_episode(counted):
    """Only the fourth step is invalid, whatever is done."""
    whole, _ = counted
    expected = np.where(whole.lengths >= 4, 1.0, 0.0) / whole.lengths
    np.testing.assert_allclose(whole.metrics["invalid_share"], expected, rtol=1e-6)


def test_fixed_step_evaluation_continues_across_episode_ends(counted):
    _, steps = counted
    np.testing.assert_array_equal(steps.lengths, np.full((3, EPISODES), 7))
    assert np.isfinite(steps.returns).all()
    # 7 steps hold one end after 3 to 5, so at least one fourth step and at most two
    invalid = np.round(steps.metrics["invalid_share"] * 7)
    assert set(invalid.ravel()) <= {0.0, 1.0} and 1.0 in invalid


class Drip(EpisodicEnvironment):
    """Each step pays and reports a number that float32 cannot add to large sums of itself."""

    id, never_ends, action_space, default_params = "drip", True, Discrete(2), made_params({})
    observation_struct = jax.ShapeDtypeStruct((1,), np.float32)

    def reset(self, key, params):
        return jnp.float32(0.0), jnp.zeros(1)

    def step(self, key, state, action, params):
        never, paid = jnp.zeros((), bool), jnp.float32(251.0)
        return Step(state, jnp.zeros(1), paid, never, never, {"paid": paid})

    def summarise(self, sums, steps):
        return {"paid": sums["paid"] / steps}


def test_sums_over_many_steps_lose_nothing():
    steps, env = 300_000, Drip()
    alone = np.cumsum(np.full(steps, 251.0, np.float32), dtype=np.float32)[-1]
    assert abs(alone / steps / 251.0 - 1.0) > 1e-3  # one float32 sum loses parts of numbers

    def act(step, env_state, observation, memory):
        return jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1, 2), jnp.uint32), memory

    players = Players(env, jnp.zeros((1, 0)), jnp.zeros((1, 2), jnp.uint32), act, lambda shape: ())
    found = jax.device_get(jax.jit(lambda: play(players, 1, steps))())
    assert found.lengths.tolist() == [[steps]]
    np.testing.assert_allclose(found.returns, 251.0 * steps, rtol=1e-6)
    np.testing.assert_allclose(found.metrics["paid"], 251.0, rtol=1e-6)
