"""brax: its table of environments and the physics that it simulates; see test_from_physics.py."""

import importlib.util
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.plan import EnvPlan
from hpo.environments.table import ENVIRONMENTS

BRAX = {id_: item for id_, item in ENVIRONMENTS.items() if item.source == "brax"}
OWN_KEYS = {"max_steps_in_episode", "backend"}
installed = importlib.util.find_spec("brax") is not None
pytestmark = [
    pytest.mark.skipif(not installed, reason="brax is not installed"),
    pytest.mark.slow,
    pytest.mark.usefixtures("quickly_compiled"),
    pytest.mark.filterwarnings("ignore"),  # of brax and its dependencies
]


def key(seed):
    return jax.random.key(seed, impl="threefry2x32")


def pendulum(**keys):
    return registry.make(EnvPlan("brax:inverted_pendulum", tuple(sorted(keys.items()))))


def params_of(env, **values):
    return jax.tree.map(np.float32, registry.params_of(env, values))


def test_brax_table_lists_all_environments_and_keys():
    from brax import envs

    theirs = {f"brax:{name}" for name in envs._envs if name != "fast"}  # fast has no physics
    assert theirs == set(BRAX)
    for id_, item in BRAX.items():
        given = inspect.signature(envs._envs[id_.removeprefix("brax:")].__init__).parameters
        known = set(item.keys) - OWN_KEYS
        assert known <= set(given), id_
        for name in known:
            assert given[name].default == item.keys[name].default, (id_, name)


def test_brax_pendulum_terminates_when_the_pole_falls():
    env = pendulum()
    params = params_of(env)

    def fall(action):
        state, _ = env.reset(key(2), params)

        def one(state, _):
            after = env.step(key(0), state, action, params)
            return after.state, (after.terminated, after.truncated, after.observation)

        return jax.lax.scan(one, state, None, length=60)[1]

    terminated, truncated, seen = jax.device_get(jax.jit(fall)(jnp.ones((1,), jnp.float32)))
    first = int(np.argmax(terminated))
    assert 0 < first < 59 and not truncated.any()
    assert abs(seen[first, 1]) > 0.2 and np.all(np.abs(seen[:first, 1]) <= 0.2)
