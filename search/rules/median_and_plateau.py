"""The median rule, and the plateau rule: end a trial whose curve has stopped rising.

After a plateau the run counts as over: the value at that rung is its value, and the env steps that
it did not need go to other trials.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ConfigError
from ...studies.spec import EarlyTerminate, Study
from .registry import Standing, Verdict


@dataclass(frozen=True)
class Median:
    """Stop trials worse than the median of all losses at the rung, this boundary's included."""

    at_least: int = 5  # with fewer judged trials than this everyone goes on

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
        losses = [standing.loss for standing in (*earlier, *arriving)]
        if len(losses) < self.at_least:
            return [Verdict(stop=False, rule="median", cutoff=None) for _ in arriving]
        cutoff = statistics.median(losses)
        return [Verdict(one.loss > cutoff, rule="median", cutoff=cutoff) for one in arriving]


def build_median(early: EarlyTerminate, study: Study) -> Median:
    return Median()


@dataclass(frozen=True)
class Plateau:
    """End a trial whose best of the last `patience` rungs is hardly better than the best before.

    Hardly means by less than `tolerance` of the gain so far, which is the distance between its
    first and its best loss.
    """

    patience: int = 4  # rungs without an improvement that counts
    tolerance: float = 0.02  # the share of the gain so far that counts as one

    def __post_init__(self):
        if self.patience < 1 or not 0.0 <= self.tolerance < 1.0:
            raise ConfigError(
                f"plateau: patience is {self.patience} and tolerance {self.tolerance}; allowed: "
                "patience of at least 1, tolerance from 0 to below 1"
            )

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
        return [self._verdict(standing.curve) for standing in arriving]

    def _verdict(self, curve: Sequence[float]) -> Verdict:
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
