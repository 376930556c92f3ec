"""What is needed to read a leaderboard: where its order and its values come from.

The same notes stand below the table in the terminal and in the report.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..store.leaderboard import Entry
from ..store.rows import TrialState
from .formatting import number

__all__ = ["reading_notes"]

_LISTED = 5


def reading_notes(shown: Sequence[Entry]) -> list[str]:
    """Return a note for everything in a table that does not explain itself.

    Args:
        shown: its rows, the best first.
    """
    default = next((entry for entry in shown if entry.is_default), None)
    notes = [] if default is None else [f"Trial {default.trial} is the default configuration."]
    notes += _order(shown)
    if any(entry.value is None and entry.rung_value is not None for entry in shown):
        notes.append(
            "(value): at its last rung, of a trial that has not finished its run; who reached a "
            "later rung stands higher."
        )
    if any(entry.state is TrialState.STOPPED for entry in shown):
        notes.append("stopped at 0: at the first rung. steps: of the search, over all seeds.")
    if any(entry.state is TrialState.PAUSED for entry in shown):
        notes.append(
            "paused at 0: it waits at the first rung, and goes on if it is among the best there."
        )
    return notes


def _order(shown: Sequence[Entry]) -> list[str]:
    """Return why values are not sorted from the top to the bottom, where they need not be."""
    several = any(entry.front is not None for entry in shown)
    confirmed = [entry for entry in shown if entry.confirmed]
    notes: list[str] = []
    if {entry.feasible for entry in shown} >= {True, False}:
        notes.append("Of trials that came as far, those that keep the constraints stand higher.")
    if len(confirmed) > 1 and not several and confirmed[0].value_from == "report":
        values = ", ".join(number(entry.choose_value) for entry in confirmed[:_LISTED])
        more = ", ..." if len(confirmed) > _LISTED else ""
        notes.append(
            f"Confirmed trials stand in the order of the seeds that select ({values}{more}); "
            f"the value of trial {confirmed[0].trial} is from further seeds, which did not."
        )
    if confirmed and any(entry.value is not None and not entry.confirmed for entry in shown):
        notes.append(
            "Confirmed trials stand above those with values of the search, whose seeds selected "
            "them, which flatters."
        )
    return notes
