"""The order of trials: confirmed, then finished, then by the rung reached, then all others.

Confirmed trials are ordered by the mean over their selection seeds (`choose`); the winner's value
is the mean over its test seeds (`report`). Without selection seeds the best finished trial wins.
With several objectives or constraints, confirmed and finished trials are ordered by constrained
domination: feasible ones by front, then by crowding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from ..errors import ConfigError
from .codec import finite_json
from .libraries import np
from .pareto import excess, hypervolume, places, violation
from .rows import REFERENCE_TRIAL, StudyMeta, TrialRow, TrialState
from .statistics import NO_INTERVAL, Interval, IntervalKind, mean, mean_or_none, sign_of
from .statistics import aggregate as aggregated
from .unobserved import UNBOUNDED, Bounds, bounded_interval
from .value_bounds import value_bounds


def default_of(rows: Sequence[TrialRow]) -> TrialRow | None:
    """Return the trial that kept the default configuration throughout, if there is one.

    This is trial 0 unless it copied other trials, otherwise the default run for comparison.
    """
    by_number = {row.trial: row for row in rows}
    first = by_number.get(0)
    if first is not None and not first.schedule:
        return first
    return by_number.get(REFERENCE_TRIAL)


_CONFIRMED, _FINISHED, _AT_RUNG, _OTHER = range(4)
_State = TrialState
_OTHER_ORDER = (
    *(_State.RUNNING, _State.INTERRUPTED, _State.PAUSED, _State.UNFINISHED, _State.CONFIRMED),
    *(_State.FINISHED, _State.STOPPED, _State.DIVERGED, _State.FAILED, _State.WAITING),
    _State.REFERENCE,
)  # no finite value: running before the first rung, paused with NaN there, and so on
_AT_A_RUNG = (_State.STOPPED, _State.PAUSED, _State.RUNNING, _State.INTERRUPTED, _State.UNFINISHED)
_Source = Literal["report", "choose", "search", ""]


@dataclass(frozen=True)
class Entry:
    """One row of the leaderboard."""

    rank: int  # 1 is best
    trial: int
    state: TrialState
    value: float | None  # on test or selection seeds if confirmed; None before the end of a run
    ci_low: float | None  # 95 % interval of `value`, None below 5 seeds
    ci_high: float | None
    ci_kind: IntervalKind
    value_from: _Source  # the seeds from which `value` comes
    values: tuple[float, ...]  # per seed behind `value`; else each replicate's last value
    confirmed: bool  # whether it ran on all selection seeds
    seeds: int  # number of `values`
    search_value: float | None  # on the seeds of the search
    choose_value: float | None  # mean over selection seeds
    report_value: float | None  # mean over test seeds
    rung: int  # index of the last rung at which it was judged, -1 before the first
    rung_value: float | None
    stop_rule: str  # the rule that stopped it
    env_steps: int  # training env steps of all its search replicates
    params: Mapping[str, Any]
    # values if there are several, from the seeds behind `value`
    objectives: tuple[float, ...] = ()
    constraints: tuple[float, ...] = ()  # for a stopped trial, at its last rung
    feasible: bool | None = None  # None without constraints or without measurements
    front: int | None = None  # with several objectives: 1 if no trial in its state dominates it
    hypervolume: float | None = None  # of the front, see `volume_of`
    is_default: bool = False
    scores: tuple[float, ...] = ()  # mean score per environment, from the seeds behind `value`
    choose_seeds: int = 0
    report_seeds: int = 0
    search_seeds: int = 0  # number of replicates behind `search_value` or `rung_value`
    rung_env_steps: int | None = None  # training env steps of each seed at `rung`
    copies: tuple[str, ...] = ()  # kinds of seeds on which two replicates trained identically

    @property
    def measured_value(self) -> float | None:
        """The value of full runs; for a default that the search stopped, its test value."""
        if self.value is None:
            return self.report_value
        return self.value

    @property
    def measured_from(self) -> _Source:
        if self.value is None and self.report_value is not None:
            return "report"
        return self.value_from

    @property
    def measured_seeds(self) -> int:
        if self.value is not None:
            return self.seeds
        if self.report_value is not None:
            return self.report_seeds
        return 0

    def as_json(self) -> dict[str, Any]:
        """Return JSON data: non-finite numbers are null, or text in `params` (null means off)."""
        found = {name: _or_none(value) for name, value in vars(self).items()}
        for name in ("values", "objectives", "constraints", "scores"):
            found[name] = [_or_none(value) for value in getattr(self, name)]
        return found | {
            "state": str(self.state),
            "params": finite_json(dict(self.params)),
            "measured_value": _or_none(self.measured_value),
            "measured_from": self.measured_from,
            "measured_seeds": self.measured_seeds,
        }


@dataclass(frozen=True)
class Ranking:
    goals: tuple[str, ...] = ()  # of all objectives if there are several
    limits: tuple[tuple[float | None, float | None], ...] = ()  # (min, max) per constraint

    @classmethod
    def of(cls, meta: StudyMeta) -> Ranking:
        return cls(
            tuple(meta.objective_goals),
            tuple((limit["min"], limit["max"]) for limit in meta.constraints),
        )

    @property
    def is_plain(self) -> bool:
        return len(self.goals) < 2 and not self.limits

    def losses(self, objectives: Sequence[float]) -> tuple[float, ...]:
        pairs = zip(objectives, self.goals, strict=True)
        return tuple(_loss_or_inf(value, -sign_of(goal)) for value, goal in pairs)

    def violations(self, constraints: Sequence[float]) -> tuple[float, ...]:
        """Return each constraint's violation, at most 0 if it is satisfied."""
        each = zip(constraints, self.limits, strict=True)
        return tuple(violation(value, *limits) for value, limits in each)

    def violation(self, constraints: Sequence[float]) -> float:
        """Return the sum of all constraint violations; infinite if one is not a number."""
        return excess(self.violations(constraints))


def volume_of(entries: Sequence[Entry], ranking: Ranking) -> float | None:
    """Return the front's hypervolume as a share of the box spanned by all trials.

    In each objective, the box extends from the best to the worst among feasible trials with the
    same state as the front. The result is None with one objective, or if the box has no volume.
    """
    group = on_fronts(entries)
    if not group:
        return None
    losses = np.array([ranking.losses(entry.objectives) for entry in group])
    low, high = losses.min(axis=0), losses.max(axis=0)
    if not np.isfinite([low, high]).all() or (low == high).any():
        return None
    front = losses[[entry.front == 1 for entry in group]]  # the others add nothing to it
    return hypervolume(((front - low) / (high - low)).tolist(), [1.0] * len(low))


def default_entry(entries: Iterable[Entry]) -> Entry | None:
    return next((entry for entry in entries if entry.is_default), None)


def on_fronts(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries on any Pareto front: the confirmed ones, or else all."""
    placed = [entry for entry in entries if entry.front is not None]
    return [entry for entry in placed if entry.confirmed] or placed


def leaderboard_of(meta: StudyMeta, rows: Iterable[TrialRow]) -> list[Entry]:
    return leaderboard(
        rows, meta.goal, meta.aggregate, Ranking.of(meta), bounds=value_bounds(meta)
    )


def _replace_fields(entry: Entry, **changes: Any) -> Entry:
    """Return a copy with some fields changed; faster than `dataclasses.replace`."""
    fields: dict[str, Any] = {**vars(entry), **changes}
    return Entry(**fields)


def study_places(entries: Sequence[Entry]) -> dict[int, int]:
    """Return each trial's place among the study's trials, which the reference is not one of.

    `Entry.rank` is the row on the leaderboard, which also lists the reference.
    """
    own = [entry.trial for entry in entries if entry.trial != REFERENCE_TRIAL]
    return {trial: place for place, trial in enumerate(own, start=1)}


def _set_rank(entry: Entry, rank: int) -> Entry:
    """Set a new entry's rank in place: copying would take a third of the ranking time."""
    object.__setattr__(entry, "rank", rank)
    return entry


def leaderboard(
    rows: Iterable[TrialRow],
    goal: str = "maximize",
    aggregate: str = "mean",
    ranking: Ranking = Ranking(),
    *,
    bounds: Bounds = UNBOUNDED,
) -> list[Entry]:
    """Return entries, best first; ties are ordered by trial number.

    Running trials rank among the stopped ones, by their last rung and its value. Trials with a
    non-finite value rank below all trials with a finite one. `bounds` is the range of possible
    values.
    """
    if goal not in ("maximize", "minimize"):
        raise ConfigError(f"unknown goal {goal!r}; known: maximize, minimize")
    sign = -sign_of(goal)
    rows = list(rows)
    default = default_of(rows)
    seeds = seeds_that_choose(rows)
    entries = [
        _unranked_entry(row, aggregate, ranking, row is default, seeds, bounds=bounds)
        for row in rows
    ]
    keys = [_sort_key(entry, sign) for entry in entries]
    if not ranking.is_plain:
        _place_groups(entries, keys, ranking)
    ordered = sorted(range(len(entries)), key=keys.__getitem__)
    ranked = [_set_rank(entries[at], rank) for rank, at in enumerate(ordered, start=1)]
    if ranked and not seeds and len(ranking.goals) < 2:
        ranked[0] = _with_test_values(ranked[0], rows[ordered[0]], bounds)
    ranked = [_without_interval(e) if e.value_from in e.copies else e for e in ranked]
    return _with_volume(ranked, ranking)


def _with_volume(ranked: list[Entry], ranking: Ranking) -> list[Entry]:
    """Set the front's hypervolume in the entries that are compared on it."""
    shown = {entry.trial for entry in on_fronts(ranked)}
    if not shown:
        return ranked
    volume = volume_of(ranked, ranking)
    return [replace(e, hypervolume=volume) if e.trial in shown else e for e in ranked]


def _without_interval(entry: Entry) -> Entry:
    """Return an entry without interval: seeds that trained identically predict no new seeds."""
    return _replace_fields(entry, ci_low=None, ci_high=None, ci_kind=NO_INTERVAL.kind)


def _with_test_values(entry: Entry, row: TrialRow, bounds: Bounds) -> Entry:
    """Return the best search trial as the winner with its test values; unchanged without any."""
    if entry.state is not TrialState.FINISHED or not row.by_report_seed:
        return entry
    around, values = bounded_interval(row.report_values, bounds), row.report_values
    if not values:  # it diverged on all test seeds
        return _replace_fields(entry, state=TrialState.CONFIRMED, confirmed=True)
    return _replace_fields(
        entry,
        state=TrialState.CONFIRMED,
        confirmed=True,
        value=mean(values),
        ci_low=around.low,
        ci_high=around.high,
        ci_kind=around.kind,
        value_from="report",
        values=values,
        seeds=len(values),
        scores=row.report_scores,
    )


def _place_groups(entries: list[Entry], keys: list[tuple[float, ...]], ranking: Ranking) -> None:
    several = len(ranking.goals) > 1
    for group in (_CONFIRMED, _FINISHED):
        members = [index for index, key in enumerate(keys) if key[0] == group]
        losses = [_objective_losses(entries[index], ranking, keys[index][1]) for index in members]
        excess = [_constraint_violation(entries[index], ranking) for index in members]
        for index, place in zip(members, places(losses, excess), strict=True):
            keys[index] = (group, *place.key, *keys[index][1:])
            if several and place.violation == 0.0:
                entries[index] = replace(entries[index], front=place.front)
    for index, key in enumerate(keys):
        if key[0] == _AT_RUNG:
            keys[index] = (
                key[0],
                key[1],
                _constraint_violation(entries[index], ranking),
                *key[2:],
            )


def _objective_losses(entry: Entry, ranking: Ranking, first: float) -> tuple[float, ...]:
    if len(ranking.goals) < 2:
        return (first,)
    if len(entry.objectives) != len(ranking.goals):
        return (math.inf,) * len(ranking.goals)
    return ranking.losses(entry.objectives)


def _constraint_violation(entry: Entry, ranking: Ranking) -> float:
    known = len(entry.constraints) == len(ranking.limits)
    if not known:
        return math.inf
    return ranking.violation(entry.constraints)


class _Chosen(Protocol):
    @property
    def choose_values(self) -> tuple[float, ...]: ...


def seeds_that_choose(trials: Iterable[_Chosen]) -> int:
    """Return the number of selection seeds of confirmed trials; 0 if there are none.

    A trial with fewer seeds was confirmed in a smaller stage, and is not compared with the others.
    """
    return max((len(trial.choose_values) for trial in trials), default=0)


_OF_ROW = ("rung", "rung_value", "stop_rule", "env_steps", "params", "rung_env_steps", "copies")


def _unranked_entry(
    row: TrialRow,
    aggregate: str,
    ranking: Ranking,
    is_default: bool,
    seeds: int,
    *,
    bounds: Bounds,
) -> Entry:
    fresh = 0 < seeds == len(row.choose_values)
    state, objectives, constraints = row.state, row.objectives, row.constraints
    choose, report = mean_or_none(row.choose_values), mean_or_none(row.report_values)
    selected, tested, feasible = None, report, None
    if fresh:
        state, selected = TrialState.CONFIRMED, choose
        objectives, constraints = row.choose_objectives, row.choose_constraints
    if len(ranking.goals) > 1:
        tested = None  # fronts are on selection seeds
    if ranking.limits and len(constraints) == len(ranking.limits):
        feasible = ranking.violation(constraints) == 0.0
    value, source, values, around = _value_and_source(row, selected, tested, aggregate, bounds)
    return Entry(
        rank=0,
        trial=row.trial,
        state=state,
        value=value,
        ci_low=around.low,
        ci_high=around.high,
        ci_kind=around.kind,
        value_from=source,
        values=values,
        confirmed=fresh,
        seeds=len(values),
        search_value=row.value,
        choose_value=choose,
        report_value=report,
        **{name: getattr(row, name) for name in _OF_ROW},
        objectives=objectives,
        constraints=constraints,
        feasible=feasible,
        is_default=is_default,
        scores={"report": row.report_scores, "choose": row.choose_scores}.get(source, row.scores),
        choose_seeds=len(row.choose_values),
        report_seeds=len(row.report_values),
        search_seeds=len(row.seed_values),
    )


def search_interval(
    value: float,
    seeds: Sequence[float],
    aggregate: str,
    stop_rule: str,
    bounds: Bounds = UNBOUNDED,
) -> Interval:
    """Return the interval of a search value; none if racing changed it or stopped the trial."""
    around = bounded_interval(seeds, bounds, aggregate)
    if around is NO_INTERVAL or stop_rule.startswith("racing"):
        return NO_INTERVAL
    own = aggregated(seeds, aggregate)
    if not math.isclose(value, own, rel_tol=1e-9, abs_tol=1e-12):
        return NO_INTERVAL
    return around


def _value_and_source(
    row: TrialRow,
    choose: float | None,
    report: float | None,
    aggregate: str,
    bounds: Bounds,
) -> tuple[float | None, _Source, tuple[float, ...], Interval]:
    reference = row.state is TrialState.REFERENCE
    if report is not None and (choose is not None or reference):
        return report, "report", row.report_values, bounded_interval(row.report_values, bounds)
    if choose is not None:
        return choose, "choose", row.choose_values, bounded_interval(row.choose_values, bounds)
    if row.state is TrialState.FINISHED and row.value is not None:
        around = search_interval(row.value, row.seed_values, aggregate, row.stop_rule, bounds)
        return row.value, "search", row.seed_values, around
    return None, "", row.seed_values, NO_INTERVAL


def _sort_key(entry: Entry, sign: float) -> tuple[float, ...]:
    value, at_rung = _loss_or_inf(entry.value, sign), _loss_or_inf(entry.rung_value, sign)
    if entry.confirmed:
        chosen = _loss_or_inf(entry.choose_value, sign)
        if max(chosen, value) < math.inf:
            return (_CONFIRMED, chosen, 0.0, entry.trial)
    elif entry.state is TrialState.FINISHED and value < math.inf:
        return (_FINISHED, value, 0.0, entry.trial)
    elif entry.state in _AT_A_RUNG and at_rung < math.inf:
        return (_AT_RUNG, -entry.rung, at_rung, entry.trial)
    return (_OTHER + _OTHER_ORDER.index(entry.state), -entry.rung, at_rung, entry.trial)


def _loss_or_inf(value: float | None, sign: float) -> float:
    """Return a value as a loss; infinite if it is missing or non-finite."""
    if value is None or not math.isfinite(value):
        return math.inf
    return sign * value


def _or_none(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
