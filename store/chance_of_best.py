"""The probability that the chosen trial is the best one, estimated from the selection seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .libraries import np

_LEAST, _MOST = 3, 200  # number of trials
_DRAWS = 4_000
_SHARE = 0.05  # least spread of true means, as a share of one seed's noise
_KNOWN = 0.5  # share of the degrees of freedom used: returns vary less evenly than normal values


@dataclass(frozen=True)
class ChosenTrial:
    trials: int  # including the chosen one
    # probability that its true mean is the highest, by the model of `chance_of_best`
    chance: float

    @property
    def words(self) -> str:
        """Return the probability as a phrase that is no more precise than the estimate.

        In simulated studies the chosen trial was the best in 89 to 99 % of cases for estimates of
        at least 0.9, in 60 to 83 % for estimates from 0.6, in 35 to 60 % for estimates from 0.3,
        and in 12 to 37 % for lower estimates.

        >>> ChosenTrial(3, 0.97).words, ChosenTrial(3, 0.2).words
        ('is almost certainly the best', 'is one of several that may be the best')
        """
        if self.chance >= 0.9:
            return "is almost certainly the best"
        if self.chance >= 0.6:
            return "is probably the best"
        if self.chance >= 0.3:
            return "may be the best, but so may others"
        return "is one of several that may be the best"


def chance_of_best(values: Sequence[Sequence[float]], chosen: int) -> ChosenTrial | None:
    """Return the probability that `values[chosen]` has the highest true mean; None if unknown.

    `values` [trials, seeds] are on the same seeds, and greater is better. The probability is known
    for at least three trials and two seeds, unless all values are equal. The model is empirical
    Bayes, integrated over its two unknown variances: seed effects common to all trials are
    removed, and seed noise is pooled over trials. True means are normal around their median, with
    the spread of the upper half (poor trials are not informative about the top). Only the 200
    highest means are used.
    """
    y = np.asarray(values, np.float64)
    trials, seeds = y.shape if y.ndim == 2 else (0, 0)
    if trials < _LEAST or seeds < 2 or not np.isfinite(y).all():
        return None
    own = y - y.mean(axis=0)
    means = own.mean(axis=1)
    squares, degrees = float(((own - means[:, None]) ** 2).sum()), (trials - 1) * (seeds - 1)
    if squares <= 1e-18 * degrees * float((y**2).max()):
        return None
    above = means - np.median(means)
    upper = above[above >= 0.0]
    generator = np.random.Generator(np.random.PCG64(0))
    known = _KNOWN * degrees
    noise = _KNOWN * squares / generator.chisquare(known, _DRAWS)
    total = float((upper**2).sum()) / generator.chisquare(len(upper), _DRAWS)
    spread = np.maximum(total - noise / seeds, _SHARE * noise)
    kept = spread / (spread + noise / seeds)
    order = np.argsort(-above, kind="stable")[:_MOST]
    place = np.flatnonzero(order == chosen)
    if not len(place):
        return ChosenTrial(trials, 0.0)
    normal = generator.standard_normal((_DRAWS, len(order)))
    drawn = kept[:, None] * above[order] + np.sqrt(kept * noise / seeds)[:, None] * normal
    is_best = np.asarray(drawn.argmax(axis=1), np.int64) == int(place[0])
    return ChosenTrial(trials, float(np.count_nonzero(is_best)) / _DRAWS)
