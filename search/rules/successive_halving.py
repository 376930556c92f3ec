"""Successive halving: asha, asha with pauses, and Hyperband.

Halving at an early rung is cheap, but wrong where curves cross later. Hyperband hedges: some
trials are judged at every rung, others only from a later one on, each bracket by itself
(Li et al. 2018, "Hyperband"; asynchronous inside a bracket like `asha`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...errors import ConfigError
from ...studies.chunk_sizes import rung_steps
from ...studies.spec import EarlyTerminate, Study
from ..seeds import uniform
from .registry import Standing, Verdict


@dataclass(frozen=True)
class PromotingAsha:
    """Pause all but the best floor(n / eta) of the n trials judged at the rung.

    Of two equal trials the one with the smaller number is the better one.
    """

    eta: float  # one in `eta` passes
    most: int  # how many trials are paused at once

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
        everyone = [*earlier, *arriving]
        passing, cutoff = self.passing(everyone), self.cutoff(everyone)
        return [
            Verdict(stop=standing.trial not in passing, rule=self.words, cutoff=cutoff, pause=True)
            for standing in arriving
        ]

    @property
    def words(self) -> str:
        return f"asha eta={self.eta:g} pause"

    def passing(self, standings: Sequence[Standing]) -> frozenset[int]:
        """Return the trials that may resume, of all that were judged at a rung.

        >>> rule = PromotingAsha(2.0, 10)
        >>> sorted(rule.passing([Standing(0, 3.0), Standing(1, 1.0), Standing(2, 2.0)]))
        [1]
        """
        return frozenset(standing.trial for standing in self._best(standings))

    def _best(self, standings: Sequence[Standing]) -> list[Standing]:
        return in_order(standings)[: math.floor(len(standings) / self.eta)]

    def cutoff(self, standings: Sequence[Standing]) -> float | None:
        """Return the loss of the worst trial that passes, None without one."""
        best = self._best(standings)
        return best[-1].loss if best else None


def in_order(standings: Sequence[Standing]) -> list[Standing]:
    return sorted(standings, key=lambda standing: (standing.loss, standing.trial))


@dataclass(frozen=True)
class Asha:
    """Stop all but the best ceil(n / eta) of the n trials judged at the rung.

    n counts the trials that arrive together, which are compared with each other too. A tie with
    the cut-off passes; while n < eta all pass.
    """

    eta: float

    def __post_init__(self):
        if not (math.isfinite(self.eta) and self.eta > 1):
            raise ConfigError(f"asha: eta is {self.eta}, but must be above 1; type eta: 4")

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
        rule = f"asha eta={self.eta:g}"
        new = [standing.loss for standing in arriving]
        return halve(self.eta, rule, [standing.loss for standing in earlier], new)


def halve(
    eta: float, rule: str, earlier: Sequence[float], arriving: Sequence[float]
) -> list[Verdict]:
    """Return verdicts of those arriving: the best ceil(n / eta) of all losses pass.

    >>> [verdict.stop for verdict in halve(2, "asha", [1.0, 4.0], [3.0, 2.0])]
    [True, False]
    """
    losses = sorted([*earlier, *arriving])
    if len(losses) < eta:
        return [Verdict(stop=False, rule=rule, cutoff=None) for _ in arriving]
    cutoff = losses[math.ceil(len(losses) / eta) - 1]
    return [Verdict(stop=loss > cutoff, rule=rule, cutoff=cutoff) for loss in arriving]


def build_asha(early: EarlyTerminate, study: Study) -> Asha | PromotingAsha:
    """Build the rule `asha`, which stops trials, or with `pause` promotes them."""
    return PromotingAsha(early.eta, early.pause) if early.pause else Asha(early.eta)


@dataclass(frozen=True)
class Hyperband:
    """Asha in `rungs + 1` brackets; bracket b is not judged before rung b.

    A trial's bracket follows from (seed, trial) alone. As in Hyperband, a bracket that halves s
    times gets a share of the trials in proportion to eta^s / (s + 1), so that all brackets cost
    about the same; s = rungs - b, and the last bracket is never stopped.
    """

    eta: float  # one in `eta` passes
    rungs: int  # how many there are below the length of a run
    seed: int = 0  # of the study

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
        return _bracket(self, trial)

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
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


def build_hyperband(early: EarlyTerminate, study: Study) -> Hyperband:
    return Hyperband(early.eta, len(rung_steps(study)), study.seed)
