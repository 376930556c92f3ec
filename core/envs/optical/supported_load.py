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

__all__ = ["SupportedLoad", "find_load"]

POINTS = 8
"""Loads a round."""
WIDENINGS, REFINEMENTS = 6, 3


@dataclass(frozen=True, eq=False)
class SupportedLoad:
    """A load and how well it is known.

    Attributes:
        load: Erlang at which mean service blocking crosses the target.
        low: lower end of its 95 % interval.
        high: upper end.
        last: the evaluation of the last round, whose loads enclose it.
        of_seeds: Erlang, float64 [seeds]: at which each seed crosses the target, by the slope of
            the mean curve. Their geometric mean is `load`.
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

    The interval is Student's t of blocking over seeds at the loads on either side, divided by the
    slope of the mean curve there. Their mean spread is a little wider than that of the blocking
    interpolated between them, on purpose: the slope is not known exactly either.

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
    below, above = _neighbours(curve, target)
    means, logs = curve.service_blocking.mean(1), np.log(curve.loads)
    if not means[below] < target <= means[above]:
        raise ConfigError(
            f"blocking does not rise through {target:g} between {curve.loads[below]:.4g} and "
            f"{curve.loads[above]:.4g} Erlang: too few requests are blocked; give more --seeds or "
            "--steps"
        )
    rise = (means[above] - means[below]) / (logs[above] - logs[below])
    share = (target - means[below]) / (means[above] - means[below])
    load = math.exp(logs[below] + share * (logs[above] - logs[below]))
    spread = curve.service_blocking[[below, above]].std(1, ddof=1).mean()
    reach = float(stats.t.ppf(0.975, seeds - 1)) * spread / math.sqrt(seeds) / rise
    here = (1.0 - share) * curve.service_blocking[below] + share * curve.service_blocking[above]
    of_seeds = load * np.exp((here.mean() - here) / rise)
    return SupportedLoad(load, load * math.exp(-reach), load * math.exp(reach), curve, of_seeds)


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
