"""What brax and MuJoCo Playground have in common behind the environment contract.

Where a package is not installed, only the refusal is tested.
"""

import importlib
import importlib.util
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.envs.contract import Box
from hpo.core.plan import EnvPlan
from hpo.errors import MissingExtraError
from hpo.testing.environments import EnvironmentContract

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("quickly_compiled"),
    pytest.mark.filterwarnings("ignore"),  # of the packages and their dependencies
]


@dataclass(frozen=True)
class Source:
    """A package of physics environments and one of its pendulums."""

    package: str
    id: str
    position: str  # the field of the simulator's state that holds the joints' positions
    simulator: str  # the field of the environment's state that holds the simulator's state
    observed: int  # length of an observation

    @property
    def installed(self):
        return importlib.util.find_spec(self.package) is not None

    def make(self, **keys):
        return registry.make(EnvPlan(self.id, tuple(sorted(keys.items()))))

    def original(self):
        """Return the package's own environment."""
        name = self.id.partition(":")[2]
        if self.package == "brax":
            envs = importlib.import_module("brax.envs")
            return envs.get_environment(name, backend="generalized")
        playground = importlib.import_module("mujoco_playground").registry
        return playground.load(name, config_overrides={"impl": "jax"})


BRAX = Source("brax", "brax:inverted_pendulum", "q", "pipeline_state", 4)
PLAYGROUND = Source("mujoco_playground", "playground:PendulumSwingup", "qpos", "data", 3)
SOURCES = [BRAX, PLAYGROUND]
INSTALLED = [
    pytest.param(
        source,
        id=source.package,
        marks=pytest.mark.skipif(not source.installed, reason=f"{source.package} is missing"),
    )
    for source in SOURCES
]


def key(seed):
    return jax.random.key(seed, impl="threefry2x32")


def params_of(env, **values):
    return jax.tree.map(np.float32, registry.params_of(env, values))


@pytest.fixture(scope="module", params=INSTALLED)
def six(request):
    """A pendulum of six steps: (its source, itself, its compiled reset and step)."""
    env = request.param.make(max_steps_in_episode=6)
    return request.param, env, jax.jit(env.reset), jax.jit(env.step)


@pytest.mark.parametrize("source", INSTALLED)
class TestContract(EnvironmentContract):
    @pytest.fixture
    def environment(self, source):
        return source.make(max_steps_in_episode=20)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.package)
def test_missing_package_is_refused_with_the_extra(source):
    if source.installed:
        pytest.skip(f"{source.package} is installed")
    extra = source.id.partition(":")[0]
    with pytest.raises(MissingExtraError, match=rf"{source.id} needs .*pip install .*\[{extra}\]"):
        registry.make(EnvPlan(source.id))


def test_steps_equal_the_original_until_the_time_limit(six):
    source, env, reset, step = six
    assert env.action_space == Box((-1.0,), (1.0,), (1,))
    params = params_of(env)
    state, observation = reset(key(1), params)
    theirs = source.original()
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


def test_nonfinite_state_terminates_the_episode(six):
    source, env, reset, step = six
    params = params_of(env)
    state, _ = reset(key(4), params)
    simulated = getattr(state.inner, source.simulator)
    position = getattr(simulated, source.position) * jnp.float32(np.nan)
    broken = simulated.replace(**{source.position: position})
    state = state.replace(inner=state.inner.replace(**{source.simulator: broken}))
    after = step(key(0), state, jnp.zeros((1,), jnp.float32), params)
    assert bool(after.terminated) and float(after.reward) == 0.0
    np.testing.assert_array_equal(after.observation, np.zeros(source.observed))


def brax_pendulum_responds(plain, light, strong):
    assert abs(light[1]) < abs(plain[1])  # falls more slowly
    assert strong[0] > 1.5 * plain[0]  # is driven further


def playground_pendulum_responds(plain, light, strong):
    assert abs(light[2] - plain[2]) > 0.01  # of the angle's velocity
    assert abs(strong[2] - plain[2]) > 0.01


RESPONSES = {
    BRAX.package: brax_pendulum_responds,
    PLAYGROUND.package: playground_pendulum_responds,
}


@pytest.mark.parametrize("source", INSTALLED)
def test_physics_differ_by_their_parameters_in_one_program(source):
    env = source.make()

    def last(params, action):
        state, _ = env.reset(key(3), params)

        def one(state, _):
            after = env.step(key(0), state, action, params)
            return after.state, after.observation

        return jax.lax.scan(one, state, None, length=10)[1][-1]

    rows = [({}, 0.3), ({"gravity": 2.0}, 0.3), ({"strength": 2.0}, 0.3), ({}, 0.6)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *(params_of(env, **row) for row, _ in rows))
    actions = np.float32([[action] for _, action in rows])
    plain, light, strong, harder = np.asarray(jax.jit(jax.vmap(last))(stacked, actions))
    RESPONSES[source.package](plain, light, strong)
    np.testing.assert_allclose(strong, harder, rtol=1e-4, atol=1e-5)  # a motor: twice is twice
