"""Which knobs of a study decided, beyond what chance explains, and what PED-ANOVA says.

Every trial with a value at the point counts whose proposal is known to leave the answer right:
those that no result had led to, and those of TPE, for which it was simulated
(`scripts/acceptance conclusions 1`). Of other models only the random share counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...spaces.distributions import Distribution
from ...spaces.space import Space
from ...store.importance import FEWEST_TRIALS, Column, Decided, EffectPoint, decide, main_effect
from .checkpoint_values import Importance, Points
from .knob_importance import positions_of

_PROPOSERS = ("random", "sobol", "grid", "tpe", "default", "enqueue")


@dataclass(frozen=True)
class Answer:
    at: int  # env steps of the point
    decided: Decided  # the knobs, with intervals and floors
    measured: bool  # its trials were proposed in ways for which its errors are known
    # knob that decided -> mean values along its axis, with their band
    effects: Mapping[str, tuple[EffectPoint, ...]]
    other: Importance  # by PED-ANOVA

    @property
    def sentences(self) -> list[str]:
        decided = self.decided
        said = [decided.sentence, decided.unseen, self.disagreement]
        if not self.measured:
            said.append("A model proposed these trials: how often this test errs is not known.")
        return [text for text in said if text]

    def as_json(self) -> dict[str, object]:
        return {
            **self.decided.as_json(),
            "sentences": self.sentences,
            "measured": self.measured,
            "effects": {
                name: [asdict(point) for point in points] for name, points in self.effects.items()
            },
            "estimators": {"ped-anova": dict(self.other.shares)},
        }

    @property
    def disagreement(self) -> str:
        """In one line which hyperparameter PED-ANOVA ranks first, where this test does not."""
        shares = self.other.shares
        first = max(shares, key=shares.__getitem__, default=None)
        if first is None or not shares[first]:
            return ""
        names = self.decided.names
        if first in (names[0].split("#")[0] if names else None,):
            return ""
        if not names and shares[first] <= 2.0 / len(shares):
            return ""
        return f"PED-ANOVA ranks {first} first"


def answer_at(points: Points, found: Importance) -> Answer:
    here = {n: value for n, value in points.values[found.at].items() if math.isfinite(value)}
    blind = set(points.random_share())
    trials = [n for n in here if n in blind or points.trials[n].proposed_by in _PROPOSERS]
    measured = len(trials) >= FEWEST_TRIALS
    if not measured:
        trials = list(here)
    params = [points.params(n, found.at) for n in trials]
    columns = columns_of(points.study.space, params)
    values = [here[n] for n in trials]
    decided = decide(columns, values)
    effects = {
        column.name: main_effect(column, values)
        for column in columns
        if column.name in decided.names
    }
    return Answer(found.at, decided, measured, effects, found)


def columns_of(space: Space, params: Sequence[Mapping[str, object]]) -> list[Column]:
    """Return the place of every trial on the axis of every hyperparameter."""

    def place(distribution: Distribution, value: Any) -> float:
        ordered = distribution.axis.kind != "choice"
        return distribution.share(value) if ordered else distribution.inward(value)

    places = positions_of(space, params, place)
    return [
        Column(key, places[key], parameter.distribution.axis.kind == "choice")
        for key, parameter in space.keyed
    ]
