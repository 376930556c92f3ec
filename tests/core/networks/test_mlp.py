import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from helpers import slow
from hpo.core import policy
from hpo.core.hypers import make_hypers
from hpo.core.networks.mlp import ACTIVATIONS, MLP
from hpo.core.plan import CPU, GPU, EnvPlan, make_plan
from hpo.errors import ConfigError
from hpo.knobs import KNOBS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

SLOW_ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    # the usual approximation of x Phi(x) by tanh (Hendrycks & Gimpel 2016)
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "silu": lambda x: x * scipy.special.expit(x),
}


def network(shape=(4,), outputs=3, **knobs):
    """Return a module and the shapes of its parameters."""
    plan = make_plan({"hidden_sizes": [8, 5], **knobs}, EnvPlan("CartPole-v1"), features=())
    module = MLP(plan, outputs, len(shape))
    return module, jax.eval_shape(lambda: begun(module, shape))


def begun(module, shape=(4,)):
    """Return the parameters that training begins with."""
    return module.init(jax.random.key(0, impl="threefry2x32"), jnp.zeros(shape))["params"]


def shaken(params):
    """Return random parameters, biases and norms included."""
    rng = np.random.default_rng(3)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), params)


def test_activations_match_the_knob_choices():
    assert tuple(ACTIVATIONS) == KNOBS["activation"].choices


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_it_computes_what_the_loop_computes(activation, norm, shared):
    module, params = network(activation=activation, layer_norm=norm, shared_encoder=shared)
    params = shaken(params)
    observation = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    made = module.apply({"params": params}, jnp.asarray(observation))
    expected = slow.network(slow.as_float64(params), observation, SLOW_ACTIVATIONS[activation])
    np.testing.assert_allclose(made.policy, expected[0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(made.value, expected[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("size", "precision"), [(4, None), (4, "tf32"), (1100, None)])
def test_gpu_layers_match_cpu_parameters_outputs_and_gradients(size, precision):
    knobs = {"matmul_precision": precision} if precision else {}
    plain, _ = network((size,), **knobs)
    written = plain.clone(plan=dataclasses.replace(plain.plan, backend=GPU))
    params, again = jax.jit(lambda: [begun(module, (size,)) for module in (plain, written)])()
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    params = shaken(params)
    x = jnp.asarray(np.random.default_rng(1).random((2, 40, size)), jnp.float32)

    def seen(module):
        def loss(params, x):
            made = module.apply({"params": params}, x)
            return jnp.sum(jnp.sin(made.policy)) + jnp.sum(jnp.cos(made.value))

        return jax.grad(loss, argnums=(0, 1))(params, x), module.apply({"params": params}, x)

    for one, other in zip(*map(jax.tree.leaves, (seen(plain), seen(written))), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_wide_float32_products_are_split_into_bfloat16_on_gpu():
    def text(size, rows=64, **knobs):
        plan = make_plan({"hidden_sizes": [8, 5], **knobs}, EnvPlan("CartPole-v1"), features=())
        written = MLP(dataclasses.replace(plan, backend=GPU), 3, 1)
        with jax.numpy_dtype_promotion("standard"):
            params = jax.eval_shape(written.init, jax.random.key(0), jnp.zeros((size,)))
            return str(jax.make_jaxpr(written.apply)(params, jnp.zeros((rows, size))))

    assert "BF16_BF16_F32_X6" in text(1100)
    for knobs in ({"matmul_precision": "tf32"}, {"dtype": "bfloat16"}):
        assert "BF16_BF16_F32_X6" not in text(1100, **knobs)
    assert "BF16_BF16_F32_X6" not in text(1000) + text(1100, rows=63)


def test_large_float32_policy_heads_are_split_into_bfloat16_on_gpu():
    def seen(backend, outputs, rows=64, **knobs):
        plain, params = network(outputs=outputs, **knobs)
        written = plain.clone(plan=dataclasses.replace(plain.plan, backend=backend))
        x = jnp.asarray(np.random.default_rng(1).normal(size=(rows, 4)), jnp.float32)

        def loss(params):
            return jnp.sum(jnp.sin(written.apply({"params": params}, x).policy))

        params = shaken(params)
        with jax.numpy_dtype_promotion("standard"):
            traced = jax.jit(jax.grad(loss)).trace(params)
        return lambda: traced.lower().compile()(params), str(traced.jaxpr)

    (plain, text), (split, split_text) = (seen(backend, 256) for backend in (CPU, GPU))
    assert "X6" not in text and split_text.count("BF16_BF16_F32_X6") >= 3  # and both gradients
    for one, other in zip(*map(jax.tree.leaves, (plain(), split())), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
    for case in ({"outputs": 255}, {"rows": 63}, {"matmul_precision": "tf32"}):
        assert "X6" not in seen(GPU, **{"outputs": 256, **case})[1]


def test_mlp_accepts_leading_axes_and_all_observation_dtypes():
    module, params = network(shape=(2, 3))
    params = shaken(params)
    images = np.random.default_rng(2).integers(0, 2, size=(5, 4, 2, 3))
    flat = slow.network(slow.as_float64(params), images.reshape(20, 6))
    for dtype in (np.uint8, np.int32, bool, np.float32):
        made = module.apply({"params": params}, jnp.asarray(images.astype(dtype)))
        assert made.policy.shape == (5, 4, 3) and made.value.shape == (5, 4)
        np.testing.assert_allclose(made.policy.reshape(20, 3), flat[0], rtol=1e-4, atol=1e-4)
        one = module.apply({"params": params}, jnp.asarray(images[0, 0].astype(dtype)))
        np.testing.assert_allclose(one.value, flat[1][0], rtol=1e-4, atol=1e-4)


def test_no_hidden_layers_is_a_linear_policy():
    module, params = network(hidden_sizes=[])
    assert set(params) == {"actor_head", "critic_head"}
    made = module.apply({"params": shaken(params)}, jnp.ones((2, 4)))
    assert made.policy.shape == (2, 3)


def test_orthogonal_initialisation_has_the_gains_asked_for():
    params = begun(network(hidden_gain=1.5, policy_gain=0.01, value_gain=2.0)[0])
    for tower in ("actor", "critic"):
        first = np.asarray(params[tower]["dense_0"]["kernel"])  # [4, 8]: orthogonal rows
        np.testing.assert_allclose(first @ first.T, 1.5**2 * np.eye(4), atol=1e-5)
        second = np.asarray(params[tower]["dense_1"]["kernel"])  # [8, 5]: orthogonal columns
        np.testing.assert_allclose(second.T @ second, 1.5**2 * np.eye(5), atol=1e-5)
    heads = {"actor_head": (3, 0.01), "critic_head": (1, 2.0)}
    for name, (rows, gain) in heads.items():
        kernel = np.asarray(params[name]["kernel"])
        assert kernel.shape == (rows, 5)
        np.testing.assert_allclose(kernel @ kernel.T, gain**2 * np.eye(rows), atol=1e-6)
    biases = [leaf for path, leaf in jax.tree.leaves_with_path(params) if "bias" in str(path)]
    assert len(biases) == 6 and not any(np.any(bias) for bias in biases)


def test_default_initialisation_gains_match_published_values():
    params = begun(network()[0])
    norms = {"actor_head": 0.01, "critic_head": 1.0}
    for name, gain in norms.items():
        rows = np.linalg.norm(np.asarray(params[name]["kernel"]), axis=1)
        np.testing.assert_allclose(rows, gain, rtol=1e-5)
    first = np.linalg.norm(np.asarray(params["actor"]["dense_0"]["kernel"]), axis=1)
    np.testing.assert_allclose(first, np.sqrt(2.0), rtol=1e-5)


def test_lecun_initialisation_has_variance_one_over_inputs():
    knobs = {"hidden_sizes": [400], "initialisation": "lecun", "hidden_gain": 1.0}
    params = begun(network((50,), **knobs)[0], (50,))
    kernel = np.asarray(params["actor"]["dense_0"]["kernel"])
    # 20,000 truncated normals: the relative error of the deviation is below 2 percent
    assert kernel.std() == pytest.approx(1.0 / np.sqrt(50.0), rel=0.02)
    assert abs(kernel.mean()) < 0.005


def test_initial_parameters_depend_on_key_and_layer_name():
    params = begun(network()[0])
    actor, critic = (params[name]["dense_0"]["kernel"] for name in ("actor", "critic"))
    assert not np.allclose(actor, critic)
    deeper = begun(network(hidden_sizes=[8, 5, 5])[0])
    np.testing.assert_array_equal(deeper["actor"]["dense_0"]["kernel"], actor)


@pytest.mark.parametrize("shared", [False, True])
def test_the_critic_s_parameters_are_those_that_only_values_need(shared):
    """A shared encoder belongs to the policy's optimiser."""
    module, params = network(shared_encoder=shared)
    params = shaken(params)

    def policy_sum(params):
        return jnp.sum(module.apply({"params": params}, jnp.ones((1, 4))).policy)

    slopes = jax.grad(policy_sum)(params)
    for name, leaves in slopes.items():
        used = any(np.any(leaf) for leaf in jax.tree.leaves(leaves))
        assert used != policy.is_critic(name), name


def test_gaussian_policies_add_their_deviation():
    plan = make_plan({"hidden_sizes": [4]}, EnvPlan("Pendulum-v1"), features=())
    knobs = {"log_std_init": -1.25, "log_std_min": -1.0}
    hypers = jax.tree.map(jnp.asarray, make_hypers(knobs, {}, {}))
    key = jax.random.key(0, impl="threefry2x32")
    params = policy.init_params(plan, hypers, key)
    np.testing.assert_array_equal(params["log_std"], [-1.25])
    outputs = policy.apply(plan, params, jnp.ones((7, 3)))
    dist = policy.distribution_of(plan, hypers, params, outputs, None)
    np.testing.assert_array_equal(dist.log_std, np.full((7, 1), -1.0))  # held by log_std_min


def test_a_distribution_that_does_not_fit_is_refused():
    plan = make_plan({"distribution": "gaussian"}, EnvPlan("CartPole-v1"), features=())
    with pytest.raises(ConfigError, match="does not fit the actions of CartPole-v1"):
        policy.init_params(plan, make_hypers({}, {}, {}), jax.random.key(0))


@pytest.mark.parametrize("norm", [False, True])
def test_bfloat16_is_the_arithmetic_alone(norm):
    """Outputs, parameters and gradients are float32; the numbers are near, but not the same."""
    knobs = {"hidden_sizes": [16, 16], "layer_norm": norm}
    plans = {
        dtype: make_plan({**knobs, "dtype": dtype}, EnvPlan("CartPole-v1"))
        for dtype in ("float32", "bfloat16")
    }
    hypers = jax.tree.map(jnp.asarray, make_hypers({}, {}, {}))
    key = jax.random.key(5, impl="threefry2x32")
    params = {name: policy.init_params(plan, hypers, key) for name, plan in plans.items()}
    for left, right in zip(*map(jax.tree.leaves, params.values()), strict=True):
        assert left.dtype == right.dtype == np.float32
        np.testing.assert_array_equal(left, right)
    observation = jnp.asarray(np.random.default_rng(7).normal(size=(32, 4)), jnp.float32)

    def total(plan, params):
        outputs = policy.apply(plan, params, observation)
        return jnp.sum(jnp.sin(outputs.value)) + jnp.sum(outputs.policy[:, 0]), outputs

    shaky = shaken(params["float32"])
    found = {
        dtype: jax.jit(jax.value_and_grad(lambda p, plan=plan: total(plan, p), has_aux=True))(
            shaky
        )
        for dtype, plan in plans.items()
    }
    for leaf in jax.tree.leaves(found["bfloat16"]):
        assert leaf.dtype == np.float32
    (_, exact), _ = found["float32"]
    (_, rough), _ = found["bfloat16"]
    error = np.abs(np.asarray(exact.value) - np.asarray(rough.value))
    scale = np.abs(np.asarray(exact.value)).max()
    assert 1e-4 * scale < error.max() < 0.1 * scale
    products = [
        e
        for e in jax.make_jaxpr(lambda p: total(plans["bfloat16"], p)[0])(shaky).jaxpr.eqns
        if e.primitive.name == "dot_general"
    ]
    assert products and all(v.aval.dtype == jnp.bfloat16 for e in products for v in e.invars)
