"""Policies of hosted environments by themselves: written down, read back, acting, evaluated."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.host.batch import episode_seed
from hpo.core.host.stage import stream_words
from hpo.core.hypers import make_hypers
from hpo.core.lane_state import RunningStatistics
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.policy import init_params
from hpo.core.saved_policy import SavedPolicy, load_policy, save_policy
from hpo.errors import ConfigError
from hpo.knobs import complete

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def made(id_, eval_params=None, history=1, **keys):
    """Return a policy with random weights that matter."""
    config = complete(
        {"hidden_sizes": [6], "policy_gain": 3.0, "history": history, "normalise_rewards": False}
    )
    where, other = EnvPlan(id_), EnvPlan(id_, tuple(sorted(keys.items())))
    plan = make_plan(config, where, other, ())
    env = registry.make(plan.env)
    hypers = jax.tree.map(jnp.asarray, make_hypers(config, env.default_params, env.default_params))
    params = init_params(plan, hypers, jax.random.key(4, impl="threefry2x32"))
    return SavedPolicy(plan, config, {}, eval_params or {}, params, RunningStatistics.empty(()))


@pytest.mark.parametrize(
    "id_", ["gym:CartPole-v1", "gym:Pendulum-v1", "gym:FrozenLake-v1", "gym:hpo-test/Hosted-v0"]
)
def test_loaded_hosted_policy_plays_a_gymnasium_episode(twins, tmp_path, id_):
    save_policy(tmp_path / "policy", made(id_))
    policy = load_policy(tmp_path / "policy")
    env = gymnasium.make(id_.removeprefix("gym:"), max_episode_steps=20)
    observation, _ = env.reset(seed=3)
    over = False
    while not over:
        action, _ = policy.predict(observation)
        assert env.action_space.contains(action), action
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated


def test_hosted_evaluation_depends_on_seed_and_greediness():
    policy = made("gym:CartPole-v1", max_episode_steps=50)
    found = policy.evaluate(3, seed=5)
    assert found.returns.shape == found.lengths.shape == (1, 3)
    np.testing.assert_array_equal(policy.evaluate(3, seed=5).returns, found.returns)
    assert policy.evaluate(3, seed=6).returns.tolist() != found.returns.tolist()
    sampled = policy.evaluate(3, seed=5, greedy=False)
    assert sampled.returns.tolist() != found.returns.tolist()
    assert policy.evaluate(2, steps=11).lengths.tolist() == [[11, 11]]


def test_history_policy_evaluation_matches_a_manual_episode(tmp_path):
    """By hand: stacked by Gymnasium's own wrapper, on the seeds of the evaluation."""
    save_policy(tmp_path / "policy", made("gym:CartPole-v1", history=3, max_episode_steps=50))
    policy = load_policy(tmp_path / "policy")
    words = stream_words(np.asarray(policy._as_lane(5).key[0]), "evaluation", 0)
    env = gymnasium.make("CartPole-v1", max_episode_steps=50)
    env = gymnasium.wrappers.FrameStackObservation(env, 3, padding_type="zero")
    observation, _ = env.reset(seed=episode_seed(words, 0))
    steps, over = 0, False
    while not over:
        action, _ = policy.predict(observation)
        observation, _, terminated, truncated, _ = env.step(action)
        steps, over = steps + 1, terminated or truncated
    assert policy.evaluate(2, seed=5).lengths[0, 0] == steps
    with pytest.raises(
        ConfigError, match=r"\(4,\), but observations of .* \(3, 4\) \(the last 3, oldest first"
    ):
        policy.predict(observation[-1])


def test_evaluation_env_parameters_reach_the_hosted_env(twins):
    plain, changed = made("gym:hpo-test/Hosted-v0"), made("gym:hpo-test/Hosted-v0", {"bonus": 9.0})
    assert changed.evaluate(2).returns.sum() > plain.evaluate(2).returns.sum() + 1.0
