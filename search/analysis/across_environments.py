"""Leave one environment out: what a configuration chosen on the others gets on this one.

For each environment the search is asked again which trial is best, by its scores on all others
alone. Which seeds each number is from is part of it: those of the search choose here, so a trial
that was chosen by an environment's scores on them is never judged by these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...errors import ConfigError, StoreError
from ...store.aggregate_environments import Over, together
from ...store.environment_columns import environment_names
from ...store.journal import Journal
from ...store.leaderboard import Ranking, default_of
from ...store.paired import paired_interval
from ...store.rows import Stream, StudyMeta, TrialRow, TrialState
from ...store.score_tables import NOTHING, BySeed, Estimate
from ...store.statistics import IQM_MIN_SEEDS, aggregate, interval, mean
from ...studies.load import recorded
from ...studies.search_methods import METHODS
from ...studies.spec import Study
from ..state.objective import Objective
from ..state.schedule import BUDGET_ENDED, CLEARLY_BELOW, stages
from .checkpoint_values import result_of

_Points = Mapping[int, Mapping[int, Sequence[float]]]
"""Env steps -> replicate -> its scores."""


@dataclass(frozen=True)
class EnvironmentScores:
    """Scores of the trials of a study over several environments."""

    names: tuple[str, ...] = ()  # of the environments; none of a study over one alone
    over: Over = "mean"  # how the scores of one seed become its value
    # (trial, stream) -> replicate -> its score on each environment, at the end of its run, or
    # where a rule ended it with its value. A seed that diverged has NaN on all
    seeds: Mapping[tuple[int, Stream], BySeed] = field(
        default_factory=dict[tuple[int, Stream], BySeed]
    )

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
    for packed in journal.packed_evaluations():
        here = found.setdefault((packed.trial, Stream(packed.stream)), {})
        scores = objective.seen(result_of(packed))[1]
        here.setdefault(packed.env_steps, {})[packed.replicate] = tuple(scores)
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
            begun = _begun(study, row, stream, points, at)
            seeds[row.trial, stream] = _whole(points.get(at, {}), begun, len(objective.scales))
    return EnvironmentScores(environment_names(meta.environments), study.over_environments, seeds)


def _begun(study: Study, row: TrialRow, stream: Stream, points: _Points, at: int) -> Sequence[int]:
    """Return the seeds of a trial on a stream that are over, with those that diverged.

    A trial that is finished has had all seeds of the search. One that racing dropped, or that was
    audited, had those of the looks that evaluations show; the budget cuts the seeds of the last.
    """
    if stream is Stream.REPORT:
        return sorted(row.by_report_seed)
    if stream is Stream.CHOOSE:
        return range(len(row.choose_values))
    looks = stages(study.seeds.first, study.seeds.per_config)
    seen = max((seed for scores in points.values() for seed in scores), default=0)
    reached = next(place for place, size in enumerate(looks) if size > seen)
    if row.stop_rule.startswith(BUDGET_ENDED):
        return sorted({*range(looks[max(0, reached - 1)]), *points.get(at, {})})
    dropped = row.audited or row.stop_rule.startswith(CLEARLY_BELOW)
    return range(looks[reached] if dropped else study.seeds.per_config)


def _whole(
    scores: Mapping[int, Sequence[float]], begun: Sequence[int], environments: int
) -> dict[int, Sequence[float]]:
    """Return scores by seed; those of a seed that is missing, or not finite, are NaN."""
    nothing = (math.nan,) * environments
    known = {
        seed: given if all(map(math.isfinite, given)) else nothing
        for seed, given in scores.items()
    }
    return {seed: known.get(seed, nothing) for seed in sorted({*begun, *known})}


@dataclass(frozen=True)
class Side:
    """The trial chosen without an environment against another one, on that environment."""

    trial: int | None  # the other one
    seeds: int = 0  # how many both ran on to their end
    stream: Stream | None = None  # of these seeds; None where there are none that may be asked
    score: float | None = None  # mean score of the trial chosen without the environment
    other: float | None = None
    difference: Estimate = NOTHING  # the first less the second, with the interval of paired seeds
    differences: tuple[float, ...] = ()  # one a seed
    why: str = ""  # there is no number, in words


@dataclass(frozen=True)
class LeftOut:
    environment: str  # its name
    trial: int  # chosen by the scores on all others
    default: Side  # that trial beside the default configuration
    whole: Side  # that trial beside the one which all environments choose


@dataclass(frozen=True)
class LeaveOneOut:
    study: str  # its name
    chosen: int  # the trial that all environments choose, by the same seeds
    candidates: int  # the trials that were chosen from
    choosing_seeds: int  # of the search, by which they were chosen
    each: tuple[LeftOut, ...]  # one an environment
    # mean over environments of the difference to the default, with the interval of that mean over
    # seeds
    over_default: Estimate
    over_whole: Estimate  # likewise to the trial that all environments choose
    adaptive: str  # what else in the search all environments decided, in words; "" for nothing

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def leave_one_out(journal: Journal) -> LeaveOneOut:
    """Leave out each environment of a study in turn; see `leave_one_out_of`."""
    meta = journal.meta
    if not meta.environments:
        raise ConfigError(
            f"leaving one out is for a study over several environments; {meta.name} is over one"
        )
    rows = journal.trials()
    return leave_one_out_of(meta, rows, environment_scores(journal, rows))


def leave_one_out_of(
    meta: StudyMeta, rows: Sequence[TrialRow], scores: EnvironmentScores
) -> LeaveOneOut:
    """Leave out each environment of a study in turn.

    The trial is chosen among those that finished the search, by the value that their scores on
    all other environments make (as `over_environments` and the metric's `aggregate` say), from
    the seeds that every trial began with. On the environment left out it is compared with the
    default and with the trial that all environments choose by the same seeds, seed by seed.

    Numbers are from confirm seeds that both ran on and that selected nothing here: the selection
    seeds, else the test seeds. Against the default, seeds of the search replace them if no rule
    stopped trials: then the scores on the environment left out have chosen neither. Against the
    trial that all environments chose they never do, since they chose it.
    """
    if meta.objectives:
        raise ConfigError(
            f"{meta.name} has several objectives, so no trial is chosen; leave-one-out needs one"
        )
    study = recorded(meta.study_text)
    candidates = _candidates(meta, study, rows, scores)
    if not candidates:
        raise StoreError(f"no trial of {meta.name!r} has finished its run yet", trials=meta.name)
    every = range(len(scores.names))
    chosen = _chosen(study, candidates, every)
    default = default_of(rows)
    each: list[LeftOut] = []
    for left in every:
        trial = _chosen(study, candidates, [at for at in every if at != left])
        own = None if default is None else default.trial
        each.append(
            LeftOut(
                scores.names[left],
                trial,
                _side(scores, left, trial, own, _search_seeds(study)),
                _side(scores, left, trial, chosen, 0),
            )
        )
    return LeaveOneOut(
        meta.name,
        chosen,
        len(candidates),
        study.seeds.first,
        tuple(each),
        _over([one.default for one in each]),
        _over([one.whole for one in each]),
        _adaptive(study),
    )


def _candidates(
    meta: StudyMeta, study: Study, rows: Sequence[TrialRow], scores: EnvironmentScores
) -> dict[int, list[Sequence[float]]]:
    """Return trial -> scores of its first seeds; feasible trials alone, if there are some."""
    ranking = Ranking.of(meta)
    found: dict[int, list[Sequence[float]]] = {}
    kept: set[int] = set()
    fewest = IQM_MIN_SEEDS if study.metric.aggregate == "iqm" else 1
    for row in rows:
        if row.value is None or row.state is TrialState.REFERENCE:
            continue
        seeds = scores.of(row.trial, Stream.SEARCH)
        whole = [
            given
            for seed, given in seeds.items()
            if seed < study.seeds.first and all(map(math.isfinite, given))
        ]
        if len(whole) < fewest:
            continue
        found[row.trial] = whole
        if ranking.violation(row.constraints) == 0.0:
            kept.add(row.trial)
    return {trial: seeds for trial, seeds in found.items() if trial in kept} or found


def _chosen(
    study: Study, candidates: Mapping[int, Sequence[Sequence[float]]], by: Sequence[int]
) -> int:
    """Return the best trial by its scores on some environments; of equal ones the first."""

    def value(trial: int) -> float:
        each = [
            together([seed[at] for at in by], study.over_environments)
            for seed in candidates[trial]
        ]
        return aggregate(each, study.metric.aggregate)

    return min(candidates, key=lambda trial: (-value(trial), trial))


def _search_seeds(study: Study) -> int:
    """Return how many seeds of the search have chosen nothing by an environment left out.

    None where trials were stopped or copied: these seeds then decided which trials finished.
    """
    ruled = study.early_terminate is not None or study.search.driver == "ray_tune"
    return 0 if ruled else study.seeds.first


def _side(
    scores: EnvironmentScores, left: int, trial: int, other: int | None, of_search: int
) -> Side:
    if other is None:
        return Side(None, why="the default configuration has no trial")
    if trial == other:
        return Side(other, why="the same trial")
    for stream in (Stream.CHOOSE, Stream.REPORT, Stream.SEARCH):
        ours, theirs = scores.of(trial, stream), scores.of(other, stream)
        if stream is Stream.SEARCH:
            ours = {seed: given for seed, given in ours.items() if seed < of_search}
        common = sorted(ours.keys() & theirs.keys())
        pairs = [(ours[seed][left], theirs[seed][left]) for seed in common]
        pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
        if pairs:
            own, others = [x for x, _ in pairs], [y for _, y in pairs]
            apart = tuple(x - y for x, y in pairs)
            difference = Estimate(mean(apart), paired_interval(own, others))
            return Side(other, len(pairs), stream, mean(own), mean(others), difference, apart)
    return Side(other, why=f"trials {trial} and {other} share no seeds outside the choice")


def _over(sides: Sequence[Side]) -> Estimate:
    """Return the mean difference over environments; the same trial differs by nothing.

    Its interval is that of the mean over seeds, of each the mean over environments. There is none
    where an environment has no number, and no interval where they have different numbers of seeds.
    """
    if any(side.stream is None and side.why != "the same trial" for side in sides):
        return NOTHING
    counts = {side.seeds for side in sides if side.differences}
    value = mean([side.difference.value or 0.0 for side in sides])
    if len(counts) != 1:
        return Estimate(value)
    (count,) = counts
    table = [side.differences or (0.0,) * count for side in sides]
    return Estimate(value, interval([mean(seed) for seed in zip(*table, strict=True)]))


def _adaptive(study: Study) -> str:
    """Return in words which parts of the search, without the choice, all environments decided."""
    search = study.search
    row = METHODS.get(search.method)
    found: list[str] = []
    if search.driver == "ray_tune":
        if search.searcher != "random":
            found.append(f"which configurations were proposed ({search.searcher})")
        found.append(f"which trials were stopped or copied others ({search.scheduler})")
    elif row is None or row.learns:
        found.append(f"which configurations were proposed ({search.method})")
    if study.early_terminate is not None:
        what = "copied others" if study.early_terminate.evolves else "were stopped"
        found.append(f"which trials {what} ({study.early_terminate.type})")
    if study.seeds.racing is not None:
        found.append("how many seeds each ran on (racing)")
    if study.confirm is not None:
        found.append("which trials have fresh seeds (confirm)")
    return ", ".join([*found[:-2], " and ".join(found[-2:])])
