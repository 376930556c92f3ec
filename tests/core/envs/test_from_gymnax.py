import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hpo.core.envs import registry
from hpo.core.envs.contract import Box, Discrete
from hpo.core.plan import EnvPlan
from hpo.environments.table import ENVIRONMENTS
from hpo.testing.environments import EnvironmentContract

pytestmark = pytest.mark.usefixtures("quickly_compiled")

IDS = [id_ for id_, entry in ENVIRONMENTS.items() if entry.source == "gymnax"]


COMPILED = [
    "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Breakout-MinAtar",
    "Catch-bsuite", "DeepSea-bsuite", "PointRobot-misc",
]  # fmt: skip
TRACED = [
    "test_it_is_an_environment",
    "test_parameters_are_fields_of_float_numbers",
    "test_every_method_gives_the_declared_shapes_and_types",
    "test_reset_and_step_give_strong_types",
    "test_every_parameter_may_differ_per_lane",
]


class TestContract(EnvironmentContract):
    @pytest.fixture(params=COMPILED)
    def environment(self, request):
        return registry.make(EnvPlan(request.param))


@pytest.mark.parametrize("id_", sorted(set(IDS) - set(COMPILED)))
def test_gymnax_envs_meet_the_contract_when_traced(id_):
    """The other environments take minutes to compile; their types are seen by tracing alone."""
    for test in TRACED:
        getattr(EnvironmentContract(), test)(registry.make(EnvPlan(id_)))


def canonical(params):
    return jax.tree.map(np.float32, params)


def key(seed):
    return jax.random.key(seed, impl="threefry2x32")


def played_by_hand(id_, actions, seed=0, **changes):
    """Return (observation, reward, terminated, truncated) a step, by gymnax alone."""
    env, params = gymnax.make(id_)
    params = params.replace(**changes)
    rows = []
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        reset, step = jax.jit(env.reset_env), jax.jit(env.step_env)
        observation, state = reset(key(seed), params)
        rows.append((np.asarray(observation), 0.0, False, False))
        for t, action in enumerate(actions):
            observation, state, reward, terminated, _ = step(key(100 + t), state, action, params)
            truncated = env.is_truncated(state, params)
            row = np.asarray(observation), np.asarray(reward), terminated, truncated
            rows.append((row[0], row[1].item(), bool(row[2]), bool(row[3])))
    return rows


def played(id_, actions, seed=0, keys=(), **params):
    """Return the same by the adapter, compiled."""
    env = registry.make(EnvPlan(id_, keys))
    params = canonical(registry.params_of(env, params))
    step = jax.jit(env.step)
    state, observation = jax.jit(env.reset)(key(seed), params)
    rows = [(np.asarray(observation), 0.0, False, False)]
    for t, action in enumerate(actions):
        after = step(key(100 + t), state, action, params)
        state = after.state
        flags = bool(after.terminated), bool(after.truncated)
        rows.append((np.asarray(after.observation), float(after.reward), *flags))
    return rows


def agree(made, expected):
    for left, right in zip(made, expected, strict=True):
        np.testing.assert_allclose(left[0], right[0], rtol=1e-4, atol=1e-4)
        assert left[1] == pytest.approx(right[1], rel=1e-4, abs=1e-4)
        assert left[2:] == right[2:]


@pytest.mark.parametrize(
    "id_", ["CartPole-v1", "Acrobot-v1", "Breakout-MinAtar", "Catch-bsuite", "MountainCar-v0"]
)
def test_discrete_environments_step_like_gymnax(id_):
    count = registry.make(EnvPlan(id_)).action_space.n
    actions = [jnp.int32(a % count) for a in (0, 1, 1, 0, 2, 1, 0, 0, 1, 2, 1, 1)]
    agree(played(id_, actions), played_by_hand(id_, actions))


@pytest.mark.parametrize("id_", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_continuous_environments_step_like_gymnax(id_):
    actions = [jnp.full((1,), a, jnp.float32) for a in (0.3, -0.9, 0.7, 1.0, -1.0)]
    agree(played(id_, actions), played_by_hand(id_, actions))


def test_parameters_and_keys_reach_the_environment():
    actions = [jnp.int32(a) for a in (0, 1, 1, 0, 1)]
    made = played("CartPole-v1", actions, keys=(("max_steps_in_episode", 3),), gravity=3.0)
    expected = played_by_hand("CartPole-v1", actions, max_steps_in_episode=3, gravity=3.0)
    agree(made, expected)
    assert [row[3] for row in made] == [False, False, False, True, True, True]
    plain = played("CartPole-v1", actions)
    assert not np.allclose(plain[-1][0], made[-1][0], atol=1e-5)


def test_actions_are_clipped_to_the_box():
    one, two, nine = ([jnp.full((1,), a, jnp.float32)] * 3 for a in (1.0, 2.0, 9.0))
    agree(played("Pendulum-v1", nine), played("Pendulum-v1", two))
    assert not np.allclose(played("Pendulum-v1", one)[-1][0], played("Pendulum-v1", two)[-1][0])
    # MountainCarContinuous rewards -0.1 a^2, of the action as it was taken.
    assert played("MountainCarContinuous-v0", nine)[1][1] == pytest.approx(-0.1, abs=1e-6)


def test_action_box_follows_a_swept_parameter():
    """`env.max_torque` above the default must have an effect: the box is of these parameters."""
    actions = [jnp.full((1,), a, jnp.float32) for a in (4.0, -4.0, 4.0)]
    made = played("Pendulum-v1", actions, max_torque=5.0)
    agree(made, played_by_hand("Pendulum-v1", actions, max_torque=5.0))
    assert not np.allclose(made[-1][0], played("Pendulum-v1", actions)[-1][0], atol=1e-3)


@pytest.mark.parametrize("id_", sorted({*COMPILED, "MountainCar-v0", "FourRooms-misc"}))
def test_only_the_time_limit_truncates_gymnax_episodes(id_):
    """`terminated` never means the time limit."""
    env = registry.make(EnvPlan(id_, (("max_steps_in_episode", 1000),)))
    short = registry.make(EnvPlan(id_, (("max_steps_in_episode", 1),)))

    def first(env):
        params = canonical(env.default_params)
        state, _ = env.reset(key(0), params)
        space = env.action_space
        action = jnp.int32(0) if isinstance(space, Discrete) else jnp.zeros(space.shape)
        after = env.step(key(1), state, action, params)
        return after.terminated, after.truncated

    long_ends, short_ends = jax.device_get(jax.jit(lambda: (first(env), first(short)))())
    assert not long_ends[1] and short_ends[1]
    assert long_ends[0] == short_ends[0]


def test_gymnax_action_spaces_match_the_table():
    assert registry.make(EnvPlan("Acrobot-v1")).action_space == Discrete(3)
    pendulum = registry.make(EnvPlan("Pendulum-v1")).action_space
    assert pendulum == Box((-2.0,), (2.0,), (1,))
    for id_ in IDS:
        space = registry.make(EnvPlan(id_)).action_space
        kind = "discrete" if isinstance(space, Discrete) else "continuous"
        assert kind == ENVIRONMENTS[id_].actions, id_


def test_gymnax_state_dtypes_are_supported():
    for id_ in IDS:
        env = registry.make(EnvPlan(id_))
        made = jax.eval_shape(env.reset, key(0), canonical(env.default_params))
        for leaf in jax.tree.leaves(made):
            is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            assert is_key or leaf.dtype in (np.float32, np.int32, np.bool_, np.uint8), id_


GAMES = sorted(
    id_
    for id_ in IDS
    if id_.endswith(("-MinAtar", "-bsuite"))
    and ENVIRONMENTS[id_].returns != (-float("inf"), float("inf"))
)


@pytest.mark.parametrize("id_", GAMES)
def test_returns_of_random_play_are_inside_the_bounds_of_the_table(id_):
    """32 episodes of at most 300 env steps."""
    steps = 300
    env = registry.make(EnvPlan(id_, (("max_steps_in_episode", steps),)))
    params = canonical(env.default_params)

    def episode(seed):
        """To its end, no further: one after the other, only what happens is computed."""
        state, _ = env.reset(jax.random.fold_in(key(0), seed), params)

        def step(carry):
            at, state, total, _ = carry
            one = jax.random.fold_in(jax.random.fold_in(key(1), seed), at)
            action = jax.random.randint(one, (), 0, env.action_space.n, jnp.int32)
            after = env.step(one, state, action, params)
            over = after.terminated | after.truncated
            return at + 1, after.state, total + after.reward, over

        first = jnp.int32(0), state, jnp.float32(0.0), jnp.asarray(False)
        return lax.while_loop(lambda carry: ~carry[3], step, first)[2]

    returns = jax.device_get(jax.jit(lambda seeds: lax.map(episode, seeds))(np.arange(32)))
    low, high = ENVIRONMENTS[id_].return_range({"max_steps_in_episode": steps})
    assert returns.min() >= low and returns.max() <= high
    assert returns.max() > 0.0  # something happened
