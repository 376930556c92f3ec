"""Rules that end trials at rungs: asha, asha with pauses, Hyperband, median, plateau.

Successive halving at an early rung is cheap, but wrong if learning curves cross later. Hyperband
therefore uses several brackets: some judge trials at every rung, others only from a later rung on
(Li et al. 2018, "Hyperband"; here each bracket is asynchronous, like `asha`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from ...errors import ConfigError
from ...studies.chunk_sizes import rung_steps
from ...studies.search_spec import EarlyTerminate
from ...studies.spec import Study
from ..seeds import uniform
from .registry import Order, TrialAtRung, Verdict, ordered, part_of


@dataclass(frozen=True)
class _Halving:
    eta: float  # one in `eta` trials passes

    def __post_init__(self) -> None:
        if not self.eta > 1:
            raise ValueError(f"eta is {self.eta:g}; allowed: above 1, such as 4")


@dataclass(frozen=True)
class PromotingAsha(_Halving):
    """Pause all but the best floor(n / eta) of the n trials judged at the rung.

    Of two trials with equal losses, the one with the smaller number counts as better.
    """

    most: int  # largest number of paused trials

    def judge(
        self, rung: int, earlier: Sequence[TrialAtRung], arriving: Sequence[TrialAtRung]
    ) -> list[Verdict]:
        order = ordered(earlier, arriving)
        last = self.last(order)
        if last is None:
            return [Verdict(stop=True, rule=self.words, cutoff=None, pause=True) for _ in arriving]
        return [
            Verdict(
                stop=(standing.loss, standing.trial) > last,
                rule=self.words,
                cutoff=last[0],
                pause=True,
            )
            for standing in arriving
        ]

    @property
    def words(self) -> str:
        return f"asha eta={self.eta:g} pause"

    def last(self, order: Sequence[Order]) -> Order | None:
        """Return the worst judged trial that may resume; None if no trial may.

        >>> PromotingAsha(2.0, 10).last([(1.0, 1), (2.0, 2), (3.0, 0)])
        (1.0, 1)
        """
        count = math.floor(len(order) / self.eta)
        if not count:
            return None
        return order[count - 1]


@dataclass(frozen=True)
class Asha(_Halving):
    """Stop all but the best ceil(n / eta) of the n trials judged at the rung.

    n includes the trials that arrive together, which are also compared with each other. A trial
    equal to the cutoff passes; if n < eta, all pass.
    """

    def judge(
        self, rung: int, earlier: Sequence[TrialAtRung], arriving: Sequence[TrialAtRung]
    ) -> list[Verdict]:
        return halve(self.eta, f"asha eta={self.eta:g}", earlier, arriving)


def halve(
    eta: float, rule: str, earlier: Sequence[TrialAtRung], arriving: Sequence[TrialAtRung]
) -> list[Verdict]:
    """Return the arriving trials' verdicts: the best ceil(n / eta) of all losses pass."""
    order = ordered(earlier, arriving)
    if len(order) < eta:
        return [Verdict(stop=False, rule=rule, cutoff=None) for _ in arriving]
    cutoff, _ = order[math.ceil(len(order) / eta) - 1]
    return [Verdict(stop=one.loss > cutoff, rule=rule, cutoff=cutoff) for one in arriving]


def build_asha(early: EarlyTerminate, study: Study) -> Asha | PromotingAsha:
    """Build the rule `asha`, which stops trials or, with `pause`, pauses and promotes them."""
    if early.pause:
        return PromotingAsha(early.eta, early.pause)
    return Asha(early.eta)


@dataclass(frozen=True)
class Hyperband(_Halving):
    """ASHA in `rungs + 1` brackets; bracket b stops no trial before rung b.

    A trial's bracket depends only on (seed, trial). As in Hyperband, a bracket that halves s times
    gets a share of trials proportional to eta^s / (s + 1), so that all brackets cost about the
    same. Here s = rungs - b, and trials in the last bracket are never stopped.
    """

    rungs: int  # number of rungs below the length of a run
    seed: int = 0  # the study's seed

    def shares(self) -> list[float]:
        """Return each bracket's share of trials.

        >>> [round(share, 3) for share in Hyperband(2.0, 2).shares()]
        [0.4, 0.3, 0.3]
        """
        halvings = range(self.rungs, -1, -1)
        weights = [self.eta**s / (s + 1) for s in halvings]
        return [weight / sum(weights) for weight in weights]

    @lru_cache(maxsize=65_536)  # noqa: B019 (it is asked for at every judgement of every trial)
    def bracket(self, trial: int) -> int:
        mark, ends = uniform(self.seed, "bracket", trial), list(accumulate(self.shares()))
        return min(bisect_right(ends, mark), self.rungs)

    def judge(
        self, rung: int, earlier: Sequence[TrialAtRung], arriving: Sequence[TrialAtRung]
    ) -> list[Verdict]:
        found: dict[int, Verdict] = {}
        for bracket in {self.bracket(standing.trial) for standing in arriving}:
            rule = f"hyperband bracket {bracket} eta={self.eta:g}"
            eta = self.eta
            if bracket > rung:  # not judged yet: all pass
                eta = math.inf
            new = part_of(arriving, self.bracket, bracket)
            verdicts = halve(eta, rule, part_of(earlier, self.bracket, bracket), new)
            found |= {one.trial: verdict for one, verdict in zip(new, verdicts, strict=True)}
        return [found[standing.trial] for standing in arriving]


def build_hyperband(early: EarlyTerminate, study: Study) -> Hyperband:
    return Hyperband(early.eta, len(rung_steps(study)), study.seed)


@dataclass(frozen=True)
class Median:
    """Stop trials worse than the median of all losses at the rung, including the arriving ones."""

    at_least: int = 5  # with fewer judged trials, all continue

    def judge(
        self, rung: int, earlier: Sequence[TrialAtRung], arriving: Sequence[TrialAtRung]
    ) -> list[Verdict]:
        order, middle = ordered(earlier, arriving), (len(earlier) + len(arriving)) // 2
        if len(order) < self.at_least:
            return [Verdict(stop=False, rule="median", cutoff=None) for _ in arriving]
        cutoff, _ = order[middle]
        if len(order) % 2 == 0:
            cutoff = (order[middle - 1][0] + cutoff) / 2
        return [Verdict(one.loss > cutoff, rule="median", cutoff=cutoff) for one in arriving]


def build_median(early: EarlyTerminate, study: Study) -> Median:
    return Median()


@dataclass(frozen=True)
class Plateau:
    """End a trial that hardly improved on its earlier best over the last `patience` rungs.

    "Hardly" means by less than `tolerance` times the gain so far, which is the difference between
    the trial's first and best losses. The value at that rung becomes the trial's value, as if its
    run were over.
    """

    patience: int = 4  # rungs without a sufficient improvement
    tolerance: float = 0.02  # the share of the gain so far that is sufficient

    def __post_init__(self):
        if self.patience < 1 or not 0.0 <= self.tolerance < 1.0:
            raise ConfigError(
                f"plateau: patience is {self.patience} and tolerance {self.tolerance}; allowed: "
                "patience of at least 1, tolerance from 0 to below 1"
            )

    def judge(
        self, rung: int, earlier: Sequence[TrialAtRung], arriving: Sequence[TrialAtRung]
    ) -> list[Verdict]:
        return [self._verdict_on_curve(standing.curve) for standing in arriving]

    def _verdict_on_curve(self, curve: Sequence[float]) -> Verdict:
        rule = f"plateau patience={self.patience} tolerance={self.tolerance:g}"
        if len(curve) <= self.patience:
            return Verdict(stop=False, rule=rule, cutoff=None)
        before, lately = min(curve[: -self.patience]), min(curve[-self.patience :])
        needed = before - self.tolerance * (curve[0] - min(before, lately))
        if not math.isfinite(needed):
            return Verdict(stop=False, rule=rule, cutoff=None)
        stop = lately > needed or (lately == needed and lately >= before)
        return Verdict(stop=stop, rule=rule, cutoff=needed, finish=stop)


def build_plateau(early: EarlyTerminate, study: Study) -> Plateau:
    return Plateau(early.patience, early.tolerance)
