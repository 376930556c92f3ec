"""Scores of a study's trials on several environments, by stream and seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...store.aggregate_environments import BySeed, Over
from ...store.environment_columns import environment_names
from ...store.journal import Journal
from ...store.rows import Stream, TrialRow
from ...store.unobserved import Bounds
from ...store.value_bounds import score_bounds
from ...studies.load import recorded
from ...studies.spec import Study
from ..state.objective import Objective
from ..state.schedule import BUDGET_ENDED, CLEARLY_BELOW, stages

_Points = Mapping[int, Mapping[int, Sequence[float]]]  # env steps -> replicate -> its scores


@dataclass(frozen=True)
class EnvironmentScores:
    """Scores of a study's trials on several environments."""

    names: tuple[str, ...] = ()  # environments; empty for a study on a single one
    over: Over = "mean"  # how one seed's scores are combined into its value
    # (trial, stream) -> replicate -> its score on each environment, at the end of its run or where
    # a rule ended it with its value. A diverged seed has NaN everywhere
    seeds: Mapping[tuple[int, Stream], BySeed] = field(
        default_factory=dict[tuple[int, Stream], BySeed]
    )
    bounds: tuple[Bounds, ...] = ()  # of the scores on each environment; () if unknown

    def of(self, trial: int, stream: Stream) -> BySeed:
        return self.seeds.get((trial, stream), {})

    def shared(self, trials: Sequence[int]) -> Stream | None:
        for stream in (Stream.REPORT, Stream.CHOOSE, Stream.SEARCH):
            if all(self.of(trial, stream) for trial in trials):
                return stream
        return None


def environment_scores(journal: Journal, rows: Sequence[TrialRow]) -> EnvironmentScores:
    meta = journal.meta
    if not meta.environments:
        return EnvironmentScores()
    study = recorded(meta.study_text)
    objective = Objective.of(study)
    # trial -> env steps at which a rule ended it with its value
    ends = {row.trial: row.env_steps for row in journal.decisions() if row.action == "finish"}
    found: dict[tuple[int, Stream], dict[int, dict[int, Sequence[float]]]] = {}
    for row in journal.evaluations():
        here = found.setdefault((row.trial, row.stream), {})
        scores = objective.value_and_scores(row)[1]
        here.setdefault(row.env_steps, {})[row.replicate] = tuple(scores)
    seeds: dict[tuple[int, Stream], BySeed] = {}
    for row in rows:
        has_value = {
            Stream.SEARCH: row.value is not None,
            Stream.CHOOSE: row.choose_values,
            Stream.REPORT: row.report_values or row.report_diverged,
        }
        for stream in (stream for stream, there in has_value.items() if there):
            points = found.get((row.trial, stream), {})
            at = max(points, default=0)
            if stream is Stream.SEARCH:
                at = ends.get(row.trial, at)
            finished_seeds = _finished_seeds(study, row, stream, points, at)
            seeds[row.trial, stream] = _fill_missing_seeds(
                points.get(at, {}), finished_seeds, len(objective.scales)
            )
    return EnvironmentScores(
        environment_names(meta.environments),
        study.over_environments,
        seeds,
        score_bounds(meta),
    )


def _finished_seeds(
    study: Study, row: TrialRow, stream: Stream, points: _Points, at: int
) -> Sequence[int]:
    """Return a trial's finished seeds on a stream, including diverged ones."""
    if stream is Stream.REPORT:
        return sorted(row.by_report_seed)
    if stream is Stream.CHOOSE:
        return range(len(row.choose_values))
    looks = stages(study.seeds.first, study.seeds.per_config)
    last_seed = max((seed for scores in points.values() for seed in scores), default=0)
    reached = next(place for place, size in enumerate(looks) if size > last_seed)
    if row.stop_rule.startswith(BUDGET_ENDED):
        return sorted({*range(looks[max(0, reached - 1)]), *points.get(at, {})})
    if row.audited or row.stop_rule.startswith(CLEARLY_BELOW):
        return range(looks[reached])
    return range(study.seeds.per_config)


def _fill_missing_seeds(
    scores: Mapping[int, Sequence[float]], finished_seeds: Sequence[int], environments: int
) -> dict[int, Sequence[float]]:
    """Return scores by seed; the scores of a missing or non-finite seed are NaN."""
    nothing = (math.nan,) * environments
    finite = {seed: given for seed, given in scores.items() if all(map(math.isfinite, given))}
    return {seed: finite.get(seed, nothing) for seed in sorted({*finished_seeds, *scores})}
