"""What scores over several environments say together, as the field reports them.

After Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
Scores are normalised ones, [environments, seeds], as many seeds in each environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from ..errors import ConfigError
from .comparison import unpaired_interval
from .interim_analyses import level_of
from .paired import paired_interval, placement_interval
from .permutation_test import Scores
from .statistics import (
    NO_INTERVAL,
    Interval,
    binomial_interval,
    expanded_tail,
    interval,
    t_quantile,
    welch_degrees,
)

if TYPE_CHECKING:  # numpy is loaded on use
    import numpy as np

Over = Literal["mean", "iqm", "worst"]
OVER: tuple[Over, ...] = ("mean", "iqm", "worst")
_RESAMPLES, _FEWEST = 2_000, 5


def together(scores: Sequence[float], over: str) -> float:
    """Return one number for the scores of one seed, one an environment; NaN if any is NaN.

    `iqm` is the mean after floor(n / 4) scores are cut at either end; of three environments and
    fewer that is the mean.

    Raises:
        ConfigError: an unknown kind, or no scores.

    >>> [together([0.1, 0.9, 0.8, 0.6], over) for over in ("mean", "iqm", "worst")]
    [0.6, 0.7, 0.1]
    """
    if over not in OVER:
        raise ConfigError(f"unknown aggregate over environments {over!r}; known: {_known()}")
    if not scores:
        raise ConfigError("scores of no environment were asked for")
    if any(map(math.isnan, scores)):
        return math.nan
    if over == "worst":
        return min(scores)
    cut = len(scores) // 4 if over == "iqm" else 0
    kept = sorted(scores)[cut : len(scores) - cut]
    return math.fsum(kept) / len(kept) if all(map(math.isfinite, kept)) else sum(kept) / len(kept)


def overall(scores: Scores, over: str = "iqm") -> float:
    """Return one number for all runs on all environments.

    `mean`: of the environments' means. `iqm`: the interquartile mean of all runs, whatever their
    environment: a quarter of them, rounded down, is cut at either end (section 4.3). `worst`: the
    smallest of the environments' means.

    Raises:
        ConfigError: an unknown kind, no scores, or unlike numbers of seeds.

    >>> round(overall([[0.0, 0.5], [0.7, 0.9]], "iqm"), 3)
    0.6
    """
    table = _table(scores)
    return float(_statistic(over)(table[None])[0])


def overall_interval(scores: Scores, over: str = "iqm") -> Interval:
    """Return the 95 % interval of `overall`.

    `mean`: the wider of two, as one seed of two modes in several environments is no normal value:
    that of the means of seeds over environments (`statistics.interval`), and Student's with the
    spread of seeds in each environment, at Welch's degrees of freedom. `iqm`: a stratified
    bootstrap (section 4.1), seeds drawn anew in each environment, 2,000 times, always the same
    ones; its ends are expanded percentiles (`expanded_tail`), as those of `difference`. `worst`
    has none: the least of several means lies below the least that is true, by more where more are
    close to it. Nor is there one below 5 seeds, where a score is not finite, or where nothing
    varies.

    Raises:
        ConfigError: as of `overall`.
    """
    import numpy as np

    table, statistic = _table(scores), _statistic(over)
    if over == "worst" or not np.isfinite(table).all():
        return NO_INTERVAL
    if table.shape[1] < _FEWEST or _are_still((table,)):
        return NO_INTERVAL
    if over == "mean":
        return _wider(interval(table.mean(axis=0).tolist()), table)
    beyond = expanded_tail(table.shape[1], _degrees((table,)))
    sampled = statistic(_resampled(table, 0))
    return NO_INTERVAL if _is_flat(sampled, table) else _ends(sampled, beyond)


def _wider(found: Interval, table: np.ndarray) -> Interval:
    """Return an interval of the mean that holds Student's of a sum of environments' means, too."""
    if found.low is None or found.high is None:
        return found
    variance = float((table.var(axis=1, ddof=1) / table.shape[1]).sum()) / len(table) ** 2
    reach = t_quantile(0.975, _degrees((table,))) * math.sqrt(variance)
    centre = float(table.mean())
    return Interval(min(found.low, centre - reach), max(found.high, centre + reach), found.kind)


def difference(
    ours: Scores, theirs: Scores, over: str = "iqm", paired: bool = False
) -> tuple[float, Interval]:
    """Return `overall` of ours less that of theirs, with its interval.

    `mean`: that of the means of seeds over environments, seed by seed where they are paired
    (`paired_interval`), else of two samples (`unpaired_interval`). `iqm`: a stratified bootstrap,
    seeds drawn anew in each environment, of paired seeds the same ones for both sides; its ends
    are expanded percentiles (`expanded_tail`), with Welch's degrees of freedom over environments
    and sides, because one environment may hold most of the spread, and it holds 0 wherever the
    exact test of equal distributions does not exclude that. Both are at the level of a first look
    (`looks.level_of`). `worst` has none: the least of
    several means lies below the least that is true, by more where more are close to it, and so
    may the difference on either side. Nor is there one below 5 seeds, where a score is not
    finite, or where nothing varies.

    Args:
        ours: at least one seed in each environment.
        theirs: on the same environments.
        over: kind of aggregate, see `overall`.
        paired: seed i of both is the same one.

    Raises:
        ConfigError: unlike environments, paired scores of unlike numbers of seeds, or as of
            `overall`.

    >>> round(difference([[0.5, 0.7], [0.9, 1.0]], [[0.4, 0.6], [0.9, 1.0]], "mean")[0], 3)
    0.05
    """
    import numpy as np

    a, b = _both(ours, theirs)
    if paired and a.shape != b.shape:
        raise ConfigError(f"paired scores of {a.shape[1]} and {b.shape[1]} seeds")
    statistic = _statistic(over)
    value = float(statistic(a[None])[0] - statistic(b[None])[0])
    varying = (a - b,) if paired else (a, b)
    if over == "worst" or not np.isfinite([a.sum(), b.sum()]).all() or _are_still(varying):
        return value, NO_INTERVAL
    if over == "mean":
        seeds = a.mean(axis=0).tolist(), b.mean(axis=0).tolist()
        return value, (paired_interval if paired else unpaired_interval)(*seeds)
    fewest = min(a.shape[1], b.shape[1])
    if fewest < _FEWEST:
        return value, NO_INTERVAL
    sampled = statistic(_resampled(a, 0)) - statistic(_resampled(b, 0 if paired else 1))
    if _is_flat(sampled, np.concatenate([a, b], axis=1)):
        return value, NO_INTERVAL  # only what the IQM leaves out varies
    level = level_of(1)
    found = _ends(sampled, expanded_tail(fewest, _degrees(varying), level))
    if found.low is None or found.high is None or found.low <= 0.0 <= found.high:
        return value, found
    if _swapped_p(a, b, statistic, paired) <= level:
        return value, found
    return value, Interval(min(found.low, 0.0), max(found.high, 0.0), found.kind)


def _swapped_p(
    a: np.ndarray, b: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], paired: bool
) -> float:
    """Return the exact two-sided p-value of equal distributions by a difference of aggregates.

    The share of 1,999 ways, and the seen one, to swap the sides of paired seeds, or else to deal
    all seeds of an environment anew, whose difference is at least as far from 0.
    """
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(2))
    if paired:
        swap = generator.random((_RESAMPLES - 1, *a.shape)) < 0.5
        left, right = np.where(swap, b, a), np.where(swap, a, b)
    else:
        whole = np.concatenate([a, b], axis=1)
        dealt = np.broadcast_to(whole, (_RESAMPLES - 1, *whole.shape))
        dealt = generator.permuted(dealt, axis=2)
        left, right = dealt[:, :, : a.shape[1]], dealt[:, :, a.shape[1] :]
    seen = abs(float(statistic(a[None])[0] - statistic(b[None])[0]))
    slack = 1e-9 * float(max(np.abs(a).max(), np.abs(b).max()))
    apart = np.abs(statistic(left) - statistic(right))
    return (1.0 + float(np.count_nonzero(apart >= seen - slack))) / _RESAMPLES


def _are_still(varying: Sequence[np.ndarray]) -> bool:
    """Return whether all seeds of an environment show the same, but for rounding."""
    import numpy as np

    return all(
        bool((np.ptp(side, axis=1) <= 1e-12 * np.abs(side).max(axis=1)).all()) for side in varying
    )


def _is_flat(sampled: np.ndarray, table: np.ndarray) -> bool:
    """Return whether no resample differs from another, but for rounding."""
    import numpy as np

    return bool(np.ptp(sampled) <= 1e-12 * np.abs(table).max())


def _degrees(varying: Sequence[np.ndarray]) -> int:
    """Return the degrees of freedom of the sum of all rows' means.

    Args:
        varying: tables [environments, seeds] of at least 2 seeds, not all constant.
    """
    rows = [row for side in varying for row in side]
    return welch_degrees([float(row.var(ddof=1)) / len(row) for row in rows], list(map(len, rows)))


def performance_profile(scores: Scores, thresholds: Sequence[float]) -> list[float]:
    """Return the share of all runs whose score is above each threshold (equation 1).

    Raises:
        ConfigError: as of `overall`.

    >>> performance_profile([[0.0, 0.5], [0.7, 0.9]], [0.0, 0.6, 1.0])
    [0.75, 0.5, 0.0]
    """
    import numpy as np

    table = _table(scores)
    return [float(np.mean(table > threshold)) for threshold in thresholds]


def profile_band(scores: Scores, thresholds: Sequence[float]) -> list[tuple[float, float]] | None:
    """Return the 95 % interval of the profile at each threshold.

    Exact for a share of runs (Clopper and Pearson 1934), and a little wide where environments
    differ, which makes a share vary less. They hold point by point. None below 5 seeds.

    Raises:
        ConfigError: as of `overall`.
    """
    import numpy as np

    table = _table(scores)
    if table.shape[1] < _FEWEST:
        return None
    above = [int(np.count_nonzero(table > threshold)) for threshold in thresholds]
    return [binomial_interval(hits, table.size) for hits in above]


def probability_of_improvement(ours: Scores, theirs: Scores) -> tuple[float, Interval]:
    """Return the chance that a run of ours beats one of theirs on an environment drawn at random.

    The mean over environments of P(ours > theirs) + P(ours = theirs) / 2, over all pairs of seeds
    (section 4.3), with its 95 % interval (`placement_interval`). A score that is not finite loses
    to one that is. There is no interval below 5 seeds.

    Raises:
        ConfigError: unlike environments, or as of `overall`.

    >>> probability_of_improvement([[2.0, 3.0], [1.0, 1.0]], [[1.0, 2.0], [1.0, 1.0]])[0]
    0.6875
    """
    a, b = _both(ours, theirs)
    return placement_interval(a.tolist(), b.tolist())


def _known() -> str:
    return ", ".join(OVER)


def _table(scores: Scores) -> np.ndarray:
    """Return float64 [environments, seeds]."""
    import numpy as np

    lengths = {len(seeds) for seeds in scores}
    if not lengths or 0 in lengths:
        raise ConfigError("scores of no run were asked for")
    if len(lengths) > 1:
        counts = ", ".join(str(len(seeds)) for seeds in scores)
        raise ConfigError(f"environments have {counts} seeds; give as many in each")
    return np.asarray(scores, np.float64)


def _both(ours: Scores, theirs: Scores) -> tuple[np.ndarray, np.ndarray]:
    a, b = _table(ours), _table(theirs)
    if len(a) != len(b):
        raise ConfigError(f"scores on {len(a)} environments and on {len(b)}; compare equal ones")
    return a, b


def _statistic(over: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return what takes tables [resamples, environments, seeds] to [resamples]."""
    import numpy as np

    def iqm(tables: np.ndarray) -> np.ndarray:
        flat = np.sort(tables.reshape(len(tables), -1), axis=1)
        cut = flat.shape[1] // 4
        return flat[:, cut : flat.shape[1] - cut].mean(axis=1)

    known: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "mean": lambda tables: tables.mean(axis=2).mean(axis=1),
        "iqm": iqm,
        "worst": lambda tables: tables.mean(axis=2).min(axis=1),
    }
    if over not in known:
        raise ConfigError(f"unknown aggregate over environments {over!r}; known: {_known()}")
    return known[over]


@lru_cache(maxsize=8)
def _draws(shape: tuple[int, ...], stream: int) -> np.ndarray:
    """Return seeds drawn with replacement, [resamples, environments, seeds]."""
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(stream))
    return generator.integers(0, shape[1], (_RESAMPLES, *shape))


def _resampled(table: np.ndarray, stream: int) -> np.ndarray:
    import numpy as np

    return np.take_along_axis(table[None], _draws(table.shape, stream), axis=2)


def _ends(sampled: np.ndarray, beyond: float) -> Interval:
    import numpy as np

    low, high = np.quantile(sampled, [beyond, 1.0 - beyond])
    return Interval(float(low), float(high), "bootstrap")
