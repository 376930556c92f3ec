import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from hpo.core.distributions import (
    ActionDistribution,
    Beta,
    Gaussian,
    TanhGaussian,
    family_of,
)

LOW, WIDTH = np.array([-2.0, 1.0]), np.array([4.0, 0.5])
SHAPES = [(1.0, 1.0), (1.02, 5.0), (3.0, 1.0), (2.5, 2.5), (40.0, 7.0), (300.0, 450.0)]


def key(seed):
    return jax.random.key(seed, impl="threefry2x32")


def squashed(mean, log_std, width=WIDTH):
    base = Gaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(log_std, jnp.float32))
    return TanhGaussian(base, jnp.float32(np.log(width / 2).sum()))


def beta_of(alpha, beta, width=WIDTH):
    parts = (jnp.asarray(x, jnp.float32) for x in (alpha, beta))
    return Beta(*parts, jnp.float32(np.log(width).sum()))


def outputs_of(shape):
    """Return what softplus(.) + 1 makes a shape of (inverted in float64)."""
    excess = np.maximum(np.asarray(shape, np.float64) - 1.0, 1e-12)
    return excess + np.log(-np.expm1(-excess))


def squashed_density(a, mean, std, low, width):
    """Return the density of low + width (tanh(u) + 1) / 2 at a, by the change of variables."""
    x = 2.0 * (a - low) / width - 1.0
    return scipy.stats.norm(mean, std).pdf(np.arctanh(x)) / (1.0 - x**2) * 2.0 / width


def grid(low, width, points=400_001):
    """Return midpoints of equal parts of an interval, and their length."""
    edges = np.linspace(low, low + width, points)
    return 0.5 * (edges[1:] + edges[:-1]), edges[1] - edges[0]


def test_the_tanh_gaussian_s_density_is_that_of_its_actions():
    rng = np.random.default_rng(0)
    mean, log_std, u = (rng.normal(size=(50, 2)) * s for s in (1.0, 0.5, 1.5))
    dist = squashed(mean, log_std)
    actions = LOW + WIDTH * (np.tanh(u) + 1.0) / 2.0
    expected = np.log(squashed_density(actions, mean, np.exp(log_std), LOW, WIDTH)).sum(-1)
    made = dist.log_prob(jnp.asarray(u, jnp.float32))
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)
    assert isinstance(dist, ActionDistribution)
    np.testing.assert_array_equal(dist.mode(), dist.base.mean)


def test_tanh_gaussian_density_integrates_to_one():
    u, du = np.linspace(-12.0, 12.0, 200_001, retstep=True)
    dist = squashed(np.full((len(u), 1), 0.4), np.full((len(u), 1), -0.7), WIDTH[:1])
    slope = 0.5 * WIDTH[0] / np.cosh(u) ** 2  # d action / d u
    density = np.exp(np.asarray(dist.log_prob(jnp.asarray(u[:, None], jnp.float32)), np.float64))
    assert (density * slope).sum() * du == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("u", [0.0, 1.0, -8.0, 9.5, -60.0, 300.0])
def test_tanh_gaussian_log_prob_is_exact_in_the_tails(u):
    """log(1 - tanh(u)^2) is log 4 - 2|u| far out, where 1 - tanh^2 rounds to 0."""
    dist = squashed([[0.0]], [[0.0]], np.array([2.0]))
    exact = -2.0 * np.log(np.cosh(u)) if abs(u) < 20 else np.log(4.0) - 2.0 * abs(u)
    value, slope = jax.value_and_grad(lambda x: dist.log_prob(x)[0])(jnp.full((1, 1), u))
    normal = -0.5 * u**2 - 0.5 * np.log(2 * np.pi)
    assert float(value) == pytest.approx(normal - exact, rel=1e-6, abs=1e-6)
    assert float(slope[0, 0]) == pytest.approx(2.0 * np.tanh(u) - u, rel=1e-6, abs=1e-6)


def integrated_entropy(mean, log_std, low, width):
    """Return -integral p log p by small parts of the action's range."""
    a, step = grid(low, width)
    p = squashed_density(a, mean, np.exp(log_std), low, width)
    return -(scipy.special.xlogy(p, p)).sum() * step


def test_the_sampled_entropy_is_unbiased_and_so_is_its_gradient():
    rows, mean, log_std = 40_000, 0.6, -0.4
    noise = family_of("tanh_gaussian").entropy_noise(key(1), (rows,), (1,))
    assert noise is not None and noise.shape == (rows, 2, 1) and noise.dtype == jnp.float32

    def entropies(mean, log_std):
        wide = (jnp.full((rows, 1), 1.0, jnp.float32) * x for x in (mean, log_std))
        return TanhGaussian(Gaussian(*wide), jnp.log(jnp.float32(2.0))).entropy(noise)

    at = jnp.float32(mean), jnp.float32(log_std)
    each = np.asarray(entropies(*at), np.float64)
    exact = integrated_entropy(mean, log_std, -2.0, 4.0)
    assert abs(each.mean() - exact) <= 4.0 * each.std() / np.sqrt(rows)
    assert each.std() > 0.05  # it is a sample, not a formula
    slopes = jax.jit(jax.jacfwd(entropies, (0, 1)))(*at)
    for i, made in enumerate(np.asarray(slope, np.float64) for slope in slopes):
        up, down = ([mean, log_std], [mean, log_std])
        up[i], down[i] = up[i] + 1e-3, down[i] - 1e-3
        wanted = (integrated_entropy(*up, -2.0, 4.0) - integrated_entropy(*down, -2.0, 4.0)) / 2e-3
        assert abs(made.mean() - wanted) <= 4.0 * made.std() / np.sqrt(rows) + 1e-4
        assert abs(wanted) > 0.05


def test_a_sampled_entropy_needs_noise():
    with pytest.raises(ValueError, match="pass noise"):
        squashed([[0.0]], [[0.0]]).entropy()
    assert family_of("gaussian").entropy_noise(key(0), (3,), (2,)) is None


def test_tanh_gaussian_samples_are_mean_plus_noise():
    noise = family_of("tanh_gaussian").noise(key(2), (5,), (2,))
    dist = squashed(np.full((5, 2), 0.3), np.full((5, 2), -1.0))
    np.testing.assert_allclose(dist.sample(noise), 0.3 + np.exp(-1.0) * noise, rtol=1e-6)


@pytest.mark.parametrize("shapes", SHAPES)
def test_beta_agrees_with_scipy(shapes):
    dist = Beta.make(
        jnp.asarray(np.tile(np.repeat(outputs_of(shapes), 2), (9, 1)), jnp.float32),
        jnp.float32(np.log(WIDTH).sum()),
    )
    np.testing.assert_allclose(dist.alpha, np.full((9, 2), shapes[0]), rtol=1e-5)
    np.testing.assert_allclose(dist.beta, np.full((9, 2), shapes[1]), rtol=1e-5)
    reference = scipy.stats.beta(*shapes, loc=LOW, scale=WIDTH)
    x = np.random.default_rng(3).beta(*shapes, size=(9, 2))
    y = np.log(x) - np.log1p(-x)
    tolerance = 1e-4 + 1e-6 * sum(shapes)
    np.testing.assert_allclose(
        dist.log_prob(jnp.asarray(y, jnp.float32)),
        reference.logpdf(LOW + WIDTH * x).sum(-1),
        rtol=1e-5,
        atol=4 * tolerance,
    )
    np.testing.assert_allclose(
        dist.entropy(), np.full(9, reference.entropy().sum()), atol=8 * tolerance
    )
    greedy = LOW + WIDTH * scipy.special.expit(np.asarray(dist.mode(), np.float64))
    np.testing.assert_allclose(greedy, np.tile(reference.mean(), (9, 1)), rtol=1e-5)
    assert isinstance(dist, ActionDistribution)


@pytest.mark.parametrize("shapes", SHAPES)
def test_beta_samples_follow_the_beta_distribution(shapes):
    count = 20_000
    noise = family_of("beta").noise(key(4), (count,), (1,))
    dist = beta_of(np.full((count, 1), shapes[0]), np.full((count, 1), shapes[1]))
    x = scipy.special.expit(np.asarray(jax.jit(dist.sample)(noise), np.float64)[:, 0])
    assert scipy.stats.kstest(x, scipy.stats.beta(*shapes).cdf).pvalue > 1e-3
    # components of one action are independent
    pair = beta_of(np.full((count // 2, 2), shapes[0]), np.full((count // 2, 2), shapes[1]))
    y = np.asarray(pair.sample(noise.reshape(count // 2, 2, *noise.shape[2:])))
    assert abs(np.corrcoef(y.T)[0, 1]) < 4.0 / np.sqrt(count // 2)


def test_gamma_rejection_sampler_takes_first_accepted_proposal():
    """A proposal with 1 + z / sqrt(9 d) below 0 is always refused, z = 0 never is."""
    noise = np.zeros((1, 1, 2, 6, 2), np.float32)
    noise[..., 1] = 0.5
    plain = beta_of([[1.0]], [[1.0]], WIDTH[:1])
    assert float(plain.sample(jnp.asarray(noise))[0, 0]) == 0.0  # equal draws, x = 1/2
    noise[0, 0, 0, :2, 0] = -10.0  # the first Gamma draw: two proposals that are refused
    noise[0, 0, 0, 2, 0] = 1.0
    third = float(plain.sample(jnp.asarray(noise))[0, 0])
    assert third == pytest.approx(3.0 * np.log(1.0 + 1.0 / np.sqrt(6.0)), rel=1e-5)
    noise[0, 0, 0, :, 0] = -10.0  # all are refused
    assert np.isfinite(plain.sample(jnp.asarray(noise))).all()


@jax.jit
def slopes_of_beta(shapes):
    def both(shapes):
        dist = beta_of(shapes[:1], shapes[1:], np.ones(1))
        return dist.log_prob(jnp.full((1,), 0.7, jnp.float32)), dist.entropy()

    return jax.jacrev(both)(shapes)


@pytest.mark.parametrize("shapes", SHAPES)
def test_gradients_of_beta_s_entropy_and_density_are_scipy_s(shapes):
    a, b = shapes
    dlog, dent = slopes_of_beta(np.float32(shapes))
    x = scipy.special.expit(0.7)
    psi, psi1 = scipy.special.digamma, lambda z: scipy.special.polygamma(1, z)
    wanted = [np.log(x) - psi(a) + psi(a + b), np.log1p(-x) - psi(b) + psi(a + b)]
    np.testing.assert_allclose(dlog, wanted, rtol=1e-3, atol=1e-4)
    tail = (a + b - 2.0) * psi1(a + b)
    wanted = [tail - (a - 1.0) * psi1(a), tail - (b - 1.0) * psi1(b)]
    np.testing.assert_allclose(dent, wanted, rtol=1e-3, atol=1e-4)


def test_beta_stays_finite_at_its_edges():
    outputs = jnp.asarray([[-90.0, 90.0], [90.0, -90.0], [0.0, 0.0]], jnp.float32)
    actions = jnp.asarray([[-40.0], [80.0], [1e4]], jnp.float32)

    def total(outputs):
        dist = Beta.make(outputs, jnp.float32(0.0))
        return jnp.sum(dist.log_prob(actions)) + jnp.sum(dist.entropy())

    value, slopes = jax.jit(jax.value_and_grad(total))(outputs)
    assert np.isfinite(value) and np.all(np.isfinite(slopes))
