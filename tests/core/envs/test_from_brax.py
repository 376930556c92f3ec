"""brax behind the contract; where brax is not installed only the refusal is seen."""

import importlib.util
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.envs.contract import Box
from hpo.core.plan import EnvPlan
from hpo.environments.table import ENVIRONMENTS
from hpo.errors import MissingExtraError
from hpo.testing.environments import EnvironmentContract

BRAX = {id_: item for id_, item in ENVIRONMENTS.items() if item.source == "brax"}
OWN_KEYS = {"max_steps_in_episode", "backend"}
installed = importlib.util.find_spec("brax") is not None
needs_brax = pytest.mark.skipif(not installed, reason="brax is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("quickly_compiled"),
    pytest.mark.filterwarnings("ignore"),  # of brax and its dependencies
]


def key(seed):
    return jax.random.key(seed, impl="threefry2x32")


def pendulum(**keys):
    return registry.make(EnvPlan("brax:inverted_pendulum", tuple(sorted(keys.items()))))


def params_of(env, **values):
    return jax.tree.map(np.float32, registry.params_of(env, values))


@pytest.fixture(scope="module")
def six():
    """The pendulum of six steps: (itself, its reset and step, compiled)."""
    env = pendulum(max_steps_in_episode=6)
    return env, jax.jit(env.reset), jax.jit(env.step)


@needs_brax
class TestContract(EnvironmentContract):
    @pytest.fixture
    def environment(self):
        return pendulum(max_steps_in_episode=20)


@pytest.mark.skipif(installed, reason="brax is installed")
def test_what_is_missing_is_said_with_what_to_type():
    with pytest.raises(MissingExtraError, match=r"brax:ant needs .*pip install .*\[brax\]"):
        registry.make(EnvPlan("brax:ant"))


@needs_brax
def test_brax_table_lists_all_environments_and_keys():
    from brax import envs

    theirs = {f"brax:{name}" for name in envs._envs if name != "fast"}  # fast has no physics
    assert theirs == set(BRAX)
    for id_, item in BRAX.items():
        given = inspect.signature(envs._envs[id_.removeprefix("brax:")].__init__).parameters
        known = set(item.keys) - OWN_KEYS
        assert known <= set(given), id_
        for name in known:
            assert given[name].default == item.keys[name].default, (id_, name)


@needs_brax
def test_it_steps_like_brax_until_the_time_limit(six):
    from brax import envs

    env, reset, step = six
    assert env.action_space == Box((-1.0,), (1.0,), (1,))
    params = params_of(env)
    state, observation = reset(key(1), params)
    theirs = envs.get_environment("inverted_pendulum", backend="generalized")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        expected, their_step = jax.jit(theirs.reset)(key(1)), jax.jit(theirs.step)
        np.testing.assert_allclose(observation, expected.obs, rtol=1e-5, atol=1e-6)
        ends = []
        for t in range(8):
            action = jnp.full((1,), 3.0 if t % 2 else 0.5, jnp.float32)
            after = step(key(9), state, action, params)
            expected = their_step(expected, jnp.clip(action, -1.0, 1.0))
            np.testing.assert_allclose(after.observation, expected.obs, rtol=1e-3, atol=1e-4)
            assert float(after.reward) == pytest.approx(float(expected.reward), abs=1e-5)
            assert bool(after.terminated) == bool(expected.done)
            ends.append(bool(after.truncated))
            state = after.state
    assert ends == [False] * 5 + [True] * 3


@needs_brax
def test_brax_pendulum_terminates_when_the_pole_falls():
    env = pendulum()
    params = params_of(env)

    def fall(action):
        state, _ = env.reset(key(2), params)

        def one(state, _):
            after = env.step(key(0), state, action, params)
            return after.state, (after.terminated, after.truncated, after.observation)

        return jax.lax.scan(one, state, None, length=60)[1]

    terminated, truncated, seen = jax.device_get(jax.jit(fall)(jnp.ones((1,), jnp.float32)))
    first = int(np.argmax(terminated))
    assert 0 < first < 59 and not truncated.any()
    assert abs(seen[first, 1]) > 0.2 and np.all(np.abs(seen[:first, 1]) <= 0.2)


@needs_brax
def test_physics_differ_by_their_parameters_in_one_program():
    env = pendulum()

    def last(params):
        state, _ = env.reset(key(3), params)

        def one(state, _):
            after = env.step(key(0), state, jnp.full((1,), 0.3, jnp.float32), params)
            return after.state, after.observation

        return jax.lax.scan(one, state, None, length=10)[1][-1]

    rows = [{}, {"gravity": 2.0}, {"strength": 2.0}]
    params = [params_of(env, **row) for row in rows]
    stacked = jax.tree.map(lambda *x: np.stack(x), *params)
    plain, light, strong = np.asarray(jax.jit(jax.vmap(last))(stacked))
    assert abs(light[1]) < abs(plain[1])  # falls more slowly
    assert strong[0] > 1.5 * plain[0]  # is driven further


@needs_brax
def test_nonfinite_brax_state_terminates_the_episode(six):
    env, reset, step = six
    params = params_of(env)
    state, _ = reset(key(4), params)
    pipeline = state.inner.pipeline_state
    broken = pipeline.replace(q=pipeline.q * jnp.float32(np.nan))
    state = state.replace(inner=state.inner.replace(pipeline_state=broken))
    after = step(key(0), state, jnp.zeros((1,), jnp.float32), params)
    assert bool(after.terminated) and float(after.reward) == 0.0
    np.testing.assert_array_equal(after.observation, np.zeros(4))
