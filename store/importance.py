"""Finds the hyperparameters that explain more of the ranking than is expected by chance.

A hyperparameter is named only if it explains more than any hyperparameter does in 24 of 25
permutations of the values (Westfall and Young 1993, min-P). Thus, at most 5 % of studies without
effects name one. Named hyperparameters are removed one after the other, and the rest are tested on
the residuals, because a model's proposals correlate hyperparameters that have no effect with those
that matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ..errors import ConfigError
from .libraries import np
from .statistics import Interval, interval, mean
from .unobserved import UNBOUNDED, Bounds

FEWEST_TRIALS = 10
DEGREE = 2
_DEGREE_REMOVED = 4
_FEW_TRIALS = 40
TINY = 1e-9
_BLOCK = 64  # permutations processed together


@dataclass(frozen=True)
class ImportanceColumn:
    name: str
    places: Sequence[float | None]  # position on its axis from 0 to 1, or choice; None if inactive
    choices: bool = False  # whether values are unordered choices


@dataclass(frozen=True)
class Regressors:
    """A hyperparameter's regressors, over the trials in which it was active."""

    rows: np.ndarray  # [m] indices of these trials
    basis: np.ndarray  # [m, d] orthonormal columns that sum to 0; d may be 0


def midranks(values: Sequence[float]) -> np.ndarray:
    """Return centred ranks; equal values get their mean rank."""
    found = np.asarray(values, np.float64)
    if not np.isfinite(found).all():
        raise ConfigError("importance needs finite values")
    _, place, count = np.unique(found, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    ranks = (ends - (count - 1) / 2)[place]
    return ranks - ranks.mean()


def shape(column: ImportanceColumn, before: np.ndarray) -> Regressors:
    """Return a hyperparameter's regressors, without the part explained by `before` [n, q]."""
    rows, places = _active_places(column)
    if len(rows) < FEWEST_TRIALS:
        return Regressors(rows, np.zeros((len(rows), 0)))
    return orthonormal(rows, powers(places, column.choices, DEGREE), before)


def orthonormal(rows: np.ndarray, plain: np.ndarray, before: np.ndarray) -> Regressors:
    """Return the part of columns that is not explained by a constant or by `before`."""
    known = np.hstack([np.ones((len(rows), 1)), before[rows]])
    rest = plain - known @ np.linalg.lstsq(known, plain, rcond=None)[0]
    left, sizes, _ = np.linalg.svd(rest, full_matrices=False)
    return Regressors(rows, left[:, sizes > TINY * max(1.0, np.sqrt(len(rows)))])


def _active_places(column: ImportanceColumn) -> tuple[np.ndarray, np.ndarray]:
    found = [(row, place) for row, place in enumerate(column.places) if place is not None]
    return (
        np.array([row for row, _ in found], np.intp),
        np.array([place for _, place in found], np.float64),
    )


def powers(places: np.ndarray, choices: bool, degree: int) -> np.ndarray:
    """Return indicator columns for all choices but the first, or Legendre polynomials."""
    known = np.unique(places)
    if choices:
        return (places[:, None] == known[None, 1:]).astype(np.float64)
    degree = min(degree, len(known) - 1)
    return np.polynomial.legendre.legvander(2.0 * places - 1.0, degree)[:, 1:]


def removed(columns: Sequence[ImportanceColumn], trials: int) -> np.ndarray:
    """Return columns [n, q] that capture all effects of these hyperparameters.

    The polynomials have a higher degree than those of `shape`. Otherwise the remaining effect of a
    hyperparameter would be attributed to others that are correlated with it in a model's
    proposals.
    """
    degree = DEGREE
    if trials >= _FEW_TRIALS:
        degree = _DEGREE_REMOVED
    parts = [np.zeros((trials, 0))]
    for column in columns:
        rows, places = _active_places(column)
        part = powers(places, column.choices, degree)
        whole = np.zeros((trials, part.shape[1] + 1))
        whole[rows, :-1] = part - part.mean(axis=0)
        whole[rows, -1] = 1.0
        if len(rows) == trials:
            whole = whole[:, :-1]
        parts.append(whole)
    return np.hstack(parts)


def explained(form: Regressors, values: np.ndarray) -> np.ndarray:
    """Return the share of each row's variance that the regressors explain, [b, n] -> [b]."""
    return _explained_share(form, values[:, form.rows], _rank_variance(values[:, form.rows]))


def explained_when_dealt(
    forms: Sequence[Regressors], ranks: np.ndarray, deals: np.ndarray
) -> np.ndarray:
    """Return `explained` for k hyperparameters and all permutations, [n], [b, n] -> [k, b].

    The permutations are `ranks[deals]`. Ranks are permuted separately for each hyperparameter, but
    all those active in every trial share one array, because it is the largest.
    """
    found = np.zeros((len(forms), len(deals)))
    whole: tuple[np.ndarray, np.ndarray] | None = None
    for form, shares in zip(forms, found, strict=True):
        is_whole = len(form.rows) == deals.shape[1]
        if is_whole and whole is not None:
            dealt, variance = whole
        else:
            dealt = _permuted_ranks(form.rows, ranks, deals)
            variance = _rank_variance(dealt)
        if is_whole:
            whole = dealt, variance
        shares[:] = _explained_share(form, dealt, variance)
    return found


def _permuted_ranks(rows: np.ndarray, ranks: np.ndarray, deals: np.ndarray) -> np.ndarray:
    """Return `ranks[deals][:, rows]`, computed in blocks, in a layout with reproducible sums."""
    dealt = np.empty((len(deals), len(rows)), order="F")
    for start in range(0, len(deals), _BLOCK):
        dealt[start : start + _BLOCK] = ranks[deals[start : start + _BLOCK]][:, rows]
    return dealt


def _rank_variance(own: np.ndarray) -> np.ndarray:
    """Return m times the variance of each row of ranks, [b, m] -> [b]."""
    squares = np.empty(len(own))
    for start in range(0, len(own), _BLOCK):
        some = own[start : start + _BLOCK]
        squares[start : start + _BLOCK] = (some * some).sum(axis=1)
    return squares - own.shape[1] * own.mean(axis=1) ** 2


def _explained_share(form: Regressors, own: np.ndarray, variance: np.ndarray) -> np.ndarray:
    hit = ((own @ form.basis) ** 2).sum(axis=1)
    return np.divide(hit, variance, out=np.zeros_like(hit), where=variance > TINY)


def resampled(
    column: ImportanceColumn, before: np.ndarray, ranks: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return two shares for each of b resamples, from weighted normal equations.

    The first is the fraction of the squared error after `before` [n, q] that a hyperparameter
    removes. The second is the fraction of the total variance that remains after `before`.
    `weights` [b, n] is the count of each trial in each resample.
    """
    rows, places = _active_places(column)
    known = np.hstack([np.ones((len(rows), 1)), before[rows]])
    both = np.hstack([known, powers(places, column.choices, DEGREE)])
    own, held = ranks[rows], weights[:, rows]
    error = [squared_error(part, own, held) for part in (known[:, :1], known, both)]
    gain = np.maximum(0.0, error[1] - error[2])
    share = np.divide(gain, error[1], out=np.zeros_like(gain), where=error[1] > TINY)
    return share, np.divide(error[1], error[0], out=np.zeros_like(gain), where=error[0] > TINY)


def squared_error(known: np.ndarray, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weighted squared error of the best fit, for each row of weights."""
    width = known.shape[1]
    squares = (known[:, :, None] * known[:, None, :]).reshape(len(values), -1)
    gram = (weights @ squares).reshape(-1, width, width)
    side = weights @ (known * values[:, None])
    fitted = np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ side[:, :, None]
    return weights @ values**2 - (side[:, None, :] @ fitted)[:, 0, 0]


_CHANCE = 0.04  # not 0.05: a model's proposals depend on values, which costs up to 0.01
_DEALS, _DEALS_A_KNOB = 999, 50
_RESAMPLES = 500
_NAMED = 3


@dataclass(frozen=True)
class KnobShare:
    """The share of rank variance that a hyperparameter explains, in trials where it is active."""

    name: str
    trials: int  # number of trials in which it was active
    share: float  # above the mean by chance, given the hyperparameters named before it
    low: float  # 95 % interval by bootstrap over trials
    high: float
    floor: float  # significance threshold of the share
    decided: bool  # whether the share is above it


@dataclass(frozen=True)
class Decided:
    trials: int
    knobs: tuple[KnobShare, ...]  # named ones in the order found, then the others by share

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(knob.name for knob in self.knobs if knob.decided)

    @property
    def sentence(self) -> str:
        names = list(self.names)
        if not names:
            return f"No hyperparameter was found to matter in {self.trials} trials."
        first = next(knob for knob in self.knobs if knob.decided)
        if len(names) == 1:
            spread = f"[{first.low:.0%}, {first.high:.0%}]"
            return (
                f"{first.name} matters: it explains {first.share:.0%} {spread} of the ranking of "
                f"{self.trials} trials."
            )
        if len(names) > _NAMED:
            names = [*names[:_NAMED], f"{len(names) - _NAMED} more"]
        return (
            f"{', '.join(names[:-1])} and {names[-1]} matter; {first.name} explains the most, "
            f"{first.share:.0%} of the ranking of {self.trials} trials."
        )

    @property
    def unseen(self) -> str:
        """Return a phrase for the smallest detectable effect, or ""."""
        floors = sorted(knob.floor for knob in self.knobs if not knob.decided and knob.floor < 1)
        if not floors:
            return ""
        return (
            f"With {self.trials} trials, effects below about {floors[-1]:.0%} cannot be detected."
        )

    def as_json(self) -> Mapping[str, object]:
        knobs = {knob.name: {**vars(knob)} for knob in self.knobs}
        for values in knobs.values():
            del values["name"]
        return {"trials": self.trials, "decided": list(self.names), "knobs": knobs}


@dataclass(frozen=True)
class _Judged:
    shares: np.ndarray
    means: np.ndarray  # mean shares by chance
    floors: np.ndarray


def decide(columns: Sequence[ImportanceColumn], values: Sequence[float]) -> Decided:
    """Return each hyperparameter's share and significance, from one finite value per trial."""
    if len(values) < FEWEST_TRIALS:
        raise ConfigError(
            f"importance needs {FEWEST_TRIALS} evaluated trials (here: {len(values)})"
        )
    if any(len(column.places) != len(values) for column in columns):
        raise ConfigError("importance needs one position per hyperparameter and value")
    ranks, trials = midranks(values), len(values)
    draws = np.random.Generator(np.random.PCG64(0))
    count = 1 + max(_DEALS, _DEALS_A_KNOB * len(columns))
    deals = np.tile(np.arange(trials, dtype=np.int32), (count, 1))  # the first is the identity
    draws.permuted(deals[1:], axis=1, out=deals[1:])
    weights = draws.multinomial(trials, np.full(trials, 1 / trials), _RESAMPLES).astype(np.float64)
    waiting = list(columns)
    named: list[ImportanceColumn] = []
    found: list[KnobShare] = []
    while waiting:
        before = removed(named, trials)
        known = np.hstack([np.ones((trials, 1)), before])
        left = ranks - known @ np.linalg.lstsq(known, ranks, rcond=None)[0]
        remaining = float(left @ left) / float(ranks @ ranks or 1.0)
        judged = _test_shares([shape(column, before) for column in waiting], left, deals)
        over = judged.shares - judged.floors
        best = int(np.argmax(np.where(over > 0, judged.shares, -np.inf)))
        takes = [best]
        if not over[best] > 0:
            takes = sorted(range(len(waiting)), key=lambda k: judged.means[k] - judged.shares[k])
        for k in takes:
            found.append(_knob_share(waiting[k], judged, k, remaining, (before, ranks, weights)))
        if not over[best] > 0:
            break
        named.append(waiting.pop(best))
    return Decided(trials, tuple(found))


def _test_shares(forms: Sequence[Regressors], left: np.ndarray, deals: np.ndarray) -> _Judged:
    """Return shares, and their permutation thresholds at a familywise error rate of 4 %."""
    shares = explained_when_dealt(forms, left, deals)  # [k, 1 + b]
    dealt = np.sort(shares[:, 1:], axis=1)[:, ::-1]  # largest first
    count = dealt.shape[1]
    # rank of each permuted share among the shares of the same hyperparameter
    places = np.empty((len(forms), count), np.int64)
    for place, row, own in zip(places, dealt, shares[:, 1:], strict=True):
        place[:] = count - np.searchsorted(row[::-1], own, side="left")
    # the largest rank reached by any hyperparameter in at most 4 % of the permutations
    allowed = int(np.sort(places.min(axis=0))[int(_CHANCE * count)]) - 1
    floors = dealt[:, max(0, allowed)]
    usable = np.array([form.basis.shape[1] > 0 for form in forms])
    return _Judged(shares[:, 0], dealt.mean(axis=1), np.where(usable, floors, 1.0))


def _knob_share(
    column: ImportanceColumn,
    judged: _Judged,
    k: int,
    remaining: float,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> KnobShare:
    """Return a hyperparameter's share of the total variance, corrected for its chance level."""
    chance = float(judged.means[k])
    active = sum(place is not None for place in column.places)
    decided = bool(judged.shares[k] > judged.floors[k])
    if judged.floors[k] >= 1.0:
        return KnobShare(column.name, active, 0.0, 0.0, 1.0, 1.0, False)
    again, rest = resampled(column, *data)
    # Chance is subtracted twice: duplicate trials in a resample explain that much once more.
    spread = _share_beyond_chance(_share_beyond_chance(again, chance), chance) * rest
    low, high = np.clip(np.quantile(spread, [0.025, 0.975]), 0.0, 1.0)
    share = max(0.0, float(_share_beyond_chance(judged.shares[k], chance))) * remaining
    floor = max(0.0, float(_share_beyond_chance(judged.floors[k], chance))) * remaining
    return KnobShare(column.name, active, share, float(low), float(high), floor, decided)


def _share_beyond_chance(share: np.ndarray, chance: float) -> np.ndarray:
    return (share - chance) / (1.0 - chance)


_GROUP = 8
_MOST_GROUPS = 8
_FEWEST = 5


@dataclass(frozen=True)
class EffectPoint:
    place: float  # their mean position on the axis from 0 to 1, or their choice
    trials: int
    mean: float  # mean of their values
    interval: Interval


def main_effect(
    column: ImportanceColumn, values: Sequence[float], bounds: Bounds = UNBOUNDED
) -> tuple[EffectPoint, ...]:
    """Return a hyperparameter's main effect over the trials where it was active.

    `bounds` is the range of possible values.

    For choices, or if there are up to 8 different values, each value with at least 5 trials forms
    a group. Other values form up to 8 groups of equal size, with at least 8 trials each. The
    result is empty if there are fewer than two groups.
    """
    known = sorted(
        (place, value)
        for place, value in zip(column.places, values, strict=True)
        if place is not None
    )
    distinct = {place for place, _ in known}
    if column.choices or len(distinct) <= _MOST_GROUPS:
        groups = [list(pairs) for _, pairs in groupby(known, key=lambda pair: pair[0])]
    else:
        count = min(_MOST_GROUPS, len(known) // _GROUP)
        ends = list[int]()
        if count:
            ends = [round(index * len(known) / count) for index in range(count + 1)]
        groups = [known[low:high] for low, high in pairwise(ends)]
    points: list[EffectPoint] = []
    for group in groups:
        if len(group) >= _FEWEST:
            at, values = zip(*group, strict=True)
            around = bounds.around(interval(values))
            points.append(EffectPoint(mean(at), len(group), mean(values), around))
    if len(points) < 2:
        return ()
    return tuple(points)
