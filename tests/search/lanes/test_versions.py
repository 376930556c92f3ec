"""What a study says about the packages whose versions decide its numbers."""

from importlib import metadata
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

from hpo.search.lanes import versions as module
from hpo.search.lanes.versions import versions, versions_of_study
from hpo.studies.spec import EnvSpec

samples = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "samples.py")))
BASE = {"hpo-lanes", "jax", "jaxlib", "flax", "optax", "gymnax", "optuna", "numpy"}


@pytest.fixture
def everything(monkeypatch):
    """Make every package look installed, at version 1."""
    monkeypatch.setattr(module, "_version", lambda package: "1")


@pytest.mark.parametrize(
    ("env", "besides"),
    [
        ("CartPole-v1", set()),
        ("rsa", set()),
        ("brax:reacher", {"brax", "mujoco", "mujoco-mjx"}),
        ("gym:CartPole-v1", {"gymnasium", "box2d", "mujoco"}),
        ("playground:WalkerWalk", {"playground", "mujoco", "mujoco-mjx"}),
        ("jaxmarl:MPE_simple_spread_v3", {"jaxmarl"}),
        ("gymnax:gymnax.environments.classic_control.cartpole:CartPole", set()),
    ],
)
def test_the_packages_that_step_an_environment_are_told(env, besides, everything):
    assert set(versions([env])) == BASE | besides


@pytest.mark.parametrize(
    ("method", "besides"),
    [("random", set()), ("tpe", set()), ("cmaes", {"cmaes"}), ("gp", {"torch"}),
     ("smac", {"smac", "ConfigSpace"})],
)  # fmt: skip
def test_those_of_the_method_and_of_every_environment_are_told(method, besides, everything):
    study = samples.study(method=method, more_envs=(EnvSpec("brax:ant"),))
    assert set(versions_of_study(study)) == BASE | besides | {"brax", "mujoco", "mujoco-mjx"}


def test_a_package_that_is_not_there_is_told_only_of_the_base(monkeypatch):
    monkeypatch.setattr(module, "_version", lambda package: None)
    assert versions(["brax:ant"]) == dict.fromkeys(BASE, "absent")


def test_versions_are_those_installed():
    found = versions(["gym:CartPole-v1"])
    assert found["gymnasium"] == metadata.version("gymnasium")
    assert found["jax"] == metadata.version("jax")
