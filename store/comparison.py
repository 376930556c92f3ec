"""Is A better than B: difference of means and probability of improvement, both with intervals.

Seeds that both ran on are compared in pairs, as in a study's verdict (`paired.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigError
from .interim_analyses import fewest_pairs, level_of, next_level
from .paired import (
    UNBOUNDED,
    Bounds,
    alike_ends,
    chance_of_better,
    constant,
    deviation,
    is_rounding,
    paired_over_looks,
    seeds_to_tell,
    seeds_to_trust,
    unseen_between,
    unseen_p,
)
from .statistics import (
    IQM_MIN_SEEDS,
    NO_INTERVAL,
    Interval,
    deal_p,
    iqm,
    mean,
    t_quantile,
    variance,
    welch_degrees,
)

Verdict = Literal["better", "worse", "no_difference", "undecided"]
WORDS: Mapping[str, str] = {
    "better": "better",
    "worse": "worse",
    "no_difference": "no significant difference",
    "undecided": "undecided",
}
AFFORDED = 4  # at most this many times the present seeds are worth asking for


@dataclass(frozen=True)
class Decision:
    verdict: Verdict  # about the first side
    interval: Interval  # of the first side less the second
    more_seeds: int | None = None  # that would decide, if it is undecided


def decided_pairs(
    ours: Sequence[float],
    theirs: Sequence[float],
    earlier: Sequence[int] = (),
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
) -> Decision:
    """Decide between finite values on the same seeds, in the order they ran; greater is better.

    >>> decided_pairs([2.0] * 8, [1.0] * 8).verdict, decided_pairs([2.0] * 4, [1.0] * 4).more_seeds
    ('better', 2)
    """
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    gap, count = mean(differences), len(differences)
    found = paired_over_looks(ours, theirs, earlier, bounds, interim)
    fewest = fewest_pairs(next_level(earlier, interim))
    if count < fewest:
        return Decision("undecided", found, fewest - count)
    if found.low is None:  # the same difference on every seed: only the exact test decides
        if is_rounding(gap, ours, theirs):
            return Decision("no_difference", found)
        return Decision("better" if gap > 0 else "worse", found)
    level = next_level([*earlier, count], interim)
    needed = seeds_to_tell(gap, deviation(differences), level)
    if needed is not None:  # as many have to differ as the exact test needs
        unequal = sum(value != 0.0 for value in differences) / count
        needed = max(needed, math.ceil(fewest_pairs(level) / unequal))
    unseen = unseen_between(ours, theirs, bounds)
    if needed is not None and unseen is not None:
        needed = max(needed, seeds_to_trust(gap, unseen, level))
    return _decided(found, count, needed)


def _decided(interval: Interval, count: int, needed: int | None) -> Decision:
    """Decide by an interval; if it includes 0, by the seeds needed in all (None: any number)."""
    low, high = interval.low, interval.high
    if low is not None and low > 0.0:
        return Decision("better", interval)
    if high is not None and high < 0.0:
        return Decision("worse", interval)
    if needed is None or needed > AFFORDED * count:
        return Decision("no_difference", interval)
    return Decision("undecided", interval, max(1, needed - count))


FEWEST_EACH = 5  # seeds of each side for a verdict, if they are not paired


@dataclass(frozen=True)
class Comparison:
    means: tuple[float, float]
    iqms: tuple[float | None, float | None]  # None below 8 seeds
    seeds: tuple[int, int]
    paired: bool
    difference: float  # positive if A is better
    difference_interval: Interval  # 95 % over all looks together
    probability: float  # that a run of A is better than a run of B, see `chance_of_better`
    probability_interval: Interval
    verdict: Verdict = "undecided"
    more_seeds: int | None = None  # of each that would decide, if it is undecided
    equal: bool = False  # paired, and the same value on every seed

    def sentence(self, a: str = "A", b: str = "B") -> str:
        if self.verdict in ("better", "worse"):
            return f"{a if self.verdict == 'better' else b} is better"
        if self.verdict == "no_difference" and self.difference == 0.0 and self.equal:
            return "no difference: both have the same value on every seed"
        if self.verdict == "undecided" and self.more_seeds is not None:
            more = f"{self.more_seeds} more seed{'' if self.more_seeds == 1 else 's'}"
            return f"{WORDS[self.verdict]}: {more} of each would decide"
        return WORDS[self.verdict]


def compare(
    a: Sequence[float],
    b: Sequence[float],
    goal: str = "maximize",
    paired: bool = False,
    earlier: Sequence[int] = (),
    bounds: Bounds = UNBOUNDED,
    interim: bool = False,
) -> Comparison:
    """Compare values of A and B, one per seed."""
    if not a or not b:
        raise ConfigError("there is nothing to compare: one side has no values")
    if paired and len(a) != len(b):
        raise ConfigError(f"paired samples of {len(a)} and {len(b)} values")
    sign = 1.0 if goal == "maximize" else -1.0
    ours, theirs = [sign * value for value in a], [sign * value for value in b]
    if not all(map(math.isfinite, [*ours, *theirs])):
        found = Decision("undecided", NO_INTERVAL)
    else:
        ends = bounds.signed(sign)
        found = (
            decided_pairs(ours, theirs, earlier, ends, interim)
            if paired
            else _decided_unpaired(ours, theirs, ends)
        )
    probability, spread = chance_of_better(ours, theirs, paired=paired)
    return Comparison(
        means=(mean(a), mean(b)),
        iqms=(_iqm(a), _iqm(b)),
        seeds=(len(a), len(b)),
        paired=paired,
        difference=mean(ours) - mean(theirs),
        difference_interval=found.interval,
        probability=probability,
        probability_interval=spread,
        verdict=found.verdict,
        more_seeds=found.more_seeds,
        equal=paired and list(a) == list(b),
    )


def _iqm(values: Sequence[float]) -> float | None:
    return iqm(values) if len(values) >= IQM_MIN_SEEDS else None


def _decided_unpaired(ours: Sequence[float], theirs: Sequence[float], bounds: Bounds) -> Decision:
    count, found = min(len(ours), len(theirs)), unpaired_interval(ours, theirs, bounds)
    if count < FEWEST_EACH:
        return Decision("undecided", found, FEWEST_EACH - count)
    spread = math.sqrt(variance(ours) + variance(theirs))
    gap = mean(ours) - mean(theirs)
    needed = seeds_to_tell(gap, spread)
    unseen = unseen_between(ours, theirs, bounds)
    if needed is not None and unseen is not None:
        needed = max(needed, seeds_to_trust(gap, unseen, level_of(1)))
    return _decided(found, count, needed)


def unpaired_interval(
    a: Sequence[float], b: Sequence[float], bounds: Bounds = UNBOUNDED
) -> Interval:
    """Return the interval of a difference of means with different variances (Welch 1947).

    At the level of a first look, degrees of freedom rounded down. It includes 0 wherever the exact
    test of equal distributions does not exclude it (`deal_p`), and next to a constant unless
    unobserved seeds allow it (`unseen_p`). For two constants it is exact. There is none below 5
    values of either side, or with a non-finite value.
    """
    count = min(len(a), len(b))
    if count < FEWEST_EACH or not all(map(math.isfinite, [*a, *b])):
        return NO_INTERVAL
    shares = [variance(values) / len(values) for values in (a, b)]
    centre, total, level = mean(a) - mean(b), sum(shares), level_of(1)
    unseen = unseen_between(a, b, bounds)
    if unseen is not None and constant(a) and constant(b):
        low, high = alike_ends(centre, count, level, unseen) if centre != 0.0 else (0.0, 0.0)
    else:
        degrees = welch_degrees(shares, (len(a), len(b)))
        reach = t_quantile(1.0 - level / 2.0, degrees) * math.sqrt(total)
        low, high = centre - reach, centre + reach
    if low * high > 0.0 and (
        deal_p([a], [b]) > level
        or (unseen is not None and unseen_p(_differences(a, b), *unseen) > level)
    ):
        low, high = min(low, 0.0), max(high, 0.0)
    least, most = bounds.of_difference(a, b)
    return Interval(min(max(low, least), centre), max(min(high, most), centre), "t")


def _differences(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Return the differences of two samples of which one is constant."""
    if constant(a) and constant(b):
        return [a[0] - b[0]] * min(len(a), len(b))
    return [a[0] - value for value in b] if constant(a) else [value - b[0] for value in a]
