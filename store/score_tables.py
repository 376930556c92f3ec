"""What the scores of one configuration on several environments say, alone and beside another's.

Scores are normalised: 0 as random actions, 1 as the reference. A seed that diverged has NaN on
every environment: it is in no mean, below every threshold of a profile, and loses to any other.
Aggregates and their intervals are those of `over_environments.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ConfigError
from .aggregate_environments import (
    OVER,
    difference,
    overall,
    overall_interval,
    performance_profile,
    probability_of_improvement,
    profile_band,
)
from .comparison import unpaired_interval
from .paired import chance_of_better, paired_interval
from .permutation_test import Scores
from .statistics import NO_INTERVAL, Interval, interval, mean

BySeed = Mapping[int, Sequence[float]]
"""Replicate -> its score on each environment; NaN on all of them where it diverged."""
_POINTS = 101


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; None where no seed has a value."""

    value: float | None
    interval: Interval = NO_INTERVAL


NOTHING = Estimate(None)


@dataclass(frozen=True)
class OnEach:
    """One configuration.

    Attributes:
        seeds: how many there are.
        lost: how many of them diverged.
        each: on each environment, the mean score over the seeds that have one.
        together: `mean`, `iqm` and `worst` over all runs, see `overall`, with stratified
            bootstrap intervals.
    """

    seeds: int
    lost: int
    each: tuple[Estimate, ...]
    together: Mapping[str, Estimate]


@dataclass(frozen=True)
class OneEnvironment:
    """Two configurations on one environment.

    Attributes:
        difference: ours less theirs; of paired seeds with the interval of paired ones.
        probability: that a run of ours beats one of theirs, see `chance_of_better`.
    """

    difference: Estimate
    probability: Estimate


@dataclass(frozen=True)
class Beside:
    """Two configurations on several environments.

    Attributes:
        paired: compared seed by seed.
        seeds: how many pairs, or the fewer of both sides.
        lost: how many of the pairs, or of the runs of both, are in no difference, because one
            diverged; in probabilities it loses.
        each: one an environment.
        differences: of `mean`, `iqm` and `worst` over all runs, ours less theirs, see
            `difference`; without the seeds that diverged, on either side where paired.
        improvement: the probability of improvement averaged over environments, see
            `probability_of_improvement`.
    """

    paired: bool
    seeds: int
    lost: int
    each: tuple[OneEnvironment, ...]
    differences: Mapping[str, Estimate]
    improvement: Estimate

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Profile:
    """The performance profile of one configuration.

    Attributes:
        thresholds: scores, rising.
        shares: of all runs, those whose score is above each.
        band: its 95 % interval at each, point by point; None below 5 seeds.
    """

    thresholds: tuple[float, ...]
    shares: tuple[float, ...]
    band: tuple[tuple[float, float], ...] | None


def on_each(seeds: BySeed) -> OnEach:
    """Return what one configuration shows on each environment and over all of them.

    Raises:
        ConfigError: no seeds.

    >>> found = on_each({0: (1.0, 0.5), 1: (0.5, 0.5), 2: (float("nan"), float("nan"))})
    >>> found.lost, [one.value for one in found.each], found.together["worst"].value
    (1, [0.75, 0.5], 0.5)
    """
    whole = _whole(seeds)
    if not seeds:
        raise ConfigError("scores of no run were asked for")
    if not whole:
        count = len(next(iter(seeds.values())))
        return OnEach(len(seeds), len(seeds), (NOTHING,) * count, dict.fromkeys(OVER, NOTHING))
    columns = _columns(whole)
    each = tuple(Estimate(mean(column), interval(column)) for column in columns)
    together = {
        over: Estimate(overall(columns, over), overall_interval(columns, over)) for over in OVER
    }
    return OnEach(len(seeds), len(seeds) - len(whole), each, together)


def beside(ours: BySeed, theirs: BySeed, paired: bool) -> Beside:
    """Compare two configurations on the same environments.

    Args:
        ours: at least one seed.
        theirs: likewise.
        paired: replicate i of both is the same seed; only common ones are compared then.

    Raises:
        ConfigError: nothing to compare.
    """
    if paired:
        common = sorted(ours.keys() & theirs.keys())
        ours, theirs = ({seed: side[seed] for seed in common} for side in (ours, theirs))
    if not ours or not theirs:
        raise ConfigError("there is nothing to compare: one side has no values")
    a, b = _columns(ours), _columns(theirs)
    each = tuple(_one(x, y, paired) for x, y in zip(a, b, strict=True))
    x, y = _whole(ours), _whole(theirs)
    if paired:
        both = x.keys() & y.keys()
        x, y = ({seed: side[seed] for seed in both} for side in (x, y))
    lost = len(ours) - len(x) + (0 if paired else len(theirs) - len(y))
    differences: dict[str, Estimate] = dict.fromkeys(OVER, NOTHING)
    if x and y:
        for over in OVER:
            differences[over] = Estimate(*difference(_columns(x), _columns(y), over, paired))
    return Beside(
        paired,
        min(len(ours), len(theirs)),
        lost,
        each,
        differences,
        Estimate(*probability_of_improvement(a, b)),
    )


def profiles(sides: Sequence[BySeed]) -> list[Profile]:
    """Return the performance profiles of some configurations at the same thresholds.

    101 of them, even, from the lower of 0 and the lowest score to the higher of 1 and the highest.

    >>> [found] = profiles([{0: (0.2, 0.4), 1: (0.9, 1.0)}])
    >>> [round(found.shares[at], 2) for at in (0, 30, 95, 100)]
    [1.0, 0.75, 0.25, 0.0]
    """
    tables = [_columns(side) for side in sides]
    finite = [s for table in tables for column in table for s in column if math.isfinite(s)]
    low, high = min([0.0, *finite]), max([1.0, *finite])
    taus = [low + (high - low) * at / (_POINTS - 1) for at in range(_POINTS)]
    return [_profile(table, taus) for table in tables]


def _profile(table: Scores, taus: Sequence[float]) -> Profile:
    band = profile_band(table, taus)
    shares = performance_profile(table, taus)
    return Profile(tuple(taus), tuple(shares), None if band is None else tuple(band))


def _one(a: Sequence[float], b: Sequence[float], paired: bool) -> OneEnvironment:
    chance, around = chance_of_better(a, b, paired=paired)
    sides = [x for x in a if _finite(x)], [y for y in b if _finite(y)]
    if paired:
        pairs = [(x, y) for x, y in zip(a, b, strict=True) if _finite(x, y)]
        sides = [x for x, _ in pairs], [y for _, y in pairs]
    apart = NOTHING
    if all(sides):
        spread = paired_interval(*sides) if paired else unpaired_interval(*sides)
        apart = Estimate(mean(sides[0]) - mean(sides[1]), spread)
    return OneEnvironment(apart, Estimate(chance, around))


def _finite(*values: float) -> bool:
    return all(map(math.isfinite, values))


def _whole(seeds: BySeed) -> dict[int, Sequence[float]]:
    return {seed: scores for seed, scores in seeds.items() if _finite(*scores)}


def _columns(seeds: BySeed) -> list[list[float]]:
    """Return [environments][seeds], seeds in their order."""
    rows = [seeds[seed] for seed in sorted(seeds)]
    return [list(column) for column in zip(*rows, strict=True)]
