"""What two configurations say of each other, on the same seeds pair by pair.

The interval of their mean difference is Student's, whose errors the symmetry of differences
keeps small; where one side has the same value on every seed, differences are as skewed as the
other side, and it is Hall's. The simulated coverage: docs/decisions.md, statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import ConfigError
from .statistics import NO_INTERVAL, Interval, mean, t_quantile

__all__ = ["FEWEST_PAIRS", "POWER", "chance_of_better", "paired_interval", "seeds_to_tell"]

FEWEST_PAIRS = 5
"""Below so many there is no interval."""
POWER = 0.8
_TAIL = 0.975
_Z = 1.959963984540054
_MOST = 1_000_000
_RESAMPLES = 2_000


def paired_interval(
    ours: Sequence[float], theirs: Sequence[float], tail: float = _TAIL
) -> Interval:
    """Return the 95 % interval of the mean of `ours` less `theirs`, seed by seed.

    There is none below 5 pairs, nor where every difference is the same: nothing then says how far
    another seed's may be. With `tail`, the probability up to its upper end, it is another one than
    of 95 %.

    Raises:
        ConfigError: samples of unlike length.

    >>> found = paired_interval([3.0, 4.0, 6.0, 4.0, 5.0], [1.0, 3.0, 3.0, 4.0, 2.0])
    >>> round(found.low, 3), round(found.high, 3), found.kind
    (0.181, 3.419, 't')
    """
    if len(ours) != len(theirs):
        raise ConfigError(f"paired samples of {len(ours)} and {len(theirs)} values")
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    if len(differences) < FEWEST_PAIRS or not all(map(math.isfinite, differences)):
        return NO_INTERVAL
    if _constant(differences):
        return NO_INTERVAL
    skewed = _constant(ours) or _constant(theirs)
    return _hall(differences, tail) if skewed else _student(differences, tail)


def _constant(values: Sequence[float]) -> bool:
    return min(values) == max(values)


def _student(values: Sequence[float], tail: float) -> Interval:
    centre, error = mean(values), _deviation(values) / math.sqrt(len(values))
    reach = t_quantile(tail, len(values) - 1) * error
    return Interval(centre - reach, centre + reach, "t")


def _deviation(values: Sequence[float]) -> float:
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def _hall(values: Sequence[float], tail: float) -> Interval:
    """Return Hall's interval, whose ends lie where the skewness of the sample puts them.

    Hall 1992, "On the removal of skewness by transformation", equation 2.3, with quantiles of
    Student's t in place of the normal's.
    """
    count, centre, spread = len(values), mean(values), _deviation(values)
    plain = math.sqrt(math.fsum((v - centre) ** 2 for v in values) / count)
    skewness = math.fsum((v - centre) ** 3 for v in values) / count / plain**3
    if abs(skewness) < 1e-6:
        return _student(values, tail)
    reach = t_quantile(tail, count - 1) / math.sqrt(count)
    low, high = (_undone(end, skewness, count) for end in (reach, -reach))
    return Interval(centre - spread * low, centre - spread * high, "hall")


def _undone(end: float, skewness: float, count: int) -> float:
    """Return x with x + s x^2 / 3 + s^2 x^3 / 27 + s / (6 n) = end."""
    return 3.0 / skewness * (math.cbrt(1.0 + skewness * (end - skewness / (6.0 * count))) - 1.0)


def chance_of_better(
    ours: Sequence[float], theirs: Sequence[float], *, paired: bool = True
) -> tuple[float, Interval]:
    """Return the probability of improvement, P(ours > theirs) + P(ours = theirs) / 2.

    Of a fresh run of either side: on the same seed where samples are paired, with Wilson 1927's
    interval, which ties make a little wide; else of any two seeds (Agarwal et al. 2021, "Deep
    Reinforcement Learning at the Edge of the Statistical Precipice", section 4.3), with a
    bootstrap of either side's seeds, 2,000 resamples, always the same ones. A value that is not
    finite loses to one that is. There is no interval below 5 seeds.

    Raises:
        ConfigError: a side without values, or paired samples of unlike length.

    >>> chance_of_better([2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 2.0, 3.0])[0]
    0.625
    >>> chance_of_better([2.0, 3.0], [1.0, 2.0], paired=False)[0]
    0.875
    """
    if not len(ours) or not len(theirs) or (paired and len(ours) != len(theirs)):
        raise ConfigError(f"samples of {len(ours)} and {len(theirs)} values")
    if not paired:
        return _of_any_two(ours, theirs)
    chance = mean([_win(one, other) for one, other in zip(ours, theirs, strict=True)])
    count = len(ours)
    if count < FEWEST_PAIRS:
        return chance, NO_INTERVAL
    squared = _Z * _Z / count
    centre = (chance + squared / 2.0) / (1.0 + squared)
    reach = math.sqrt(squared * chance * (1.0 - chance) + squared * squared / 4.0)
    reach /= 1.0 + squared
    return chance, Interval(max(0.0, centre - reach), min(1.0, centre + reach), "wilson")


def _of_any_two(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, Interval]:
    import numpy as np

    wins = np.array([[_win(one, other) for other in theirs] for one in ours])
    chance = float(np.mean(wins))
    if min(len(ours), len(theirs)) < FEWEST_PAIRS:
        return chance, NO_INTERVAL
    draws = np.random.Generator(np.random.PCG64(0))
    rows = draws.integers(0, len(ours), (_RESAMPLES, len(ours)))
    columns = draws.integers(0, len(theirs), (_RESAMPLES, len(theirs)))
    # Weights of each seed in a resample turn the double mean into two small products.
    left = np.stack([np.bincount(row, minlength=len(ours)) for row in rows]) / len(ours)
    right = np.stack([np.bincount(column, minlength=len(theirs)) for column in columns])
    sampled = np.einsum("ri,ij,rj->r", left, wins, right / len(theirs), optimize=True)
    low, high = np.quantile(sampled, [0.025, 0.975])
    return chance, Interval(float(low), float(high), "bootstrap")


def _win(one: float, other: float) -> float:
    ours, theirs = math.isfinite(one), math.isfinite(other)
    if not (ours and theirs):
        return 0.5 + 0.5 * (ours - theirs)
    return 0.5 if one == other else float(one > other)


def seeds_to_tell(differences: Sequence[float]) -> int | None:
    """Return how many pairs in all would tell the difference from 0, if it is as it looks.

    So many that Student's test at 5 % finds a difference of that mean and spread in 8 of 10
    studies: (t(0.975) + t(0.8)) s / sqrt(n) is at most the mean. None if the mean is 0 or there
    are fewer than two.

    >>> seeds_to_tell([1.0, 3.0, -1.0, 1.0, 0.0])
    29
    """
    if len(differences) < 2 or mean(differences) == 0.0:
        return None
    ratio = _deviation(differences) / abs(mean(differences))
    few, many = 1, 2
    while not _tells(many, ratio):
        few, many = many, 2 * many
        if many > _MOST:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if _tells(middle, ratio) else (middle, many)
    return many


def _tells(count: int, ratio: float) -> bool:
    degrees = min(count - 1, 1_000)  # of more, the quantiles are the normal's to three digits
    reach = t_quantile(_TAIL, degrees) + t_quantile(POWER, degrees)
    return reach * ratio <= math.sqrt(count)
