"""The way of a trial that took over others' states: which knobs trained it, where, from when on.

A copy takes over the whole training state, random stream included, and replicate r has the same
stream in every trial. So a lineage is what one lane would do whose knobs change at these points,
to the last bit, and can be trained again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...store.rows import TrialRow
from .trials import Trial

__all__ = ["Segment", "lineage_of", "params_at", "segments"]


@dataclass(frozen=True)
class Segment:
    """A part of a lineage.

    Attributes:
        env_steps: where it begins, training env steps of a replicate.
        trial: the trial whose lanes trained it.
        params: searched knobs in force.
    """

    env_steps: int
    trial: int
    params: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return what the store keeps."""
        return {"env_steps": self.env_steps, "trial": self.trial, "params": dict(self.params)}


def segments(schedule: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
    """Return what `as_json` wrote."""
    return tuple(Segment(**entry) for entry in schedule)


def lineage_of(trial: Trial | TrialRow) -> tuple[Segment, ...]:
    """Return the segments of a trial, the first from 0 env steps on."""
    number = trial.number if isinstance(trial, Trial) else trial.trial
    return segments(trial.schedule) or (Segment(0, number, trial.params),)


def params_at(lineage: Sequence[Segment], env_steps: int) -> Mapping[str, Any]:
    """Return the knobs that train on from some number of env steps."""
    return next(part.params for part in reversed(lineage) if part.env_steps <= env_steps)
