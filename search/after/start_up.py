"""Which trials a method drew before it had anything to go by.

TPE and others draw at random until they know so many trials; and with many lanes all that fills
them at first is drawn before any trial has ended. Such a trial bears the method's name, yet no
result led to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...store.rows import AskRow, TrialRow, TrialState
from ...studies.search_methods import METHODS

__all__ = ["start_up_words"]

_OPTION = "n_startup_trials"


def start_up_words(
    search: Mapping[str, Any], asks: Sequence[AskRow], rows: Sequence[TrialRow]
) -> dict[int, str]:
    """Return of each trial drawn before its method had anything to go by, why, in words.

    Args:
        search: that section of the resolved study, as plain data.
        asks: its batches of proposals, in order.
        rows: its trials.
    """
    if search.get("warm_start") is not None:
        return {}  # what an earlier study told is not in these batches
    by_number = {row.trial: row for row in rows}
    found: dict[int, str] = {}
    told: set[int] = set()  # one that was paused is told of again when it ends
    for ask in asks:
        told |= {trial for trial in ask.told if _counts(by_number.get(trial))}
        words = _words(search, ask.method, len(told))
        if not words:
            continue
        for trial in ask.trials:
            row = by_number.get(trial)
            if row is not None and row.proposed_by == ask.method:
                found[trial] = words
    return found


def _counts(row: TrialRow | None) -> bool:
    """Return whether a method learns something from a trial that has ended."""
    return row is not None and row.state is not TrialState.FAILED


def _words(search: Mapping[str, Any], method: str, known: int) -> str:
    row = METHODS.get(method)
    if row is None or not row.learns:
        return ""
    options: Mapping[str, object] = {field.key: field.default for field in row.options}
    fewest = {**options, **(search.get("options") or {})}.get(_OPTION)
    if isinstance(fewest, int) and known < fewest:
        return f"drawn at random: its model begins with {fewest} results, and {known} were known"
    return "" if known else "before it knew any result"
