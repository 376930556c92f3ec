"""PB2: a bandit selects a copy's hyperparameters based on earlier gains, not at random.

    Parker-Holder, J., Nguyen, V., Roberts, S. (2020). Provably Efficient Online Hyperparameter
    Optimization with Population-Based Bandits. NeurIPS 33. arXiv:2002.02518.

The model is a Gaussian process for the gain in an interval, as a function of the hyperparameters,
the loss at the interval's start, and time, so that early results count less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from threadpoolctl import ThreadpoolController

from ...spaces.space import Parameter, Space
from ...studies.search_spec import EarlyTerminate
from ...studies.spec import Study
from .pbt_perturb import Gain, Perturb, Situation
from .pbt_perturb import build as build_perturb

_FEWEST = 4  # with fewer gains, values are random
# candidates everywhere, candidates around the best, and their distance
_SPREAD, _AROUND, _NEAR = 256, 128, 0.05
_C1, _C2 = 0.2, 0.4  # of the exploration bonus, as in the authors' experiments
_STEPS, _FITTED = 30, 128  # steps of the fit, and number of latest gains that it uses
# logs of lengthscale, signal variance and noise variance; forgetting is a logit.
_START = (math.log(0.3), 0.0, math.log(0.1), -2.0)
_BOUNDS = (
    (math.log(0.05), math.log(3.0)),
    (math.log(0.05), math.log(10.0)),
    (math.log(1e-3), math.log(2.0)),
    (-7.0, 2.0),
)


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process with the time-varying kernel of the paper (equation 4).

    k((x, t), (x', t')) = s exp(-|x - x'|^2 / (2 l^2)) (1 - e)^(|t - t'| / 2), plus noise.
    """

    x: np.ndarray  # observed points [n, d]
    t: np.ndarray  # their times [n]
    y: np.ndarray  # gains [n], standardised
    theta: tuple[float, ...]  # log l, log s, log noise, logit e

    def kernel(self, x: np.ndarray, t: np.ndarray, z: np.ndarray, u: np.ndarray) -> np.ndarray:
        scale, signal = math.exp(self.theta[0]), math.exp(self.theta[1])
        kept = -math.log1p(math.exp(self.theta[3]))  # log(1 - e)
        far = cdist(x, z, "sqeuclidean") / (2.0 * scale**2)
        return signal * np.exp(kept / 2.0 * np.abs(t[:, None] - u[None, :]) - far)

    def _noisy_covariance(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return self.kernel(x, t, x, t) + math.exp(self.theta[2]) * np.eye(len(x))

    @cached_property
    def _cholesky_factor(self) -> np.ndarray:
        """The lower Cholesky factor of the observed points; undefined above its diagonal."""
        return cho_factor(self._noisy_covariance(self.x, self.t), lower=True)[0]

    @cached_property
    def _kernel_weights(self) -> np.ndarray:
        return cho_solve((self._cholesky_factor, True), self.y)

    def mean(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return self.kernel(x, t, self.x, self.t) @ self._kernel_weights

    def deviation(
        self, more_x: np.ndarray, more_t: np.ndarray
    ) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return the posterior deviation at points (x, t), as if the gains at `more` were known.

        The posterior variance does not depend on the observed gains, so intervals that are still
        running already count. This spreads the copies at one rung (section 4.2, after GP-BUCB).
        The Cholesky factor of the observed points is extended by one row per copy.
        """
        across = self._solve_covariances(more_x, more_t)
        corner = self._noisy_covariance(more_x, more_t) - across.T @ across
        if len(more_x):
            corner = cho_factor(corner, lower=True)[0]

        def at(x: np.ndarray, t: np.ndarray) -> np.ndarray:
            known = self._solve_covariances(x, t)
            left = math.exp(self.theta[1]) - np.sum(known**2, axis=0)
            if len(more_x):
                rest = self.kernel(more_x, more_t, x, t) - across.T @ known
                left = left - np.sum(solve_triangular(corner, rest, lower=True) ** 2, axis=0)
            return np.sqrt(np.maximum(left, 1e-12))

        return at

    def _solve_covariances(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return the inverse Cholesky factor times the covariances with observed points [n, m]."""
        return solve_triangular(
            self._cholesky_factor, self.kernel(self.x, self.t, x, t), lower=True
        )

    def evidence(self) -> tuple[float, np.ndarray]:
        """Return the negative log marginal likelihood divided by n, and its gradient in theta."""
        scale = math.exp(self.theta[0])
        forgets = 1.0 / (1.0 + math.exp(-self.theta[3]))
        covariance = self.kernel(self.x, self.t, self.x, self.t)
        count, noise = len(self.y), math.exp(self.theta[2])
        factor = cho_factor(covariance + noise * np.eye(count), lower=True)
        inverse = cho_solve(factor, np.eye(count))
        weights = inverse @ self.y
        value = 0.5 * self.y @ weights + np.sum(np.log(np.diag(factor[0])))
        value += 0.5 * count * math.log(2.0 * math.pi)
        slope = 0.5 * (inverse - np.outer(weights, weights))
        apart = cdist(self.x, self.x, "sqeuclidean")
        between = np.abs(self.t[:, None] - self.t[None, :])
        gradient = [
            np.sum(slope * covariance * apart) / scale**2,
            np.sum(slope * covariance),
            noise * np.trace(slope),
            -np.sum(slope * covariance * between) / 2.0 * forgets,
        ]
        return float(value) / count, np.asarray(gradient) / count


def fit_process(x: np.ndarray, t: np.ndarray, y: np.ndarray) -> GaussianProcess:
    """Fit the kernel to gains by marginal likelihood, from one fixed starting point."""

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        return GaussianProcess(x, t, y, tuple(float(value) for value in theta)).evidence()

    found = minimize(
        loss,
        np.asarray(_START),
        jac=True,
        method="L-BFGS-B",
        bounds=_BOUNDS,
        options={"maxiter": _STEPS},
    )
    return GaussianProcess(x, t, y, tuple(float(value) for value in found.x))


class Bandit:
    """Gives a copy the values with the highest upper confidence bound on their gain.

    Unordered values, and all values while there are few gains, are chosen in the same way as by
    `perturb`, because the paper's model covers only real numbers.
    """

    def __init__(self, space: Space, perturb: Perturb):
        self._space, self._perturb = space, perturb
        self._threads = ThreadpoolController()
        self._ordered = tuple(
            parameter
            for parameter in space.parameters
            if parameter.distribution.axis.kind != "choice"
        )
        self._fitted: tuple[tuple[Gain, ...], GaussianProcess] | None = None

    def explore(
        self, params: Mapping[str, Any], situation: Situation, rng: Generator
    ) -> dict[str, Any]:
        if len(situation.gains) < _FEWEST or not self._ordered:
            return self._perturb.explore(params, situation, rng)
        # One thread: such small matrices gain nothing from more threads, which on a busy machine
        # wait for each other a hundred times longer than they compute, and whose number affects
        # rounding.
        with self._threads.limit(limits=1, user_api="blas"):
            return self._propose_by_model(params, situation, rng)

    def _propose_by_model(
        self, params: Mapping[str, Any], situation: Situation, rng: Generator
    ) -> dict[str, Any]:
        losses = [gain.before for gain in situation.gains]
        span = min(losses), max(losses)
        process = self._fitted_process(situation.gains, span)
        others = np.array(
            [self._model_input(given, loss, span) for given, loss in situation.others]
        ).reshape(-1, len(self._ordered) + 1)
        shares = self._best_shares(process, situation, others, span, rng)

        def choose(_: str, parameter: Parameter) -> Any:
            if parameter not in self._ordered:
                return self._perturb.moved(parameter, params, rng)
            share = float(shares[self._ordered.index(parameter)])
            return parameter.distribution.outward(parameter.distribution.axis.at(share))

        return self._space.resolve(choose)

    def _best_shares(
        self,
        process: GaussianProcess,
        situation: Situation,
        others: np.ndarray,
        span: tuple[float, float],
        rng: Generator,
    ) -> np.ndarray:
        now, width = situation.rung + 1.0, len(self._ordered)
        deviation = process.deviation(others, np.full(len(others), now))
        bonus = math.sqrt(_C1 + max(0.0, math.log(_C2 * len(situation.gains))))

        def value(shares: np.ndarray) -> np.ndarray:
            context = np.full((len(shares), 1), _scale_loss(situation.loss, span))
            x, t = np.hstack([shares, context]), np.full(len(shares), now)
            return process.mean(x, t) + bonus * deviation(x, t)

        wide = rng.random((_SPREAD, width))
        best = wide[int(np.argmax(value(wide)))]
        near = np.clip(best + _NEAR * rng.standard_normal((_AROUND, width)), 0.0, 1.0)
        both = np.vstack([best[None], near])
        return both[int(np.argmax(value(both)))]

    def _fitted_process(self, gains: Sequence[Gain], span: tuple[float, float]) -> GaussianProcess:
        """Fit the model once for all copies at a rung."""
        key = tuple(gains)
        if self._fitted is None or self._fitted[0] != key:
            x = np.array([self._model_input(gain.params, gain.before, span) for gain in gains])
            t = np.array([float(gain.rung) for gain in gains])
            gained = np.array([gain.before - gain.after for gain in gains])
            y = (gained - gained.mean()) / max(float(gained.std()), 1e-12)
            theta = fit_process(x[-_FITTED:], t[-_FITTED:], y[-_FITTED:]).theta
            self._fitted = (key, GaussianProcess(x, t, y, theta))
        return self._fitted[1]

    def _model_input(
        self, params: Mapping[str, Any], loss: float, span: tuple[float, float]
    ) -> list[float]:
        """Return a configuration's coordinates, from 0 to 1, and its initial loss."""
        return [
            *(_unit_coordinate(parameter, params) for parameter in self._ordered),
            _scale_loss(loss, span),
        ]


def _unit_coordinate(parameter: Parameter, params: Mapping[str, Any]) -> float:
    """Return one hyperparameter's coordinate, or the middle of its axis if it is inactive."""
    value, distribution = params.get(parameter.name), parameter.distribution
    if parameter.name not in params or distribution.why_not(value) is not None:
        return 0.5
    return distribution.share(value)


def _scale_loss(loss: float, span: tuple[float, float]) -> float:
    low, high = span
    if high <= low:
        return 0.5
    return (loss - low) / (high - low)


def build(early: EarlyTerminate, study: Study) -> Bandit:
    return Bandit(study.space, build_perturb(early, study))
