"""Comparison of a winner with one opponent, by value and by constraints.

Values come from test seeds, which are the same for both sides.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from .comparison import decided_pairs
from .constraint_tests import Feasibility, Limit, Range, Values, feasibility
from .interim_analyses import fewest_pairs, next_level
from .mean_difference import Unless
from .probability_of_improvement import chance_of_better
from .statistics import NO_INTERVAL, Interval, deviation, mean
from .unobserved import UNBOUNDED, Bounds

Verdict = Literal[
    "better",
    "worse",
    "no_difference",
    "undecided",
    "ceiling",
    "default",
    "diverged",
    "feasible",
    "infeasible",
    "nothing",
]
Advice = Literal["take", "keep", ""]
"""Take the winner, keep its opponent, or neither."""
Sample = Mapping[int, float]  # replicate -> value; NaN if it diverged


@dataclass(frozen=True)
class Against:
    """The comparison of a winner with one opponent, paired on the seeds that both ran on."""

    rival: str  # name in sentences: `the default`, `ksp_ff`
    verdict: Verdict  # on the winner
    seeds: int = 0
    pairs: int = 0  # seeds on which both have a finite value
    wins: int = 0  # of these pairs, the winner is better
    ties: int = 0
    diverged: int = 0  # seeds on which the opponent has no finite value
    means: tuple[float, float] | None = None  # of the winner and the opponent, over pairs
    difference: float | None = None  # positive if the winner is better
    standard_error: float | None = None  # of the difference, from pairs; None for one pair
    interval: Interval = NO_INTERVAL  # 95 % over all looks together
    probability: float | None = None  # of the winner being better on a new seed; a tie counts half
    probability_interval: Interval = NO_INTERVAL
    more_seeds: int | None = None  # number that would decide, if it is undecided
    unless: Unless | None = None  # set if only outcomes that no seed has shown prevent a verdict
    own_diverged: int = 0  # seeds on which the winner has no finite value
    why: str = ""  # a sentence if there is nothing to compare
    by_value: Verdict | None = None  # by the metric alone, if constraints decide
    limits: LimitsOfBoth | None = None  # with constraints

    @property
    def is_lost(self) -> bool:
        """Whether the winner is better only because its opponent diverged on every common seed."""
        return self.verdict == "better" and self.difference is None

    @property
    def trails(self) -> bool:
        """Whether the opponent has the better mean."""
        return self.verdict == "worse" or (self.difference is not None and self.difference < 0.0)

    @property
    def leader_probability(self) -> tuple[float, Interval] | None:
        """The probability that the side with the better mean is better on a new seed."""
        spread = self.probability_interval
        if self.probability is None or spread.low is None or spread.high is None:
            return None
        if self.trails:
            return 1.0 - self.probability, spread.complement()
        return self.probability, spread

    @property
    def is_behind_unless(self) -> bool:
        """Whether the opponent is better under the condition in `unless`."""
        return self.unless is not None and (self.difference or 0.0) < 0.0

    @property
    def advice(self) -> Advice:
        """Return whether to take the winner or keep the opponent; "" if there is no evidence.

        If the test is undecided, the winner must lead by more than one standard error of the
        paired differences. If both are equally good, the winner leads by that much in 16 to 20 %
        of studies, and taking it does no harm.
        """
        if self.verdict in ("better", "feasible"):
            return "take"
        if self.verdict in ("worse", "default", "ceiling", "diverged", "infeasible"):
            return "keep"
        if self.verdict == "nothing" or self.difference is None:
            return ""
        least = self.standard_error
        if self.unless is not None:
            least = 0.0
        if least is not None and self.difference > least:
            return "take"
        return "keep"


@dataclass(frozen=True)
class LimitsOfBoth:
    """Whether a winner and its opponent each satisfy the constraints on test seeds."""

    winner: Feasibility
    rival: Feasibility


@dataclass(frozen=True)
class ConstraintSamples:
    """Constraint results on test seeds.

    `observed_ranges` is each constraint's range of values on all new seeds of the compared trials.
    """

    limits: tuple[Limit, ...]
    winner: Values | None
    default: Values | None
    observed_ranges: tuple[Range, ...] = ()
    alone: Values | None = None  # of the best trial without copying


@dataclass(frozen=True)
class Terms:
    """The settings for comparing a winner with any opponent."""

    sign: float = 1.0  # 1 if greater is better, else -1
    top: float | None = None  # the ceiling, if all seeds of the winner reach it
    bounds: Bounds = UNBOUNDED  # of values times the sign
    earlier: Sequence[int] = ()  # number of pairs at each earlier look
    interim: bool = False  # the first of these was before the planned end

    @property
    def level(self) -> float:
        return next_level(self.earlier, self.interim)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Values of a winner and an opponent on their common seeds; greater is better."""

    seeds: Sequence[int]  # in order
    winner_values: Sequence[float]  # may be infinite or NaN
    other_values: Sequence[float]

    @cached_property
    def finite(self) -> list[tuple[float, float]]:
        pairs = zip(self.winner_values, self.other_values, strict=True)
        return [pair for pair in pairs if all(map(math.isfinite, pair))]

    @property
    def finite_seeds(self) -> list[int]:
        triples = zip(self.seeds, self.winner_values, self.other_values, strict=True)
        return [seed for seed, *pair in triples if all(map(math.isfinite, pair))]

    @property
    def own_lost(self) -> int:
        return sum(not math.isfinite(value) for value in self.winner_values)

    @property
    def lost(self) -> int:
        return sum(not math.isfinite(value) for value in self.other_values)

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean difference; None for a single pair."""
        if len(self.finite) < 2:
            return None
        spread = deviation([own - other for own, other in self.finite])
        return spread / math.sqrt(len(self.finite))


def compare_samples(
    winner: Sample, other: Sample, rival: str, terms: Terms, among: int = 1
) -> Against:
    """Compare two samples, paired by seed; `among` comparisons share the error rate."""
    both = sorted(winner.keys() & other.keys())
    if not both:
        return Against(rival, "nothing")
    winner_values, other_values = (
        _signed_values(side, both, terms.sign) for side in (winner, other)
    )
    pairs = _Pairs(both, winner_values, other_values)
    chance, chance_interval = chance_of_better(winner_values, other_values)
    if pairs.finite:
        found = _by_value(pairs, rival, terms, among)
    else:
        found = _decide_without_pairs(pairs, rival, terms, among)
    return replace(
        found,
        seeds=len(both),
        diverged=pairs.lost,
        own_diverged=pairs.own_lost,
        probability=chance,
        probability_interval=chance_interval,
    )


def _signed_values(side: Sample, seeds: Sequence[int], sign: float) -> list[float]:
    return [sign * side[seed] for seed in seeds]


def _decide_without_pairs(pairs: _Pairs, rival: str, terms: Terms, among: int) -> Against:
    """Return the verdict if no common seed has finite values on both sides."""
    if pairs.own_lost:
        return Against(rival, "diverged")
    if len(pairs.seeds) >= fewest_pairs(terms.level / among):
        return Against(rival, "better")
    return Against(rival, "nothing")


def _by_value(pairs: _Pairs, rival: str, terms: Terms, among: int) -> Against:
    winner_values, other_values = zip(*pairs.finite, strict=True)
    before = [bisect_left(pairs.finite_seeds, size) for size in terms.earlier]
    found = decided_pairs(
        winner_values, other_values, before, terms.bounds, terms.interim, among=among
    )
    decided = Against(
        rival=rival,
        verdict=found.verdict,
        pairs=len(pairs.finite),
        wins=sum(1 for own, other in pairs.finite if own > other),
        ties=sum(1 for own, other in pairs.finite if own == other),
        means=(terms.sign * mean(winner_values), terms.sign * mean(other_values)),
        difference=mean(winner_values) - mean(other_values),
        standard_error=pairs.standard_error,
        interval=found.interval,
        more_seeds=found.more_seeds,
        unless=found.unless,
    )
    if terms.top is not None and not pairs.lost and set(other_values) == {terms.sign * terms.top}:
        return replace(decided, verdict="ceiling", more_seeds=None, unless=None)
    if pairs.own_lost > pairs.lost:  # with fewer values, the mean is biased upwards
        return replace(decided, verdict="diverged", more_seeds=None, unless=None)
    if pairs.lost > pairs.own_lost and (decided.verdict == "worse" or decided.is_behind_unless):
        return replace(
            decided, verdict="undecided", interval=NO_INTERVAL, more_seeds=None, unless=None
        )
    if found.verdict != "undecided":
        return replace(decided, unless=None)
    return decided


def with_constraints(
    against: Against, samples: ConstraintSamples, rival: Values | None, level: float
) -> Against:
    """Apply the constraints to a comparison's verdict; `by_value` keeps the verdict on values."""
    both = LimitsOfBoth(
        winner=feasibility(samples.limits, samples.winner, level, samples.observed_ranges),
        rival=feasibility(samples.limits, rival, level, samples.observed_ranges),
    )
    found = replace(against, by_value=against.verdict, limits=both)
    if against.verdict == "diverged":
        return found
    if both.winner.state == "violated":
        return replace(found, verdict="infeasible")
    if both.rival.state != "violated":
        return found
    if both.winner.state == "kept":
        return replace(found, verdict="feasible")
    if against.verdict == "worse":  # a better value does not compensate for a violation
        return replace(found, verdict="undecided", more_seeds=None)
    return found
