"""The test results of a record: values with intervals, and comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from ...store.comparison import Decision, decided_pairs, sharing_error
from ...store.mean_difference import paired_interval
from ...store.probability_of_improvement import chance_of_better
from ...store.statistics import NO_INTERVAL, Interval, iqm, mean, median
from ...store.unobserved import UNBOUNDED, Bounds, bounded_interval
from ...store.value_bounds import RETURN, metric_range
from .record import Contender, TunedRecord

Verdict = Literal["better", "worse", "no_difference"]
"""The verdicts of `store.comparison`, except `undecided`, because all test seeds ran."""
_SIGNS = {"maximize": 1.0, "minimize": -1.0}


@dataclass(frozen=True)
class TestSummary:
    # estimate over seeds with its 95 % interval; NaN without values (episodes that never end)
    greedy: tuple[float, Interval]
    training: tuple[float, Interval]
    area: tuple[float, Interval]
    reached: int  # number of seeds that reached the threshold
    # median env steps (never: infinite); None if at most half of the seeds reached it
    to_threshold: float | None
    diverged: int  # number of seeds without a value


@dataclass(frozen=True)
class TunedComparison:
    who: str
    verdict: Verdict
    # probability of improvement (Agarwal et al. 2021, section 4.3) of ours with its 95 % interval;
    # NaN without values. If the interval of `greedy` excludes 1/2, there is a verdict.
    greedy: tuple[float, Interval]
    training: tuple[float, Interval]
    area: tuple[float, Interval]


@dataclass(frozen=True)
class BesideHeuristic:
    """The tuned configuration compared with a heuristic, on the same requests."""

    who: str
    verdict: Verdict  # from the interval of `less`
    greedy: tuple[float, Interval]  # the heuristic's mean over seeds
    # mean of the tuned configuration minus the heuristic, paired by seed
    less: tuple[float, Interval]


@dataclass(frozen=True)
class Ranges:
    """The ranges of evaluation and training returns; infinite if unknown."""

    greedy: Bounds = UNBOUNDED
    training: Bounds = UNBOUNDED


def ranges_of(record: TunedRecord) -> Ranges:
    env = {"id": record.env, **record.env_values}
    return Ranges(metric_range(record.metric, env), metric_range(RETURN, env))


def summary_in(record: TunedRecord, one: Contender) -> TestSummary:
    """Return the summary of one contender in a record."""
    return summary(one, record.goal, record.estimator, ranges_of(record))


def summary(
    one: Contender,
    goal: str = "maximize",
    estimator: Literal["mean", "iqm"] = "iqm",
    ranges: Ranges = Ranges(),
) -> TestSummary:
    """Return the summary of one contender; diverged seeds are given its worst value."""
    reached = [float(steps) for steps in one.to_threshold if steps is not None]
    never = len(one.to_threshold) - len(reached)
    to_threshold: float | None = median([*reached, *[math.inf] * never])
    if not math.isfinite(to_threshold):
        to_threshold = None
    return TestSummary(
        greedy=_centre_interval(one.greedy, goal, estimator, ranges.greedy),
        training=_centre_interval(one.training, "maximize", estimator, ranges.training),
        area=_centre_interval(one.area, goal, estimator, ranges.greedy),
        reached=len(reached),
        to_threshold=to_threshold,
        diverged=sum(value is None for value in one.greedy),
    )


def _centre_interval(
    values: Sequence[float | None],
    goal: str,
    estimator: Literal["mean", "iqm"],
    bounds: Bounds = UNBOUNDED,
) -> tuple[float, Interval]:
    whole = _fill_missing(values, goal)
    if not whole:
        return math.nan, NO_INTERVAL
    if estimator == "mean" or len(whole) < 8:  # with fewer values the IQM is undefined
        return mean(whole), bounded_interval(whole, bounds)
    return iqm(whole), bounded_interval(whole, bounds, "iqm")


def _fill_missing(values: Sequence[float | None], goal: str) -> list[float]:
    """Replace missing values by the worst one; return [] if all are missing."""
    finite = [value for value in values if value is not None]
    if not finite:
        return []
    worst = max(finite)
    if goal == "maximize":
        worst = min(finite)
    return [worst if value is None else value for value in values]


def comparisons(record: TunedRecord) -> list[TunedComparison]:
    return [compare(record.tuned, other, record.goal) for other in record.contenders[1:]]


def comparisons_by_name(record: TunedRecord) -> dict[str, TunedComparison]:
    return {one.who: one for one in comparisons(record)}


def compare(tuned: Contender, other: Contender, goal: str = "maximize") -> TunedComparison:
    goals = {"greedy": goal, "training": "maximize", "area": goal}
    chances = {
        n: _improvement_probability(getattr(tuned, n), getattr(other, n), goals[n]) for n in goals
    }
    low, high = chances["greedy"][1].low, chances["greedy"][1].high
    verdict: Verdict = "no_difference"
    if low is not None and low > 0.5:
        verdict = "better"
    elif high is not None and high < 0.5:
        verdict = "worse"
    return TunedComparison(other.who, verdict, **chances)


def beside_heuristics(record: TunedRecord) -> list[BesideHeuristic]:
    """Compare the tuned configuration with each heuristic in its record.

    A diverged seed is given the tuned configuration's worst value. Verdicts only consider outcomes
    observed on these seeds; the probability that any of them is wrong is at most 5 %.
    """
    tuned, bounds = _fill_missing(record.tuned.greedy, record.goal), ranges_of(record).greedy
    if not tuned:
        return []

    def decide(who: str, among: int) -> Decision:
        higher, lower = tuned, record.heuristics[who]
        if record.goal == "minimize":
            higher, lower = lower, higher
        return decided_pairs(higher, lower, bounds=bounds, among=among)

    decisions = sharing_error(
        record.heuristics, decide, lambda it: it.of_seen in ("better", "worse")
    )
    found = list[BesideHeuristic]()
    for who, heuristic_values in record.heuristics.items():
        less = mean([own - other for own, other in zip(tuned, heuristic_values, strict=True)])
        around = paired_interval(tuned, heuristic_values, bounds=bounds)
        unless = decided_pairs(tuned, heuristic_values, bounds=bounds).unless
        if unless is not None:
            around = unless.interval
        verdict = decisions[who].of_seen
        if verdict == "undecided":
            verdict = "no_difference"
        centre = _centre_interval(heuristic_values, record.goal, record.estimator, bounds)
        found.append(BesideHeuristic(who, verdict, centre, (less, around)))
    return found


@lru_cache(maxsize=4_096)  # a list of records and their tables request the same ones
def _improvement_probability(
    tuned: tuple[float | None, ...], other: tuple[float | None, ...], goal: str
) -> tuple[float, Interval]:
    if all(value is None for value in (*tuned, *other)):
        return math.nan, NO_INTERVAL
    return chance_of_better(_signed_values(tuned, goal), _signed_values(other, goal), paired=False)


def _signed_values(values: Sequence[float | None], goal: str) -> list[float]:
    """Return the values, negated if lower is better; NaN for missing ones."""
    sign = _SIGNS[goal]
    return [math.nan if value is None else sign * value for value in values]


def area(env_steps: Sequence[int], values: Sequence[float]) -> float:
    """Return the mean height of a curve between its first and last point, by the trapezoidal rule.

    >>> area([10, 20, 40], [0.0, 2.0, 2.0])
    1.6666666666666667
    """
    if len(values) == 1:
        return values[0]
    points = list(zip(env_steps, values, strict=True))
    pieces = [(b - a) * (v + w) / 2.0 for (a, v), (b, w) in pairwise(points)]
    return math.fsum(pieces) / (env_steps[-1] - env_steps[0])


def time_to(
    env_steps: Sequence[int], values: Sequence[float], threshold: float, goal: str = "maximize"
) -> int | None:
    """Return the env steps of the first evaluation that reaches the threshold, or None.

    >>> time_to([10, 20, 30], [1.0, 5.0, 4.0], 4.5)
    20
    """
    sign = _SIGNS[goal]
    reached = (at for at, v in zip(env_steps, values, strict=True) if sign * (v - threshold) >= 0)
    return next(reached, None)
