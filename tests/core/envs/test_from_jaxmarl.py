"""JaxMARL behind the contract; where it is not installed only the refusal is seen."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.envs.contract import Box, Discrete
from hpo.core.plan import EnvPlan
from hpo.errors import MissingExtraError
from hpo.testing.environments import EnvironmentContract

SPREAD = "jaxmarl:MPE_simple_spread_v3"
installed = importlib.util.find_spec("jaxmarl") is not None
needs_jaxmarl = pytest.mark.skipif(not installed, reason="JaxMARL is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of JaxMARL and its dependencies


def spread(**keys):
    return registry.make(EnvPlan(SPREAD, tuple(sorted(keys.items()))))


def key(seed):
    return jax.random.key(seed, impl="threefry2x32")


@needs_jaxmarl
class TestContract(EnvironmentContract):
    @pytest.fixture
    def environment(self):
        return spread()


@pytest.mark.skipif(installed, reason="JaxMARL is installed")
def test_what_is_missing_is_said_with_what_to_type():
    with pytest.raises(
        MissingExtraError, match=r"simple_spread_v3 needs .*pip install .*\[jaxmarl\]"
    ):
        spread()


@needs_jaxmarl
def test_it_steps_like_jaxmarl_until_the_time_limit():
    import jaxmarl

    env = spread(num_agents=2, num_landmarks=4, max_steps_in_episode=5)
    assert (env.agents, env.action_space) == (2, Discrete(5))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs = jaxmarl.make("MPE_simple_spread_v3", num_agents=2, num_landmarks=4)
        seen, their_state = theirs.reset(key(1))
        state, observation = env.reset(key(1), env.default_params)
        np.testing.assert_allclose(observation, [seen["agent_0"], seen["agent_1"]], rtol=1e-6)
        ends, step = [], jax.jit(env.step)
        for t in range(7):
            action = jnp.asarray([t % 5, (t + 2) % 5], jnp.int32)
            after = step(key(t), state, action, env.default_params)
            given = {"agent_0": action[0], "agent_1": action[1]}
            seen, their_state, paid, _, _ = theirs.step_env(key(t), their_state, given)
            for i, name in enumerate(("agent_0", "agent_1")):
                np.testing.assert_allclose(after.observation[i], seen[name], rtol=1e-4, atol=1e-5)
                assert float(after.reward[i]) == pytest.approx(float(paid[name]), rel=1e-4)
            assert not after.terminated
            ends.append(bool(after.truncated))
            state = after.state
    assert ends == [False] * 4 + [True] * 3


@needs_jaxmarl
def test_continuous_jaxmarl_actions_have_a_unit_box():
    assert spread(action_type="Continuous").action_space == Box((0.0,) * 5, (1.0,) * 5, (5,))
