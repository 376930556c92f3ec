"""What the trials of a study with several objectives showed on each fresh seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...store.journal import Journal
from ...store.rows import Stream, TrialRow
from ...studies.load import recorded
from ...studies.metrics import COSTS
from ..book.objective import Objective, Objectives
from .looking_back import result_of

__all__ = ["FrontValues", "front_values"]

FrontValues = Mapping[int, Mapping[int, tuple[float, ...]]]
"""Trial -> replicate -> a value for each objective."""


def front_values(
    journal: Journal, rows: Sequence[TrialRow]
) -> dict[int, dict[int, tuple[float, ...]]]:
    """Return of each confirmed trial what it showed on each of the seeds that choose.

    Of costs, which are of the whole trial, every seed has the same. Empty of a study with one
    objective.

    Args:
        journal: of the study.
        rows: its trials.
    """
    if not journal.meta.objectives:
        return {}
    study = recorded(journal.meta.study_text)
    first, more = Objective(study.metric), Objectives.of(study)
    names = [objective.metric.name for objective in more.others]
    ends: dict[tuple[int, int], tuple[float, list[float]]] = {}
    for packed in journal.packed_evaluations(without=Stream.SEARCH):
        if packed.stream == Stream.CHOOSE:  # in the order of env steps: the last one stays
            found = result_of(packed)
            ends[packed.trial, packed.replicate] = first.measure(found), more.measure(found)
    costs = {row.trial: row.choose_objectives for row in rows if row.choose_objectives}
    values: dict[int, dict[int, tuple[float, ...]]] = {}
    for (trial, replicate), (value, extras) in ends.items():
        if trial not in costs:
            continue  # it has not a value on every seed
        measured = iter(extras)
        others = [
            costs[trial][place] if name in COSTS else next(measured)
            for place, name in enumerate(names, start=1)
        ]
        values.setdefault(trial, {})[replicate] = (value, *others)
    return values
