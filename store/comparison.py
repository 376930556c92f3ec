"""Is A better than B: difference of means and probability of improvement, both with intervals.

Over the seeds of two configurations; what both ran on is compared seed by seed, by the very
numbers that a study's conclusion goes by (`paired.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ConfigError
from .agreement import deal_p
from .looks import level_of
from .paired import (
    Bounds,
    alike_ends,
    chance_of_better,
    constant,
    seeds_to_tell,
    seeds_to_trust,
    unseen_between,
    unseen_p,
)
from .statistics import IQM_MIN_SEEDS, NO_INTERVAL, Interval, iqm, mean, t_quantile, welch_degrees
from .verdicts import WORDS, Decision, Verdict, decided, decided_pairs

__all__ = ["FEWEST_EACH", "Comparison", "compare", "unpaired_interval"]

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
