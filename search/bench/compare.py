"""Computes methods' scores over tables, and the env steps that each needs to reach a given value.

For each method, values are averaged over searches at each budget, and made non-decreasing in the
budget by isotonic regression. They are then interpolated linearly in the logarithm of the mean env
steps (search and confirm). A method's cost is the number of env steps where this curve reaches the
baseline's value at the baseline's budget. If the smallest budget already reaches this value, the
cost is that budget's env steps; if no budget does, it is infinite. (The mean over environments
then uses the env steps of the largest budget.) Ratios to the baseline's cost are averaged over
environments by their geometric mean. Intervals are bootstrapped over searches (the same ones for
every method) and over environments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from .bench import BenchOutcome, BenchResults
from .tables import sign_of

_RESAMPLES, _CHUNK = 2000, 100
_LEVEL = 0.95
_USUAL_BUDGET = 48


@dataclass(frozen=True)
class BenchEstimate:
    value: float
    low: float  # lower end of its 95 % interval
    high: float


@dataclass(frozen=True)
class BenchRow:
    """Results of one method on one environment with one budget, as means over searches."""

    environment: str
    method: str
    budget: int
    value: BenchEstimate  # value of the choice, on seeds that selected nothing
    beats: BenchEstimate  # share of configurations that are worse on these seeds
    oracle_value: float  # value of the best trial that was started
    oracle_beats: float
    search_runs: float
    confirm_runs: float
    trials: float
    nearest: float  # share of trials replaced by the nearest recorded configuration
    distance: float  # mean distance of these
    seconds: float  # seconds per search
    # score of the mean value on the test seeds: 0 for the median configuration, 1 for the best
    # one; None if the median is no worse than the best one found on the other seeds
    score: float | None


@dataclass(frozen=True)
class Score:
    """The mean score of one method with one budget, over the tables that have a score."""

    method: str
    budget: int
    score: BenchEstimate  # Student's interval over tables; NaN ends for a single table
    tables: int


@dataclass(frozen=True)
class Ratio:
    """The env steps a method needs to reach the baseline's value, relative to the baseline."""

    method: str
    ratio: BenchEstimate  # the interval may be unbounded above
    each: Mapping[str, float]  # environment -> ratio, infinite if no budget is enough
    at_most: bool  # on some environment, the smallest budget was enough
    at_least: bool  # on some environment, no budget was enough; `ratio` then uses the largest


@dataclass(frozen=True)
class BenchComparison:
    rows: tuple[BenchRow, ...]
    ratios: tuple[Ratio, ...]
    baseline: str
    baseline_budget: int
    baseline_runs: float  # mean over environments, of search and confirm
    scores: tuple[Score, ...]
    # tables without a score, because too many configurations tie at the top
    ceilings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(results: BenchResults) -> BenchComparison:
    spec, methods = results.file.spec, results.methods
    baseline = spec.baseline or methods[0]
    budget = spec.baseline_budget
    if budget is None and _USUAL_BUDGET in spec.budgets:
        budget = _USUAL_BUDGET
    budget = budget or max(spec.budgets)
    shape = (len(results.environments), len(methods), len(spec.budgets), spec.searches)
    signs = np.array([sign_of(results.goals[name]) for name in results.environments])
    values = _outcome_array(results, shape, "value") * signs[:, None, None, None]
    runs = _outcome_array(results, shape, "search_runs")
    runs += _outcome_array(results, shape, "confirm_runs")
    at = methods.index(baseline), spec.budgets.index(budget)
    whole = np.ones((1, *shape[::3]))
    found, smallest = _cost_ratios(values, runs, at, whole)
    most = runs.mean(axis=3)[..., -1] / runs.mean(axis=3)[:, at[0], at[1], None]
    never = np.isinf(found[0])
    draws = np.random.default_rng(0)
    again: list[np.ndarray] = []
    for _ in range(0, _RESAMPLES, _CHUNK):
        weights = draws.multinomial(shape[3], [1 / shape[3]] * shape[3], (_CHUNK, shape[0]))
        environments = draws.multinomial(shape[0], [1 / shape[0]] * shape[0], _CHUNK)
        again.append(_over_environments(_cost_ratios(values, runs, at, weights)[0], environments))
    low, high = np.quantile(
        np.concatenate(again), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0, method="nearest"
    )
    mean = _over_environments(np.where(never, most, found), np.ones((1, shape[0])))[0]
    ratios: list[Ratio] = []
    for m, method in enumerate(methods):
        estimate = BenchEstimate(float(mean[m]), float(low[m]), float(high[m]))
        each = {name: float(found[0, e, m]) for e, name in enumerate(results.environments)}
        at_most, at_least = bool(smallest[0, :, m].any()), bool(never[:, m].any())
        ratios.append(Ratio(method, estimate, each, at_most, at_least))
    outcomes, count = results.outcomes, spec.searches
    groups = [outcomes[at : at + count] for at in range(0, len(outcomes), count)]
    rows = [_bench_row(group, results.goals[group[0].environment]) for group in groups]
    ceilings = _without_score(rows, results.ceilings)
    return BenchComparison(
        tuple(rows),
        tuple(ratios),
        baseline,
        budget,
        float(runs[:, at[0], at[1]].mean()),
        tuple(_mean_scores(rows, ceilings)),
        ceilings,
    )


def _without_score(rows: Sequence[BenchRow], ceilings: Sequence[str]) -> tuple[str, ...]:
    nowhere = [row.environment for row in rows if row.score is None]
    return tuple(dict.fromkeys([*ceilings, *nowhere]))


def _mean_scores(rows: Sequence[BenchRow], ceilings: Sequence[str]) -> Iterator[Score]:
    """Yield each method's mean score over tables at each budget, in row order."""
    groups: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row.score is not None and row.environment not in ceilings:
            groups.setdefault((row.method, row.budget), []).append(row.score)
    for (method, budget), values in groups.items():
        yield Score(method, budget, over_tables(values), len(values))


def over_tables(values: Sequence[float]) -> BenchEstimate:
    """Return the mean over tables with Student's 95 % interval; no interval for a single table.

    >>> found = over_tables([1.0, 2.0, 3.0])
    >>> found.value, round(found.low, 2), round(found.high, 2)
    (2.0, -0.48, 4.48)
    """
    if len(values) < 2:
        return BenchEstimate(values[0], math.nan, math.nan)
    return _mean_interval(values)


def needed(
    values: Float[np.ndarray, "... b"], runs: Float[np.ndarray, "... b"], target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of runs needed to reach a target value.

    The second array is True where the smallest number in `runs` is enough.

    >>> at, smallest = needed(np.array([1.0, 3.0, 2.0]), np.array([4.0, 16.0, 64.0]), 2.0)
    >>> round(float(at), 2), bool(smallest)
    (10.08, False)
    """
    rising, target = _isotonic_fit(values), np.asarray(target)[..., None]
    reached = rising >= target - 1e-12 * np.abs(target)
    first = reached.argmax(axis=-1)[..., None]
    before = np.maximum(first - 1, 0)

    def take(of: np.ndarray, where: np.ndarray) -> np.ndarray:
        return np.take_along_axis(np.broadcast_to(of, rising.shape), where, axis=-1)

    low, high = take(rising, before), take(rising, first)
    gap = np.where(high > low, high - low, 1.0)
    share = np.where(first == before, 1.0, np.clip((target - low) / gap, 0.0, 1.0))
    logs = np.log(runs)
    found = np.exp((1 - share) * take(logs, before) + share * take(logs, first))[..., 0]
    return np.where(reached.any(axis=-1), found, np.inf), reached[..., 0]


def _isotonic_fit(values: np.ndarray) -> np.ndarray:
    """Return the nearest non-decreasing rows: max over i <= k of min over j >= k of mean i..j."""
    count = values.shape[-1]
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], -1)
    found = np.empty_like(values, dtype=float)
    for k in range(count):
        found[..., k] = np.max([_least_mean(sums, i, k) for i in range(k + 1)], axis=0)
    return found


def _least_mean(sums: np.ndarray, i: int, k: int) -> np.ndarray:
    """Return the minimum over j >= k of mean i..j, from cumulative sums."""
    ends = range(k, sums.shape[-1] - 1)
    return np.min([(sums[..., j + 1] - sums[..., i]) / (j + 1 - i) for j in ends], 0)


def _cost_ratios(
    values: np.ndarray, runs: np.ndarray, at: tuple[int, int], weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return costs relative to the baseline, and a mask: True if the smallest budget is enough.

    Both are [resamples, environments, methods].
    `values` (larger is better) and `runs` are [environments, methods, budgets, searches],
    `weights` [resamples, environments, searches]; `at` is the baseline's method and budget.
    """
    total = weights.sum(axis=-1)[..., None, None]
    means = np.einsum("embs,res->remb", values, weights) / total
    costs = np.einsum("embs,res->remb", runs, weights) / total
    target = _isotonic_fit(means)[:, :, at[0], at[1]]
    found, smallest = needed(means, costs, target[..., None])
    return found / costs[:, :, at[0], at[1], None], smallest


def _over_environments(ratios: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return geometric means over environments, [resamples, methods]."""
    weights = np.broadcast_to(
        weights[..., None], np.broadcast_shapes(weights[..., None].shape, ratios.shape)
    )
    logs = np.multiply(weights, np.log(ratios), out=np.zeros(weights.shape), where=weights > 0)
    return np.exp(logs.sum(axis=1) / weights.sum(axis=1))


def _outcome_array(results: BenchResults, shape: tuple[int, ...], name: str) -> np.ndarray:
    return np.array([getattr(one, name) for one in results.outcomes]).reshape(shape)


def _bench_row(group: Sequence[BenchOutcome], goal: str) -> BenchRow:
    sign = sign_of(goal)

    def mean(name: str) -> float:
        return math.fsum(getattr(one, name) for one in group) / len(group)

    trials, nearest = sum(one.trials for one in group), sum(one.nearest for one in group)
    far = math.fsum(one.distance * one.nearest for one in group)
    return BenchRow(
        group[0].environment,
        group[0].method,
        group[0].budget,
        _mean_interval([one.value for one in group]),
        _mean_interval([one.beats for one in group]),
        mean("oracle_value"),
        mean("oracle_beats"),
        mean("search_runs"),
        mean("confirm_runs"),
        mean("trials"),
        nearest / max(1, trials),
        far / max(1, nearest),
        mean("seconds"),
        _normalised_score(sign * mean("judged"), sign * mean("median"), sign * mean("best")),
    )


def _normalised_score(judged: float, median: float, best: float) -> float | None:
    """Return a score: 0 for the median, 1 for the best configuration; None if best <= median.

    Values are signed so that larger is better.
    """
    if best <= median:
        return None
    return (judged - median) / (best - median)


def _mean_interval(values: Sequence[float]) -> BenchEstimate:
    """Return a mean over searches with its t-interval."""
    count, mean = len(values), math.fsum(values) / len(values)
    reach = float(stdtrit(count - 1, (1 + _LEVEL) / 2) * np.std(values, ddof=1) / count**0.5)
    return BenchEstimate(mean, mean - reach, mean + reach)
