"""The plain table of environments against gymnax itself."""

import dataclasses

import gymnax
import jax
import numpy as np
import pytest

from hpo.environments.registry import entry, full_id
from hpo.environments.table import ENVIRONMENTS
from hpo.errors import UnknownNameError

LIMIT = "max_steps_in_episode"
GYMNAX = [id_ for id_, item in ENVIRONMENTS.items() if item.source == "gymnax"]
ARRAYS = {  # parameters that are no numbers, which a study cannot set
    "Acrobot-v1": {"available_torque"},
    "DiscountingChain-bsuite": {"reward_timestep"},
}
UNKNOWN = {
    "MNISTBandit-bsuite",  # downloads a data set
    "FrozenLake-misc",
}


def defaults(id_):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        _, params = gymnax.make(id_)
    return {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}


@pytest.mark.parametrize("id_", GYMNAX)
def test_env_table_defaults_and_keys_match_gymnax(id_):
    item, theirs = entry(id_), defaults(id_)
    arrays = ARRAYS.get(id_, set())
    assert set(item.params) | set(item.keys) | arrays == set(theirs)
    assert not set(item.params) & set(item.keys)
    for name, default in item.params.items():
        assert isinstance(theirs[name], float), name
        assert default == pytest.approx(float(theirs[name]), rel=1e-12), name
    for name, key in item.keys.items():
        assert isinstance(theirs[name], bool) == (key.type == "bool"), name
        assert key.default == theirs[name] and key.type in ("int", "bool"), name


def test_every_environment_of_gymnax_is_in_the_table():
    assert set(gymnax.registered_envs) - UNKNOWN == set(GYMNAX)


def test_env_table_entries_are_complete():
    for id_, item in ENVIRONMENTS.items():
        assert item.id == id_ and item.meaning
        assert item.actions in ("discrete", "continuous", "any")
        assert all(np.isfinite(value) for value in item.params.values())


def test_an_episode_has_at_least_one_env_step():
    limits = [item.keys[LIMIT] for item in ENVIRONMENTS.values() if LIMIT in item.keys]
    assert len(limits) > len(GYMNAX)
    assert [(key.is_legal(0), key.is_legal(1)) for key in limits] == [(False, True)] * len(limits)


def test_an_unknown_environment_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown environment 'Cartpole-v1'; did you mean"):
        entry("Cartpole-v1")


def test_unknown_environment_error_lists_five_nearest():
    with pytest.raises(UnknownNameError) as told:
        entry("Cartpole-v1")
    _, _, listed = str(told.value).partition("Nearest of ")
    assert len(listed.split(", ")) == 5 and "brax:ant" not in listed


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("LunarLander-v3", "did you mean 'gym:LunarLander-v3'"),
        ("LunarLander-v2", "did you mean 'gym:LunarLander-v3'"),
        ("HalfCheetah-v5", "did you mean 'gym:HalfCheetah-v5'"),
    ],
)
def test_gymnasium_id_without_prefix_is_suggested_with_prefix(given, told):
    with pytest.raises(UnknownNameError, match=told):
        entry(given)


def test_full_id_adds_the_gym_prefix():
    assert full_id("LunarLander-v3") == "gym:LunarLander-v3"
    assert full_id("CartPole-v1") == "CartPole-v1"  # of the table, which comes first
    assert full_id("gym:CartPole-v1") == "gym:CartPole-v1"
    assert full_id("Nobody-v0") == "Nobody-v0"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("brax:hoper", r"did you mean 'brax:hopper'\? Known: brax:ant, [^C]*$"),
        ("jaxmarl:hanabi", r"Known: jaxmarl:MPE_simple_spread_v3$"),
        ("playground:WalkerWlak", r"did you mean 'playground:WalkerWalk'\? Nearest of 2"),
        ("playground:Go1Getup", r"MuJoCo Playground: only the control suite, without R"),
    ],
)
def test_unknown_library_env_suggests_ids_of_that_library(given, told):
    with pytest.raises(UnknownNameError, match=told):
        entry(given)
