"""Hands the search of a study to a foreign scheduler, and takes its end back."""

from __future__ import annotations

from contextlib import closing

from ..engine.engine import Engine, Outcome
from ..engine.interrupts import Interrupts
from .loop import Driven

__all__ = ["drive"]


def drive(engine: Engine, interrupts: Interrupts) -> Outcome:
    """Let Ray Tune run a study's trials in its lanes; a cluster is there.

    Args:
        engine: steps the lanes.
        interrupts: ask for a clean end.

    Raises:
        HpoError: the search cannot go on; what was done is committed.
    """
    from ..cluster.via_ray import import_ray
    from .tune import TuneDesk

    study = engine.study
    ray = import_ray("search: {driver: ray_tune}")
    with closing(TuneDesk(ray, study, engine.ledger)) as desk:
        rule = f"ray_tune {study.search.scheduler.rpartition('.')[2]}"
        return Driven(engine, desk, rule, desk.copies).run(interrupts)
