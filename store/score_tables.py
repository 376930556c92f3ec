"""Scores of one configuration on several environments, alone and compared with another's.

Scores are normalised: 0 is random actions, 1 the reference. A seed that diverged has NaN on every
environment: it is excluded from means, below every threshold of a profile, and loses comparisons.
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
from .statistics import NO_INTERVAL, Interval, interval, mean

BySeed = Mapping[int, Sequence[float]]  # replicate -> score per environment, NaN if it diverged
_POINTS = 101


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; None where no seed has a value."""

    value: float | None
    interval: Interval = NO_INTERVAL


NOTHING = Estimate(None)


@dataclass(frozen=True)
class OnEach:
    """One configuration."""

    seeds: int
    lost: int  # seeds that diverged
    each: tuple[Estimate, ...]  # mean score per environment, without these
    together: Mapping[str, Estimate]  # `mean`, `iqm` and `worst`, see `overall`


@dataclass(frozen=True)
class OneEnvironment:
    """Two configurations on one environment."""

    difference: Estimate  # ours less theirs
    probability: Estimate  # of improvement, see `chance_of_better`


@dataclass(frozen=True)
class Beside:
    """Two configurations on several environments."""

    paired: bool
    seeds: int  # pairs, or the smaller number of both sides
    lost: int  # pairs or runs excluded from differences because one diverged
    each: tuple[OneEnvironment, ...]
    differences: Mapping[str, Estimate]  # of `mean`, `iqm` and `worst`, see `difference`
    improvement: Estimate  # see `probability_of_improvement`

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Profile:
    """The performance profile of one configuration."""

    thresholds: tuple[float, ...]  # rising scores
    shares: tuple[float, ...]  # of all runs with a score above each
    band: tuple[tuple[float, float], ...] | None  # pointwise 95 %; None below 5 seeds


def on_each(seeds: BySeed) -> OnEach:
    """Return the scores of one configuration on each environment and over all of them.

    >>> found = on_each({0: (1.0, 0.5), 1: (0.5, 0.5), 2: (float("nan"), float("nan"))})
    >>> found.lost, [one.value for one in found.each], found.together["worst"].value
    (1, [0.75, 0.5], 0.5)
    """
    kept = _complete(seeds)
    if not seeds:
        raise ConfigError("scores of no run were asked for")
    if not kept:
        count = len(next(iter(seeds.values())))
        return OnEach(len(seeds), len(seeds), (NOTHING,) * count, dict.fromkeys(OVER, NOTHING))
    columns = _columns(kept)
    each = tuple(Estimate(mean(column), interval(column)) for column in columns)
    together = {
        over: Estimate(overall(columns, over), overall_interval(columns, over)) for over in OVER
    }
    return OnEach(len(seeds), len(seeds) - len(kept), each, together)


def beside(ours: BySeed, theirs: BySeed, paired: bool) -> Beside:
    """Compare two configurations on the same environments; paired: only common replicates."""
    if paired:
        common = sorted(ours.keys() & theirs.keys())
        ours, theirs = ({seed: side[seed] for seed in common} for side in (ours, theirs))
    if not ours or not theirs:
        raise ConfigError("there is nothing to compare: one side has no values")
    a, b = _columns(ours), _columns(theirs)
    each = tuple(_one(x, y, paired) for x, y in zip(a, b, strict=True))
    x, y = _complete(ours), _complete(theirs)
    if paired:
        both = x.keys() & y.keys()
        x, y = ({seed: side[seed] for seed in both} for side in (x, y))
    lost = len(ours) - len(x) + (0 if paired else len(theirs) - len(y))
    differences: dict[str, Estimate] = dict.fromkeys(OVER, NOTHING)
    if x and y:
        for over in OVER:
            differences[over] = Estimate(*difference(_columns(x), _columns(y), over, paired))
    improvement = Estimate(*probability_of_improvement(a, b))
    return Beside(paired, min(len(ours), len(theirs)), lost, each, differences, improvement)


def profiles(sides: Sequence[BySeed]) -> list[Profile]:
    """Return performance profiles at 101 common thresholds, over [0, 1] and all scores.

    >>> [found] = profiles([{0: (0.2, 0.4), 1: (0.9, 1.0)}])
    >>> [round(found.shares[at], 2) for at in (0, 30, 95, 100)]
    [1.0, 0.75, 0.25, 0.0]
    """
    tables = [_columns(side) for side in sides]
    finite = [s for table in tables for column in table for s in column if math.isfinite(s)]
    low, high = min([0.0, *finite]), max([1.0, *finite])
    taus = [low + (high - low) * at / (_POINTS - 1) for at in range(_POINTS)]
    found: list[Profile] = []
    for table in tables:
        band, shares = profile_band(table, taus), performance_profile(table, taus)
        found.append(Profile(tuple(taus), tuple(shares), None if band is None else tuple(band)))
    return found


def _one(a: Sequence[float], b: Sequence[float], paired: bool) -> OneEnvironment:
    chance, around = chance_of_better(a, b, paired=paired)
    sides = [x for x in a if _finite(x)], [y for y in b if _finite(y)]
    if paired:
        pairs = [(x, y) for x, y in zip(a, b, strict=True) if _finite(x, y)]
        sides = [x for x, _ in pairs], [y for _, y in pairs]
    gap = NOTHING
    if all(sides):
        spread = paired_interval(*sides) if paired else unpaired_interval(*sides)
        gap = Estimate(mean(sides[0]) - mean(sides[1]), spread)
    return OneEnvironment(gap, Estimate(chance, around))


def _finite(*values: float) -> bool:
    return all(map(math.isfinite, values))


def _complete(seeds: BySeed) -> dict[int, Sequence[float]]:
    return {seed: scores for seed, scores in seeds.items() if _finite(*scores)}


def _columns(seeds: BySeed) -> list[list[float]]:
    """Return [environments][seeds]."""
    rows = [seeds[seed] for seed in sorted(seeds)]
    return [list(column) for column in zip(*rows, strict=True)]
