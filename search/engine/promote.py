"""Who goes on of those that wait at rungs, and who is let go for good: `early_terminate.pause`.

A pure function of the ledger: what was seen at a rung never changes, only who else came there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...store.rows import TrialState
from ..book.ledger import Ledger
from ..book.schedule import Schedule
from ..book.trials import Trial
from ..rules.promotion import PromotingAsha, in_order
from ..rules.verdict import Standing
from .decisions import write_decision
from .standings import cutoff_value, standings_at

__all__ = ["let_go", "promote", "promote_last"]

Schedules = Mapping[str, Schedule]


def promote(ledger: Ledger, rule: PromotingAsha, schedules: Schedules, rung: int) -> list[Trial]:
    """Let the trials that wait at a rung and are among its best go on, and return them.

    Args:
        ledger: trials.
        rule: says who is among the best.
        schedules: of each bucket.
        rung: its index.
    """
    waiting = [trial for trial in ledger.paused() if trial.rung == rung]
    if not waiting:
        return []
    standings = standings_at(ledger, rung)
    passing = rule.passing(standings)
    going = [trial for trial in waiting if trial.number in passing]
    for trial in going:
        _promote(ledger, rule, schedules, standings, trial)
    return going


def promote_last(
    ledger: Ledger, rule: PromotingAsha, schedules: Schedules, able: Collection[str]
) -> Trial | None:
    """Let the best trial of the highest rung go on where nothing else is left to run.

    So a search that ends before `eta` trials came to a rung has one that ran to its end. None
    where one has, or nobody is paused.

    Args:
        ledger: trials.
        rule: that paused them.
        schedules: of each bucket.
        able: buckets that the budget pays for.
    """
    if ledger.live() or any(t.state is TrialState.FINISHED for t in ledger.trials.values()):
        return None
    waiting = {t.number: t for t in ledger.paused() if t.bucket in able}
    if not waiting:
        return None
    rung = max(trial.rung for trial in waiting.values())
    standings = standings_at(ledger, rung)
    here = (waiting.get(standing.trial) for standing in in_order(standings))
    best = next(trial for trial in here if trial is not None and trial.rung == rung)
    _promote(ledger, rule, schedules, standings, best)
    return best


def let_go(ledger: Ledger, rule: PromotingAsha) -> None:
    """Stop the paused trials that are too many: those that the cut-off is furthest from.

    That is the trial with the largest share of its rung before it; of equals the one at the
    lower rung, and the one with the larger number.
    """
    paused = ledger.paused()
    too_many = len(paused) - rule.most
    if too_many <= 0:
        return
    shares: dict[int, float] = {}
    for rung in {trial.rung for trial in paused}:
        ordered = in_order(standings_at(ledger, rung))
        shares |= {
            one.trial: place / len(ordered)
            for place, one in enumerate(ordered)
            if ledger.trials[one.trial].rung == rung
        }
    paused.sort(key=lambda trial: (-shares[trial.number], trial.rung, -trial.number))
    for trial in paused[:too_many]:
        ledger.end(trial, TrialState.STOPPED)


def _promote(
    ledger: Ledger,
    rule: PromotingAsha,
    schedules: Schedules,
    standings: list[Standing],
    trial: Trial,
) -> None:
    rung, schedule = trial.rung, schedules[trial.bucket]
    ordered = [standing.trial for standing in in_order(standings)]
    ledger.promote(trial)
    write_decision(
        ledger,
        trial,
        rung,
        schedule,
        action="promote",
        rule=rule.words,
        cutoff=cutoff_value(ledger, rule.cutoff(standings)),
        rank=1 + ordered.index(trial.number),
        judged=len(ordered),
    )
