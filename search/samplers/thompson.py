"""Default-weighted Thompson sampling (Thompson 1933) on a quadratic mixed model.

A value is modelled as a quadratic surface over the axis positions, plus a configuration effect, a
seed effect and noise. Each proposal is the best of some candidates according to one surface drawn
from the exact posterior. Configurations near the default are more likely to be candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from ...spaces.space import Parameter, Space
from ...store.rows import LOST, TrialState
from ..seeds import generator
from .history_window import Losses, Window, penalised
from .registry import Draw, PriorTrial, ProposalBatch, SamplerSpec, options_of

_LEAST_FINISHED, _LEAST_KNOWN = 2, 4  # trials needed before there is a model
# draws from the space, and how many proposals share them as candidates
_DRAWS, _SHARED = 1_000, 64
_MOST_PAIRED = 30  # maximum number of columns whose products are modelled
# shares: of the variance between configurations; of the surface's variance
_SURFACE, _QUADRATIC = 0.6, 0.35
_LEAST_BETWEEN = 0.15  # least variance between configurations, as a share of the variance of means
_NOISE, _NOISE_COUNT = 0.4, 4  # prior: noise of a seed / variance of means; weight in values
_SEED, _SEED_COUNT = 0.3, 2  # prior: variance of seeds / noise; weight in seeds
_SLOPE_COUNT = 2  # prior: differences at a rung equal those at the end; weight in trials


class Coordinates:
    """Maps configurations to [0, 1]^d, each parameter on its distribution's scale.

    A choice of m values has m - 1 indicator columns. An inactive parameter is placed at its
    default. A conditional parameter has an additional column, which is 1 while it is inactive.
    """

    def __init__(self, space: Space):
        # for every column, whether its square is a feature
        self._space, self._curved = space, list[bool]()
        for _, one in space.keyed:
            axis = one.distribution.axis
            bends = axis.kind == "real" or (axis.kind == "integer" and axis.high > axis.low + 1)
            self._curved += [bends] * len(_feature_columns(one, one.default)) + [False] * bool(
                one.when
            )
        self.default = self.of(space.default())

    def of(self, params: Mapping[str, Any]) -> np.ndarray:
        active = {key: value for key, _, value in self._space.active(params)}
        row: list[float] = []
        for key, one in self._space.keyed:
            row += _feature_columns(one, active.get(key, one.default))
            row += [float(key not in active)] * bool(one.when)
        return np.array(row)

    def features(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Return features [n, p]: 1, columns minus the default's, their squares and products."""
        z = np.array(rows) - self.default
        paired = z.shape[1]
        if paired > _MOST_PAIRED:
            paired = 0
        i, j = np.tril_indices(paired, -1)
        return np.hstack([np.ones((len(z), 1)), z, z[:, self._curved] ** 2, z[:, i] * z[:, j]])


def _feature_columns(parameter: Parameter, value: Any) -> list[float]:
    axis, position = parameter.distribution.axis, parameter.distribution.inward(value)
    if axis.kind == "choice":
        return [float(position == choice) for choice in range(1, int(axis.high) + 1)]
    return [axis.share(position)]


@dataclass(frozen=True)
class Result:
    """A trial's results; those of a stopped trial are extrapolated to the end of a run."""

    losses: np.ndarray  # [seeds, objectives]; one row of means if seeds are unknown
    extra: np.ndarray  # variance added by the extrapolation [objectives]


def results_of(history: Sequence[PriorTrial]) -> dict[int, Result]:
    """Return results by trial; {} if too few trials have results."""
    finished = [past for past in history if past.losses and all(map(math.isfinite, past.losses))]
    found = {p.trial: Result(_by_seed(p, p.losses or ()), np.zeros(1)) for p in finished}
    found |= _expected_ends(history, finished)
    if len(finished) < _LEAST_FINISHED or len(found) < _LEAST_KNOWN:
        return {}
    worst = Result(np.max([one.losses.mean(0) for one in found.values()], 0)[None], np.zeros(1))
    found |= {past.trial: worst for past in history if past.state in LOST}
    means = {trial: tuple(map(float, one.losses.mean(0))) for trial, one in found.items()}
    shown = penalised(means, history)
    return {
        trial: Result(one.losses + np.subtract(shown[trial], means[trial]), one.extra)
        for trial, one in found.items()
    }


def _expected_ends(
    history: Sequence[PriorTrial], finished: Sequence[PriorTrial]
) -> dict[int, Result]:
    """Predict the final results of stopped trials by regressing final losses on rung losses."""
    cut = (TrialState.STOPPED, TrialState.UNFINISHED)
    stopped = [past for past in history if past.state in cut and past.reports]
    rungs = {len(past.reports) - 1 for past in stopped}
    lines = {rung: _fit_line(finished, rung) for rung in rungs}
    found = dict[int, Result]()
    for past in stopped:
        rung = len(past.reports) - 1
        here, line = _by_seed(past, past.losses_at(rung)), lines[rung]
        if line is not None and np.isfinite(here).all():
            middle, end, slope, extra = line
            found[past.trial] = Result(end + slope * (here - middle), extra)
    return found


def _by_seed(past: PriorTrial, losses: Losses) -> np.ndarray:
    """Return losses by seed, shifted so that their mean is the trial's loss."""
    if len(losses) != 1 or not past.seeds or not all(map(math.isfinite, past.seeds)):
        return np.array([losses])
    return (losses[0] + np.subtract(past.seeds, np.mean(past.seeds)))[:, None]


def _fit_line(finished: Sequence[PriorTrial], rung: int) -> tuple[np.ndarray, ...] | None:
    """Return the means at the rung and at the end, slope and residual variance [objectives]."""
    pairs = [(one.losses_at(rung), one.losses) for one in finished if len(one.reports) > rung]
    both = np.array([pair for pair in pairs if np.isfinite(pair[0]).all()])
    if not len(both):
        return None
    middle, count = both.mean(0), len(both)
    x, y = np.moveaxis(both - middle, 1, 0)
    spread = np.maximum((x**2).mean(0), 1e-300)
    slope = ((x * y).sum(0) + _SLOPE_COUNT * spread) / ((count + _SLOPE_COUNT) * spread)
    slope = np.clip(slope, 0.0, 1.5)
    residual = (((y - slope * x) ** 2).sum(0) + 2.0 * (y**2).mean(0)) / (count + 2.0)
    return middle[0], middle[1], slope, residual


def weighed(results: Sequence[Result], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values [trial, seed] (larger is better, NaN if missing), and their extra variance."""
    seeds = max(len(one.losses) for one in results)
    value, extra = np.zeros((len(results), seeds)), np.zeros(len(results))
    for objective, weight in enumerate(weights):
        y = np.full(value.shape, np.nan)
        for row, one in zip(y, results, strict=True):
            row[: len(one.losses)] = -one.losses[:, objective]
        y -= np.median(np.nanmean(y, 1))
        mean = np.nanmean(y, 1)
        scale, size = float(np.quantile(mean, 0.9)), float(np.abs(mean).mean())
        if not scale > 1e-9 * size:  # it may be a rounding error
            scale = size or 1.0
        y = np.where(y < 0.0, -scale * np.log1p(np.maximum(-y, 0.0) / scale), y)
        unit = float(np.nanmean(y, 1).std()) or 1.0
        added = [one.extra[min(objective, len(one.extra) - 1)] for one in results]
        value += weight * y / unit
        extra += weight**2 * np.minimum(np.array(added) / unit**2, 4.0)
    return value, extra


@dataclass(frozen=True)
class MixedModel:
    """The joint posterior over the surface's coefficients and the seed effects, in this order.

    The model is y[c, s] = phi[c] theta + own[c] + seed[s] + noise, with given variances.
    """

    mean: np.ndarray  # [p + seeds]
    root: np.ndarray  # lower Cholesky factor of the precision
    noise: float  # variance of one value
    seed: float  # variance of the seed effects
    own: np.ndarray  # variance of a configuration around the surface [trials]
    prior: np.ndarray  # precision of the coefficients [p]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the coefficients of a surface [p]."""
        normal = rng.standard_normal(len(self.mean))
        moved = solve_triangular(self.root, normal, trans=1, lower=True)
        return (self.mean + moved)[: len(self.prior)]


def fit(y: np.ndarray, extra: np.ndarray, phi: np.ndarray, linear: int) -> MixedModel:
    """Solve the model exactly, with variances estimated from moments and a prior.

    `y` [trials, seeds] is NaN where missing; `extra` [trials] is added to the variance of `own`.
    The first `linear` features in `phi` [trials, p] are the constant and the linear ones.
    """
    there, p, seeds = ~np.isnan(y), phi.shape[1], y.shape[1]
    k, mean = there.sum(1), np.nanmean(y, 1)
    total = max(float(mean.var()), 1e-9)
    # noise: contrasts within configurations, without seed effects
    within = there & (k > 1)[:, None]
    contrasts, seed_counts = np.where(within, y - mean[:, None], 0.0), within.sum(0)
    effects = contrasts.sum(0) / np.maximum(seed_counts, 1)
    centre = np.where(within, effects, 0.0).sum(1) / k
    squares = float((np.where(within, contrasts - effects + centre[:, None], 0.0) ** 2).sum())
    used, rows = np.count_nonzero(seed_counts), int((k > 1).sum())
    count = 0
    if rows:
        count = max(1, int(within.sum()) - rows - used + 1)
    noise = (squares + _NOISE_COUNT * _NOISE * total) / (count + _NOISE_COUNT)
    between = ((effects**2).sum() - noise * used**2 / max(1, seed_counts.sum())) / max(1, used)
    seed = (max(0.0, between) * seeds + _SEED * noise * _SEED_COUNT) / (seeds + _SEED_COUNT)
    configurations = max(total - float((noise / k).mean()), _LEAST_BETWEEN * total)
    spread, prior = phi.var(0), np.full(p, 1e-3 / total)
    for part, share in ((slice(1, linear), 1.0 - _QUADRATIC), (slice(linear, p), _QUADRATIC)):
        prior[part] = (spread[part].sum() + 1e-9) / (share * _SURFACE * configurations)
    own = (1.0 - _SURFACE) * configurations + extra

    shrunk = own / (noise + k * own)  # configuration effects are integrated out
    alone, values = (1.0 - shrunk * k) / noise, np.where(there, y, 0.0)
    precision = np.diag(np.r_[prior, there.sum(0) / noise + 1.0 / seed])
    precision[:p, :p] += (phi * (k * alone)[:, None]).T @ phi
    precision[:p, p:] = phi.T @ (there * alone[:, None])
    precision[p:, :p] = precision[:p, p:].T
    precision[p:, p:] -= (there * (shrunk / noise)[:, None]).T @ there
    known = (values - there * (shrunk * values.sum(1))[:, None]) / noise
    root = np.linalg.cholesky(precision)
    half = solve_triangular(root, np.r_[phi.T @ known.sum(1), known.sum(0)], lower=True)
    mean = solve_triangular(root, half, trans=1, lower=True)
    return MixedModel(mean, root, noise, seed, own, prior)


@dataclass(frozen=True)
class _Pool:
    params: Sequence[dict[str, Any]]
    phi: np.ndarray  # their features
    weights: np.ndarray  # probability of each as a candidate; the sum is 1


class Thompson:
    """The Thompson sampler; with several objectives, each proposal draws random weights."""

    window = Window(best=100, latest=400)

    def __init__(self, spec: SamplerSpec):
        self.space, self.seed, self.objectives = spec.space, spec.seed, spec.objectives
        self.options = options_of("thompson", spec.options)
        self.coordinates = Coordinates(spec.space)
        self._pools: dict[int, _Pool] = {}  # only the latest

    def pool(self, trial: int) -> _Pool:
        """Return the draws from the space that serve as a trial's candidates."""
        number = trial // _SHARED
        if number not in self._pools:
            rng = generator(self.seed, "thompson-pool", number)
            params = [self.space.draw(rng) for _ in range(_DRAWS)]
            rows = [self.coordinates.of(one) for one in params]
            distance = np.linalg.norm(np.array(rows) - self.coordinates.default, axis=1)
            floor, width = self.options["floor"], self.options["width"]
            weights = floor + np.exp(-0.5 * (distance / width) ** 2)
            phi = self.coordinates.features(rows)
            self._pools = {number: _Pool(params, phi, weights / weights.sum())}
        return self._pools[number]

    def begin(self, batch: int, history: Sequence[PriorTrial]) -> ProposalBatch:
        results, params = results_of(self.window.of(history)), {p.trial: p.params for p in history}
        rows = [self.coordinates.of(params[trial]) for trial in results]
        return _ThompsonBatch(self, list(results.values()), rows)


class _ThompsonBatch:
    """Proposes each trial's candidates, best first, and then random configurations."""

    def __init__(self, method: Thompson, results: list[Result], rows: list[np.ndarray]):
        self._method, self._results = method, results
        self._phi = np.empty((0, 0))
        if rows:
            self._phi = method.coordinates.features(rows)
        self._model: MixedModel | None = None
        self._ranked: tuple[int, list[dict[str, Any]]] = (-1, [])

    def draw(self, trial: int, attempt: int) -> Draw | None:
        if self._ranked[0] != trial:
            rng = generator(self._method.seed, "thompson", trial)
            self._ranked = trial, self._ranked_candidates(trial, rng)
        if attempt < len(self._ranked[1]):
            return Draw(self._ranked[1][attempt])
        rng = generator(self._method.seed, "thompson-rest", trial, attempt)
        return Draw(self._method.space.draw(rng))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """See `Batch.keep`; nothing to do, because each proposal uses a separate surface."""

    def _ranked_candidates(self, trial: int, rng: np.random.Generator) -> list[dict[str, Any]]:
        """Return candidates, best first; without a model, in the order they were drawn."""
        method, pool = self._method, self._method.pool(trial)
        count = min(method.options["candidates"], np.count_nonzero(pool.weights))
        found = rng.choice(len(pool.params), count, replace=False, p=pool.weights)
        if self._results:
            weights = rng.dirichlet(np.ones(method.objectives))
            if self._model is None or len(weights) > 1:
                y, extra = weighed(self._results, weights)
                self._model = fit(y, extra, self._phi, 1 + len(method.coordinates.default))
            value = pool.phi[found] @ self._model.draw(rng)
            found = found[np.argsort(-value, kind="stable")]
        return [pool.params[index] for index in found]
