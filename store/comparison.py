"""Comparison of two configurations: the verdict, and the number of seeds that would decide.

The comparison is decided if the interval of the mean difference (`mean_difference`) excludes 0. If
it includes 0, the verdict is `undecided` if at most four times as many seeds would decide, or if
only unseen outcomes prevent a verdict. Otherwise it is `no_difference`. With too few seeds for an
interval, the verdict is also `undecided`. If the difference is the same on all seeds, there is no
interval, and the exact test alone decides.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from ..errors import ConfigError
from .interim_analyses import fewest_now, fewest_pairs, level_of, next_level
from .mean_difference import (
    FEWEST_EACH,
    Unless,
    compare_sides,
    compare_unpaired,
    is_rounding,
    paired_over_looks,
    require_pairs,
)
from .probability_of_improvement import chance_of_better
from .statistics import (
    IQM_MIN_SEEDS,
    NO_INTERVAL,
    Interval,
    deviation,
    iqm,
    mean,
    sign_of,
    t_quantile,
    variance,
)
from .unobserved import UNBOUNDED, Bounds, hidden, seeds_to_trust

POWER = 0.8
_MOST = 2**19  # largest number of pairs worth requesting
AFFORDED = 4  # at most this many times the current seeds are worth requesting
Verdict = Literal["better", "worse", "no_difference", "undecided"]
WORDS: Mapping[str, str] = {
    "better": "better",
    "worse": "worse",
    "no_difference": "no significant difference",
    "undecided": "undecided",
}


@dataclass(frozen=True)
class Decision:
    verdict: Verdict  # on the first side
    interval: Interval  # of the first side minus the second
    more_seeds: int | None = None  # number that would decide, if it is undecided
    unless: Unless | None = None  # set if only unseen outcomes prevent a verdict

    @property
    def of_seen(self) -> Verdict:
        """The verdict under the assumption that there are no unseen outcomes."""
        if self.unless is None:
            return self.verdict
        low = self.unless.interval.low
        if low is not None and low > 0.0:
            return "better"
        return "worse"


def decided_pairs(
    a: Sequence[float],
    b: Sequence[float],
    earlier: Sequence[int] = (),
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
    *,
    among: int = 1,
) -> Decision:
    """Return the verdict on paired finite values, one per seed; greater is better.

    `among` is the number of comparisons that share the error rate.

    >>> decided_pairs([2.0] * 8, [1.0] * 8).verdict, decided_pairs([2.0] * 3, [1.0] * 3).more_seeds
    ('better', 3)
    """
    differences = [one - other for one, other in zip(a, b, strict=True)]
    gap, count = mean(differences), len(differences)
    found = paired_over_looks(a, b, earlier, bounds, interim, among=among)
    if among == 1:
        now = next_level(earlier, interim, count)
        fewest = fewest_now(earlier, interim, count)
    else:  # few seeds decide alone, not several at once
        now = next_level(earlier, interim, 0) / among
        fewest = fewest_pairs(now)
    if count < fewest:
        return Decision("undecided", found, fewest - count)
    if found.low is None:  # equal differences on all seeds: only the exact test can decide
        if is_rounding(gap, a, b):
            return Decision("no_difference", found)
        return Decision("better" if gap > 0 else "worse", found)
    level = next_level([*earlier, count], interim) / among
    needed = seeds_to_tell(gap, deviation(differences), level)
    if needed is not None:  # the exact test needs this many pairs that differ
        unequal = sum(value != 0.0 for value in differences) / count
        needed = max(needed, math.ceil(fewest_pairs(level) / unequal))
    if needed is not None:
        needed = max(needed, seeds_to_trust(gap, hidden(a, b, bounds), level))
    unless = None
    if found.low <= 0.0 <= (found.high or 0.0):
        unless = compare_sides(a, b, now, bounds).unless()
    return _decide_by_interval(found, count, needed, unless)


def _decided_unpaired(a: Sequence[float], b: Sequence[float], bounds: Bounds) -> Decision:
    count, found = min(len(a), len(b)), compare_unpaired(a, b, bounds)
    if count < FEWEST_EACH:
        return Decision("undecided", found.whole, FEWEST_EACH - count)
    spread = math.sqrt(variance(a) + variance(b))
    gap = mean(a) - mean(b)
    needed = seeds_to_tell(gap, spread)
    if needed is not None:
        needed = max(needed, seeds_to_trust(gap, hidden(a, b, bounds), level_of(1)))
    return _decide_by_interval(found.whole, count, needed, found.unless())


def _decide_by_interval(
    interval: Interval, count: int, needed: int | None, unless: Unless | None
) -> Decision:
    """Return the verdict from an interval or, if it includes 0, from the seeds needed in total."""
    low, high = interval.low, interval.high
    if low is not None and low > 0.0:
        return Decision("better", interval)
    if high is not None and high < 0.0:
        return Decision("worse", interval)
    more = None
    if needed is not None and needed <= AFFORDED * count:
        more = max(1, needed - count)
    if more is None and unless is None:
        return Decision("no_difference", interval)
    return Decision("undecided", interval, more, unless)


def seeds_to_tell(gap: float, deviation: float, level: float = level_of(1)) -> int | None:
    """Return the number of pairs needed to detect a mean difference of `gap` with a power of 0.8.

    This is the smallest n for which (t(1 - level / 2) + t(0.8)) s / sqrt(n) is at most the mean
    difference; None if that is 0 or n exceeds 2^19.

    >>> seeds_to_tell(0.8, 1.4832, level=0.05)
    29
    """
    if gap == 0.0:
        return None
    ratio = deviation / abs(gap)
    known = range(2, _MOST + 1)
    found = bisect_left(known, True, key=lambda count: _has_enough_seeds(count, ratio, level))
    if found == len(known):
        return None
    return known[found]


def _has_enough_seeds(count: int, ratio: float, level: float) -> bool:
    degrees = min(count - 1, 1_000)  # above, quantiles equal the normal ones to three digits
    reach = t_quantile(1.0 - level / 2.0, degrees) + t_quantile(POWER, degrees)
    return reach * ratio <= math.sqrt(count)


_T = TypeVar("_T")


def sharing_error(
    names: Collection[str], decide: Callable[[str, int], _T], is_decided: Callable[[_T], bool]
) -> dict[str, _T]:
    """Decide several comparisons with a joint error rate equal to that of a single one.

    The error rate is divided among all comparisons. Once some have a verdict, their share goes to
    the others, which are tested again (Holm 1979, "A Simple Sequentially Rejective Multiple Test
    Procedure"). `decide(name, among)` tests at the level for `among` comparisons.

    >>> tried = sharing_error(["a", "b"], lambda name, among: name * among, lambda it: it == "aa")
    >>> tried
    {'a': 'aa', 'b': 'b'}
    """
    found, left = dict[str, _T](), list(names)
    while left:
        found |= {name: decide(name, len(left)) for name in left}
        still = [name for name in left if not is_decided(found[name])]
        if len(still) == len(left):
            break
        left = still
    return found


@dataclass(frozen=True)
class Comparison:
    means: tuple[float, float]
    iqms: tuple[float | None, float | None]  # None below 8 seeds
    seeds: tuple[int, int]
    paired: bool
    difference: float  # positive if A is better
    difference_interval: Interval  # 95 % over all looks together
    probability: float  # of a run of A being better than a run of B, see `chance_of_better`
    probability_interval: Interval
    verdict: Verdict = "undecided"
    more_seeds: int | None = None  # number per side that would decide, if it is undecided
    unless: Unless | None = None  # set if only unseen outcomes prevent a verdict
    equal: bool = False  # paired, with the same value on every seed

    def sentence(self, a: str = "A", b: str = "B") -> str:
        if self.verdict == "better":
            return f"{a} is better"
        if self.verdict == "worse":
            return f"{b} is better"
        if self.verdict == "no_difference" and self.difference == 0.0 and self.equal:
            return "no difference: both have the same value on every seed"
        if self.verdict == "undecided" and self.more_seeds is not None:
            more = f"{self.more_seeds} more seed{'s' * (self.more_seeds != 1)}"
            return f"{WORDS[self.verdict]}: {more} per side would decide"
        return WORDS[self.verdict]


def compare(
    a: Sequence[float],
    b: Sequence[float],
    goal: str = "maximize",
    paired: bool = False,
    earlier: Sequence[int] = (),
    *,
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
) -> Comparison:
    """Compare values of A and B, one per seed."""
    if not a or not b:
        raise ConfigError("there is nothing to compare: one side has no values")
    if paired:
        require_pairs(a, b)
    sign = sign_of(goal)
    signed_a, signed_b = [sign * value for value in a], [sign * value for value in b]
    ends = bounds.signed(sign)
    if not all(map(math.isfinite, [*signed_a, *signed_b])):
        found = Decision("undecided", NO_INTERVAL)
    elif paired:
        found = decided_pairs(signed_a, signed_b, earlier, ends, interim)
    else:
        found = _decided_unpaired(signed_a, signed_b, ends)
    probability, spread = chance_of_better(signed_a, signed_b, paired=paired)
    return Comparison(
        means=(mean(a), mean(b)),
        iqms=(_iqm_or_none(a), _iqm_or_none(b)),
        seeds=(len(a), len(b)),
        paired=paired,
        difference=mean(signed_a) - mean(signed_b),
        difference_interval=found.interval,
        probability=probability,
        probability_interval=spread,
        verdict=found.verdict,
        more_seeds=found.more_seeds,
        unless=found.unless,
        equal=paired and list(a) == list(b),
    )


def _iqm_or_none(values: Sequence[float]) -> float | None:
    if len(values) < IQM_MIN_SEEDS:
        return None
    return iqm(values)
