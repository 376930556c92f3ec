"""The error rate of each verdict without true differences: five kinds of returns, 5 to 32 seeds.

Both sides have the same distribution, or one side is constant at the other's mean (or nearly: with
a thousandth of its noise). So the following are errors: *better* and *worse*, an interval of a
difference without 0 and, for equal distributions, a probability of improvement without 1/2. An
interval for one trial is an error if it misses the truth. A second look follows the advice of the
first: it adds the seeds that "would decide" and decides again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .common import Outcome, make_importable

if TYPE_CHECKING:
    from hpo.store.statistics import Interval

Draw = Callable[[np.random.Generator, "int | tuple[int, int]"], np.ndarray]
_DRAWS, _SMALL = 4_000, 40
_SEEDS, _ENVIRONMENTS = (5, 6, 8, 16, 32), 6
_MOST_SEEDS = 200
SAID = ("better", "worse")
ONE_SIDE, APART = "one side always at its mean", "likewise, unpaired"
NEARLY, _NOISE = "one side nearly at its mean", 0.001
IN_RANGE = "power where the range is known"
_POWERS = ("power", "power with a condition", IN_RANGE, "power of t")
_LEVEL, _ERRORS = 0.05, 3.0
"""A cell fails if its rate is more than three standard errors above 5 %."""


def _two_points(rng: np.random.Generator, size: int | tuple[int, int]) -> np.ndarray:
    return np.where(rng.random(size) < 0.5, 100.0, 400.0) + rng.normal(0.0, 1.0, size)


def _ceiling(rng: np.random.Generator, size: int | tuple[int, int]) -> np.ndarray:
    return np.where(rng.random(size) < 0.1, rng.uniform(50.0, 400.0, size), 500.0)


def _both_ends(rng: np.random.Generator, size: int | tuple[int, int]) -> np.ndarray:
    return np.clip(rng.normal(300.0, 400.0, size), 0.0, 500.0)


KINDS: dict[str, Draw] = {
    "normal": lambda rng, size: rng.normal(0.0, 1.0, size),
    "skewed": lambda rng, size: -np.exp(rng.normal(0.0, 1.0, size)),
    "bimodal": _two_points,
    "ceiling": _ceiling,
    "floor and ceiling": _both_ends,
}
_BEST = {"ceiling": 500.0, "floor and ceiling": 500.0}
_RANGES = {"ceiling": (0.0, 500.0), "floor and ceiling": (0.0, 500.0)}  # like CartPole's
_SYMMETRIC = ("normal", "bimodal", "floor and ceiling")
"""Cases in which the interval of a few seeds covers the mean; none of them has rare failures."""


def error_rates(small: bool, work: Path) -> Outcome:
    """Simulate pairs of equals; every verdict must be wrong in at most 5 %, in each cell."""
    draws = _SMALL if small else _DRAWS
    cells = [(kind, seeds, draws) for kind in KINDS for seeds in _SEEDS]
    jobs = [(run, *cell) for cell in cells for run in (one_environment, six_environments, power)]
    found: dict[tuple[str, str, int], tuple[float, int]] = {}
    for (_, kind, seeds, _), rates in zip(jobs, _spread(jobs, small), strict=True):
        found |= {(name, kind, seeds): rate for name, rate in rates.items()}
    judged = {key: rate for key, rate in found.items() if _is_error(key)}
    above = {key: rate for key, (rate, many) in judged.items() if rate > _limit(many)}
    numbers = [f"{len(judged)} cells of {draws} draws, 5 % and three standard errors allowed"]
    for name in dict.fromkeys(key[0] for key in judged):
        at = {key: rate for key, (rate, _) in judged.items() if key[0] == name}
        worst = max(at, key=lambda key: at[key])
        middle = sum(at.values()) / len(at)
        numbers.append(f"{name} {middle:.1%}, at most {at[worst]:.1%} ({worst[1]}, {worst[2]})")
    numbers += [_rest(found, name) for name in ("own mean", *_POWERS)]
    if above:
        numbers.append(f"above: {', '.join(f'{k} {v:.1%}' for k, v in above.items())}")
    return Outcome(not above, "; ".join(numbers))


def _limit(draws: int) -> float:
    return _LEVEL + _ERRORS * (_LEVEL * (1.0 - _LEVEL) / draws) ** 0.5


def _is_error(key: tuple[str, str, int]) -> bool:
    """Return whether a rate must be at most 5 %."""
    if key[0] == "own mean":
        return key[1] in _SYMMETRIC
    return key[0] not in _POWERS


def _rest(found: dict[tuple[str, str, int], tuple[float, int]], name: str) -> str:
    """Return rates that are only reported, by kind, one per number of seeds."""
    told = [
        f"{kind} {' '.join(f'{found[name, kind, seeds][0]:.0%}' for seeds in _SEEDS)}"
        for kind in KINDS
        if not _is_error((name, kind, _SEEDS[0])) and (name, kind, _SEEDS[0]) in found
    ]
    return f"{name} at {', '.join(map(str, _SEEDS))} seeds: {', '.join(told)}"


def _spread(jobs: list[tuple[Any, ...]], small: bool) -> Iterable[dict[str, tuple[float, int]]]:
    """Run the cells; if there is much to do, in one process per available core."""
    if small:
        return [_cell(job) for job in jobs]
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, get_context("spawn"), make_importable) as pool:
        return list(pool.map(_cell, jobs))


def _cell(job: tuple[Any, ...]) -> dict[str, tuple[float, int]]:
    run, kind, seeds, draws = job
    return run(kind, seeds, draws, np.random.default_rng([seeds, list(KINDS).index(kind)]))


def one_environment(
    kind: str, seeds: int, draws: int, rng: np.random.Generator
) -> dict[str, tuple[float, int]]:
    """Return error rates on one environment: at one, two and four looks; with unequal seeds."""
    from hpo.store.comparison import compare
    from hpo.store.verdict import Evidence, conclude

    draw, best = KINDS[kind], _BEST.get(kind)
    names = ("one look", "two looks", "four looks", "unpaired", "P", "P unpaired")
    wrong = dict.fromkeys((*names, ONE_SIDE, NEARLY, APART), 0)
    whole = draw(np.random.default_rng(0), 1_000_000)
    always = dict.fromkeys(range(seeds), float(whole.mean()))
    for _ in range(draws):
        a, b = draw(rng, seeds), draw(rng, seeds)
        near = whole.mean() + _NOISE * whole.std() * np.random.default_rng(1).normal(size=seeds)
        sides = [dict(enumerate(side.tolist())) for side in (near, b)]
        wrong[NEARLY] += conclude(Evidence(*sides)).against.verdict in SAID
        apart = compare(a.tolist(), b.tolist())
        wrong["unpaired"] += apart.verdict in SAID
        wrong["P unpaired"] += _misses(apart.probability_interval, 0.5)
        wrong[ONE_SIDE] += (
            conclude(Evidence(always, dict(enumerate(b.tolist())))).against.verdict in SAID
        )
        wrong[APART] += compare([*always.values()], b.tolist()).verdict in SAID
        earlier: list[int] = []
        for look in range(1, 5):
            sides = [dict(enumerate(side.tolist())) for side in (a, b)]
            found = conclude(Evidence(*sides, ceiling=best, earlier=earlier)).against
            wrong["P"] += look == 1 and _misses(found.probability_interval, 0.5)
            if found.verdict in SAID:
                wrong["one look"] += look == 1
                wrong["two looks"] += look <= 2
                wrong["four looks"] += 1
            if found.verdict != "undecided" or found.more_seeds is None:
                break
            earlier.append(len(a))
            more = min(found.more_seeds, _MOST_SEEDS)
            a, b = (np.concatenate([side, draw(rng, more)]) for side in (a, b))
    return {name: (count / draws, draws) for name, count in wrong.items()}


def six_environments(
    kind: str, seeds: int, draws: int, rng: np.random.Generator
) -> dict[str, tuple[float, int]]:
    """Return error rates of aggregates over six environments, and of one trial's intervals."""
    from hpo.store.aggregate_environments import (
        difference,
        overall_interval,
        probability_of_improvement,
    )

    draw, shape = KINDS[kind], (_ENVIRONMENTS, seeds)
    slow = max(40, draws // 8)  # bootstraps take a hundred times as long
    whole = np.sort(draw(np.random.default_rng(0), 1_000_000))
    middle = whole[len(whole) // 4 : -(len(whole) // 4)].mean()
    wrong = {name: [0, draws] for name in ("six: mean", "six: P", "own mean")}
    wrong |= {name: [0, slow] for name in ("six: IQM", "own IQM")}
    for index in range(draws):
        a, b = draw(rng, shape).tolist(), draw(rng, shape).tolist()
        wrong["six: mean"][0] += _misses(difference(a, b, "mean", paired=True)[1], 0.0)
        wrong["six: P"][0] += _misses(probability_of_improvement(a, b)[1], 0.5)
        wrong["own mean"][0] += _misses(overall_interval(a, "mean"), float(whole.mean()))
        if index < slow:
            wrong["six: IQM"][0] += _misses(difference(a, b, "iqm", paired=True)[1], 0.0)
            wrong["own IQM"][0] += _misses(overall_interval(a, "iqm"), float(middle))
    return {name: (count / many, many) for name, (count, many) in wrong.items()}


def power(
    kind: str, seeds: int, draws: int, rng: np.random.Generator
) -> dict[str, tuple[float, int]]:
    """Return how often a difference of 0.8 deviations is detected, next to Student's test at 5 %.

    If the range is known, the worse side is at its lower end.
    """
    from scipy.stats import ttest_rel

    from hpo.store.unobserved import Bounds
    from hpo.store.verdict import Evidence, conclude

    draw, told, on_condition, in_range, students = KINDS[kind], 0, 0, 0, 0
    known = Bounds(*_RANGES[kind]) if kind in _RANGES else None
    spread = float(draw(np.random.default_rng(0), 100_000).std())
    for _ in range(draws):
        a, b = draw(rng, seeds), draw(rng, seeds) - 0.8 * spread
        sides = [dict(enumerate(side.tolist())) for side in (a, b)]
        found = conclude(Evidence(*sides)).against
        told += found.verdict == "better"
        on_condition += found.unless is not None and found.unless.interval.low > 0.0
        if known is not None:
            within = np.maximum(b, known.low)
            sides = [dict(enumerate(side.tolist())) for side in (a, within)]
            in_range += conclude(Evidence(*sides, bounds=known)).against.verdict == "better"
        students += np.ptp(a - b) > 0 and ttest_rel(a, b).pvalue < 0.05 and a.mean() > b.mean()
    either = told + on_condition
    counts = dict(zip(_POWERS, (told, either, in_range, students), strict=True))
    if known is None:
        del counts[IN_RANGE]
    return {name: (count / draws, draws) for name, count in counts.items()}


def _misses(found: Interval, truth: float) -> bool:
    if found.low is None or found.high is None:
        return False
    return not found.low <= truth <= found.high
