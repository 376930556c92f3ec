"""Evaluation values without training returns, for studies that rank trials by both.

`metric.training_weight` mixes the mean return of training episodes into the values used for
selection. A trial that has not finished a training episode by a rung, or by its end, has only
evaluations. Training returns are lower, so among mixed values its rank would depend on the missing
returns instead of its policy. Once a study has such a trial, only evaluations count, and earlier
values are replaced. This applies to the whole study, because rungs, curves and final values are
compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...store.rows import EvaluationRow, Stream


class EvaluationsAlone:
    """Values of all evaluations in a study, by trial, seed and env steps."""

    def __init__(self) -> None:
        self._points: dict[tuple[int, Stream], dict[int, dict[int, float]]] = {}

    def see(self, row: EvaluationRow, value: float) -> None:
        """Add the value of an evaluation, without training returns."""
        of_trial = self._points.setdefault((row.trial, row.stream), {})
        of_trial.setdefault(row.replicate, {})[row.env_steps] = value

    def at(self, trial: int, env_steps: int, seeds: Iterable[int]) -> list[float]:
        """Return a trial's values at a rung, for the search seeds that reached it."""
        known = self._points.get((trial, Stream.SEARCH), {})
        return [known[seed][env_steps] for seed in seeds if env_steps in known.get(seed, ())]

    def last(self, trial: int, stream: Stream, end: int | None = None) -> dict[int, float]:
        """Return the value of each seed that reached the end of the run.

        `end` is the number of env steps at which a rule ended the trial with its value there.
        """
        known = self._points.get((trial, stream), {})
        if not known:
            return {}
        at = end
        if at is None:
            at = max(max(points) for points in known.values())
        return {seed: known[seed][at] for seed in sorted(known) if at in known[seed]}

    def matches(self, found: Sequence[float], values: Sequence[float]) -> bool:
        """Return whether the lists have equal lengths; otherwise some seeds are missing."""
        return bool(found) and len(found) == len(values)
