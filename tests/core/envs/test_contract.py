"""The contract test itself: a good environment passes it, each kind of bad one does not."""

import jax
import jax.numpy as jnp
import pytest

from helpers import countdown
from hpo.core.envs.contract import Environment, Step
from hpo.errors import ConfigError
from hpo.testing.environments import EnvironmentContract, play

pytestmark = pytest.mark.usefixtures("quickly_compiled")

CONTRACT = EnvironmentContract()


class TestThirdParty(EnvironmentContract):
    @pytest.fixture
    def environment(self):
        return countdown.Countdown()


class WeakReward(countdown.Countdown):
    def step(self, key, state, action, params):
        after = super().step(key, state, action, params)
        return after.replace(reward=jnp.where(after.terminated, 1.0, 0.0))


class DriftingState(countdown.Countdown):
    def step(self, key, state, action, params):
        after = super().step(key, state, action, params)
        return after.replace(state={**after.state, "level": after.state["level"] > 0.5})


class OtherObservation(countdown.Countdown):
    observation_struct = jax.ShapeDtypeStruct((4,), jnp.float32)


class NotANumber(countdown.Countdown):
    def step(self, key, state, action, params):
        after = super().step(key, state, action, params)
        return after.replace(reward=after.reward / jnp.float32(0.0))


class Immortal(countdown.Countdown):
    never_ends = True


class FixedParameter(countdown.Countdown):
    def step(self, key, state, action, params):
        return super().step(key, state, action, type(params)(float(params.bonus)))


@pytest.mark.parametrize(
    ("bad", "test", "error"),
    [
        (WeakReward, "test_reset_and_step_give_strong_types", AssertionError),
        (DriftingState, "test_every_method_gives_the_declared_shapes_and_types", ConfigError),
        (OtherObservation, "test_every_method_gives_the_declared_shapes_and_types", ConfigError),
        (NotANumber, "test_random_play_keeps_its_promises", AssertionError),
        (Immortal, "test_random_play_keeps_its_promises", AssertionError),
        (FixedParameter, "test_every_parameter_may_differ_per_lane", TypeError),
    ],
)
def test_environment_contract_detects_each_violation(bad, test, error):
    with pytest.raises(error):
        getattr(CONTRACT, test)(bad())


def test_play_is_time_major_and_keeps_episode_ends():
    seen = play(countdown.Countdown(), 30, 2)(5)
    assert seen["observation"].shape == (30, 2, 3)
    left, time = seen["observation"][..., 0], seen["observation"][..., 1]
    assert (seen["terminated"] == (left == 0)).all() and (seen["truncated"] == (time == 5)).all()


def test_environment_protocol_supports_isinstance():
    assert isinstance(countdown.Countdown(), Environment)
    assert not isinstance(object(), Environment)
    assert Step.__dataclass_fields__.keys() == {
        "state",
        "observation",
        "reward",
        "terminated",
        "truncated",
        "info",
    }
