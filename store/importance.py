"""Which knobs decided, beyond what chance explains; "nothing decided" is an answer.

A knob is named only if it explains more than values dealt out anew to the same trials let any
knob explain in 24 of 25 deals (Westfall and Young 1993, min-P over knobs), so that in at most 5 %
of studies in which nothing matters any knob is named. Named knobs are taken out one after the
other, and the rest judged by what is left, because under a model's proposals knobs that do not
matter move together with one that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ..errors import ConfigError, counted
from .rank_variance import (
    FEWEST_TRIALS,
    Column,
    Shape,
    explained,
    midranks,
    removed,
    resampled,
    shape,
)
from .statistics import Interval, interval, mean

if TYPE_CHECKING:
    import numpy as np

_CHANCE = 0.04  # not 0.05: what a model proposed depends on values, which costs up to 0.01
_DEALS, _DEALS_A_KNOB = 999, 50
_RESAMPLES = 500
_NAMED = 3


@dataclass(frozen=True)
class KnobShare:
    """What one knob explains of the differences in rank between the trials that have it.

    Attributes:
        name: of the knob.
        trials: in which it was active.
        share: explained beyond the mean of chance, once knobs named before it are known.
        low, high: 95 % interval by bootstrap over trials.
        floor: what chance gives; to be named the share must be above.
        decided: it is.
    """

    name: str
    trials: int
    share: float
    low: float
    high: float
    floor: float
    decided: bool


@dataclass(frozen=True)
class Decided:
    """Which knobs decided.

    Attributes:
        trials: behind it.
        knobs: every knob; named ones first, as they were found, then by their share.
    """

    trials: int
    knobs: tuple[KnobShare, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The knobs that decided, the one found first in front."""
        return tuple(knob.name for knob in self.knobs if knob.decided)

    @property
    def sentence(self) -> str:
        """The answer in words: which hyperparameters matter, and how much they explain."""
        if not self.names:
            return f"No hyperparameter is shown to matter in {self.trials} trials."
        told = [knob for knob in self.knobs if knob.decided]
        first = told[0]
        if len(told) == 1:
            spread = f"[{first.low:.0%}, {first.high:.0%}]"
            return (
                f"{first.name} matters: it explains {first.share:.0%} {spread} of the ranking of "
                f"{self.trials} trials."
            )
        names = [knob.name for knob in told]
        if len(told) > _NAMED:
            names = [*names[:_NAMED], f"{len(told) - _NAMED} more"]
        return (
            f"{', '.join(names[:-1])} and {names[-1]} matter; {first.name} explains the most, "
            f"{first.share:.0%} of the ranking of {self.trials} trials."
        )

    @property
    def unseen(self) -> str:
        """In words how large an effect must be to be seen; "" where nothing is below chance."""
        floors = sorted(knob.floor for knob in self.knobs if not knob.decided and knob.floor < 1)
        if not floors:
            return ""
        return f"With {self.trials} trials, effects below about {floors[-1]:.0%} cannot be shown."

    def as_json(self) -> Mapping[str, object]:
        """Return plain data."""
        return {
            "trials": self.trials,
            "decided": list(self.names),
            "knobs": {
                knob.name: {
                    "trials": knob.trials,
                    "share": knob.share,
                    "low": knob.low,
                    "high": knob.high,
                    "floor": knob.floor,
                    "decided": knob.decided,
                }
                for knob in self.knobs
            },
        }


@dataclass(frozen=True)
class _Judged:
    """One round: what every knob explains, what chance gives on average, and its floor."""

    shares: np.ndarray
    means: np.ndarray
    floors: np.ndarray


def decide(columns: Sequence[Column], values: Sequence[float], seed: int = 0) -> Decided:
    """Return what every knob explains, and which of them decided.

    Args:
        columns: every knob searched.
        values: one finite value a trial, at one point of the runs.
        seed: of the deals and resamples; the same trials always get the same answer.

    Raises:
        ConfigError: fewer than 10 trials, or values that are not finite.
    """
    import numpy as np

    if len(values) < FEWEST_TRIALS:
        raise ConfigError(
            f"{counted(len(values), 'trial')} evaluated there; importance needs {FEWEST_TRIALS}"
        )
    if any(len(column.places) != len(values) for column in columns):
        raise ConfigError("importance needs one place of every knob for each value")
    ranks, trials = midranks(values), len(values)
    draws = np.random.Generator(np.random.PCG64(seed))
    deals = _deals(draws, trials, max(_DEALS, _DEALS_A_KNOB * len(columns)))
    weights = draws.multinomial(trials, np.full(trials, 1 / trials), _RESAMPLES).astype(np.float64)
    waiting = list(columns)
    named: list[Column] = []
    found: list[KnobShare] = []
    while waiting:
        before = removed(named, trials)
        left = ranks - _fit(before, ranks)
        remaining = float(left @ left) / float(ranks @ ranks or 1.0)
        judged = _judge([shape(column, before) for column in waiting], left, deals)
        over = judged.shares - judged.floors
        best = int(np.argmax(np.where(over > 0, judged.shares, -np.inf)))
        takes = [best] if over[best] > 0 else sorted(
            range(len(waiting)), key=lambda k: judged.means[k] - judged.shares[k]
        )  # fmt: skip
        for k in takes:
            found.append(_knob(waiting[k], judged, k, remaining, (before, ranks, weights)))
        if not over[best] > 0:
            break
        named.append(waiting.pop(best))
    return Decided(trials, tuple(found))


def _deals(draws: np.random.Generator, trials: int, count: int) -> np.ndarray:
    """Return orders of the trials, [b, n], the first as they are."""
    import numpy as np

    orders = np.tile(np.arange(trials, dtype=np.int32), (count + 1, 1))
    draws.permuted(orders[1:], axis=1, out=orders[1:])
    return orders


def _fit(before: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    import numpy as np

    known = np.hstack([np.ones((len(ranks), 1)), before])
    return known @ np.linalg.lstsq(known, ranks, rcond=None)[0]


def _judge(forms: Sequence[Shape], left: np.ndarray, deals: np.ndarray) -> _Judged:
    """Return shares, and the floors that any knob passes in 4 % of the deals."""
    import numpy as np

    values = left[deals]
    shares = np.stack([explained(form, values) for form in forms])  # [k, 1 + b]
    dealt = np.sort(shares[:, 1:], axis=1)[:, ::-1]  # largest first
    count = dealt.shape[1]
    # of every deal the best place that any knob's share has among this knob's shares
    places = np.empty((len(forms), count), np.int64)
    for place, row, own in zip(places, dealt, shares[:, 1:], strict=True):
        place[:] = count - np.searchsorted(row[::-1], own, side="left")
    # the largest place that at most 4 % of the deals reach with any knob
    allowed = int(np.sort(places.min(axis=0))[int(_CHANCE * count)]) - 1
    floors = dealt[:, max(0, allowed)]
    usable = np.array([form.basis.shape[1] > 0 for form in forms])
    return _Judged(shares[:, 0], dealt.mean(axis=1), np.where(usable, floors, 1.0))


def _knob(
    column: Column,
    judged: _Judged,
    k: int,
    remaining: float,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> KnobShare:
    """Return a knob's share of the whole, less what chance gives on average."""
    import numpy as np

    chance = float(judged.means[k])
    active = sum(place is not None for place in column.places)
    decided = bool(judged.shares[k] > judged.floors[k])
    if judged.floors[k] >= 1.0:
        return KnobShare(column.name, active, 0.0, 0.0, 1.0, 1.0, False)
    again, rest = resampled(column, *data)
    # Less chance twice: a resample holds some trials twice, which explains as much once more.
    spread = _beyond(_beyond(again, chance), chance) * rest
    low, high = np.clip(np.quantile(spread, [0.025, 0.975]), 0.0, 1.0)
    share = max(0.0, float(_beyond(judged.shares[k], chance))) * remaining
    floor = max(0.0, float(_beyond(judged.floors[k], chance))) * remaining
    return KnobShare(column.name, active, share, float(low), float(high), floor, decided)


def _beyond(share: np.ndarray, chance: float) -> np.ndarray:
    """Return the share explained beyond chance, which explains of what the knob leaves over."""
    return (share - chance) / (1.0 - chance)


_GROUP = 8
_MOST_GROUPS = 8
_FEWEST = 5


@dataclass(frozen=True)
class EffectPoint:
    """One group of trials.

    Attributes:
        place: where they lie on the axis on average, from 0 to 1; of choices their number.
        trials: how many.
        mean: of their values.
        interval: its 95 % interval.
    """

    place: float
    trials: int
    mean: float
    interval: Interval


def main_effect(column: Column, values: Sequence[float]) -> tuple[EffectPoint, ...]:
    """Return the main effect of a knob over the trials in which it was active.

    Choices, and axes of a few values, have a group a value, those of fewer than 5 trials left out;
    others have up to 8 groups of equally many trials, at least 8. Empty where two groups are not
    to be had.

    Args:
        column: the knob.
        values: one finite value a trial.
    """
    known = sorted(
        (place, value)
        for place, value in zip(column.places, values, strict=True)
        if place is not None
    )
    distinct = {place for place, _ in known}
    if column.choices or len(distinct) <= _MOST_GROUPS:
        groups = [[pair for pair in known if pair[0] == place] for place in sorted(distinct)]
    else:
        count = min(_MOST_GROUPS, len(known) // _GROUP)
        ends = [round(index * len(known) / count) for index in range(count + 1)] if count else []
        groups = [known[low:high] for low, high in pairwise(ends)]
    points = tuple(_point(group) for group in groups if len(group) >= _FEWEST)
    return points if len(points) > 1 else ()


def _point(group: Sequence[tuple[float, float]]) -> EffectPoint:
    values = [value for _, value in group]
    return EffectPoint(
        mean([place for place, _ in group]), len(group), mean(values), interval(values)
    )
