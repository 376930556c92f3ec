"""What a study has shown, from what its journal holds; `conclusions.py` decides."""

from __future__ import annotations

from collections.abc import Sequence

from .conclusions import Conclusion, Sample, conclude
from .leaderboard import Entry
from .rows import BaselineRow, Stream, StudyMeta, TrialRow

__all__ = ["concluded"]


def concluded(
    meta: StudyMeta,
    rows: Sequence[TrialRow],
    entries: Sequence[Entry],
    baselines: Sequence[BaselineRow] = (),
) -> Conclusion:
    """Return what a study has shown on seeds that chose nothing.

    Without these seeds nothing is concluded; nor with several objectives, where no value wins.

    Args:
        meta: what the journal says of the study.
        rows: its trials.
        entries: its leaderboard.
        baselines: rules that learn nothing.
    """
    by_number = {row.trial: row for row in rows}
    first = entries[0] if entries else None
    if first is None or first.value_from != Stream.REPORT or meta.objectives:
        return conclude(None, None, goal=meta.goal)
    winner, default = by_number[first.trial], by_number.get(0)
    measured = default is not None and not default.schedule and default.report_values
    named = {row.baseline: _sample(row.values.get(Stream.REPORT, ())) for row in baselines}
    return conclude(
        _sample(winner.report_values),
        _sample(default.report_values) if default is not None and measured else None,
        goal=meta.goal,
        name=f"trial {first.trial}",
        is_default=first.trial == 0 and not winner.schedule,
        baselines={name: sample for name, sample in named.items() if sample},
        sharing=sum(_has_all(entry, winner.report_values) for entry in entries[1:]),
    )


def _sample(values: Sequence[float]) -> Sample:
    return dict(enumerate(values))


def _has_all(entry: Entry, values: Sequence[float]) -> bool:
    """Return whether every seed behind an entry has the one value that all of these are."""
    return bool(entry.value is not None and entry.values) and {*entry.values} == {*values}
