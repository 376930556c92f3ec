"""Is A better than B: difference of means and probability of improvement, both with intervals.

Over the seeds of two configurations; what both ran on is compared seed by seed, by the very
numbers that a study's conclusion goes by (`paired.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..errors import ConfigError
from .interim_analyses import fewest_pairs, level_of, next_level
from .paired import (
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
from .permutation_test import deal_p
from .statistics import IQM_MIN_SEEDS, NO_INTERVAL, Interval, iqm, mean, t_quantile, welch_degrees

Verdict = Literal["better", "worse", "no_difference", "undecided"]
WORDS: Mapping[str, str] = {
    "better": "better",
    "worse": "worse",
    "no_difference": "no significant difference",
    "undecided": "undecided",
}
"""What is printed."""
AFFORDED = 4
"""Up to so many times the seeds that ran are worth asking for."""


@dataclass(frozen=True)
class Decision:
    """What a comparison came to.

    Attributes:
        verdict: about the first side.
        interval: of the difference, first side less second, which decided.
        more_seeds: where undecided, how many further seeds would decide.
    """

    verdict: Verdict
    interval: Interval
    more_seeds: int | None = None


def decided_pairs(
    ours: Sequence[float],
    theirs: Sequence[float],
    earlier: Sequence[int] = (),
    bounds: Bounds | None = None,
) -> Decision:
    """Decide between two sides that ran on the same seeds; greater is better.

    Args:
        ours: one finite value a seed, seeds in the order in which they were run.
        theirs: on the same seeds.
        earlier: of how many of these pairs earlier looks were, see `paired_over_looks`.
        bounds: of both means.

    >>> decided_pairs([2.0] * 8, [1.0] * 8).verdict, decided_pairs([2.0] * 4, [1.0] * 4).more_seeds
    ('better', 2)
    """
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    gap, count = mean(differences), len(differences)
    found = paired_over_looks(ours, theirs, earlier, bounds)
    fewest = fewest_pairs(next_level(earlier))
    if count < fewest:
        return Decision("undecided", found, fewest - count)
    if found.low is None:  # both vary, by the same on every seed: the exact test alone decides
        if is_rounding(gap, ours, theirs):
            return Decision("no_difference", found)
        return Decision("better" if gap > 0 else "worse", found)
    level = next_level([*earlier, count])
    needed = seeds_to_tell(gap, deviation(differences), level)
    if needed is not None:  # as many have to differ as the exact test needs
        apart = sum(value != 0.0 for value in differences) / count
        needed = max(needed, math.ceil(fewest_pairs(level) / apart))
    unseen = unseen_between(ours, theirs, bounds)
    if needed is not None and unseen is not None:
        needed = max(needed, seeds_to_trust(gap, unseen, level))
    return decided(found, count, needed)


def decided(interval: Interval, count: int, needed: int | None) -> Decision:
    """Decide by an interval; where it holds 0, by how many seeds in all would tell.

    Args:
        interval: with ends.
        count: seeds that ran.
        needed: seeds that would tell a difference as large as the one seen; None if none would.
    """
    low, high = interval.low, interval.high
    if low is not None and low > 0.0:
        return Decision("better", interval)
    if high is not None and high < 0.0:
        return Decision("worse", interval)
    if needed is None or needed > AFFORDED * count:
        return Decision("no_difference", interval)
    return Decision("undecided", interval, max(1, needed - count))


FEWEST_EACH = 5
"""Of fewer seeds on either side, where these are not paired, nothing is said."""


@dataclass(frozen=True)
class Comparison:
    """What two samples say about each other.

    Attributes:
        means: of A and of B.
        iqms: interquartile means; None below 8 seeds.
        seeds: of A and of B.
        paired: the differences are between equal seeds.
        difference: mean of A minus mean of B; positive is better when A is.
        difference_interval: its interval, which holds at all looks together in 95 %.
        probability: that a run of A beats a run of B, see `chance_of_better`.
        probability_interval: its 95 % interval.
        verdict: about A.
        more_seeds: where undecided, how many further seeds of each would decide.
        equal: paired, and both have the same value on every seed.
    """

    means: tuple[float, float]
    iqms: tuple[float | None, float | None]
    seeds: tuple[int, int]
    paired: bool
    difference: float
    difference_interval: Interval
    probability: float
    probability_interval: Interval
    verdict: Verdict = "undecided"
    more_seeds: int | None = None
    equal: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    def sentence(self, a: str = "A", b: str = "B") -> str:
        """Return the verdict in words, sides by their names."""
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
    ceiling: float | None = None,
) -> Comparison:
    """Compare values of A and B, one a seed.

    Args:
        a: at least one value.
        b: likewise.
        goal: `maximize`, or `minimize` where smaller values are better.
        paired: value i of both comes from the same seed.
        earlier: of how many of these pairs earlier looks were, see `paired_over_looks`.
        ceiling: the best possible value, where it is known.

    Raises:
        ConfigError: no values, or paired samples of unlike length.
    """
    if not a or not b:
        raise ConfigError("there is nothing to compare: one side has no values")
    if paired and len(a) != len(b):
        raise ConfigError(f"paired samples of {len(a)} and {len(b)} values")
    sign = 1.0 if goal == "maximize" else -1.0
    ours, theirs = [sign * value for value in a], [sign * value for value in b]
    if not all(map(math.isfinite, [*ours, *theirs])):
        found = Decision("undecided", NO_INTERVAL)
    else:
        bounds = Bounds() if ceiling is None else Bounds(high=sign * ceiling)
        found = (
            decided_pairs(ours, theirs, earlier, bounds)
            if paired
            else _decided_apart(ours, theirs, bounds)
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


def _decided_apart(ours: Sequence[float], theirs: Sequence[float], bounds: Bounds) -> Decision:
    """Decide between two samples of different seeds."""
    fewest, count = FEWEST_EACH, min(len(ours), len(theirs))
    found = unpaired_interval(ours, theirs, bounds)
    if count < fewest:
        return Decision("undecided", found, fewest - count)
    spread = math.sqrt(_variance(ours) + _variance(theirs))
    gap = mean(ours) - mean(theirs)
    needed = seeds_to_tell(gap, spread)
    unseen = unseen_between(ours, theirs, bounds)
    if needed is not None and unseen is not None:
        needed = max(needed, seeds_to_trust(gap, unseen, level_of(1)))
    return decided(found, count, needed)


def unpaired_interval(
    a: Sequence[float], b: Sequence[float], bounds: Bounds | None = None
) -> Interval:
    """Return the interval of a difference of means with unlike variances (Welch 1947).

    At the level of a first look (`looks.level_of`), degrees of freedom rounded down, which
    widens it. It holds 0 wherever the exact test of equal distributions does not exclude that
    (`deal_p`), and beside a constant unless unseen seeds allow it (`unseen_p`); of two constants
    it is exact. There is none below 5 values of either, or where one is not finite.
    """
    count = min(len(a), len(b))
    if count < FEWEST_EACH or not all(map(math.isfinite, [*a, *b])):
        return NO_INTERVAL
    shares = [_variance(values) / len(values) for values in (a, b)]
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
        or (unseen is not None and unseen_p(_apart(a, b), *unseen) > level)
    ):
        low, high = min(low, 0.0), max(high, 0.0)
    return Interval(low, high, "t")


def _apart(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Return the differences of two samples of which one is constant, one a seed of the other."""
    if constant(a) and constant(b):
        return [a[0] - b[0]] * min(len(a), len(b))
    return [a[0] - value for value in b] if constant(a) else [value - b[0] for value in a]


def _variance(values: Sequence[float]) -> float:
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)
