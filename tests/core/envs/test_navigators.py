import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.envs.navigators import Navigators, State
from hpo.core.plan import EnvPlan
from hpo.environments.table import ENVIRONMENTS
from hpo.errors import ConfigError
from hpo.testing.environments import EnvironmentContract

pytestmark = pytest.mark.usefixtures("quickly_compiled")

PARAMS = {"thrust": 3.0, "drag": 0.7, "dt": 0.2, "radius": 0.15, "goal_radius": 0.2,
          "collision_cost": 0.4}  # fmt: skip


def key(seed):
    return jax.random.key(seed, impl="threefry2x32")


def params_of(env, **values):
    return jax.tree.map(np.float32, registry.params_of(env, values))


class TestContract(EnvironmentContract):
    @pytest.fixture
    def environment(self):
        return registry.make(EnvPlan("navigators", (("agents", 3), ("max_steps_in_episode", 20))))


def moved(position, velocity, goal, action, p):
    """Return (position, velocity, rewards, touching, arrived) after a step, body by body."""
    count = len(position)
    after, speeds = np.zeros((count, 2)), np.zeros((count, 2))
    for i in range(count):
        for axis in range(2):
            push = min(max(float(action[i, axis]), -1.0), 1.0)
            v = (1.0 - p["drag"] * p["dt"]) * velocity[i, axis] + p["thrust"] * p["dt"] * push
            x = position[i, axis] + v * p["dt"]
            if x < -1.0 or x > 1.0:
                x, v = min(max(x, -1.0), 1.0), 0.0
            after[i, axis], speeds[i, axis] = x, v
    rewards, touching, arrived = [], [], []
    for i in range(count):
        touches = any(
            math.dist(after[i], after[j]) < 2 * p["radius"] for j in range(count) if j != i
        )
        left = math.dist(goal[i], after[i])
        paid = math.dist(goal[i], position[i]) - left - (p["collision_cost"] if touches else 0.0)
        rewards.append(paid)
        touching.append(touches)
        arrived.append(left < p["goal_radius"])
    return after, speeds, np.array(rewards), np.array(touching), np.array(arrived)


def observed(position, velocity, goal, neighbours):
    """Return what each body sees: itself, then the others, nearest first."""
    rows = []
    for i in range(len(position)):
        row = [*velocity[i], *(goal[i] - position[i])]
        others = sorted(
            (j for j in range(len(position)) if j != i),
            key=lambda j, i=i: math.dist(position[i], position[j]),
        )
        for j in others[:neighbours]:
            row += [*(position[j] - position[i]), *(velocity[j] - velocity[i])]
        rows.append(row)
    return np.array(rows)


@pytest.fixture(scope="module")
def walked():
    """Every number of 60 steps of five bodies under random thrusts, and of the loops above."""
    env = Navigators(agents=5, neighbours=2, max_steps_in_episode=40)
    params, step = params_of(env, **PARAMS), jax.jit(env.step)
    state, _ = jax.jit(env.reset)(key(1), params)
    rng, rows = np.random.default_rng(2), []
    for _ in range(60):
        action = rng.uniform(-1.5, 1.5, size=(5, 2)).astype(np.float32)
        before = jax.tree.map(lambda x: np.asarray(x, np.float64), state)
        after = jax.device_get(step(key(0), state, action, params))
        wanted = moved(before.position, before.velocity, before.goal, action, PARAMS)
        rows.append((before, after, wanted))
        state = after.state
    return rows


def test_a_step_is_that_of_the_loops(walked):
    for before, after, (position, velocity, rewards, touching, arrived) in walked:
        np.testing.assert_allclose(after.state.position, position, atol=1e-5)
        np.testing.assert_allclose(after.state.velocity, velocity, atol=1e-5)
        np.testing.assert_array_equal(after.state.goal, before.goal.astype(np.float32))
        np.testing.assert_allclose(after.reward, rewards, atol=1e-5)
        assert float(after.info["touching"]) == pytest.approx(touching.mean())
        assert float(after.info["arrived"]) == pytest.approx(arrived.mean())
        assert bool(after.terminated) == arrived.all()
        seen = observed(position, velocity, before.goal, 2)
        np.testing.assert_allclose(after.observation, seen, atol=1e-4)


def test_reference_walk_covers_contacts_walls_goals_and_truncation(walked):
    touching = np.array([row[2][3] for row in walked])
    walls = np.array([np.abs(row[2][0]).max() == 1.0 for row in walked])
    assert 0 < touching.sum() < touching.size and walls.any()
    assert np.array([row[2][4] for row in walked]).any()
    cut = [bool(row[1].truncated) for row in walked]
    assert cut == [t + 1 >= 40 for t in range(60)]


def test_episode_terminates_when_all_agents_reach_their_goals():
    env = Navigators(agents=2)
    params = params_of(env)

    @jax.jit
    def after(second):
        goal, still = jnp.asarray([[0.5, 0.5], [-0.5, 0.0]]), jnp.zeros((2, 2), jnp.float32)
        position = goal.at[1, 0].add(second)
        return env.step(key(0), State(position, still, goal, jnp.int32(0)), still, params)

    for second, ended in ((0.05, True), (0.2, False)):
        step = after(np.float32(second))
        assert bool(step.terminated) == ended and not step.truncated


@pytest.mark.parametrize("agents", [2, 4, 5, 9])
def test_initial_agents_and_goals_do_not_overlap(agents):
    env = Navigators(agents=agents)
    params = params_of(env)

    @jax.jit
    def begun():
        return jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key(3), 200), params)[0]

    state = begun()
    for points in (np.asarray(state.position), np.asarray(state.goal)):
        assert np.abs(points).max() <= 1.0
        between = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
        between += 10.0 * np.eye(agents)
        assert between.min() >= 2 * float(params.radius) - 1e-6
        assert points.reshape(-1, 2).std(axis=0).min() > 0.4  # all over the square
    assert np.all(np.asarray(state.velocity) == 0.0)


def test_navigators_table_matches_parameters_keys_and_metrics():
    entry = ENVIRONMENTS["navigators"]
    env = registry.make(EnvPlan("navigators"))
    assert entry.params == {
        name: getattr(env.default_params, name)
        for name in type(env.default_params).__annotations__
    }
    assert env.agents == entry.keys["agents"].default == 4
    assert env.observation_struct.shape == (4 + 4 * entry.keys["neighbours"].default,)
    assert Navigators(agents=2, neighbours=5).observation_struct.shape == (8,)
    names = jax.eval_shape(
        env.summarise, {name: jnp.float32(1) for name in ("touching", "arrived")}, jnp.float32(2)
    )
    assert names.keys() == entry.metrics.keys()


def test_single_agent_is_refused():
    with pytest.raises(ConfigError, match="agents: 1; allowed: 2 or more"):
        Navigators(agents=1)
