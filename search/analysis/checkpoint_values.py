"""Trial values of a study at each evaluation point, to compare trials at the same point.

Trials that were stopped early have values only at early points, and a model's proposals cluster
near its optimum. Importance is therefore computed at a single point, from unprompted trials only.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...store.journal import Journal
from ...store.rows import (
    DecisionRow,
    Stream,
    TrialRow,
    TrialState,
    counts_evaluations_alone,
)
from ...store.statistics import IQM_MIN_SEEDS
from ...studies.load import recorded
from ...studies.search_methods import METHODS
from ...studies.spec import Study
from ..state.objective import Objective

_REACHED = 0.9
_ROUNDED = 0.005  # rounding error of a number with three digits
_FEWEST = 10
_GIVEN = ("default", "enqueue", "portfolio")


@dataclass(frozen=True)
class CheckpointValues:
    """A study's trials, with their values at every evaluation point."""

    study: Study  # what was asked
    trials: Mapping[int, TrialRow]  # rows by number
    # env steps -> trial -> its value there, over its search replicates
    values: Mapping[int, Mapping[int, float]]
    # batches of proposals drawn before the method had the result of any trial
    blind: frozenset[int] = frozenset()
    # trial -> [(env steps, hyperparameters up to there)], if it copied other trials' states
    changes: Mapping[int, Sequence[tuple[int, Mapping[str, Any]]]] = field(default_factory=dict)
    # (stream, trial, env steps) -> one value per replicate
    seeds: Mapping[tuple[str, int, int], Sequence[float]] = field(default_factory=dict)

    def params(self, trial: int, at: int) -> Mapping[str, Any]:
        before = (old for since, old in self.changes.get(trial, ()) if since >= at)
        return next(before, self.trials[trial].params)

    def random_share(self) -> list[int]:
        """Return the unprompted trials: those proposed before any results were available."""
        deaf = {name for name, row in METHODS.items() if not row.learns_from_results}
        return [
            n
            for n, row in self.trials.items()
            if row.proposed_by in deaf
            or (row.batch in self.blind and row.proposed_by not in _GIVEN)
        ]

    def latest_shared(self, among: Sequence[int]) -> int | None:
        """Return the latest point that 90 % of these trials reached.

        Only points before the first copy of one trial by another are considered.
        """
        evaluated = {number for found in self.values.values() for number in found}
        among = [number for number in among if number in evaluated]
        first_copy = min((way[0][0] for way in self.changes.values()), default=math.inf)
        if not among:
            return None
        before = {at: found for at, found in self.values.items() if at <= first_copy}
        counts = {at: len(found.keys() & {*among}) for at, found in before.items()}
        reached = [at for at, count in counts.items() if count >= _REACHED * len(among)]
        return max(reached, default=None)


def read_points(folder: Path) -> CheckpointValues:
    with Journal(folder) as journal, journal.at_one_commit():
        return points_of(journal)


def points_of(
    journal: Journal, decisions: Sequence[DecisionRow] | None = None
) -> CheckpointValues:
    study = recorded(journal.meta.study_text)
    rows = {row.trial: row for row in journal.trials()}
    blind = frozenset[int]()  # batches started before any trial had ended
    if study.search.warm_start is None:
        asks = itertools.takewhile(lambda ask: not ask.told, journal.asks())
        blind = frozenset(ask.batch for ask in asks)
    changes: dict[int, list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
    if decisions is None:
        decisions = journal.decisions()
    for decision in decisions:
        if decision.old_params is not None:
            changes[decision.trial].append((decision.env_steps, decision.old_params))
    seeds: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    objective = ranking_objective(journal)
    lacking = _without_training(journal, objective)
    for found in journal.evaluations():
        own = objective.on(found.stream)
        if (found.stream, found.env_steps) in lacking:
            own = objective.of_test
        seeds[found.stream, found.trial, found.env_steps].append(own.measure(found))
    values: dict[int, dict[int, float]] = defaultdict(dict)
    for (stream, trial, at), replicates in sorted(seeds.items(), key=lambda item: item[0][1:]):
        too_few = study.metric.aggregate == "iqm" and len(replicates) < IQM_MIN_SEEDS
        # a running trial's other replicates may still come
        if stream == Stream.SEARCH and not too_few:
            values[at][trial] = objective.aggregate(replicates)
    return CheckpointValues(
        study, rows, dict(sorted(values.items())), blind, dict(changes), dict(seeds)
    )


def _without_training(journal: Journal, objective: Objective) -> set[tuple[Stream, int]]:
    """Return the (stream, env steps) pairs at which training returns are ignored in all trials."""
    if not objective.metric.training_weight:
        return set()
    return {
        (found.stream, found.env_steps)
        for found in journal.evaluations(without=Stream.REPORT)
        if objective.lacks_training(found)
    }


def ranking_objective(journal: Journal) -> Objective:
    """Return the objective by which the study selected trials, according to its records."""
    objective = Objective.of(recorded(journal.meta.study_text))
    if counts_evaluations_alone(journal.attributes()):
        return objective.of_test
    return objective


def fresh_seeds(journal: Journal) -> dict[tuple[int, Stream], dict[int, float]]:
    """Return the value of every finished run on new seeds, by (trial, stream) and replicate.

    New seeds are evaluated only at the end of a run. Trial rows contain these values only for a
    completed confirm stage; this function also returns those of an incomplete one.
    """
    objective = ranking_objective(journal)
    found: dict[tuple[int, Stream], dict[int, float]] = {}
    for row in journal.evaluations(without=Stream.SEARCH):
        of_trial = found.setdefault((row.trial, row.stream), {})
        of_trial[row.replicate] = objective.on(row.stream).measure(row)
    return found


def point_at(points: CheckpointValues, at: int | None = None) -> int:
    """Return the env steps at which trials are compared; at least ten have values there.

    By default, this is the latest point that 90 % of trials reached. If there are enough
    unprompted trials, only these are considered.
    """
    if not points.values:
        raise ConfigError(f"{_no_values_message(points)}, so importance is unknown")
    if at is not None and at not in points.values:
        near = [point for point in points.values if abs(point - at) <= _ROUNDED * point]
        if len(near) == 1:
            at = near[0]
    here, among = _evaluated_trials(points, at, points.random_share())
    if len(among) < _FEWEST:
        here, among = _evaluated_trials(points, at, list(points.trials))
    if here is None or here not in points.values:
        known = ", ".join(str(point) for point in sorted(points.values))
        if at is None:
            text = f"no evaluation point was reached by 90% of trials; choose one of: {known}"
            raise ConfigError(text, at=True)
        raise ConfigError(f"no evaluation at {at} {points.study.algorithm.unit}; known: {known}")
    if len(among) < _FEWEST:
        raise ConfigError(
            f"importance needs at least {_FEWEST} trials evaluated at {here} "
            f"{points.study.algorithm.unit} (here: {len(among)})"
        )
    return here


def all_points(points: CheckpointValues) -> list[int]:
    """Return every point where ten or more trials have values, earliest first."""
    found = list[int]()
    reason: ConfigError | None = None
    for at in sorted(points.values):
        try:
            found.append(point_at(points, at))
        except ConfigError as error:  # a late point that few trials reached
            reason = error
    if not found:
        raise reason or ConfigError(_no_values_message(points))
    return found


def _no_values_message(points: CheckpointValues) -> str:
    lost = [n for n, row in points.trials.items() if row.state is TrialState.DIVERGED]
    if not lost:
        return "no trial has been evaluated yet"
    return f"no trial has a finite value: {len(lost)} diverged (for example trial {lost[0]})"


def _evaluated_trials(
    points: CheckpointValues, at: int | None, among: Sequence[int]
) -> tuple[int | None, list[int]]:
    here = at
    if here is None:
        here = points.latest_shared(among)
    if here is None:
        return None, []
    found = points.values.get(here, {})
    return here, [n for n in among if n in found and math.isfinite(found[n])]
