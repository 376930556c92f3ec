"""How trials stand at a rung, as the rules see them."""

from __future__ import annotations

from collections.abc import Sequence

from ...store.pareto import scores
from ..book.ledger import Ledger
from ..book.trials import Trial
from ..rules.verdict import Standing

__all__ = ["cutoff_value", "standings_at", "standings_of"]


def standings_at(ledger: Ledger, rung: int) -> list[Standing]:
    """Return how all trials that were judged at a rung stand there."""
    return standings_of(ledger, [ledger.trials[number] for number in ledger.judged(rung)], rung)


def standings_of(ledger: Ledger, trials: Sequence[Trial], rung: int) -> list[Standing]:
    """Return how trials stand; with more than one loss, by their places among each other.

    Places are by constrained domination and crowding, see `store.pareto`.
    """
    loss = ledger.objective.loss
    curves = [tuple(map(loss, trial.reports[: rung + 1])) for trial in trials]
    shown = [curve[rung] for curve in curves]
    if not ledger.objectives.is_plain:
        extras = [trial.extra_reports[rung] for trial in trials]
        more = [ledger.objectives.losses(row) for row in extras]
        limited = [ledger.objectives.limited(row) for row in extras]
        shown = scores(
            [(first, *rest) for first, rest in zip(shown, more, strict=True)],
            [ledger.violation(values) for values in limited],
        )
    return [
        Standing(trial.number, own, curve)
        for trial, own, curve in zip(trials, shown, curves, strict=True)
    ]


def cutoff_value(ledger: Ledger, cutoff: float | None) -> float | None:
    """Return the value that had to be reached; a place among others is no value."""
    if cutoff is None or not ledger.objectives.is_plain:
        return None
    return ledger.objective.loss(cutoff)
