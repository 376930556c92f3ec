"""What trials would have shown where nobody looked: drawn from those that ran on."""

from __future__ import annotations

import numpy as np

from ...errors import ConfigError
from ..book.objective import Objective
from ..lanes.contract import EvaluationResult
from ..streams import generator
from .record import Record, Seen

__all__ = ["Guesses", "value_at"]


class Guesses:
    """What trials would have shown behind the last point that they were evaluated at.

    A trial takes over what another one, drawn once for it, gained from there on. Drawn from are
    the trials that were to be stopped at the same rung and ran on (`audit`), which stand for all
    that were stopped there; without any, those that reached the end, who were let go on because
    they were better.

    Args:
        record: of the study.
        draw: number of the draw.
    """

    def __init__(self, record: Record, draw: int):
        self._record, self._draw = record, draw
        self._donors: dict[int, int] = {}

    def at(self, trial: int, replicate: int, env_steps: int) -> tuple[EvaluationResult, str]:
        """Return an evaluation and how it is known: `seen`, `between` or `guessed`.

        Raises:
            ConfigError: no trial of the study came so far.
        """
        seen = self._record.runs.get((trial, replicate), Seen())
        if env_steps in seen.results:
            return seen.results[env_steps], "seen"
        if seen.points and env_steps < seen.points[-1]:
            return seen.between(env_steps), "between"
        number = self._donor(trial)
        donor = self._record.runs.get((number, replicate)) or self._record.runs[number, 0]
        there = (
            donor.results[env_steps] if env_steps in donor.results else donor.between(env_steps)
        )
        if not seen.points:
            return there, "guessed"
        since = seen.points[-1]
        before = donor.results[since] if since in donor.results else donor.between(since)
        spread = self._record.study.spread
        return _moved(seen.results[since], before, there, spread), "guessed"

    def _donor(self, trial: int) -> int:
        if trial not in self._donors:
            donors = self._possible(self._record.trials[trial].rung)
            rng = generator(self._record.study.seed, "what-if", self._draw, trial)
            self._donors[trial] = donors[int(rng.integers(len(donors)))]
        return self._donors[trial]

    def _possible(self, rung: int) -> list[int]:
        whole = [row for row in self._record.trials if self._record.is_whole(row.trial)]
        audited = [row.trial for row in whole if row.audited and row.rung == rung]
        found = audited or [row.trial for row in whole]
        if not found:
            raise ConfigError(
                f"no trial of {self._record.study.name} ran to its end, so nothing says what "
                "others would have shown there; run one with early_terminate: {audit: 0.1}"
            )
        return found


def _moved(
    own: EvaluationResult, before: EvaluationResult, after: EvaluationResult, environments: int
) -> EvaluationResult:
    """Return one evaluation moved by what another replicate's means gained on each environment."""

    def means(values: np.ndarray) -> np.ndarray:
        return np.asarray(values, np.float64).reshape(environments, -1).mean(axis=1)

    def move(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        each = np.asarray(a, np.float64).reshape(environments, -1)
        return (each + (means(c) - means(b))[:, None]).ravel()

    return EvaluationResult(
        move(own.returns, before.returns, after.returns),
        move(own.lengths, before.lengths, after.lengths),
        {name: move(v, before.metrics[name], after.metrics[name])
         for name, v in own.metrics.items()},
    )  # fmt: skip


def value_at(record: Record, guesses: Guesses, trial: int, env_steps: int) -> float | None:
    """Return a trial's value over all its recorded seeds; None if too many were lost before."""
    objective, values = Objective.of(record.study), list[float]()
    lost = 0
    for replicate in range(record.replicates):
        seen = record.runs.get((trial, replicate), Seen())
        if seen.lost_at is not None and seen.lost_at <= env_steps:
            lost += 1
            continue
        values.append(objective.measure(guesses.at(trial, replicate, env_steps)[0]))
    return (
        None if lost > record.study.seeds.tolerate or not values else objective.aggregate(values)
    )
