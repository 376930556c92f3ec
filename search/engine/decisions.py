"""The row of a decision at a rung: what a trial showed there, and what the rule made of it."""

from __future__ import annotations

from ...store.rows import DecisionRow
from ..book.ledger import Ledger
from ..book.schedule import Schedule
from ..book.trials import Trial

__all__ = ["write_decision"]


def write_decision(
    ledger: Ledger,
    trial: Trial,
    rung: int,
    schedule: Schedule,
    *,
    action: str,
    rule: str,
    cutoff: float | None,
    rank: int,
    judged: int,
) -> None:
    """Add the row of what becomes of a trial that has shown something at a rung.

    Args:
        ledger: takes the row.
        trial: what it showed there is in its reports.
        rung: its index.
        schedule: of the trial's bucket.
        action: what becomes of it.
        rule: the rule's words.
        cutoff: the value that decided, if one did.
        rank: of the trial among those judged there, 1 is the best.
        judged: how many those are.
    """
    ledger.unwritten.add(
        DecisionRow(
            trial=trial.number,
            rung=rung,
            env_steps=schedule.env_steps_at(rung),
            value=trial.reports[rung],
            action=action,
            rule=rule,
            cutoff=cutoff,
            rank=rank,
            judged=judged,
            extras=tuple(trial.extra_reports[rung]),
        )
    )
