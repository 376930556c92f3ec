"""Asynchronous successive halving, the variant that stops trials instead of promoting them.

A trial runs on unless it is outside the best one in `eta` of all the trials judged at its rung so
far; nothing waits for a rung to fill, and a verdict is never taken back (Li et al. 2020,
"A System for Massively Parallel Hyperparameter Tuning", with stopping in place of promotion,
which is `promotion.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ConfigError
from ...studies.spec import EarlyTerminate, Study
from .promotion import PromotingAsha
from .verdict import Standing, Verdict

__all__ = ["Asha", "build", "halve"]


@dataclass(frozen=True)
class Asha:
    """Stop what is outside the best ceil(n / eta) of the n trials judged at the rung.

    n counts the trials that arrive together, which are compared with each other too. A tie with
    the cut-off goes on; while n < eta everyone goes on.
    """

    eta: float

    def __post_init__(self):
        if not (math.isfinite(self.eta) and self.eta > 1):
            raise ConfigError(f"asha: eta is {self.eta}, but must be above 1; type eta: 4")

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
        """See `Pruner.judge`."""
        rule = f"asha eta={self.eta:g}"
        new = [standing.loss for standing in arriving]
        return halve(self.eta, rule, [standing.loss for standing in earlier], new)


def halve(
    eta: float, rule: str, earlier: Sequence[float], arriving: Sequence[float]
) -> list[Verdict]:
    """Let the best ceil(n / eta) of all losses go on; give the verdicts of those arriving.

    >>> [verdict.stop for verdict in halve(2, "asha", [1.0, 4.0], [3.0, 2.0])]
    [True, False]
    """
    losses = sorted([*earlier, *arriving])
    if len(losses) < eta:
        return [Verdict(stop=False, rule=rule, cutoff=None) for _ in arriving]
    cutoff = losses[math.ceil(len(losses) / eta) - 1]
    return [Verdict(stop=loss > cutoff, rule=rule, cutoff=cutoff) for loss in arriving]


def build(early: EarlyTerminate, study: Study) -> Asha | PromotingAsha:
    """Build the rule `asha`, which stops trials, or with `pause` promotes them."""
    return PromotingAsha(early.eta, early.pause) if early.pause else Asha(early.eta)
