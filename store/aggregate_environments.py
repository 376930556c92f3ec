"""Aggregate scores over several environments, with intervals, after Agarwal et al. 2021.

"Deep Reinforcement Learning at the Edge of the Statistical Precipice". Scores are normalised,
[environments][seeds], with the same number of seeds in each environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ..errors import ConfigError
from .interim_analyses import level_of
from .libraries import np
from .mean_difference import paired_interval, unpaired_interval, with_zero
from .probability_of_improvement import chance_of_better, placement_interval
from .statistics import (
    NO_INTERVAL,
    Interval,
    Scores,
    binomial_interval,
    expanded_tail,
    iqm_of_rows,
    mean,
    percentiles,
    t_quantile,
    welch_degrees,
)
from .unobserved import UNBOUNDED, Bounds, bounded_interval

Over = Literal["mean", "iqm", "worst"]
OVER: tuple[Over, ...] = ("mean", "iqm", "worst")
_RESAMPLES, _FEWEST = 2_000, 5


def together(scores: Sequence[float], over: str) -> float:
    """Aggregate the scores of one seed over environments; NaN if any score is NaN.

    `iqm` drops floor(n / 4) scores at either end, so with fewer than four environments it is the
    mean.

    >>> [together([0.1, 0.9, 0.8, 0.6], over) for over in ("mean", "iqm", "worst")]
    [0.6, 0.7, 0.1]
    """
    if over not in OVER:
        raise _unknown_error(over)
    if not scores:
        raise ConfigError("no environment to aggregate over")
    if any(map(math.isnan, scores)):
        return math.nan
    if over == "worst":
        return min(scores)
    cut = 0
    if over == "iqm":
        cut = len(scores) // 4
    return mean(sorted(scores)[cut : len(scores) - cut])


def overall(scores: Scores, over: str = "iqm") -> float:
    """Aggregate all runs on all environments into one number.

    `mean` is the mean over environments of each environment's mean, `iqm` the interquartile mean
    of all runs (section 4.3), and `worst` the smallest mean of any environment.

    >>> round(overall([[0.0, 0.5], [0.7, 0.9]], "iqm"), 3)
    0.6
    """
    return float(_aggregate_function(over)(_score_table(scores)[None])[0])


def overall_interval(scores: Scores, over: str = "iqm", bounds: Sequence[Bounds] = ()) -> Interval:
    """Return the 95 % interval of `overall`; `bounds` is the score range in each environment.

    For `mean`, it is the wider of two intervals, because a seed's mean over environments may not
    be normally distributed. One is the interval of these means (`unobserved.bounded_interval`),
    the other is Student's, from the spread of seeds in each environment, with Welch's degrees of
    freedom. For `iqm`, it is a stratified bootstrap (section 4.1) with expanded percentiles.
    `worst` has no interval, because the smallest of several means is biased. There is also no
    interval for fewer than 5 seeds, for non-finite scores, or without variation (for `mean`:
    unless the bounds are known).
    """
    table, statistic = _score_table(scores), _aggregate_function(over)
    if over == "worst" or not np.isfinite(table).all():
        return NO_INTERVAL
    ends, still = _overall_bounds(bounds, over, table.shape[1]), _are_still((table,))
    if still and over == "mean":
        return bounded_interval(table.mean(axis=0).tolist(), ends)
    if still or table.shape[1] < _FEWEST:
        return NO_INTERVAL
    if over == "mean":
        found = bounded_interval(table.mean(axis=0).tolist(), ends)
        if found.low is None or found.high is None:
            return found
        variance = float((table.var(axis=1, ddof=1) / table.shape[1]).sum()) / len(table) ** 2
        reach, centre = (
            t_quantile(0.975, _degrees_of_freedom((table,))) * math.sqrt(variance),
            table.mean(),
        )
        low, high = min(found.low, float(centre) - reach), max(found.high, float(centre) + reach)
        return ends.around(Interval(low, high, found.kind))
    beyond = expanded_tail(table.shape[1], _degrees_of_freedom((table,)))
    sampled = statistic(_resample_seeds(table, 0))
    if _is_flat(sampled, table):
        return NO_INTERVAL
    return ends.around(percentiles(sampled, beyond))


def _overall_bounds(bounds: Sequence[Bounds], over: str, seeds: int) -> Bounds:
    """Return the range of `overall`, from the range of possible scores in each environment."""
    if not bounds:
        return UNBOUNDED
    low = overall([[one.low] * seeds for one in bounds], over)
    return Bounds(low, overall([[one.high] * seeds for one in bounds], over))


def difference(
    scores_a: Scores,
    scores_b: Scores,
    over: str = "iqm",
    paired: bool = False,
    bounds: Sequence[Bounds] = (),
) -> tuple[float, Interval]:
    """Return `overall` of `scores_a` minus that of `scores_b`, with its interval.

    `bounds` gives the range of possible scores in each environment.

    For `mean`, the interval is computed from each seed's mean over environments
    (`paired_interval`, `unpaired_interval`). For `iqm`, it is a stratified bootstrap, which draws
    the same seeds for both sides if they are paired. The bootstrap uses expanded percentiles with
    Welch's degrees of freedom over environments and sides, because one environment may have most
    of the spread. The interval includes 0 unless the exact test of equal distributions excludes 0.
    Interval and test both use the level of a first look. There is no interval for `worst` (see
    `overall_interval`), for fewer than 5 seeds, for non-finite scores, or without variation.

    >>> round(difference([[0.5, 0.7], [0.9, 1.0]], [[0.4, 0.6], [0.9, 1.0]], "mean")[0], 3)
    0.05
    """
    a, b = _score_tables(scores_a, scores_b)
    if paired and a.shape != b.shape:
        seeds = f"{a.shape[1]} and {b.shape[1]}"
        raise ConfigError(
            f"paired scores need the same number of seeds on both sides (here: {seeds})"
        )
    statistic = _aggregate_function(over)
    value = float(statistic(a[None])[0] - statistic(b[None])[0])
    varying = (a, b)
    if paired:
        varying = (a - b,)
    if over == "worst" or not np.isfinite([a.sum(), b.sum()]).all() or _are_still(varying):
        return value, NO_INTERVAL
    if over == "mean":
        seeds = a.mean(axis=0).tolist(), b.mean(axis=0).tolist()
        return value, _mean_interval(*seeds, paired, _overall_bounds(bounds, over, 1))
    fewest = min(a.shape[1], b.shape[1])
    if fewest < _FEWEST:
        return value, NO_INTERVAL
    sampled = statistic(_resample_seeds(a, 0)) - statistic(_resample_seeds(b, int(not paired)))
    if _is_flat(sampled, np.concatenate([a, b], axis=1)):
        return value, NO_INTERVAL  # variation only in scores that the IQM cuts
    level = level_of(1)
    found = percentiles(sampled, expanded_tail(fewest, _degrees_of_freedom(varying), level))
    found = _overall_bounds(bounds, over, fewest).of_difference().around(found)
    if found.low is None or found.high is None or found.low <= 0.0 <= found.high:
        return value, found
    if _swapped_p(a, b, statistic, paired) <= level:
        return value, found
    return value, with_zero(found)


def _swapped_p(
    a: np.ndarray, b: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], paired: bool
) -> float:
    """Return the exact two-sided p-value for equal distributions, computed on aggregates."""
    generator = np.random.Generator(np.random.PCG64(2))
    if paired:
        swap = generator.random((_RESAMPLES - 1, *a.shape)) < 0.5
        left, right = np.where(swap, b, a), np.where(swap, a, b)
    else:
        pooled = np.concatenate([a, b], axis=1)
        permuted = np.broadcast_to(pooled, (_RESAMPLES - 1, *pooled.shape))
        permuted = generator.permuted(permuted, axis=2)
        left, right = permuted[:, :, : a.shape[1]], permuted[:, :, a.shape[1] :]
    observed = abs(float(statistic(a[None])[0] - statistic(b[None])[0]))
    slack = 1e-9 * float(max(np.abs(a).max(), np.abs(b).max()))
    apart = np.abs(statistic(left) - statistic(right))
    return (1.0 + float(np.count_nonzero(apart >= observed - slack))) / _RESAMPLES


def _are_still(varying: Sequence[np.ndarray]) -> bool:
    return all(
        bool((np.ptp(side, axis=1) <= 1e-12 * np.abs(side).max(axis=1)).all()) for side in varying
    )


def _is_flat(sampled: np.ndarray, table: np.ndarray) -> bool:
    return bool(np.ptp(sampled) <= 1e-12 * np.abs(table).max())


def _degrees_of_freedom(varying: Sequence[np.ndarray]) -> int:
    rows = [row for side in varying for row in side]
    return welch_degrees([float(row.var(ddof=1)) / len(row) for row in rows], list(map(len, rows)))


def performance_profile(scores: Scores, thresholds: Sequence[float]) -> list[float]:
    """Return the share of all runs with a score above each threshold (equation 1).

    >>> performance_profile([[0.0, 0.5], [0.7, 0.9]], [0.0, 0.6, 1.0])
    [0.75, 0.5, 0.0]
    """
    table = _score_table(scores)
    return [float(np.mean(table > threshold)) for threshold in thresholds]


def profile_band(scores: Scores, thresholds: Sequence[float]) -> list[tuple[float, float]] | None:
    """Return the profile's pointwise 95 % intervals; None for fewer than 5 seeds."""
    table = _score_table(scores)
    if table.shape[1] < _FEWEST:
        return None
    above = [int(np.count_nonzero(table > threshold)) for threshold in thresholds]
    return [binomial_interval(hits, table.size) for hits in above]


def probability_of_improvement(scores_a: Scores, scores_b: Scores) -> tuple[float, Interval]:
    """Return the probability of improvement, averaged over environments (section 4.3).

    See `placement_interval`.

    >>> probability_of_improvement([[2.0, 3.0], [1.0, 1.0]], [[1.0, 2.0], [1.0, 1.0]])[0]
    0.6875
    """
    a, b = _score_tables(scores_a, scores_b)
    return placement_interval(a.tolist(), b.tolist())


def _unknown_error(over: str) -> ConfigError:
    return ConfigError(f"unknown aggregate over environments {over!r}; known: {', '.join(OVER)}")


def _score_table(scores: Scores) -> np.ndarray:
    """Return the scores as a float64 array [environments, seeds]."""
    lengths = {len(seeds) for seeds in scores}
    if not lengths or 0 in lengths:
        raise ConfigError("no run to aggregate")
    if len(lengths) > 1:
        counts = ", ".join(str(len(seeds)) for seeds in scores)
        raise ConfigError(f"environments have {counts} seeds; allowed: the same number for each")
    return np.asarray(scores, np.float64)


def _score_tables(scores_a: Scores, scores_b: Scores) -> tuple[np.ndarray, np.ndarray]:
    a, b = _score_table(scores_a), _score_table(scores_b)
    if len(a) != len(b):
        raise ConfigError(f"cannot compare scores on {len(a)} and on {len(b)} environments")
    return a, b


def _aggregate_function(over: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the aggregate as a function: [resamples, environments, seeds] -> [resamples]."""
    known: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "mean": lambda tables: tables.mean(axis=2).mean(axis=1),
        "iqm": lambda tables: iqm_of_rows(tables.reshape(len(tables), -1)),
        "worst": lambda tables: tables.mean(axis=2).min(axis=1),
    }
    if over not in known:
        raise _unknown_error(over)
    return known[over]


@lru_cache(maxsize=8)
def _resampling_indices(shape: tuple[int, ...], stream: int) -> np.ndarray:
    """Draw seeds with replacement, [resamples, environments, seeds]."""
    generator = np.random.Generator(np.random.PCG64(stream))
    return generator.integers(0, shape[1], (_RESAMPLES, *shape))


def _resample_seeds(table: np.ndarray, stream: int) -> np.ndarray:
    return np.take_along_axis(table[None], _resampling_indices(table.shape, stream), axis=2)


BySeed = Mapping[int, Sequence[float]]  # replicate -> score per environment, NaN if it diverged
_POINTS = 101


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; None if no seed has a value."""

    value: float | None
    interval: Interval = NO_INTERVAL


NOTHING = Estimate(None)


@dataclass(frozen=True)
class OnEach:
    seeds: int
    lost: int  # number of diverged seeds
    each: tuple[Estimate, ...]  # mean score per environment, without diverged seeds
    together: Mapping[str, Estimate]  # `mean`, `iqm` and `worst`, see `overall`


@dataclass(frozen=True)
class OneEnvironment:
    difference: Estimate  # the first side minus the second
    probability: Estimate  # probability of improvement, see `chance_of_better`


@dataclass(frozen=True)
class Beside:
    paired: bool
    seeds: int  # number of pairs, or the smaller number of the two sides
    lost: int  # pairs or runs left out of the differences because of divergence
    each: tuple[OneEnvironment, ...]
    differences: Mapping[str, Estimate]  # for `mean`, `iqm` and `worst`, see `difference`
    improvement: Estimate  # see `probability_of_improvement`


@dataclass(frozen=True)
class Profile:
    thresholds: tuple[float, ...]  # scores, ascending
    shares: tuple[float, ...]  # share of all runs with a score above each threshold
    band: tuple[tuple[float, float], ...] | None  # pointwise 95 %; None below 5 seeds


def on_each(seeds: BySeed, bounds: Sequence[Bounds] = ()) -> OnEach:
    """Return one configuration's scores on each environment and over all of them.

    `bounds` gives the range of possible scores in each environment; () if unknown.

    >>> found = on_each({0: (1.0, 0.5), 1: (0.5, 0.5), 2: (float("nan"), float("nan"))})
    >>> found.lost, [one.value for one in found.each], found.together["worst"].value
    (1, [0.75, 0.5], 0.5)
    """
    kept = _complete_seeds(seeds)
    if not seeds:
        raise ConfigError("no run to aggregate")
    if not kept:
        count = len(next(iter(seeds.values())))
        return OnEach(len(seeds), len(seeds), (NOTHING,) * count, dict.fromkeys(OVER, NOTHING))
    columns = _score_columns(kept)
    ends = bounds or [UNBOUNDED] * len(columns)
    each = tuple(
        Estimate(mean(column), bounded_interval(column, its))
        for column, its in zip(columns, ends, strict=True)
    )
    together = {
        over: Estimate(overall(columns, over), overall_interval(columns, over, bounds))
        for over in OVER
    }
    return OnEach(len(seeds), len(seeds) - len(kept), each, together)


def _mean_interval(
    a: Sequence[float], b: Sequence[float], paired: bool, bounds: Bounds
) -> Interval:
    """Return the interval of a difference of means over seeds."""
    if paired:
        return paired_interval(a, b, bounds=bounds)
    return unpaired_interval(a, b, bounds=bounds)


def beside(
    scores_a: BySeed, scores_b: BySeed, paired: bool, bounds: Sequence[Bounds] = ()
) -> Beside:
    """Compare two configurations on the same environments; if paired, on common replicates only.

    `bounds` gives the range of possible scores in each environment; () if unknown.
    """
    if paired:
        common = sorted(scores_a.keys() & scores_b.keys())
        scores_a, scores_b = of_seeds(scores_a, common), of_seeds(scores_b, common)
    if not scores_a or not scores_b:
        raise ConfigError("there is nothing to compare: one side has no values")
    a, b = _score_columns(scores_a), _score_columns(scores_b)
    ends = bounds or [UNBOUNDED] * len(a)
    each = tuple(_compare_on_one(x, y, paired, its) for x, y, its in zip(a, b, ends, strict=True))
    x, y = _complete_seeds(scores_a), _complete_seeds(scores_b)
    if paired:
        both = x.keys() & y.keys()
        x, y = of_seeds(x, both), of_seeds(y, both)
    lost = len(scores_a) - len(x)
    if not paired:
        lost += len(scores_b) - len(y)
    differences: dict[str, Estimate] = dict.fromkeys(OVER, NOTHING)
    if x and y:
        for over in OVER:
            sides = _score_columns(x), _score_columns(y)
            differences[over] = Estimate(*difference(*sides, over, paired, bounds))
    improvement = Estimate(*probability_of_improvement(a, b))
    return Beside(paired, min(len(scores_a), len(scores_b)), lost, each, differences, improvement)


def of_seeds(scores: BySeed, seeds: Iterable[int]) -> BySeed:
    return {seed: scores[seed] for seed in seeds}


def profiles(sides: Sequence[BySeed]) -> list[Profile]:
    """Return performance profiles at 101 common thresholds, which cover [0, 1] and all scores.

    >>> [found] = profiles([{0: (0.2, 0.4), 1: (0.9, 1.0)}])
    >>> [round(found.shares[at], 2) for at in (0, 30, 95, 100)]
    [1.0, 0.75, 0.25, 0.0]
    """
    tables = [_score_columns(side) for side in sides]
    finite = [s for table in tables for column in table for s in column if math.isfinite(s)]
    low, high = min([0.0, *finite]), max([1.0, *finite])
    taus = [low + (high - low) * at / (_POINTS - 1) for at in range(_POINTS)]
    found: list[Profile] = []
    for table in tables:
        band, shares = profile_band(table, taus), performance_profile(table, taus)
        if band is not None:
            band = tuple(band)
        found.append(Profile(tuple(taus), tuple(shares), band))
    return found


def _compare_on_one(
    a: Sequence[float], b: Sequence[float], paired: bool, bounds: Bounds
) -> OneEnvironment:
    chance, around = chance_of_better(a, b, paired=paired)
    sides = [x for x in a if _is_finite(x)], [y for y in b if _is_finite(y)]
    if paired:
        pairs = [(x, y) for x, y in zip(a, b, strict=True) if _is_finite(x, y)]
        sides = [x for x, _ in pairs], [y for _, y in pairs]
    gap = NOTHING
    if all(sides):
        spread = _mean_interval(*sides, paired, bounds)
        gap = Estimate(mean(sides[0]) - mean(sides[1]), spread)
    return OneEnvironment(gap, Estimate(chance, around))


def _is_finite(*values: float) -> bool:
    return all(map(math.isfinite, values))


def _complete_seeds(seeds: BySeed) -> dict[int, Sequence[float]]:
    return {seed: scores for seed, scores in seeds.items() if _is_finite(*scores)}


def _score_columns(seeds: BySeed) -> list[list[float]]:
    rows = [seeds[seed] for seed in sorted(seeds)]
    return [list(column) for column in zip(*rows, strict=True)]
