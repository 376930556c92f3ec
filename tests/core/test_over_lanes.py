import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.pytree import over_lanes


def one(tree, number, shared):
    """Something of one lane: needs the lane axis to be gone."""
    assert tree["a"].shape == (3,) and number.shape == () and shared.shape == (3,)
    return {"sum": tree["a"] * number + shared, "largest": jnp.max(tree["a"])}, tree["b"]


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("out", [0, 1])
def test_over_lanes_equals_vmap(lanes, out):
    rng = np.random.default_rng(lanes)
    tree = {
        "a": jnp.asarray(rng.normal(size=(lanes, 3)), jnp.float32),
        "b": jax.random.split(jax.random.key(1), (lanes, 2)),
    }
    number, shared = jnp.arange(lanes, dtype=jnp.float32), jnp.arange(3, dtype=jnp.float32)

    def flat(*args):  # an axis to put the lanes behind
        found, keys = one(*args)
        return found["sum"], found["largest"][None], keys

    args, axes = (tree, number, shared), (0, 0, None)
    made = over_lanes(flat, axes, out)(*args)
    expected = jax.vmap(flat, axes, out)(*args)
    for left, right in zip(made, expected, strict=True):
        assert left.shape == right.shape and left.dtype == right.dtype
    np.testing.assert_array_equal(made[0], expected[0])
    np.testing.assert_array_equal(made[1], expected[1])
    keys, expected_keys = (jax.random.key_data(found[2]) for found in (made, expected))
    np.testing.assert_array_equal(keys, expected_keys)


def test_single_lane_is_traced_without_a_lane_axis():
    jaxpr = jax.make_jaxpr(over_lanes(lambda x: jnp.sum(x * x)))(jnp.ones((1, 4)))
    (product,) = [e for e in jaxpr.eqns if e.primitive.name == "mul"]
    assert product.invars[0].aval.shape == (4,)


def test_over_lanes_supports_in_and_out_axes():
    x = jnp.arange(6.0).reshape((3, 1, 2))
    made = over_lanes(lambda x, none: x + 1.0, (1, None), 2)(x, None)
    np.testing.assert_array_equal(made, jnp.moveaxis(x + 1.0, 1, 2))
