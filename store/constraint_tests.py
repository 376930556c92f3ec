"""Tests whether a trial satisfies a study's constraints on its test seeds.

Selection prefers trials that satisfy the constraints on selection seeds, so results on these seeds
favour the winner. A trial satisfies or violates a limit only if its mean's interval on test seeds
is entirely on one side of the limit. A verdict about two trials needs both tests, so its error
rate is at most that of a single test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .mean_difference import paired_interval
from .statistics import NO_INTERVAL, Interval, aggregate
from .unobserved import Bounds

State = Literal["kept", "violated", "open", "unmeasured"]
SeedValues = Mapping[int, float]  # replicate -> value
Values = Sequence[SeedValues | float | None]
"""For each constraint: its values on test seeds, one exact value (a cost), or None (unknown)."""
Range = tuple[float, float] | None
"""The least and greatest value of a constraint in runs of the compared trials on new seeds."""

_TESTED = "mean"  # other aggregates need more seeds: their values are reported without a test
_IQM_SEEDS = 8


@dataclass(frozen=True)
class Limit:
    metric: str
    low: float | None = None
    high: float | None = None
    aggregate: str = _TESTED

    @classmethod
    def of(cls, constraint: Mapping[str, Any]) -> Limit:
        return cls(
            metric=str(constraint["metric"]),
            low=constraint["min"],
            high=constraint["max"],
            aggregate=str(constraint["aggregate"]),
        )

    def allows(self, value: float) -> bool:
        is_low = self.low is not None and value < self.low
        is_high = self.high is not None and value > self.high
        return not is_low and not is_high


@dataclass(frozen=True)
class ConstraintTest:
    """The test of one limit for one trial."""

    limit: Limit
    state: State
    value: float | None = None  # the aggregate over its seeds
    seeds: int = 0  # 0 for a cost
    interval: Interval = NO_INTERVAL


@dataclass(frozen=True)
class Feasibility:
    """The tests of all constraints for one trial."""

    state: State  # kept: all are satisfied; violated: at least one is violated
    tests: tuple[ConstraintTest, ...]


def feasibility(
    limits: Sequence[Limit],
    values: Values | None,
    level: float,
    observed_ranges: Sequence[Range] = (),
) -> Feasibility:
    """Test all limits at a joint error rate of `level`.

    `observed_ranges` is each constraint's range of values on all new seeds of the compared trials.
    Another seed could have any value in this range, so a trial that rarely violates a limit does
    not count as satisfying it.

    >>> limits = [Limit("eval/cost", high=1.0)]
    >>> feasibility(limits, [{seed: 0.1 * seed for seed in range(6)}], 0.04).state
    'kept'
    >>> feasibility(limits, None, 0.04).state
    'unmeasured'
    """
    known = values
    if known is None:
        known = [None] * len(limits)
    each = level / max(1, len(limits))  # a single false violation would be an error
    ranges = observed_ranges or [None] * len(limits)
    found = zip(limits, known, ranges, strict=True)
    tests = tuple(_test_limit(limit, own, each, its) for limit, own, its in found)
    states = {test.state for test in tests}
    if "violated" in states:
        return Feasibility("violated", tests)
    if states <= {"kept"}:
        return Feasibility("kept", tests)
    if states == {"unmeasured"}:
        return Feasibility("unmeasured", tests)
    return Feasibility("open", tests)


def _test_limit(
    limit: Limit, values: SeedValues | float | None, level: float, observed_range: Range
) -> ConstraintTest:
    if values is None:
        return ConstraintTest(limit, "unmeasured")
    if not isinstance(values, Mapping):
        return ConstraintTest(limit, "kept" if limit.allows(values) else "violated", values)
    known = [value for value in values.values() if math.isfinite(value)]
    if not known:
        return ConstraintTest(limit, "unmeasured")
    value = None
    if limit.aggregate != "iqm" or len(known) >= _IQM_SEEDS:
        value = aggregate(known, limit.aggregate)
    if limit.aggregate != _TESTED:
        return ConstraintTest(limit, "open", value, len(known))
    state, around = _state_of_mean(limit, known, level, observed_range)
    return ConstraintTest(limit, state, value, len(known), around)


def _state_of_mean(
    limit: Limit, values: Sequence[float], level: float, observed_range: Range
) -> tuple[State, Interval]:
    """Return which side of the limits the mean is on, and the interval of the mean."""
    inside, around = True, NO_INTERVAL
    least, most = min(values), max(values)
    if observed_range is not None:
        least, most = min(least, observed_range[0]), max(most, observed_range[1])
    for bound, sign in ((limit.high, 1.0), (limit.low, -1.0)):
        if bound is None:
            continue
        beyond = [sign * (value - bound) for value in values]
        ends = sorted((sign * (least - bound), sign * (most - bound)))
        bounds = Bounds(min(0.0, ends[0]), max(0.0, ends[1]))
        found = paired_interval(beyond, [0.0] * len(beyond), level=level, bounds=bounds)
        if found.low is None or found.high is None:
            inside = False
            continue
        low, high = sorted((bound + sign * found.low, bound + sign * found.high))
        around = Interval(low, high, found.kind)
        if found.low > 0.0:
            return "violated", around
        inside = inside and found.high < 0.0
    if not inside:
        return "open", around
    return "kept", around
