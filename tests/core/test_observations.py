"""Packed observations: what is learnt from them is what is learnt from the floats, bit for bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core import policy
from hpo.core.envs import registry
from hpo.core.envs.contract import as_array, same_observations
from hpo.core.hypers import make_hypers
from hpo.core.memory import estimate_memory, for_platform
from hpo.core.networks import mlp
from hpo.core.networks.layers import FlagDense
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.population import init_lane, lane_shapes
from hpo.core.pytree import stack
from hpo.core.update import update

KNOBS = {"num_envs": 4, "rollout_length": 8, "num_minibatches": 2, "hidden_sizes": [8],
         "learning_rate": 0.01, "update_epochs": 2}  # fmt: skip
LANES, UPDATES = 2, 3


def plan_of(observation, features=(), **knobs):
    keys = {"observation": observation, "slots": 40, "k": 2, "load": 150.0, "warmup_requests": 0}
    where = EnvPlan("rmsa", tuple(sorted(keys.items())))
    return make_plan({**KNOBS, **knobs}, where, features=features)


@functools.cache
def learnt(observation, features=(), platform=None, updates=UPDATES, precision="float32"):
    """(last state, metrics of every update) of two lanes with other learning rates."""
    on = dict.fromkeys(features, True)
    plan = plan_of(observation, features, matmul_precision=precision, **on)
    if platform is not None:
        plan = for_platform(plan, platform)
    params = registry.make(plan.env).default_params
    hypers = stack(
        [
            make_hypers({**KNOBS, **on, "learning_rate": rate}, params, params)
            for rate in (1e-2, 0.1)
        ]
    )
    lanes = np.arange(LANES, dtype=np.int32)

    def run(hypers):
        def start(args):
            many = jnp.int32(updates)
            return init_lane(plan, jnp.int32(3), args[0], jnp.int32(0), args[1], many * 0, many)

        state = jax.lax.map(start, (hypers, lanes))
        return jax.lax.scan(lambda s, _: update(plan, hypers, s), state, length=updates)

    return jax.device_get(jax.jit(run)(hypers))


def test_packed_observations_train_identically_to_floats():
    (flat, flat_metrics), (packed, packed_metrics) = learnt("flat"), learnt("packed")
    assert packed.observation.words.dtype == np.uint32
    np.testing.assert_array_equal(
        jax.tree.map(jnp.asarray, packed.observation).as_vector(), flat.observation
    )
    for ours, theirs in ((packed.params, flat.params), (packed_metrics, flat_metrics)):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    assert np.any(packed_metrics.loss)


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_gpu_byte_products_train_like_floats(monkeypatch, precision, quickly):
    """Minibatches of 16 rows as flags; env steps of 4 as floats."""
    layers, call = [], FlagDense.__call__
    monkeypatch.setattr(
        FlagDense, "__call__", lambda self, x: layers.append(x.flags.shape) or call(self, x)
    )
    monkeypatch.setattr(mlp, "_MANY", 16)
    _, written = learnt("packed", platform="gpu", updates=1, precision=precision)
    assert {shape[-1] for shape in layers} == {44 * 40}
    assert {int(np.prod(shape[:-1])) for shape in layers} == {16}
    _, plain = learnt("packed", updates=1)
    assert (plain.grad_norm[0] > 0.0).all() and (plain.approx_kl[0] != 0.0).all()
    for ours, theirs in zip(*map(jax.tree.leaves, (written, plain)), strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-3, atol=2e-5)


def test_normaliser_statistics_cover_unpacked_observations(quickly):
    plan = plan_of("packed", ("normalise_observations",))
    assert policy.statistics_shape(plan) == (3 + 44 * 40,)
    packed, _ = learnt("packed", ("normalise_observations",))
    mean = packed.observation_statistics.mean
    assert mean.shape == (LANES, 3 + 44 * 40)
    # 4 x 8 x 3 requests each: source and bitrate (25 to 100 Gb/s), then shares of taken slots
    assert ((mean[:, 0] > 3) & (mean[:, 0] < 10) & (mean[:, 1] > 50) & (mean[:, 1] < 75)).all()
    assert mean[:, 3:].max() > 0.1 and mean[:, 3:].min() >= 0.0 and mean[:, 3:].max() <= 1.0


def test_packed_rollouts_use_less_memory():
    flat, packed = plan_of("flat"), plan_of("packed")
    params = registry.make(flat.env).default_params
    hypers = make_hypers(KNOBS, params, params)
    stored = [
        sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes.observation))
        for shapes in (lane_shapes(plan, hypers) for plan in (flat, packed))
    ]
    assert stored[1] * 18 < stored[0]  # 40 slots fill 5/8 of two words
    assert estimate_memory(packed, hypers, 4, 1, 2) < estimate_memory(flat, hypers, 4, 1, 2)


def test_same_observations_distinguishes_packed_shapes():
    structs = {name: registry.make(plan_of(name).env) for name in ("flat", "packed")}
    assert as_array(3.0) == 3.0
    assert same_observations(structs["packed"], structs["packed"])
    assert not same_observations(structs["packed"], structs["flat"])
    wider = registry.make(EnvPlan("rmsa", (("observation", "packed"), ("slots", 41))))
    narrower = registry.make(EnvPlan("rmsa", (("observation", "packed"), ("slots", 64))))
    assert not same_observations(wider, narrower)  # as many words, other slots


@pytest.mark.parametrize("observation", ["packed", "flat"])
def test_mlp_accepts_flat_and_packed_observations(observation):
    plan = plan_of(observation)
    params = registry.make(plan.env).default_params
    key = jax.random.key(0, impl="threefry2x32")
    made = policy.init_params(plan, make_hypers(KNOBS, params, params), key)
    assert made["actor"]["dense_0"]["kernel"].shape == (3 + 44 * 40, 8)
