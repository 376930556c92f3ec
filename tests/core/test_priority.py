import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from hpo.core.epochs import minibatch_shape
from hpo.core.minibatches import choose_rows, draw_rows, importance_weights, probabilities
from hpo.core.plan import EnvPlan, make_plan

pytestmark = pytest.mark.usefixtures("quickly_compiled")

KEY = jax.random.key(3, impl="threefry2x32")
ADVANTAGE = np.array([0.5, -2.0, 0.0, 1.0, -0.1], np.float32)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 1.5, 3.0])
def test_probabilities_follow_the_formula(alpha):
    made = probabilities(jnp.asarray(ADVANTAGE), jnp.float32(alpha))
    priorities = [(abs(float(a)) + 1e-6) ** alpha for a in ADVANTAGE]
    np.testing.assert_allclose(made, np.array(priorities) / sum(priorities), rtol=1e-5)


@pytest.mark.parametrize("alpha", [20.0, 1e6])
def test_an_exponent_without_bound_draws_the_largest_rows(alpha):
    """The formula in logarithms: float32 holds neither 3e4^20 nor its sum."""
    advantage = np.array([3e4, 2.9e4, -3e4, 1.0, 0.0], np.float32)
    made = np.asarray(probabilities(jnp.asarray(advantage), jnp.float32(alpha)))
    powers = alpha * np.log(np.abs(advantage.astype(np.float64)) + 1e-6)
    expected = np.exp(powers - powers.max()) / np.exp(powers - powers.max()).sum()
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-30)
    drawn = np.asarray(choose_rows(KEY, jnp.asarray(advantage), jnp.float32(alpha), 500))
    assert set(drawn.tolist()) == ({0, 1, 2} if alpha == 20.0 else {0, 2})


def test_segment_priority_is_the_sum_over_steps():
    segments = np.array([[1.0, -1.0], [0.5, 0.0], [-2.0, 3.0]], np.float32)
    made = probabilities(jnp.asarray(segments), jnp.float32(1.0))
    np.testing.assert_allclose(made, np.array([2.0, 0.5, 5.0]) / 7.5, rtol=1e-5)


def test_rows_are_drawn_by_their_probability():
    chances = probabilities(jnp.asarray(ADVANTAGE), jnp.float32(0.5))
    drawn = np.asarray(draw_rows(KEY, chances, 40_000))
    counts = np.bincount(drawn, minlength=5)
    expected = np.asarray(chances, np.float64)
    assert counts[2] > 0 and drawn.dtype == np.int32  # a row without advantage comes too
    assert scipy.stats.chisquare(counts, expected / expected.sum() * 40_000).pvalue > 1e-4


def test_importance_weights_at_beta_one_are_unbiased():
    """E_P[w x] = mean(x): what drawing by P would bias, (N P)^-1 undoes."""
    chances = probabilities(jnp.asarray(ADVANTAGE), jnp.float32(0.6))
    weights = importance_weights(chances, jnp.float32(1.0))
    values = np.array([3.0, -1.0, 4.0, 1.0, 5.0])
    expected = np.sum(np.asarray(chances) * np.asarray(weights) * values)
    assert expected == pytest.approx(values.mean(), rel=1e-5)
    np.testing.assert_allclose(importance_weights(chances, jnp.float32(0.0)), 1.0)
    half = importance_weights(chances, jnp.float32(0.5))
    np.testing.assert_allclose(half, (5 * np.asarray(chances)) ** -0.5, rtol=1e-5)


@pytest.mark.parametrize(
    ("static", "shape", "drawn"),
    [
        ({}, (4, 6), 21),
        ({"num_minibatches": 2, "minibatch_size": 5}, (2, 5), 10),
        ({"num_minibatches": 8, "minibatch_size": 6}, (8, 6), 48),
        ({"priority_over": "segments", "num_minibatches": 2}, (2, 2), 3),
        ({"priority_over": "segments", "num_minibatches": 5, "minibatch_size": 14}, (5, 2), 10),
    ],
)
def test_as_many_rows_are_drawn_as_the_minibatches_hold(static, shape, drawn):
    sizes = {"num_envs": 3, "rollout_length": 7, "priority_alpha": 0.5, **static}
    plan = make_plan(sizes, EnvPlan("CartPole-v1"))
    rows = 3 if plan.by_segments else 21
    assert minibatch_shape(plan, rows) == shape
    advantage = jnp.ones((rows, 7) if plan.by_segments else (rows,), jnp.float32)
    count = drawn if plan.has_free_minibatches else rows
    assert count == drawn
    plain = np.asarray(choose_rows(KEY, advantage, jnp.float32(0.0), count))
    counts = np.bincount(plain, minlength=rows)  # every row as often as any other
    assert len(plain) == drawn and counts.max() - counts.min() <= 1
    if drawn == rows:
        np.testing.assert_array_equal(plain, np.arange(rows))
    by_priority = np.asarray(choose_rows(KEY, advantage, jnp.float32(0.5), count))
    assert len(by_priority) == drawn and 0 <= by_priority.min() <= by_priority.max() < rows
    assert drawn != 21 or len(set(by_priority.tolist())) < 21  # some come twice
