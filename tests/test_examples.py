"""The trainings of examples/ keep the contract of trainings."""

import re
import sys
from pathlib import Path

import jax
import pytest

from hpo.core.envs.optical.topology import topology_names
from hpo.core.training_check import shapes_of
from hpo.studies.load import load
from hpo.testing.trainings import TrainingContract

EXAMPLES = Path(__file__).parents[1] / "examples"
OF_DIGITS = {"width": 8, "batch_size": 16}


@pytest.fixture(autouse=True)
def _as_users_have_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


def example(file, name):
    """Return a class of an example, or skip where scikit-learn is missing."""
    pytest.importorskip("sklearn")
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


@pytest.mark.parametrize(("study", "package"), [("digits", "sklearn"), ("dqn", "flax")])
def test_example_study_files_load(study, package):
    pytest.importorskip(package)
    found = load(EXAMPLES / f"{study}.yaml")
    assert found.algorithm.made.__name__ in ("Digits", "DQN")


NETWORK = ["env={id: rmsa, topology: 5node, slots: 16, k: 2, load: 20}", "evaluation.steps=20"]


@pytest.mark.parametrize("env", [["env=CartPole-v1"], NETWORK])
def test_dqn_example_works_with_other_environments(env):
    study = load(EXAMPLES / "dqn.yaml", overrides=env)
    training = study.training(study.default())
    found = shapes_of(training, tuple(n for n, k in study.algorithm.knobs.items() if k.traced))
    assert found.metrics == ("episode_return", "episodes", "loss")
    assert {"return", "length"} <= set(found.values)


@pytest.mark.parametrize("file", ["examples/dqn.yaml", "docs/custom-training.md"])
def test_dqn_command_names_a_topology_that_is_included(file):
    text = (EXAMPLES.parent / file).read_text()
    named = re.findall(r'"env=\{id: rmsa, topology: (\w+)\}"', text)
    assert named and set(named) <= set(topology_names())
