"""Values that are computed after a rollout are those that its steps would have computed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.plan import CPU, EnvPlan, make_plan
from hpo.core.population import init_lane
from hpo.core.pytree import stack
from hpo.core.rollout import rollout, values_wait

pytestmark = pytest.mark.usefixtures("quickly_compiled")

AFTER = dataclasses.replace(CPU, values_after=True)
SIZES = {"num_envs": 4, "rollout_length": 12, "hidden_sizes": (8,), "num_minibatches": 3}
# Episodes are cut before a pole can fall, at other steps of the rollout than its last.
SHORT = EnvPlan("CartPole-v1", (("max_steps_in_episode", 5),))


def written(knobs, env=SHORT):
    return dataclasses.replace(make_plan({**SIZES, **knobs}, env), backend=AFTER)


def test_values_are_deferred_only_for_separate_critics_on_gpu():
    assert values_wait(written({})) and values_wait(written({"network": "cnn"}))
    for knobs in ({"shared_encoder": True}, {"network": "lstm"}, {"network": "gru"}):
        assert not values_wait(written(knobs))
    assert not values_wait(dataclasses.replace(written({}), backend=CPU))


@pytest.mark.parametrize(
    ("knobs", "env", "cut"),
    [
        ({}, SHORT, True),
        (
            {"normalise_observations": True, "minibatch_size": 48, "num_minibatches": 1},
            SHORT,
            True,
        ),
        ({"observation": "packed"}, EnvPlan("rmsa"), False),
    ],
)
def test_deferred_values_equal_stepwise_values(knobs, env, cut):
    if "observation" in knobs:
        keys = {"topology": "ring4", "k": 2, "slots": 12, "warmup_requests": 0, **knobs}
        knobs, env = {}, EnvPlan(env.id, tuple(sorted(keys.items())))
    after = written(knobs, env)
    plan = dataclasses.replace(after, backend=CPU)
    params = registry.make(env).default_params
    hypers = stack([make_hypers({**SIZES, **knobs}, params, params)] * 2)
    numbers = jnp.arange(2, dtype=jnp.int32)

    def lanes(hypers):
        zero = jnp.int32(0)
        return jax.vmap(lambda h, i: init_lane(plan, jnp.int32(1), h, zero, i, zero, zero + 9))(
            hypers, numbers
        )

    def played(hypers):
        state = lanes(hypers)
        return [rollout(which, hypers, state).trajectory for which in (plan, after)]

    stepped, waited = jax.device_get(jax.jit(played)(hypers))
    assert stepped.truncated.any() == cut and np.abs(stepped.value).min() > 0
    assert (stepped.bootstrap[stepped.truncated] != 0).all()
    for one, other in zip(jax.tree.leaves(stepped), jax.tree.leaves(waited), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
