import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import countdown
from hpo.core.envs import registry
from hpo.core.envs.contract import (
    HostedEnvironment,
    RoutedEnvironment,
    StackedEnvironment,
    unwrapped,
)
from hpo.core.envs.optical.optical_environment import OpticalEnvironment
from hpo.core.plan import EnvPlan, make_plan
from hpo.errors import ConfigError
from hpo.testing.environments import EnvironmentContract

pytestmark = pytest.mark.usefixtures("quickly_compiled")


class TestStacked(EnvironmentContract):
    @pytest.fixture
    def environment(self):
        where = countdown.plan_of()
        return registry.make(make_plan({"history": 3}, where, features=()).env)


def test_it_shows_the_last_observations_oldest_first():
    where = countdown.plan_of()
    plain = registry.make(where)
    stacked = registry.make(make_plan({"history": 3}, where, features=()).env)
    params, key = plain.default_params, jax.random.key(1, impl="threefry2x32")
    state, observation = plain.reset(key, params)
    inside, shown = stacked.reset(key, params)
    past = [np.zeros(3), np.zeros(3), np.asarray(observation)]
    for step in range(4):
        np.testing.assert_array_equal(shown, past[-3:])
        np.testing.assert_array_equal(
            stacked.action_mask(inside, params), plain.action_mask(state, params)
        )
        move, action = jax.random.fold_in(key, step), jnp.int32(step % 4)
        after, wide = (
            e.step(move, s, action, params) for e, s in ((plain, state), (stacked, inside))
        )
        np.testing.assert_array_equal(wide.reward, after.reward)
        past.append(np.asarray(after.observation))
        state, inside, shown = after.state, wide.state, wide.observation
    _, shown = stacked.reset(key, params)  # nothing is left of the episode before
    np.testing.assert_array_equal(shown[:2], 0.0)


def test_history_applies_to_evaluation_and_is_off_by_default():
    where = EnvPlan("CartPole-v1")
    assert make_plan({"history": 2}, where).eval_env.history == 2
    assert registry.make(make_plan({}, where).env) is registry.make(where)


def test_history_of_tree_observations_is_refused():
    keys = (("k", 2), ("slots", 8), ("topology", "ring7"))
    plan = make_plan({"network": "gnn", "history": 2}, EnvPlan("rmsa", keys))
    with pytest.raises(
        ConfigError, match="history is 2, but the observations of rmsa are a pytree"
    ):
        registry.make(plan.env)


KEPT = ("id", "action_space", "has_mask", "never_ends", "warmup_steps", "default_params")
NETWORK = (("k", 2), ("slots", 8), ("topology", "ring7"), ("warmup_requests", 5))


@pytest.mark.parametrize(
    ("where", "kinds"),
    [
        (EnvPlan("rmsa", NETWORK), (OpticalEnvironment, RoutedEnvironment)),
        (EnvPlan("deeprmsa", NETWORK), (OpticalEnvironment, RoutedEnvironment)),
        (EnvPlan("CartPole-v1"), ()),
        (EnvPlan("gym:CartPole-v1"), (HostedEnvironment,)),
    ],
)
def test_stacked_env_unwraps_and_keeps_its_properties(where, kinds):
    """Of the environment that trains and of the one that evaluates alike."""
    plain = registry.make(where)
    plan = make_plan({"history": 3}, where, EnvPlan(where.id, (*where.keys,)))
    for each in (plan.env, plan.eval_env):
        wrapped = registry.make(each)
        inside = unwrapped(wrapped)
        assert isinstance(wrapped, StackedEnvironment) != isinstance(plain, HostedEnvironment)
        assert all(isinstance(inside, kind) for kind in kinds)
        assert {name: getattr(inside, name) for name in KEPT} == {
            name: getattr(wrapped, name) for name in KEPT
        }
        if isinstance(wrapped, StackedEnvironment):
            assert type(inside) is type(plain) and unwrapped(plain) is plain
    assert registry.make(plan.env).observation_struct.shape[0] == 3


def test_stacked_env_exposes_routes_to_link_networks():
    from hpo.core.networks.path_pooling import routes_of

    where = EnvPlan("rmsa", NETWORK)
    stacked = registry.make(make_plan({"history": 2}, where).env)
    assert routes_of(stacked, stacked) is routes_of(registry.make(where), stacked)
    assert routes_of(stacked, stacked) is not None
