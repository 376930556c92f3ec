"""What the trials of a study with several objectives showed on each fresh seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...store.journal import Journal
from ...store.leaderboard import seeds_that_choose
from ...store.rows import Stream, TrialRow
from ...studies.load import recorded
from ...studies.metrics import COSTS

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
    from ..book.objective import Objective, measure  # numpy is loaded on use
    from ..lanes.contract import EvaluationResult
    from .looking_back import result_of

    meta = journal.meta
    score = Objective.of(recorded(meta.study_text)) if meta.environments else None
    names = [str(objective["name"]) for objective in meta.objectives]

    def value(place: int, found: EvaluationResult, known: Sequence[float]) -> float:
        if place == 0 and score is not None:  # over several environments
            return score.measure(found)
        return known[place] if names[place] in COSTS else measure(names[place], found)

    seeds = seeds_that_choose(rows)
    whole = {
        row.trial: row.choose_objectives
        for row in rows
        if row.choose_objectives and len(row.choose_values) == seeds
    }
    values: dict[int, dict[int, tuple[float, ...]]] = {}
    for packed in journal.packed_evaluations(without=Stream.SEARCH):
        here = packed.stream == Stream.CHOOSE and packed.replicate < seeds
        if not here or packed.trial not in whole:
            continue  # of other seeds, or of a trial that has not a value on every seed
        found, known = result_of(packed), whole[packed.trial]
        of_trial = values.setdefault(packed.trial, {})
        # In the order of env steps: the last one stays.
        of_trial[packed.replicate] = tuple(value(n, found, known) for n in range(len(names)))
    return values
