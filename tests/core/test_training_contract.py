"""The contract of trainings passes what is sound, and catches what is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.training import Training, environment, traced
from hpo.errors import ConfigError
from hpo.testing.trainings import TrainingContract


class Sound(Training):
    steps_per_update = 1
    rate = traced(0.1, low=0.0)

    def init(self, key, h):
        return {"x": jax.random.normal(key, (4,))}

    def update(self, state, h):
        x = state["x"] * (1 - h.rate)
        return {"x": x}, {"size": jnp.sum(x**2)}

    def evaluate(self, state, h, key):
        return {"return": -jnp.sum(state["x"] ** 2)}


class TestSound(TrainingContract):
    training = Sound


class Idle(Sound):
    more = traced(1.0)


class Global(Sound):
    def update(self, state, h):
        x = state["x"] * (1 - h.rate) + np.random.default_rng().normal()
        return {"x": x}, {"size": jnp.sum(x**2)}


class Same(Sound):
    def init(self, key, h):
        return {"x": jnp.ones(4)}


class Infinite(Sound):
    def update(self, state, h):
        return state, {"size": jnp.log(h.rate - h.rate)}


class Acting(Training):
    env = environment()


def test_training_contract_requires_env_for_study_env_trainings():
    contract = type("Found", (TrainingContract,), {"training": Acting})()
    with pytest.raises(AssertionError, match="set `env` to the id of an environment to train in"):
        contract.test_two_runs_are_equal()


@pytest.mark.parametrize(
    ("cls", "test"),
    [
        (Idle, "test_each_traced_hyperparameter_changes_something"),
        (Global, "test_shapes_and_results_are_sound"),
        (Same, "test_seeds_differ"),
        (Infinite, "test_metrics_and_values_are_finite_at_the_defaults"),
    ],
)
def test_training_contract_rejects_broken_trainings(cls, test):
    contract = type("Found", (TrainingContract,), {"training": cls})()
    with pytest.raises((AssertionError, ConfigError)):
        getattr(contract, test)()
