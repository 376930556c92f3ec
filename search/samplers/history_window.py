"""A window on a long history for slow samplers, and losses for trials that never finished.

Slow samplers receive only a window of the history. Samplers that support only finished trials get
a loss for every trial that has ended. With early stopping most trials never finish, and a sampler
that ignored them would again propose neighbours of stopped and diverged trials.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...store.pareto import excess
from ...store.rows import LOST, TrialState
from .registry import PriorTrial

Losses = tuple[float, ...]


@dataclass(frozen=True)
class Window:
    """The part of a history that a sampler receives: running, best and latest trials."""

    best: int  # number of finished trials that are not among the latest
    latest: int  # number of latest trials that have ended

    def of(self, history: Sequence[PriorTrial]) -> list[PriorTrial]:
        live = [past for past in history if past.is_live]
        ended = [past for past in history if not past.is_live]
        if len(ended) > self.best + self.latest:
            older, newer = ended[: -self.latest], ended[-self.latest :]
            finished = [past for past in older if past.loss is not None]
            finished.sort(key=lambda past: (excess(past.violations), past.loss, past.trial))
            ended = finished[: self.best] + newer
        return sorted(ended + live, key=lambda past: past.trial)


def _was_cut(past: PriorTrial) -> bool:
    """Return whether a trial ended at a rung, with values up to that rung."""
    lost = past.state in LOST
    return not past.is_live and bool(past.reports) and not lost


def estimates(history: Sequence[PriorTrial]) -> dict[int, Losses]:
    """Return, for every trial that has ended, one loss per objective.

    A trial that was stopped or cut at a rung is assumed to make the median gain of finished trials
    from there on. With one objective, it never beats the best trial. A diverged trial gets the
    worst loss of all others. Failed trials, and trials that ended before their first rung, have no
    loss.
    """
    known: dict[int, Losses] = {
        past.trial: past.losses
        for past in history
        if past.losses is not None and all(map(math.isfinite, past.losses))
    }
    best = _per_objective(min, known.values())
    gains: dict[int, Losses] = {}
    for past in history:
        if past.trial in known or not _was_cut(past):
            continue
        rung = len(past.reports) - 1
        at_rung = past.losses_at(rung)
        if not all(map(math.isfinite, at_rung)):
            continue
        if rung not in gains:
            gains[rung] = _median_gain(history, rung, len(at_rung))
        guess = tuple(loss + gain for loss, gain in zip(at_rung, gains[rung], strict=True))
        if len(guess) == 1 and best:
            guess = (max(guess[0], best[0]),)
        known[past.trial] = guess
    worst = _per_objective(max, known.values())
    for past in history:
        if past.state is TrialState.DIVERGED and worst:
            known[past.trial] = worst
    return known


def _median_gain(history: Sequence[PriorTrial], rung: int, objectives: int) -> Losses:
    """Return each loss's median change from a rung to the end; 0 if no trial has finished."""
    finite: list[list[float]] = []
    for past in history:
        if past.losses is None or len(past.reports) <= rung:
            continue
        pairs = zip(past.losses, past.losses_at(rung), strict=True)
        change = [end - there for end, there in pairs]
        if all(map(math.isfinite, change)):
            finite.append(change)
    if not finite:
        return (0.0,) * objectives
    return tuple(statistics.median(column) for column in zip(*finite, strict=True))


def penalised(losses: Mapping[int, Losses], history: Sequence[PriorTrial]) -> dict[int, Losses]:
    """Return losses that rank infeasible trials below all feasible ones."""
    violation = {past.trial: excess(past.violations) for past in history}
    worst, best = _per_objective(max, losses.values()), _per_objective(min, losses.values())
    width = tuple((high - low) or 1.0 for high, low in zip(worst, best, strict=True))

    def shown(trial: int, own: Losses) -> Losses:
        amount = violation.get(trial, 0.0)
        if amount <= 0.0:
            return own
        share = 1.0
        if math.isfinite(amount):
            share = amount / (1.0 + amount)
        return tuple(high + w * (0.1 + share) for high, w in zip(worst, width, strict=True))

    return {trial: shown(trial, own) for trial, own in losses.items()}


def _per_objective(choose, rows) -> Losses:
    return tuple(choose(column) for column in zip(*rows, strict=True))
