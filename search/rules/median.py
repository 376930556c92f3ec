"""The median rule: stop what is worse than the median of the trials judged at the same rung.

It is gentler than successive halving and needs a handful of trials before it judges at all
(Golovin et al. 2017, "Google Vizier", section 3.2.2, at equal env steps instead of averages).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ...studies.spec import EarlyTerminate, Study
from .verdict import Standing, Verdict

__all__ = ["Median", "build"]


@dataclass(frozen=True)
class Median:
    """Stop what is worse than the median of all losses at the rung, this boundary's included.

    Attributes:
        at_least: with fewer judged trials than this everyone goes on.
    """

    at_least: int = 5

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
        """See `Pruner.judge`."""
        losses = [standing.loss for standing in (*earlier, *arriving)]
        if len(losses) < self.at_least:
            return [Verdict(stop=False, rule="median", cutoff=None) for _ in arriving]
        cutoff = statistics.median(losses)
        return [
            Verdict(stop=standing.loss > cutoff, rule="median", cutoff=cutoff)
            for standing in arriving
        ]


def build(early: EarlyTerminate, study: Study) -> Median:
    """Build the rule `median`."""
    return Median()
