"""The trainings of examples/ keep the contract of trainings."""

import sys
from pathlib import Path

import jax
import pytest

from hpo.core.training_check import shapes_of
from hpo.studies.load import load
from hpo.testing.trainings import TrainingContract

EXAMPLES = Path(__file__).parents[1] / "examples"
OF_DIGITS = {"width": 8, "batch_size": 16}
OF_PQN = {"num_envs": 2, "num_steps": 8}
OF_SAC = {"buffer_size": 256, "fill_buffer": 4, "batch_size": 8}


@pytest.fixture(autouse=True)
def _as_users_have_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


def example(file, name):
    """Return a class of an example, or skip where a package that it needs is missing."""
    pytest.importorskip({"digits": "sklearn", "rejax_training": "rejax"}[file])
    sys.path.insert(0, str(EXAMPLES))
    try:
        return getattr(__import__(file), name)
    finally:
        sys.path.remove(str(EXAMPLES))


class TestDigits(TrainingContract):
    values = OF_DIGITS

    @classmethod
    def setup_class(cls):
        cls.training = example("digits", "Digits")


class TestPQN(TrainingContract):
    values, length = OF_PQN, 1000

    @classmethod
    def setup_class(cls):
        cls.training = type("PQN", (example("rejax_training", "PQN"),), {"iterations": 1})


class TestSAC(TrainingContract):
    values, length, unused = OF_SAC, 1000, ("target_entropy_ratio",)  # of discrete actions

    @classmethod
    def setup_class(cls):
        cls.training = type("SAC", (example("rejax_training", "SAC"),), {"iterations": 8})


@pytest.mark.parametrize("name", ["SAC", "TD3", "DQN", "PQN"])
def test_shapes_of_rejax(name):
    training = example("rejax_training", name)
    knobs = training.declared()
    made = training.of({n: k.default for n, k in knobs.items() if not k.traced}, 4096)
    found = shapes_of(made, tuple(n for n, k in knobs.items() if k.traced))
    assert found.values == ("length", "return") and found.metrics == ("param_norm",)


@pytest.mark.parametrize(
    ("study", "package"), [("digits", "sklearn"), ("rejax_sac", "rejax"), ("dqn", "flax")]
)
def test_the_study_file_loads(study, package):
    pytest.importorskip(package)
    found = load(EXAMPLES / f"{study}.yaml")
    assert found.algorithm.made.__name__ in ("Digits", "SAC", "DQN")


NETWORK = ["env={id: rmsa, topology: 5node, slots: 16, k: 2, load: 20}", "evaluation.steps=20"]


@pytest.mark.parametrize("env", [["env=CartPole-v1"], NETWORK])
def test_dqn_fits_the_environment_of_the_study(env):
    study = load(EXAMPLES / "dqn.yaml", overrides=env)
    training = study.training(study.default())
    found = shapes_of(training, tuple(n for n, k in study.algorithm.knobs.items() if k.traced))
    assert found.metrics == ("episode_return", "episodes", "loss")
    assert {"return", "length"} <= set(found.values)
