"""Finds the load that a heuristic supports at a given blocking probability.

Load is a traced value, so all loads in a search run in one program, compiled at the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....errors import ConfigError
from .heuristic_evaluation import HeuristicSums, Rule, evaluate_heuristic
from .optical_environment import OpticalEnvironment

POINTS = 8  # loads per round
# Rounds to bracket the crossing, to refine it, and to widen the range again if seeds differ much
WIDENINGS, REFINEMENTS, RETURNS = 6, 3, 4
_TERMS = 3  # coefficients of the parabola through the last round's loads


@dataclass(frozen=True, eq=False)
class SupportedLoad:
    load: float  # Erlang at which mean service blocking crosses the target
    low: float  # lower end of its 95 % interval
    high: float  # upper end
    last: HeuristicSums  # the evaluation of the last round, whose loads enclose it
    of_seeds: np.ndarray  # Erlang [seeds]: exp of the pseudo-values, with geometric mean `load`


def find_load(
    environment: OpticalEnvironment,
    name: Rule,
    target: float,
    *,
    seeds: int = 10,
    steps: int = 20_000,
    seed: int = 0,
) -> SupportedLoad:
    """Find the load at which a heuristic's blocking probability is `target`.

    In the last round, a parabola is fitted to log blocking as a function of log load, by least
    squares weighted by blocking. The result is the load at which the parabola crosses the target.
    The interval is a Student t interval of jackknife pseudo-values (Tukey 1958, "Bias and
    confidence in not-quite large samples"). If x is the log load from all n seeds and x_i the log
    load without seed i, seed i's pseudo-value is n x - (n - 1) x_i. target x seeds x steps should
    be at least 100.
    """
    from scipy import stats

    if not 0.0 < target < 1.0:
        raise ConfigError(f"the target blocking is {target}; it must be between 0 and 1")
    if seeds < 5:
        raise ConfigError(f"seeds is {seeds}; an interval needs 5 or more")

    def measure(low: float, high: float) -> HeuristicSums:
        loads = np.geomspace(low, high, POINTS)
        return evaluate_heuristic(
            environment, name, seeds=seeds, steps=steps, seed=seed, loads=loads.tolist()
        )

    curve = _enclose_target(environment, target, measure)
    for _ in range(REFINEMENTS):
        above = int(np.argmax(curve.service_blocking.mean(1) >= target))
        above = min(max(above, 1), POINTS - 1)
        # One more point on either side keeps the crossing inside despite noise.
        low, high = curve.loads[max(above - 2, 0)], curve.loads[min(above + 1, POINTS - 1)]
        curve = measure(float(low), float(high))
    known = _pseudo_values(curve, target)
    for _ in range(RETURNS):
        if known is not None:
            break
        low, high = curve.loads[0], curve.loads[-1]
        more = math.sqrt(high / low)  # twice as wide: without some seed it crosses outside
        curve = measure(float(low / more), float(high * more))
        known = _pseudo_values(curve, target)
    if known is None:
        raise ConfigError(
            f"blocking does not cross {target:g} between {curve.loads[0]:.4g} and "
            f"{curve.loads[-1]:.4g} Erlang: too few requests are blocked; use more seeds or "
            "steps"
        )
    middle = known.mean()
    reach = float(stats.t.ppf(0.975, seeds - 1)) * known.std(ddof=1) / math.sqrt(seeds)
    low, load, high = (float(end) for end in np.exp([middle - reach, middle, middle + reach]))
    return SupportedLoad(load, low, high, curve, np.exp(known))


def _pseudo_values(curve: HeuristicSums, target: float) -> np.ndarray | None:
    share = curve.service_blocking
    seeds = share.shape[1]
    whole = _log_load_at(curve.loads, share.mean(1), target)
    without = [
        _log_load_at(curve.loads, np.delete(share, seed, 1).mean(1), target)
        for seed in range(seeds)
    ]
    found = np.array([math.nan if one is None else one for one in (whole, *without)])
    if np.isnan(found).any():
        return None
    return seeds * found[0] - (seeds - 1) * found[1:]


def _log_load_at(loads: np.ndarray, blocking: np.ndarray, target: float) -> float | None:
    """Return the log load at which the parabola reaches the target, if within `loads`."""
    there = blocking > 0.0
    if there.sum() < _TERMS:
        return None
    logs, weights = np.log(loads[there]), np.sqrt(blocking[there])  # squared below
    middle = logs.mean()
    powers = np.vander(logs - middle, _TERMS) * weights[:, None]
    heights = np.log(blocking[there] / target) * weights
    (bend, slope, height), *_ = np.linalg.lstsq(powers, heights)
    inside = slope * slope - 4.0 * bend * height
    below = slope + math.sqrt(max(inside, 0.0))
    if inside < 0.0 or below <= 0.0:
        return None
    crossing = float(middle - 2.0 * height / below)  # the root where the curve rises
    if not math.log(loads[0]) <= crossing <= math.log(loads[-1]):
        return None
    return crossing


def _enclose_target(
    environment: OpticalEnvironment,
    target: float,
    measure: Callable[[float, float], HeuristicSums],
) -> HeuristicSums:
    low, high = environment.settings.load / 8.0, environment.settings.load * 2.0
    for _ in range(WIDENINGS):
        curve = measure(low, high)
        means = curve.service_blocking.mean(1)
        if means[0] < target < means[-1]:
            return curve
        if means[0] >= target:
            low, high = low / 16.0, low * 1.5
        else:
            low, high = high / 1.5, high * 16.0
    raise ConfigError(
        f"no load between {low:g} and {high:g} Erlang results in a blocking of "
        f"{target:g}; use more requests per seed, or start from a different load"
    )
