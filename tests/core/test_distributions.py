import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from helpers import slow
from hpo.core.distributions import (
    ActionDistribution,
    CategoricalActions,
    Gaussian,
    MultiCategorical,
    family_of,
)

LAST = np.float32(1.0 - 2.0**-23)  # the largest number that `Family.noise` gives
masked_sample = jax.jit(
    lambda logits, mask, noise: CategoricalActions.make(logits, mask).sample(noise)
)


def logits_of(rows, actions, scale=2.0, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, actions)).astype(np.float32) * scale


def masks_of(rows, actions, seed=1):
    mask = np.random.default_rng(seed).random((rows, actions)) < 0.5
    mask[:, 0] |= ~mask.any(axis=1)
    return mask


def within_four_errors(counts, probs):
    n = counts.sum()
    error = np.sqrt(n * probs * (1.0 - probs))
    assert np.all(np.abs(counts - n * probs) <= 4.0 * error + 1e-9)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_categorical_agrees_with_scipy(scale):
    logits = logits_of(20, 5, scale)
    dist = CategoricalActions.make(jnp.asarray(logits))
    log_probs = scipy.special.log_softmax(logits.astype(np.float64), axis=-1)
    actions = jnp.arange(20, dtype=jnp.int32) % 5
    np.testing.assert_allclose(
        dist.log_prob(actions), log_probs[np.arange(20), actions], rtol=1e-5, atol=1e-5
    )
    summed = CategoricalActions.make(jnp.asarray(logits), selects=True)
    np.testing.assert_array_equal(summed.log_prob(actions), dist.log_prob(actions))
    entropy = scipy.stats.entropy(np.exp(log_probs), axis=-1)
    np.testing.assert_allclose(dist.entropy(), entropy, atol=1e-5)
    np.testing.assert_array_equal(dist.mode(), logits.argmax(axis=-1))
    assert dist.mode().dtype == jnp.int32 and isinstance(dist, ActionDistribution)


def test_categorical_samples_follow_the_probabilities():
    logits = logits_of(1, 6)[0]
    noise = family_of("categorical").noise(jax.random.key(3), (60_000,), ())
    assert noise.shape == (60_000,) and noise.min() >= 0.0 and noise.max() < 1.0
    dist = CategoricalActions.make(jnp.broadcast_to(logits, (60_000, 6)))
    actions = np.asarray(dist.sample(noise))
    assert actions.dtype == np.int32
    probs = scipy.special.softmax(logits.astype(np.float64))
    within_four_errors(np.bincount(actions, minlength=6), probs)


def test_categorical_inverts_the_cumulative_distribution():
    # p = (0.5, 0.25, 0.25): the first sum above the draw.
    dist = CategoricalActions.make(jnp.log(jnp.asarray([0.5, 0.25, 0.25])))
    noise = [0.0, 0.49, 0.51, 0.74, 0.76, float(LAST)]
    assert [int(dist.sample(jnp.float32(u))) for u in noise] == [0, 0, 1, 1, 2, 2]


def test_masked_actions_have_probability_zero_and_the_rest_is_renormalised():
    logits, mask = logits_of(30, 7), masks_of(30, 7)
    dist = CategoricalActions.make(jnp.asarray(logits), jnp.asarray(mask))
    probs = np.exp(np.asarray(dist.log_probs))
    assert np.all(probs[~mask] == 0.0)
    expected = slow.log_softmax(logits, mask)
    np.testing.assert_allclose(probs, np.exp(expected), atol=1e-6)
    entropy = [scipy.stats.entropy(np.exp(row)) for row in expected]
    np.testing.assert_allclose(dist.entropy(), entropy, atol=1e-5)
    assert np.all(mask[np.arange(30), np.asarray(dist.mode())])


def test_masked_samples_follow_the_renormalised_probabilities():
    logits, mask = logits_of(1, 6)[0], np.array([True, False, True, True, False, False])
    noise = family_of("categorical").noise(jax.random.key(4), (60_000,), ())
    rows = jnp.broadcast_to(logits, (60_000, 6)), jnp.broadcast_to(mask, (60_000, 6))
    counts = np.bincount(np.asarray(masked_sample(*rows, noise)), minlength=6)
    within_four_errors(counts, np.exp(slow.log_softmax(logits[None], mask[None])[0]))


@settings(max_examples=200, deadline=None)
@given(
    logits=hnp.arrays(np.float32, (4, 6), elements=st.floats(-1e4, 1e4, width=32)),
    mask=hnp.arrays(bool, (4, 6)),
    noise=st.one_of(st.sampled_from([0.0, float(LAST), 0.5]), st.floats(0, float(LAST), width=32)),
)
def test_no_masked_action_is_ever_sampled(logits, mask, noise):
    actions = np.asarray(masked_sample(logits, mask, np.full(4, noise, np.float32)))
    for row, action in zip(mask, actions, strict=True):
        assert 0 <= action < 6
        assert row[action] or not row.any()


@pytest.mark.parametrize("actions", [2, 17, 300, 1000])
def test_rounding_never_samples_a_masked_action(actions):
    """Draws are aimed at every place where the running sum moves at a masked action.

    Sums of many terms are trees, whose rounding gives masked actions a share of their own.
    """
    rows = 2000
    logits, mask = logits_of(rows, actions), masks_of(rows, actions)
    mask[::7, -1] = False
    mask[:, 0] |= ~mask.any(axis=1)
    probs = np.exp(
        np.asarray(CategoricalActions.make(jnp.asarray(logits), jnp.asarray(mask)).log_probs)
    )
    assert np.all(probs[~mask] == 0.0)
    sums = np.asarray(jax.jit(lambda x: jnp.cumsum(x, axis=-1))(probs))
    before = np.concatenate([np.zeros((rows, 1), np.float32), sums[:, :-1]], axis=1)
    moved = np.where(mask, 0.0, np.abs(sums - before))
    at = moved.argmax(axis=1)
    aimed = 0.5 * (sums + before)[np.arange(rows), at] / sums[:, -1]
    for noise in (aimed, np.zeros(rows), np.full(rows, LAST)):
        noise = np.clip(noise.astype(np.float32), 0.0, LAST)
        chosen = np.asarray(masked_sample(logits, mask, noise))
        assert np.all(mask[np.arange(rows), chosen])


def test_masks_give_no_gradient_and_no_nan():
    logits, mask = logits_of(8, 5), masks_of(8, 5)
    actions = jnp.asarray([row.nonzero()[0][-1] for row in mask], jnp.int32)

    def total(logits):
        dist = CategoricalActions.make(logits, jnp.asarray(mask))
        return jnp.sum(dist.log_prob(actions)), jnp.sum(dist.entropy())

    for part in (0, 1):
        gradient = np.asarray(jax.grad(lambda x, part=part: total(x)[part])(jnp.asarray(logits)))
        assert np.all(np.isfinite(gradient))
        assert np.all(gradient[~mask] == 0.0)
        single = mask.sum(axis=1) == 1
        assert np.any(gradient[~single][mask[~single]] != 0.0)


def test_all_false_mask_is_ignored():
    logits = jnp.asarray(logits_of(3, 4))
    raw = CategoricalActions.make(logits)
    none = CategoricalActions.make(logits, jnp.zeros((3, 4), bool))
    full = CategoricalActions.make(logits, jnp.ones((3, 4), bool))
    np.testing.assert_array_equal(none.log_probs, raw.log_probs)
    np.testing.assert_array_equal(full.log_probs, raw.log_probs)


def test_gaussian_agrees_with_scipy():
    rng = np.random.default_rng(5)
    mean, log_std, action = (rng.normal(size=(9, 3)).astype(np.float32) for _ in range(3))
    dist = Gaussian(jnp.asarray(mean), jnp.asarray(log_std))
    reference = scipy.stats.norm(mean.astype(np.float64), np.exp(log_std.astype(np.float64)))
    np.testing.assert_allclose(
        dist.log_prob(jnp.asarray(action)), reference.logpdf(action).sum(-1), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(dist.entropy(), reference.entropy().sum(-1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(dist.mode(), mean)
    assert isinstance(dist, ActionDistribution)


def test_gaussian_samples_match_mean_and_std():
    mean, std = np.array([1.0, -2.0], np.float32), np.array([0.5, 3.0], np.float32)
    noise = family_of("gaussian").noise(jax.random.key(6), (40_000,), (2,))
    assert noise.shape == (40_000, 2) and noise.dtype == jnp.float32
    shape = (40_000, 2)
    dist = Gaussian(jnp.broadcast_to(mean, shape), jnp.broadcast_to(np.log(std), shape))
    samples = np.asarray(dist.sample(noise), np.float64)
    assert np.all(np.abs(samples.mean(0) - mean) <= 4.0 * std / 200.0)
    # the standard error of a normal sample's variance is var sqrt(2 / n)
    assert np.all(np.abs(samples.var(0) / std**2 - 1.0) <= 4.0 * np.sqrt(2.0 / 40_000))
    assert scipy.stats.kstest((samples[:, 0] - mean[0]) / std[0], "norm").pvalue > 1e-4


SIZES = (3, 1, 5)


def components(rows, seed=0):
    """Return logits [rows, 9] of three components, and a mask of them."""
    logits = logits_of(rows, sum(SIZES), seed=seed)
    mask = np.random.default_rng(seed + 1).random(logits.shape) < 0.6
    return logits, mask


def split(rows):
    return np.split(rows, np.cumsum(SIZES)[:-1], axis=-1)


@pytest.mark.parametrize("masked", [False, True])
def test_multi_categorical_is_its_components(masked):
    logits, mask = components(40)
    mask[3, :3] = False  # nothing of one component is allowed: as if it had no mask
    given_mask = jnp.asarray(mask) if masked else None
    dist = MultiCategorical.make(jnp.asarray(logits), SIZES, given_mask)
    rng = np.random.default_rng(8)
    actions = np.stack([rng.integers(0, n, 40) for n in SIZES], axis=1).astype(np.int32)
    log_probs = [
        slow.log_softmax(part, allowed if masked else None)
        for part, allowed in zip(split(logits), split(mask), strict=True)
    ]
    actions = np.where(masked, np.stack([x.argmax(-1) for x in log_probs], 1), actions)
    expected = sum(x[np.arange(40), actions[:, i]] for i, x in enumerate(log_probs))
    made = dist.log_prob(jnp.asarray(actions, jnp.int32))
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)
    entropy = sum(scipy.stats.entropy(np.exp(x), axis=-1) for x in log_probs)
    np.testing.assert_allclose(dist.entropy(), entropy, atol=1e-5)
    np.testing.assert_array_equal(dist.mode(), np.stack([x.argmax(-1) for x in log_probs], 1))
    assert dist.mode().dtype == jnp.int32 and isinstance(dist, ActionDistribution)


def test_multi_categorical_samples_components_independently():
    count = 60_000
    logits, mask = components(1, seed=5)
    mask[0, [0, 3, 4]] = [True, True, True]
    noise = family_of("multi_discrete").noise(jax.random.key(7), (count,), (3,))
    assert noise.shape == (count, 3) and noise.min() >= 0.0 and noise.max() < 1.0
    rows = (jnp.broadcast_to(x[0], (count, 9)) for x in (logits, mask))
    flat, allowed = rows
    actions = np.asarray(MultiCategorical.make(flat, SIZES, allowed).sample(noise))
    assert actions.dtype == np.int32
    for i, (part, ok) in enumerate(zip(split(logits), split(mask), strict=True)):
        counts = np.bincount(actions[:, i], minlength=SIZES[i])
        assert len(counts) == SIZES[i]  # never the padding
        within_four_errors(counts, np.exp(slow.log_softmax(part, ok)[0]))
    first, last = actions[:, 0] == actions[0, 0], actions[:, 2] == actions[0, 2]
    together = np.mean(first & last) - np.mean(first) * np.mean(last)
    assert abs(together) < 4.0 * 0.25 / np.sqrt(count)


def test_padding_and_masks_of_components_have_no_gradient():
    logits, mask = components(8, seed=3)
    actions = jnp.zeros((8, 3), jnp.int32)
    mask[:, [0, 3, 4]] = True

    def total(logits):
        dist = MultiCategorical.make(logits, SIZES, jnp.asarray(mask))
        return jnp.sum(dist.log_prob(actions)) + jnp.sum(dist.entropy())

    gradient = np.asarray(jax.jit(jax.grad(total))(jnp.asarray(logits)))
    assert np.all(np.isfinite(gradient)) and np.all(gradient[~mask] == 0.0)
    assert np.all(gradient[:, 3] == 0.0)  # a component with one action has nothing to choose
    assert np.any(gradient[:, 4:] != 0.0)
