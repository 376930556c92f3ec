"""Hands the search of a study to a foreign scheduler, and takes its end back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Literal

from ..book.ledger import Ledger
from ..engine.interrupts import Interrupts
from .loop import Driven

__all__ = ["drive"]


def drive(parts: Mapping[str, Any], interrupts: Interrupts) -> Literal["finished", "interrupted"]:
    """Let Ray Tune run a study's trials in its lanes; a cluster is there.

    Args:
        parts: of the loop, which `Driven` takes as well.
        interrupts: ask for a clean end.

    Raises:
        HpoError: the search cannot go on; what was done is committed.
    """
    from ..cluster.via_ray import import_ray
    from .tune import TuneDesk

    ledger: Ledger = parts["ledger"]
    search = ledger.study.search
    ray = import_ray("search: {driver: ray_tune}")
    with closing(TuneDesk(ray, ledger.study, ledger)) as desk:
        rule = f"ray_tune {search.scheduler.rpartition('.')[2]}"
        driven = Driven(**parts, desk=desk, rule=rule, copies=desk.copies)
        return driven.run(interrupts)
