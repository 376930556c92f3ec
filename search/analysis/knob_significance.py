"""Finds the hyperparameters whose effects in a study exceed chance.

The analysis uses trials with a value at the comparison point whose proposals do not bias the
result. According to a simulation (`scripts/acceptance conclusions 1`), these are unprompted trials
and those proposed by TPE. If they are too few, all trials are used, with an unknown error rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...spaces.space import Space
from ...store.importance import (
    FEWEST_TRIALS,
    Decided,
    EffectPoint,
    ImportanceColumn,
    decide,
    main_effect,
)
from ..state.progress import bounds_of
from .checkpoint_values import CheckpointValues

_PROPOSERS = ("random", "sobol", "grid", "tpe", "default", "enqueue", "portfolio")


@dataclass(frozen=True)
class SignificantKnobs:
    at: int  # env steps of the point
    decided: Decided  # the hyperparameters, with intervals and chance levels
    measured: bool  # whether error rates are known for the way its trials were proposed
    # significant hyperparameter -> mean values along its axis, with their band
    effects: Mapping[str, tuple[EffectPoint, ...]]

    @property
    def sentences(self) -> list[str]:
        decided = self.decided
        said = [decided.sentence, decided.unseen]
        if not self.measured:
            said.append(
                "A model proposed these trials, so the error rate of this test is unknown."
            )
        faint = [knob.name for knob in decided.knobs if knob.decided and knob.low < 0.005]
        if faint:
            said.append(
                f"{', '.join(faint)}: a permutation test shows an effect, but its interval "
                "includes 0%, so the effect may be small."
            )
        return [text for text in said if text]

    def as_json(self) -> dict[str, object]:
        return {
            **self.decided.as_json(),
            "sentences": self.sentences,
            "measured": self.measured,
            "effects": {name: [*map(asdict, points)] for name, points in self.effects.items()},
        }


def answer_at(points: CheckpointValues, at: int) -> SignificantKnobs:
    here = {n: value for n, value in points.values[at].items() if math.isfinite(value)}
    blind = set(points.random_share())
    trials = [n for n in here if n in blind or points.trials[n].proposed_by in _PROPOSERS]
    measured = len(trials) >= FEWEST_TRIALS
    if not measured:
        trials = list(here)
    params = [points.params(n, at) for n in trials]
    columns = columns_of(points.study.space, params)
    values = [here[n] for n in trials]
    decided = decide(columns, values)
    effects = {
        column.name: main_effect(column, values, bounds_of(points.study))
        for column in columns
        if column.name in decided.names
    }
    return SignificantKnobs(at, decided, measured, effects)


def columns_of(space: Space, params: Sequence[Mapping[str, Any]]) -> list[ImportanceColumn]:
    """Return every trial's position on each hyperparameter's axis, None if inactive."""
    columns = list[ImportanceColumn]()
    for key, parameter in space.keyed:
        name, kind = parameter.name, parameter.distribution
        unordered = kind.axis.kind == "choice"
        places = list[float | None]()
        for one in params:
            active = name in one and parameter.active({**space.constants, **one})
            places.append(kind.column(one[name]) if active else None)
        columns.append(ImportanceColumn(key, places, unordered))
    return columns
