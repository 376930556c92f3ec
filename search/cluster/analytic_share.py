"""Shares of analytic populations: to test what a cluster does to a search in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...store.rows import Stream
from ..lanes.analytic import AnalyticFactory, AnalyticPopulation
from ..lanes.contract import EvaluationResult, Resolved
from ..lanes.division import Division
from .share_host import Machine

__all__ = ["AnalyticShares", "analytic_shares"]


def analytic_shares(
    factory: AnalyticFactory, shares: int, neighbours: int, warn: Callable[[str], None]
) -> AnalyticShares:
    """Return what makes shares of the lanes that a factory would make."""
    return AnalyticShares(factory, shares)


@dataclass(frozen=True)
class AnalyticShares:
    """Makes one of several equal shares; see `ShareSource`."""

    factory: AnalyticFactory
    shares: int

    @property
    def machine(self) -> Machine:
        """See `ShareSource`."""
        return Machine(self.factory.backend, self.factory.device_count, {})

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`."""
        return self.factory.resolve(config)

    def check(self, resolved: Resolved) -> None:
        """See `ShareSource`; every configuration can run."""

    def divide(self, resolved: Resolved, lanes: int | None) -> Division:
        """See `ShareSource`; a block stands for as many devices of one lane."""
        return Division.of(lanes or self.factory.lanes, self.shares, 1, self.factory.block)

    def make(self, resolved: Resolved, division: Division) -> AnalyticPopulation:
        """See `ShareSource`."""
        return self.factory.make(resolved, division.own)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """See `PopulationFactory`."""
        return self.factory.baseline(name, resolved, seeds)
