"""Environments of gymnax 1.0 with the five values of gymnax 0.0.9."""

import copy

import gymnax
import jax
import jax.numpy as jnp
import pytest

import hpo
from hpo.core.envs.foreign import relaxed


@pytest.fixture(autouse=True)
def _as_users_have_it():
    with relaxed():
        yield


@pytest.mark.parametrize("id_", ["CartPole-v1", "Pendulum-v1"])
def test_old_gymnax_step_merges_terminated_and_truncated_into_done(id_):
    env, params = gymnax.make(id_)
    params = params.replace(max_steps_in_episode=3)
    old = hpo.old_gymnax(env)
    _, state = old.reset(jax.random.key(0), params)
    seen = []
    for step in range(4):
        key, action = jax.random.key(step), env.action_space(params).sample(jax.random.key(9))
        observation, after, reward, done, info = old.step(key, state, action, params)
        theirs = env.step(key, state, action, params)
        assert jnp.array_equal(observation, theirs[0]) and reward == theirs[2]
        assert done == (theirs[3] | theirs[4]) and set(info) == set(theirs[5])
        raw = old.step_env(key, state, action, params)
        assert len(raw) == 5 and raw[3] == done
        seen.append(bool(done))
        state = after
    assert True in seen  # the time limit is an end


def test_old_gymnax_forwards_attributes_and_deepcopies_to_itself():
    env, params = gymnax.make("CartPole-v1")
    old = hpo.old_gymnax(env)
    assert old.name == env.name and old.action_space(params).n == 2
    assert copy.deepcopy(old) is old


def test_old_gymnax_returns_a_five_value_env_unchanged():
    class Old:
        def step(self, key, state, action, params=None):
            return 0, state, 0.0, False, {}

    env = Old()
    assert hpo.old_gymnax(env) is env
