"""An engine of which nothing is written: for what only looks at what a search would decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...studies.spec import Study
from ..book.ledger import Ledger
from ..book.state import LoopState
from ..lanes.contract import PopulationFactory
from ..lanes.resolver import Resolver
from .commits import Committer
from .engine import Engine
from .settle import Policies
from .telling import Telling

__all__ = ["engine_in_memory"]


def engine_in_memory(study: Study, factory: PopulationFactory, rows: bool = False) -> Engine:
    """Return the engine of a study that begins, without a store behind it.

    Args:
        study: keeps no policies.
        factory: makes its populations.
        rows: leave every row in `ledger.unwritten`; else they are forgotten.
    """
    ledger = Ledger(study, LoopState(), resolver=Resolver(study, factory))
    return Engine(
        ledger,
        factory,
        buckets := {},
        curves=_NoCurves(),
        committer=_NoCommits(ledger, rows),
        policies=Policies(Path("nowhere"), study.checkpoint),
        telling=Telling(ledger, buckets, ()),
    )


class _NoCommits(Committer):
    """Commits nothing."""

    def __init__(self, ledger: Ledger, rows: bool):
        self._ledger, self._rows = ledger, rows

    def commit_if_due(self) -> None:
        """Forget the rows, unless they are wanted."""
        if not self._rows:
            self._ledger.written()

    def commit(self, phase: Any = "running") -> None:
        """Forget the rows, unless they are wanted."""
        self.commit_if_due()


class _NoCurves:
    """Takes rows of curves and keeps none."""

    def add_chunk(self, *args: Any, **kwargs: Any) -> None:
        """See `CurveSink`."""
