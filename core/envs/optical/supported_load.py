"""The load that a heuristic carries at a given blocking probability.

Load is traced, so all loads of a search run in the one program that is compiled at its start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....errors import ConfigError
from .agents import Rule
from .heuristic_evaluation import Evaluation, evaluate_heuristic
from .optical_environment import OpticalEnvironment

POINTS = 8
"""Loads a round."""
WIDENINGS, REFINEMENTS, RETURNS = 6, 3, 4
"""Rounds that look for the crossing, come closer to it, and go back where seeds differ much."""
_TERMS = 3
"""Of the curve through the last round's loads: a constant, a slope, a bend."""


@dataclass(frozen=True, eq=False)
class SupportedLoad:
    """A load and how well it is known.

    Attributes:
        load: Erlang at which mean service blocking crosses the target.
        low: lower end of its 95 % interval.
        high: upper end.
        last: the evaluation of the last round, whose loads enclose it.
        of_seeds: Erlang, float64 [seeds]: the exponential of each seed's pseudo-value, see
            `find_load`. Their geometric mean is `load`.
    """

    load: float
    low: float
    high: float
    last: Evaluation
    of_seeds: np.ndarray


def find_load(
    environment: OpticalEnvironment,
    name: Rule,
    target: float,
    *,
    seeds: int = 10,
    steps: int = 20_000,
    seed: int = 0,
) -> SupportedLoad:
    """Find the load at which a heuristic blocks a share `target` of the services.

    Through the last round's loads goes a parabola of log blocking over log load, by least squares
    weighted by what is blocked; the crossing is where it passes the target. Each seed is left out
    once (the jackknife; Tukey 1958, "Bias and confidence in not-quite large samples"): with x the
    log load from all n seeds and x_i that without seed i, its pseudo-value is n x - (n - 1) x_i.
    The load is the exponential of their mean, the interval Student's t of them, which holds the
    error of the slope, too. Where a seed matters so much that without it the crossing lies outside
    of the last round's loads, a wider round is measured.

    Args:
        environment: its settings' load is where the search begins.
        name: of a heuristic, or a rule of one's own.
        target: service blocking probability, above 0 and below 1.
        seeds: independent streams, at least 5.
        steps: requests counted per seed; target x seeds x steps should be 100 or more.
        seed: root of the streams.

    Raises:
        ConfigError: a target or number of seeds out of range, no load reaches the target, or too
            few requests are blocked to tell where.
    """
    from scipy import stats

    if not 0.0 < target < 1.0:
        raise ConfigError(f"the target blocking is {target}; it must lie between 0 and 1")
    if seeds < 5:
        raise ConfigError(f"{seeds} seeds give no interval; take 5 or more")

    def measure(low: float, high: float) -> Evaluation:
        loads = np.geomspace(low, high, POINTS)
        return evaluate_heuristic(
            environment, name, seeds=seeds, steps=steps, seed=seed, loads=loads.tolist()
        )

    curve = _enclose(environment, target, measure)
    for _ in range(REFINEMENTS):
        below, above = _neighbours(curve, target)
        # One point more on either side keeps the crossing inside when noise moves it.
        curve = measure(
            float(curve.loads[max(below - 1, 0)]), float(curve.loads[min(above + 1, POINTS - 1)])
        )
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
            f"blocking does not rise through {target:g} between {curve.loads[0]:.4g} and "
            f"{curve.loads[-1]:.4g} Erlang: too few requests are blocked; use more seeds or "
            "steps"
        )
    middle = known.mean()
    reach = float(stats.t.ppf(0.975, seeds - 1)) * known.std(ddof=1) / math.sqrt(seeds)
    low, load, high = (float(end) for end in np.exp([middle - reach, middle, middle + reach]))
    return SupportedLoad(load, low, high, curve, np.exp(known))


def _pseudo_values(curve: Evaluation, target: float) -> np.ndarray | None:
    """Return those of each seed, [seeds], in log load; None where there is no crossing."""
    share = curve.service_blocking
    seeds = share.shape[1]
    whole = _crossing(curve.loads, share.mean(1), target)
    without = [
        _crossing(curve.loads, np.delete(share, seed, 1).mean(1), target) for seed in range(seeds)
    ]
    found = np.array([math.nan if one is None else one for one in (whole, *without)])
    if np.isnan(found).any():
        return None
    return seeds * found[0] - (seeds - 1) * found[1:]


def _crossing(loads: np.ndarray, blocking: np.ndarray, target: float) -> float | None:
    """Return the log load at which a smooth curve through mean blocking rises to the target.

    Args:
        loads: Erlang, [P], rising.
        blocking: mean share of services refused, [P].
        target: between 0 and 1.

    Returns:
        None if fewer than three loads block anything, or it does not rise there.
    """
    there = blocking > 0.0
    if there.sum() < _TERMS:
        return None
    logs, weights = np.log(loads[there]), np.sqrt(blocking[there])  # of squares: the blocking
    middle = logs.mean()
    powers = np.vander(logs - middle, _TERMS) * weights[:, None]
    heights = np.log(blocking[there] / target) * weights
    (bend, slope, height), *_ = np.linalg.lstsq(powers, heights)
    inside = slope * slope - 4.0 * bend * height
    below = slope + math.sqrt(max(inside, 0.0))
    if inside < 0.0 or below <= 0.0:
        return None
    crossing = float(middle - 2.0 * height / below)  # of both, the one where the curve rises
    return crossing if math.log(loads[0]) <= crossing <= math.log(loads[-1]) else None


def _enclose(
    environment: OpticalEnvironment,
    target: float,
    measure: Callable[[float, float], Evaluation],
) -> Evaluation:
    low, high = environment.settings.load / 8.0, environment.settings.load * 2.0
    for _ in range(WIDENINGS):
        curve = measure(low, high)
        means = curve.service_blocking.mean(1)
        if means[0] < target < means[-1]:
            return curve
        low, high = (low / 16.0, low * 1.5) if means[0] >= target else (high / 1.5, high * 16.0)
    raise ConfigError(
        f"no load between {low:g} and {high:g} Erlang gives a blocking of {target:g}; "
        "give more requests per seed, or another load to begin with"
    )


def _neighbours(curve: Evaluation, target: float) -> tuple[int, int]:
    """Numbers of the neighbouring loads between which the mean crosses the target."""
    above = int(np.argmax(curve.service_blocking.mean(1) >= target))
    above = min(max(above, 1), len(curve.loads) - 1)
    return above - 1, above
