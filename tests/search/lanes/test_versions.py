"""What a study says about the packages whose versions decide its numbers."""

from importlib import metadata

import pytest

from helpers import search_samples as samples
from hpo.machine import software as module
from hpo.machine.software import others, versions, versions_of_study
from hpo.studies.env_spec import EnvSpec

BASE = {"hpo-lanes", "jax", "jaxlib", "flax", "optax", "gymnax", "optuna", "numpy"}


@pytest.fixture
def everything(monkeypatch):
    """Make every package look installed, at version 1."""
    monkeypatch.setattr(module, "_installed_version", lambda package: "1")


@pytest.mark.parametrize(
    ("env", "besides"),
    [
        ("CartPole-v1", set()),
        ("rsa", set()),
        ("brax:reacher", {"brax", "mujoco", "mujoco-mjx"}),
        ("gym:CartPole-v1", {"gymnasium"}),
        ("gym:LunarLander-v3", {"gymnasium", "box2d", "box2d-py"}),
        ("gym:HalfCheetah-v5", {"gymnasium", "mujoco"}),
        ("gym:nobodys-v0", {"gymnasium"}),
        ("playground:WalkerWalk", {"playground", "mujoco", "mujoco-mjx"}),
        ("jaxmarl:MPE_simple_spread_v3", {"jaxmarl"}),
        ("gymnax:mine.envs:Walk", {"mine-dist"}),
        ("gym:mine:Walk-v0", {"gymnasium", "mine-dist"}),
        ("gymnax:shared.envs:Walk", set()),
        ("gymnax:script:Walk", set()),
    ],
)
def test_versions_list_packages_of_the_environment(env, besides, everything, monkeypatch):
    installed = {"mine": ["mine-dist"], "shared": ["one-dist", "other-dist"]}
    monkeypatch.setattr(module, "_distributions_by_module", lambda: installed)
    assert set(versions([env])) == BASE | besides


@pytest.mark.parametrize(
    ("method", "besides"),
    [
        ("random", set()),
        ("tpe", set()),
        ("cmaes", {"cmaes"}),
        ("gp", {"torch"}),
        ("smac", {"smac", "ConfigSpace", "scikit-learn"}),
    ],
)
def test_versions_list_packages_of_method_and_all_environments(method, besides, everything):
    study = samples.study(method=method, more_envs=(EnvSpec("brax:ant"),))
    physics = {"brax", "mujoco", "mujoco-mjx"}
    assert set(versions_of_study(study)) == BASE | besides | physics | {"scipy"}


def test_only_changed_recorded_packages_affect_results():
    assert not others({"jax": "1"}, {"jax": "1", "brax": "2"})  # a study of before brax was told
    assert others({"jax": "1", "brax": "2"}, {"jax": "1", "brax": "3"})
    assert others({"jax": "1", "brax": "2"}, {"jax": "1"})


def test_missing_optional_packages_are_not_listed(monkeypatch):
    monkeypatch.setattr(module, "_installed_version", lambda package: None)
    assert versions(["brax:ant"]) == dict.fromkeys(BASE, "absent")


def test_versions_are_those_installed():
    found = versions(["gym:CartPole-v1"])
    assert found["gymnasium"] == metadata.version("gymnasium")
    assert found["jax"] == metadata.version("jax")
