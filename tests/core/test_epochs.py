"""The spread of gradients over the steps of an update, against NumPy in double precision."""

import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core import epochs


@pytest.mark.parametrize("common", [0.0, 1.0, 1_000.0])
def test_gradient_variance_is_accurate_for_large_means(common):
    """However large the part that all of them share, which squares would not survive."""
    rng = np.random.default_rng(0)
    gradients = [
        {
            "w": (common + rng.normal(size=(40, 30))).astype(np.float32),
            "b": rng.normal(size=30).astype(np.float32),
        }
        for _ in range(16)
    ]
    mean, total = {"w": jnp.zeros((40, 30)), "b": jnp.zeros(30)}, jnp.float32(0.0)
    for taken, gradient in enumerate(gradients):
        one = {name: jnp.asarray(leaf) for name, leaf in gradient.items()}
        mean, more = epochs._moved_spread(mean, jnp.float32(taken), one)
        total = total + more
    flat = np.array([np.concatenate([g["w"].ravel(), g["b"]]) for g in gradients], np.float64)
    assert float(total) / 16 == pytest.approx(np.var(flat, axis=0).sum(), rel=2e-5)
    exact = flat.mean(axis=0)
    ours = np.concatenate([np.ravel(mean["w"]), np.ravel(mean["b"])])
    np.testing.assert_allclose(ours, exact, rtol=1e-6, atol=1e-6)
