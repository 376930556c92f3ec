"""Asynchronous successive halving that promotes trials: who is not among the best waits.

Nobody is stopped at a rung: a trial that is outside the best floor(n / eta) of the n trials judged
there is paused, and goes on as soon as it is inside, because n has grown. That is `get_job` of Li
et al. 2020 ("A System for Massively Parallel Hyperparameter Tuning", Algorithm 2), asked at every
boundary in place of at every free worker: each trial that comes to a rung frees its lanes and lets
at most one go on there, so whoever may go on has lanes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .verdict import Standing, Verdict

__all__ = ["PromotingAsha", "in_order"]


@dataclass(frozen=True)
class PromotingAsha:
    """Pause what is outside the best floor(n / eta) of the n trials judged at the rung.

    Of two equal trials the one with the smaller number is the better one.

    Attributes:
        eta: one in `eta` goes on.
        most: how many trials are paused at once.
    """

    eta: float
    most: int

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
        """See `Pruner.judge`."""
        everyone = [*earlier, *arriving]
        passing, cutoff = self.passing(everyone), self.cutoff(everyone)
        return [
            Verdict(stop=standing.trial not in passing, rule=self.words, cutoff=cutoff, pause=True)
            for standing in arriving
        ]

    @property
    def words(self) -> str:
        """The rule's words in the store."""
        return f"asha eta={self.eta:g} pause"

    def passing(self, standings: Sequence[Standing]) -> frozenset[int]:
        """Return the trials that may go on, of all that were judged at a rung.

        >>> rule = PromotingAsha(2.0, 10)
        >>> sorted(rule.passing([Standing(0, 3.0), Standing(1, 1.0), Standing(2, 2.0)]))
        [1]
        """
        best = in_order(standings)[: math.floor(len(standings) / self.eta)]
        return frozenset(standing.trial for standing in best)

    def cutoff(self, standings: Sequence[Standing]) -> float | None:
        """Return the loss of the last one of these, None while nobody may go on."""
        count = math.floor(len(standings) / self.eta)
        return in_order(standings)[count - 1].loss if count else None


def in_order(standings: Sequence[Standing]) -> list[Standing]:
    """Return the trials at a rung, the best first."""
    return sorted(standings, key=lambda standing: (standing.loss, standing.trial))
