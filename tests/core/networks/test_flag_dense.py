"""Layers that read flags as bytes: the numbers of a dense layer, in float64 and by NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs.contract import Flagged
from hpo.core.networks.layers import FlagDense, in_parts

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def test_three_bfloat16_parts_sum_to_the_float32_value():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000) * 10.0 ** rng.integers(-20, 20, 4000)
    x = np.concatenate([x, [0.0, -0.0, 1.0, np.nextafter(np.float32(2), np.float32(0))]])
    x = x.astype(np.float32)
    parts = jax.jit(in_parts)(jnp.asarray(x))
    assert all(part.dtype == jnp.bfloat16 for part in parts)
    high, middle, low = (np.asarray(part, np.float64) for part in parts)
    np.testing.assert_array_equal(high + middle + low, x.astype(np.float64))
    assert (np.abs(middle) <= np.abs(high) * 2.0**-8).all()
    assert (np.abs(low) <= np.abs(middle) * 2.0**-8).all()


@pytest.mark.parametrize("rounds", [False, True])
def test_flag_dense_matches_a_dense_layer(rounds):
    """A CPU has no tf32, so that a layer which rounds has float32's digits there too."""
    rng, rows = np.random.default_rng(rounds), 96
    numbers = rng.normal(size=(rows, 3)) * [1.0, 100.0, 1.0]
    flags = rng.integers(0, 2, (rows, 200))
    given = Flagged(jnp.asarray(numbers, jnp.float32), jnp.asarray(flags, jnp.int8))
    plain = np.concatenate([np.asarray(given.numbers), flags], 1)
    layer = FlagDense(8, jax.nn.initializers.orthogonal(1.0), rounds)
    params = layer.init(jax.random.key(0, impl="threefry2x32"), given)["params"]
    assert params["kernel"].shape == (203, 8) and params["bias"].shape == (8,)
    params = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), jnp.float32), params)
    toward = rng.normal(size=(rows, 8)).astype(np.float32)

    def loss(params, numbers):
        made = layer.apply({"params": params}, given.replace(numbers=numbers))
        return jnp.sum(made * toward), made

    seen = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(params, given.numbers)
    (_, made), (gradient, of_numbers) = seen
    kernel, bias = (np.asarray(params[name], np.float64) for name in ("kernel", "bias"))
    x, g = plain.astype(np.float64), toward.astype(np.float64)
    for got, wanted in (
        (made, x @ kernel + bias),
        (gradient["kernel"], x.T @ g),
        (gradient["bias"], g.sum(0)),
        (of_numbers, g @ kernel[:3].T),
    ):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(np.asarray(got) / scale, wanted / scale, atol=1e-6)
