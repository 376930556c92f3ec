import math

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from hpo.search.rules.pb2 import Bandit, GaussianProcess, fit_process
from hpo.search.rules.pbt_perturb import Gain, Perturb, Situation
from hpo.spaces import Parameter, Space, make_distribution
from hpo.spaces.space import Condition


def parameter(name, when=(), **fields):
    distribution = make_distribution(fields)
    return Parameter(name, distribution, distribution.middle(), when)


SPACE = Space(
    (
        parameter("learning_rate", min=1e-5, max=1e-1, distribution="log_uniform"),
        parameter("gamma", min=0.9, max=0.999, distribution="one_minus_log"),
        parameter("gae_lambda", min=0.8, max=1.0, distribution="uniform"),
        parameter("update_epochs", min=1, max=8, distribution="int_uniform"),
        parameter("lr_schedule", values=["constant", "linear", "cosine"]),
        parameter(
            "lr_end_fraction",
            (Condition("lr_schedule", ("linear",)),),
            min=0.0,
            max=1.0,
            distribution="uniform",
        ),
    )
)
HERE = {
    "learning_rate": 1e-3,
    "gamma": 0.99,
    "gae_lambda": 0.9,
    "update_epochs": 4,
    "lr_schedule": "constant",
}
NOW = Situation(rung=2, loss=1.0)


def test_perturbation_moves_hyperparameters_by_the_factors():
    perturb, rng = Perturb(SPACE, 0.0, (0.8, 1.25)), np.random.default_rng(0)
    seen = [perturb.explore(HERE, NOW, rng) for _ in range(60)]
    assert {row["learning_rate"] for row in seen} == {8e-4, 1.25e-3}
    assert {row["gamma"] for row in seen} == {0.992, 0.9875}
    shift = 0.2 * math.log(1.25)
    assert sorted({row["gae_lambda"] for row in seen}) == pytest.approx([0.9 - shift, 0.9 + shift])
    # ln(1.25) of 7 positions is 1.56: two whole ones.
    assert {row["update_epochs"] for row in seen} == {2, 6}
    assert all(row["lr_schedule"] == "constant" for row in seen)
    assert len({tuple(row.values()) for row in seen}) == 16


def test_resampled_hyperparameters_respect_conditions():
    perturb, rng = Perturb(SPACE, 1.0, (0.8, 1.25)), np.random.default_rng(1)
    seen = [perturb.explore(HERE, NOW, rng) for _ in range(200)]
    assert all(SPACE.contains(row) for row in seen)
    assert {row["lr_schedule"] for row in seen} == {"constant", "linear", "cosine"}
    assert min(row["learning_rate"] for row in seen) < 1e-4
    assert max(row["learning_rate"] for row in seen) > 1e-2


def test_resample_probability_is_respected():
    perturb, rng = Perturb(SPACE, 0.25, (0.8, 1.25)), np.random.default_rng(2)
    moved = [
        perturb.explore(HERE, NOW, rng)["learning_rate"] in (8e-4, 1.25e-3) for _ in range(800)
    ]
    assert 0.70 < np.mean(moved) < 0.80


# ---------------------------------------------------------------------- the model


def slow_kernel(theta, x, t):
    scale, signal, _, logit = theta
    forgets = 1 / (1 + math.exp(-logit))
    return [
        [
            math.exp(signal)
            * math.exp(
                -sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) / (2 * math.exp(scale) ** 2)
            )
            * (1 - forgets) ** (abs(v - w) / 2)
            for q, w in zip(x, t, strict=True)
        ]
        for p, v in zip(x, t, strict=True)
    ]


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    x, t = rng.random((12, 2)), rng.integers(1, 5, 12).astype(float)
    return x, t, np.sin(4 * x[:, 0]) + 0.1 * rng.standard_normal(12)


THETA = (-1.0, 0.2, -2.0, -1.5)


def test_gaussian_process_equals_closed_form(data):
    x, t, y = data
    process = GaussianProcess(x, t, y, THETA)
    covariance = np.array(slow_kernel(THETA, x, t)) + math.exp(THETA[2]) * np.eye(12)
    new, when = np.array([[0.3, 0.7]]), np.array([5.0])
    across = np.array(slow_kernel(THETA, np.vstack([x, new]), [*t, 5.0]))[-1, :-1]
    np.testing.assert_allclose(
        process.mean(new, when), across @ np.linalg.solve(covariance, y), rtol=1e-9
    )
    left = math.exp(THETA[1]) - across @ np.linalg.solve(covariance, across)
    found = process.deviation(np.zeros((0, 2)), np.zeros(0))(new, when)
    np.testing.assert_allclose(found, math.sqrt(left), rtol=1e-9)
    value = 0.5 * y @ np.linalg.solve(covariance, y) + 6 * math.log(2 * math.pi)
    value += 0.5 * np.linalg.slogdet(covariance)[1]
    assert process.evidence()[0] == pytest.approx(value / 12, rel=1e-9)


def test_evidence_gradient_equals_finite_differences(data):
    x, t, y = data
    slow = approx_fprime(
        np.array(THETA), lambda theta: GaussianProcess(x, t, y, tuple(theta)).evidence()[0]
    )
    np.testing.assert_allclose(
        GaussianProcess(x, t, y, THETA).evidence()[1], slow, rtol=1e-3, atol=1e-5
    )
    fitted = fit_process(x, t, y)
    assert fitted.evidence()[0] < GaussianProcess(x, t, y, THETA).evidence()[0]


def test_pending_points_reduce_posterior_deviation(data):
    x, t, y = data
    process = GaussianProcess(x, t, y, THETA)
    new, when = np.array([[0.9, 0.1]]), np.array([5.0])
    alone = process.deviation(np.zeros((0, 2)), np.zeros(0))(new, when)
    assert process.deviation(new, when)(new, when) < 0.6 * alone
    more, then = np.array([[0.9, 0.1], [0.2, 0.4], [0.5, 0.5]]), np.full(3, 5.0)
    known = GaussianProcess(np.vstack([x, more]), np.array([*t, *then]), np.zeros(15), THETA)
    points, at = np.random.default_rng(0).random((7, 2)), np.full(7, 6.0)
    np.testing.assert_allclose(
        process.deviation(more, then)(points, at),
        known.deviation(np.zeros((0, 2)), np.zeros(0))(points, at),
        rtol=1e-9,
    )


def gains(count, best, rung=3):
    """Gains that fall off around one learning rate (as a share of its axis)."""
    rng, found = np.random.default_rng(5), []
    axis = SPACE.parameters[0].distribution
    for _ in range(count):
        params = SPACE.draw(rng)
        away = axis.share(params["learning_rate"]) - best
        found.append(Gain(rung, params, 1.0, 1.0 - math.exp(-(away**2) / 0.02)))
    return found


@pytest.mark.parametrize("best", [0.25, 0.7])
def test_bandit_prefers_hyperparameters_with_past_gains(best):
    bandit = Bandit(SPACE, Perturb(SPACE, 0.25, (0.8, 1.25)))
    axis, seen, others = SPACE.parameters[0].distribution, [], []
    for copy in range(6):
        situation = Situation(3, 1.0, gains(48, best), tuple(others))
        params = bandit.explore(HERE, situation, np.random.default_rng(copy))
        assert SPACE.contains(params)
        others.append((params, 1.0))
        seen.append(axis.share(params["learning_rate"]))
    assert abs(np.median(seen) - best) < 0.12
    assert len({tuple(sorted(map(str, params.items()))) for params, _ in others}) == 6


def test_old_observations_are_discounted():
    bandit = Bandit(SPACE, Perturb(SPACE, 0.25, (0.8, 1.25)))
    axis = SPACE.parameters[0].distribution
    seen = gains(40, 0.2, rung=1) + gains(40, 0.2, rung=2) + gains(40, 0.8, rung=9)
    params = [
        bandit.explore(HERE, Situation(9, 1.0, seen), np.random.default_rng(n)) for n in range(5)
    ]
    assert np.median([axis.share(row["learning_rate"]) for row in params]) > 0.6


def test_bandit_perturbs_randomly_with_few_observations():
    perturb = Perturb(SPACE, 0.25, (0.8, 1.25))
    few = Situation(1, 1.0, gains(3, 0.5))
    given = Bandit(SPACE, perturb).explore(HERE, few, np.random.default_rng(0))
    assert given == perturb.explore(HERE, few, np.random.default_rng(0))
