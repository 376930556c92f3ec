import pytest

from helpers import countdown
from hpo.core.envs import registry
from hpo.core.plan import EnvPlan
from hpo.environments.table import ENVIRONMENTS
from hpo.errors import ConfigError, UnknownNameError


def test_equal_env_plans_share_one_environment():
    assert registry.make(EnvPlan("CartPole-v1")) is registry.make(EnvPlan("CartPole-v1"))
    shorter = EnvPlan("CartPole-v1", (("max_steps_in_episode", 7),))
    assert registry.make(shorter) is not registry.make(EnvPlan("CartPole-v1"))


def test_unknown_env_id_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"did you mean 'CartPole-v1'\?.*Pendulum-v1"):
        registry.make(EnvPlan("CartPol-v1"))


def test_registered_custom_env_is_made_with_its_keys():
    plan = countdown.plan_of(lowest=6)
    assert plan.id in registry.known() and set(ENVIRONMENTS) < set(registry.known())
    assert registry.make(plan).lowest == 6


@pytest.mark.parametrize("taken", ["CartPole-v1", countdown.ID])
def test_a_taken_id_is_refused(taken):
    countdown.plan_of()
    with pytest.raises(ConfigError, match=f"'{taken}' is already registered"):
        registry.register(taken, countdown.Countdown)


def test_registering_an_env_instance_is_refused(monkeypatch):
    made = countdown.Countdown()
    with pytest.raises(
        ConfigError, match=r"'made'.*an instance of Countdown.*register\('made', Countdown\)"
    ):
        registry.register("made", made)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    registry.register("made", countdown.Countdown)


def test_parameters_are_replaced_by_name():
    env = registry.make(EnvPlan("CartPole-v1"))
    params = registry.params_of(env, {"gravity": 5.0})
    assert (params.gravity, params.length) == (5.0, 0.5)
    assert registry.params_of(env, {}) == env.default_params
    with pytest.raises(UnknownNameError, match=r"parameter of CartPole-v1 'gravty'.*'gravity'"):
        registry.params_of(env, {"gravty": 5.0})
