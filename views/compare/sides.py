"""The two sides of `hpo compare`: their values by seed, and checks that they are comparable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ConfigError, StoreError
from ...search.analysis.across_environments import EnvironmentScores, environment_scores
from ...search.analysis.checkpoint_values import (
    CheckpointValues,
    fresh_seeds,
    ranking_objective,
    read_points,
)
from ...search.analysis.verdict import evaluated_in
from ...store.interim_analyses import Look, looks_of
from ...store.journal import Journal
from ...store.leaderboard import leaderboard_of
from ...store.rows import Stream, StudyMeta, TrialRow, TrialState
from ...store.study_folder import StudyFolder, find_study, trials_seen
from ...studies.load import recorded
from ...studies.spec import Study
from ...studies.yaml_io import recorded_data
from ..formatting import seeds_text
from ..leaderboard_text import target
from ..output import note
from ..trial_view import TrialView

SeedValues = Mapping[tuple[str, int], float]
"""(stream, replicate) -> value; replicates of a study share their seeds."""
_FRESH = (Stream.CHOOSE, Stream.REPORT)


@dataclass(frozen=True)
class Side:
    """One of the two trials, with its values and the study that it comes from."""

    name: str
    study: str  # folder of the study
    seed: int  # seed of the study
    trial: int
    wins: bool
    values: Mapping[Stream, SeedValues]  # of each seed with a full run
    partial: Set[Stream]  # those whose confirm stage did not finish
    unfit: bool  # whether it violates a constraint
    world: Mapping[str, Any]  # id, keys and parameters of the environment
    weight: float  # weight of training returns, except on test seeds
    scores: EnvironmentScores
    looks: tuple[Look, ...]  # earlier numbers of test seeds
    default: bool = False
    # stream -> number of trials with values
    ranked: Mapping[Stream, int] = field(default_factory=dict[Stream, int])
    copies: tuple[str, ...] = ()  # streams on which two seeds trained identically
    lost: Set[int] = frozenset()  # test seeds on which it diverged
    at: int | None = None  # env steps per seed, if these are not full runs


def winner_first(a: Side, b: Side) -> tuple[Side, Side]:
    if a.wins:
        return a, b
    return b, a


def seed_counts(side: Side) -> str:
    order = (Stream.SEARCH, Stream.CHOOSE, Stream.REPORT)
    known = [(stream, side.values.get(stream, ())) for stream in order]
    return " and ".join(seeds_text(len(values), stream) for stream, values in known if values)


def seed_counts_of_both(a: Side, b: Side) -> str:
    return f"{a.name} has {seed_counts(a)}, {b.name} {seed_counts(b)}"


def sides_of_trials(folder: StudyFolder, numbers: Sequence[int]) -> tuple[StudyMeta, list[Side]]:
    """Return two trials of a study.

    Their values are those of full runs, or of the latest point that both reached if one of them
    has no full run, or if no full runs are on the same kind of seeds.
    """
    study_trials = _read_study_trials(folder)
    for trial in numbers:
        if trial not in study_trials.rows:
            raise StoreError(f"study {folder.name!r} has no trial {trial}", trials=folder.name)
    common = None
    if not all(study_trials.has_full_run(number) for number in numbers):
        common = _values_in_common(folder, numbers)
    elif not study_trials.share_full_runs(numbers):
        with suppress(StoreError):  # `compared_values` lists the seeds of both
            common = _values_in_common(folder, numbers)
    sides = [
        _make_side(folder, study_trials, number, f"trial {number}", common) for number in numbers
    ]
    return study_trials.meta, sides


def sides_of_studies(a: str, b: str, root: Path) -> tuple[StudyMeta, list[Side]]:
    """Return the best trials of two studies; ConfigError if they cannot be compared."""
    sides, metas = list[Side](), list[StudyMeta]()
    for name in (a, b):
        folder = find_study(name, root, note)
        study_trials = _read_study_trials(folder)
        first = min(study_trials.trials.values(), key=lambda one: one.place, default=None)
        if first is None:
            raise StoreError(f"study {name!r} has no trial yet")
        sides.append(_make_side(folder, study_trials, first.trial, name))
        metas.append(study_trials.meta)
    _check_comparable((a, b), metas, sides)
    return metas[0], sides


def _check_comparable(
    names: tuple[str, str], metas: Sequence[StudyMeta], sides: Sequence[Side]
) -> None:
    """Raise ConfigError if the values of two studies measure different things."""
    a, b = names
    for does, what, (value_a, value_b) in (
        ("measures {}", "of the same metric", [meta.metric for meta in metas]),
        ("has the goal to {}", "with the same goal", [meta.goal for meta in metas]),
        ("ran in {}", "from the same environment", [side.world["env"] for side in sides]),
        (
            "takes the {} over environments",
            "with the same over_environments",
            [side.scores.over for side in sides],
        ),
    ):
        if value_a != value_b:
            both = f"{a} {does.format(value_a)} and {b} {does.format(value_b)}"
            raise ConfigError(f"{both}; only values {what} can be compared")


@dataclass(frozen=True)
class _StudyTrials:
    """The trials of a study as of one commit."""

    meta: StudyMeta
    rows: Mapping[int, TrialRow]
    trials: Mapping[int, TrialView]
    scores: EnvironmentScores
    fresh: Mapping[tuple[int, Stream], Mapping[int, float]]  # of finished runs, by replicate
    looks: tuple[Look, ...]
    weight: float  # weight of training returns in values used for selection

    @property
    def ranked(self) -> dict[Stream, int]:
        """Return the number of trials with values, for each stream that ranks trials."""
        searched = [one for one in self.trials.values() if one.search.value is not None]
        chosen = [
            trial
            for (trial, stream), known in self.fresh.items()
            if stream is Stream.CHOOSE and known
        ]
        return {Stream.SEARCH: len(searched), Stream.CHOOSE: len(chosen)}

    def fresh_of(self, trial: int) -> dict[Stream, Mapping[int, float]]:
        return {stream: self.fresh.get((trial, stream), {}) for stream in _FRESH}

    def has_full_run(self, trial: int) -> bool:
        return self.trials[trial].has_value or any(self.fresh_of(trial).values())

    def share_full_runs(self, numbers: Sequence[int]) -> bool:
        """Return whether all trials have full runs on the same kind of seeds."""
        if all(self.trials[number].has_value for number in numbers):
            return True
        return any(self._all_have(numbers, stream) for stream in _FRESH)

    def _all_have(self, numbers: Sequence[int], stream: Stream) -> bool:
        return all(self.fresh_of(number)[stream] for number in numbers)


def _read_study_trials(folder: StudyFolder) -> _StudyTrials:
    with Journal(folder.path) as journal, journal.at_one_commit():
        rows = {row.trial: row for row in trials_seen(journal)}
        meta = journal.meta
        scores = environment_scores(journal, list(rows.values()))
        fresh, looks = fresh_seeds(journal), looks_of(journal.attributes())
        weight = ranking_objective(journal).metric.training_weight
    views = map(TrialView.of, leaderboard_of(meta, list(rows.values())))
    trials = {view.trial: view for view in views}
    return _StudyTrials(meta, rows, trials, scores, fresh, looks, weight)


@dataclass(frozen=True)
class _CommonPoint:
    """The latest point (in env steps) that both trials reached, with the values per seed there."""

    at: int
    values: Mapping[int, Sequence[float]]  # trial -> values


def _values_in_common(folder: StudyFolder, numbers: Sequence[int]) -> _CommonPoint:
    points = read_points(folder.path)
    first, second = (_reached_steps(points, number) for number in numbers)
    if not (both := first & second):
        one, other = numbers
        text = f"trials {one} and {other} of {folder.name!r} have no evaluation at the same "
        text += f"number of {points.study.algorithm.unit}"
        if lost := [n for n in numbers if points.trials[n].report_diverged]:
            raise StoreError(f"{text}, and trial {lost[0]} diverged on test seeds")
        states = [points.trials[n].state for n in numbers]
        if TrialState.FAILED in states:
            failed = numbers[states.index(TrialState.FAILED)]
            raise StoreError(f"{text}, because trial {failed} failed; compare other trials")
        which = f"{one} {other}{target(folder.path)}"
        raise StoreError(f"{text}; to compare full runs: hpo confirm {which}")
    at = max(both)
    return _CommonPoint(at, {n: points.seeds[str(Stream.SEARCH), n, at] for n in numbers})


def _reached_steps(points: CheckpointValues, number: int) -> set[int]:
    """Return the env steps at which a trial was evaluated in the search."""
    found = ((trial, at) for kind, trial, at in points.seeds if kind == Stream.SEARCH)
    return {at for trial, at in found if trial == number}


def _make_side(
    folder: StudyFolder,
    study_trials: _StudyTrials,
    number: int,
    name: str,
    common: _CommonPoint | None = None,
) -> Side:
    row, view, meta = study_trials.rows[number], study_trials.trials[number], study_trials.meta
    whole = view.has_value and view.seeds > 0  # otherwise the values are from an earlier point
    fresh = study_trials.fresh_of(number)
    if common is None and not (whole or any(fresh.values())):
        text = f"trial {row.trial} of {folder.name!r} is {view.state.value} and has no full run"
        raise StoreError(f"{text}; compare trials that finished")
    searched, at = (), None
    if whole:
        searched = row.seed_values
    if common is not None:
        searched, fresh, at = common.values[number], {}, common.at
    study = recorded(meta.study_text)
    return Side(
        name=name,
        study=str(folder.path.resolve()),
        seed=study.seed,
        trial=row.trial,
        wins=view.place == 1 and len(study_trials.trials) > 1,
        values={Stream.SEARCH: _search_seeds(study, row, searched), **_finite_seeds(fresh)},
        partial=_unfinished_streams(row, fresh),
        world=evaluated_in(recorded_data(meta.study_text), row.params),
        weight=study_trials.weight,
        unfit=view.feasible is False,
        scores=study_trials.scores,
        looks=study_trials.looks,
        at=at,
        default=view.is_default,
        copies=row.copies,
        lost=_lost_seeds(row, fresh),
        ranked=study_trials.ranked,
    )


def _search_seeds(study: Study, row: TrialRow, values: Sequence[float]) -> SeedValues:
    kind = str(Stream.SEARCH)
    if study.seeds.tolerate and len(row.seed_values) < study.seeds.per_config:
        # Some replicates diverged; the record does not say which.
        kind = f"search of trial {row.trial}"
    return {(kind, place): value for place, value in enumerate(values)}


def _finite_seeds(fresh: Mapping[Stream, Mapping[int, float]]) -> dict[Stream, SeedValues]:
    """Return the seeds of each stream, without those that diverged."""
    return {stream: _finite_seed_values(stream, known) for stream, known in fresh.items()}


def _finite_seed_values(stream: Stream, known: Mapping[int, float]) -> SeedValues:
    return {(str(stream), n): value for n, value in known.items() if math.isfinite(value)}


def _lost_seeds(row: TrialRow, fresh: Mapping[Stream, Mapping[int, float]]) -> frozenset[int]:
    """Return the test seeds on which a trial diverged."""
    tested = fresh.get(Stream.REPORT, {})
    return frozenset(row.report_diverged).union(
        number for number, value in tested.items() if not math.isfinite(value)
    )


def _unfinished_streams(row: TrialRow, fresh: Mapping[Stream, Mapping[int, float]]) -> set[Stream]:
    """Return the streams on which the confirm stage did not finish."""
    ended = {Stream.CHOOSE: row.choose_values, Stream.REPORT: row.by_report_seed}
    return {stream for stream, known in ended.items() if fresh.get(stream) and not known}
