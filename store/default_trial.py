"""Which trial is the default configuration."""

from __future__ import annotations

from collections.abc import Sequence

from .rows import REFERENCE_TRIAL, TrialRow

__all__ = ["default_of"]


def default_of(rows: Sequence[TrialRow]) -> TrialRow | None:
    """Return the trial that is the default configuration, from beginning to end; maybe none.

    That is trial 0, unless it copied others on its way: then the one made for the comparison.
    """
    by_number = {row.trial: row for row in rows}
    first = by_number.get(0)
    return first if first is not None and not first.schedule else by_number.get(REFERENCE_TRIAL)
