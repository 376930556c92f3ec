"""Seed racing: a trial that clearly loses against the best one so far gets no further seeds.

All trials run on the same seeds, so replicate r of one is compared with replicate r of another,
which takes away most of the noise that seeds bring.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy.special import stdtrit

from ...store.rows import Stream, TrialState
from ..book.ledger import Ledger
from ..book.looks import CLEARLY_BELOW, stages
from ..book.runs import Run, RunState
from ..book.trials import Trial

__all__ = ["clearly_worse", "more_seeds", "value_of"]


def clearly_worse(losses: Sequence[float], best: Sequence[float], risk: float) -> bool:
    """Return whether the mean of `losses` lies above that of `best`, seed by seed.

    A one-sided paired t-test: the lower bound of the mean difference, at level 1 - risk, is above
    zero. Fewer than two pairs say nothing.

    >>> clearly_worse([5.0, 6.0, 7.0], [1.0, 2.1, 2.9], risk=0.05)
    True
    """
    differences = [own - other for own, other in zip(losses, best, strict=True)]
    count = len(differences)
    if count < 2 or not all(map(math.isfinite, differences)):
        return False
    error = statistics.stdev(differences) / math.sqrt(count)
    return statistics.fmean(differences) - float(stdtrit(count - 1, 1.0 - risk)) * error > 0.0


def more_seeds(ledger: Ledger, trial: Trial) -> list[Run]:
    """Return the replicates that a trial whose runs are over should run besides; maybe none.

    The risk of dropping an equal of the best trial is 1 - confidence in all: it is shared out
    evenly among the looks (Bonferroni).
    """
    seeds = ledger.study.seeds
    done = len(trial.runs_of(Stream.SEARCH))
    if seeds.racing is None or done >= seeds.per_config or trial.audited:
        return []
    looks = stages(seeds.first, seeds.per_config)
    best = _best_in_full(ledger)
    if best is not None:
        ended = [run for run in trial.runs_of(Stream.SEARCH) if run.state is RunState.ENDED]
        own = [ledger.objective.loss(run.value or 0.0) for run in ended]
        other = [ledger.objective.loss(best.seed_values[run.replicate]) for run in ended]
        if clearly_worse(own, other, (1.0 - seeds.racing.confidence) / (len(looks) - 1)):
            trial.stop_by(f"{CLEARLY_BELOW} trial {best.number} on {len(own)} seeds")
            return []
    wanted = next(size for size in looks if size > done)
    return [Run(trial.number, Stream.SEARCH, replicate) for replicate in range(done, wanted)]


def value_of(ledger: Ledger, trial: Trial) -> float:
    """Return a finished trial's value.

    A trial with fewer seeds than others cannot be held against their means as it is: its seeds
    may be the easy ones. So it has the value of the best trial on all seeds plus their mean
    difference on those that both ran.
    """
    values = trial.values_of(Stream.SEARCH)
    plain = ledger.objective.aggregate(values)
    if ledger.study.seeds.racing is None or len(values) >= ledger.study.seeds.per_config:
        return plain
    best = _best_in_full(ledger)
    if best is None:
        return plain
    ended = [run for run in trial.runs_of(Stream.SEARCH) if run.state is RunState.ENDED]
    shared = [best.seed_values[run.replicate] for run in ended]
    return statistics.fmean(best.seed_values) + plain - statistics.fmean(shared)


def _best_in_full(ledger: Ledger) -> Trial | None:
    """Return the best trial that has a value on every seed and keeps the constraints."""
    whole = [
        trial
        for trial in ledger.trials.values()
        if trial.state is TrialState.FINISHED
        and len(trial.seed_values) == ledger.study.seeds.per_config
        and ledger.violation(trial.constraints) == 0.0
    ]
    return ledger.best(whole) if whole else None
