"""How early can a curve be judged?

At a fraction of the run, configurations are judged by the mean over half of the seeds at that
point, and compared with the mean over the other half at the end:

*rank correlation*: Spearman's, over all configurations. At the end of the run it is below 1 only
because of the seeds.

*kept*: the share of the other half's top tenth at the end that is in the top third at this point,
as asha with eta 3 would keep at its first rung.

*gain lost*: the best of 64 randomly drawn configurations is chosen at this point, and also at the
end, by the same seeds. Let G be the other half's final value of the choice minus the mean of the
64, both averaged over many draws; then it is 1 - G(this point) / G(end).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from .resampling import Estimate, estimates, generator, halves

KEPT, TOP, DRAWN = 1 / 3, 0.1, 64
_SPLITS, _SPLITS_A_RESAMPLE, _DRAWS, _RESAMPLES = 20, 4, 400, 200


@dataclass(frozen=True)
class Judged:
    """How well a fraction of the run predicts its end.

    Attributes:
        fraction: share of the run.
        correlation, kept, lost: see above.
    """

    fraction: float
    correlation: Estimate
    kept: Estimate
    lost: Estimate


def judged_early(
    values: np.ndarray, fractions: np.ndarray, resamples: int = _RESAMPLES
) -> list[Judged]:
    """Return the results for every point of the run.

    Args:
        values: larger is better, [c, s, p], all finite; s at least 2.
        fractions: shares of the run, ascending to 1, [p].
        resamples: number for the intervals.
    """
    count, points = len(values), len(fractions)
    whole = statistics(values, _SPLITS, 5 * _DRAWS, generator(5))

    def again(rows: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        return statistics(values[rows], _SPLITS_A_RESAMPLE, _DRAWS, draws)

    found = estimates(whole, again, count, resamples, generator(6))
    parts = [found[at * points : (at + 1) * points] for at in range(3)]
    return [
        Judged(float(fraction), *(part[at] for part in parts))
        for at, fraction in enumerate(fractions)
    ]


def statistics(
    values: np.ndarray, splits: int, drawn: int, draws: np.random.Generator
) -> np.ndarray:
    """Return correlation, kept and gain lost at every point, concatenated, [3 p]."""
    count, seeds, points = values.shape
    correlation, kept = np.zeros(points), np.zeros(points)
    gains, at_end = np.zeros(points), 0.0
    size, room = max(1, round(TOP * count)), max(1, round(KEPT * count))
    many = min(DRAWN, count)
    for choosing, judging in halves(draws, seeds, splits):
        there = values[:, choosing].mean(axis=1)  # [c, p]
        final = values[:, judging, -1].mean(axis=1)  # [c]
        correlation += _spearman(there, final)
        noise = draws.random(count)
        best = np.lexsort((noise, -final))[:size]
        for at in range(points):
            held = np.zeros(count, bool)
            held[np.lexsort((draws.random(count), -there[:, at]))[:room]] = True
            kept[at] += held[best].mean()
        rows = draws.integers(0, count, (max(1, drawn // splits), many))
        picked = there[rows].argmax(axis=1)  # [draws, p]
        gain = np.take_along_axis(final[rows], picked, axis=1) - final[rows].mean(axis=1)[:, None]
        gains += gain.mean(axis=0)
        at_end += float(gain[:, -1].mean())
    lost = 1.0 - gains / at_end if at_end > 0 else np.full(points, np.nan)
    lost[-1] *= 0.0  # exactly, because it is the same choice
    return np.concatenate([correlation / splits, kept / splits, lost])


def _spearman(there: np.ndarray, final: np.ndarray) -> np.ndarray:
    """Return each column's rank correlation with the final values; 0 for a constant column."""
    one, other = rankdata(there, axis=0), rankdata(final)
    one, other = one - one.mean(axis=0), other - other.mean()
    below = np.sqrt((one**2).sum(axis=0) * (other**2).sum())
    return np.divide(other @ one, below, out=np.zeros(one.shape[1]), where=below > 0)
