"""Hyperband: brackets of successive halving that begin to stop at different rungs.

Halving at an early rung is cheap, but wrong where curves cross later. Hyperband hedges: some
trials are judged at every rung, others only from a later one on, each bracket among its own
(Li et al. 2018, "Hyperband"; asynchronous inside a bracket like `asha`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...errors import ConfigError
from ...studies.quanta import rung_steps
from ...studies.spec import EarlyTerminate, Study
from ..streams import uniform
from .asha import halve
from .verdict import Standing, Verdict

__all__ = ["Hyperband", "build"]


@dataclass(frozen=True)
class Hyperband:
    """Asha in `rungs + 1` brackets; bracket b is not judged before rung b.

    A trial's bracket follows from (seed, trial) alone. As in Hyperband, a bracket that halves s
    times gets a share of the trials in proportion to eta^s / (s + 1), so that all brackets cost
    about the same; s = rungs - b, and the last bracket is never stopped.

    Attributes:
        eta: one in `eta` goes on.
        rungs: how many there are below the length of a run.
        seed: of the study.
    """

    eta: float
    rungs: int
    seed: int = 0

    def __post_init__(self):
        if not (math.isfinite(self.eta) and self.eta > 1):
            raise ConfigError(f"hyperband: eta is {self.eta}, but must be above 1; type eta: 4")

    def shares(self) -> list[float]:
        """Return the share of the trials of each bracket.

        >>> [round(share, 3) for share in Hyperband(2.0, 2).shares()]
        [0.4, 0.3, 0.3]
        """
        halvings = range(self.rungs, -1, -1)
        weights = [self.eta**s / (s + 1) for s in halvings]
        return [weight / sum(weights) for weight in weights]

    def bracket(self, trial: int) -> int:
        """Return the bracket of a trial."""
        return _bracket(self, trial)

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
        """See `Pruner.judge`; each is compared with trials of its own bracket."""
        groups: dict[int, list[float]] = {}
        for standing in earlier:
            groups.setdefault(self.bracket(standing.trial), []).append(standing.loss)
        together: dict[int, list[int]] = {}
        for index, standing in enumerate(arriving):
            together.setdefault(self.bracket(standing.trial), []).append(index)
        verdicts: dict[int, Verdict] = {}
        for bracket, indices in together.items():
            rule = f"hyperband bracket {bracket} eta={self.eta:g}"
            losses = [arriving[index].loss for index in indices]
            if bracket > rung:
                found = [Verdict(stop=False, rule=rule, cutoff=None) for _ in indices]
            else:
                found = halve(self.eta, rule, groups.get(bracket, []), losses)
            verdicts.update(zip(indices, found, strict=True))
        return [verdicts[index] for index in range(len(arriving))]


@lru_cache(maxsize=65_536)  # it is asked for at every judgement of every trial there was
def _bracket(rule: Hyperband, trial: int) -> int:
    mark, total = uniform(rule.seed, "bracket", trial), 0.0
    for bracket, share in enumerate(rule.shares()):
        total += share
        if mark < total:
            return bracket
    return rule.rungs


def build(early: EarlyTerminate, study: Study) -> Hyperband:
    """Build the rule `hyperband`."""
    return Hyperband(early.eta, len(rung_steps(study)), study.seed)
