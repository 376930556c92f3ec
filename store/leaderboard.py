"""The order of trials: confirmed, then finished, then by the rung they reached, then all others.

Confirmed trials are ordered by the mean of their `choose` seeds; the number shown for the winner
is the mean of its `report` seeds, which chose nothing and so are not flattered by the choice.
With several objectives or constraints, confirmed and finished trials are ordered by constrained
domination among themselves: feasible ones by front, then by how much room they have on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from ..errors import ConfigError
from .codec import finite_json
from .paired import Bounds
from .pareto import hypervolume, places
from .rows import REFERENCE_TRIAL, StudyMeta, TrialRow, TrialState
from .statistics import NO_INTERVAL, Interval, IntervalKind, interval, mean
from .statistics import aggregate as aggregated
from .value_bounds import value_bounds


def default_of(rows: Sequence[TrialRow]) -> TrialRow | None:
    """Return the trial that is the default configuration, from beginning to end; maybe none.

    That is trial 0, unless it copied others on its way: then the one made for the comparison.
    """
    by_number = {row.trial: row for row in rows}
    first = by_number.get(0)
    return first if first is not None and not first.schedule else by_number.get(REFERENCE_TRIAL)


_CONFIRMED, _FINISHED, _AT_RUNG, _OTHER = range(4)
_OTHER_ORDER = (
    TrialState.RUNNING,  # before its first rung
    TrialState.INTERRUPTED,
    TrialState.PAUSED,  # here only with a value at its rung that is not finite
    TrialState.UNFINISHED,
    TrialState.CONFIRMED,  # these two are here only with a value that is not finite
    TrialState.FINISHED,
    TrialState.STOPPED,
    TrialState.DIVERGED,
    TrialState.FAILED,
    TrialState.WAITING,
    TrialState.REFERENCE,
)
_AT_A_RUNG = (
    TrialState.STOPPED, TrialState.PAUSED, TrialState.RUNNING, TrialState.INTERRUPTED,
    TrialState.UNFINISHED,
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One line of the leaderboard.

    Attributes:
        rank: 1 is the best.
        trial: its number.
        state: where it stands; `confirmed` where it was run again on the seeds that choose.
        value: what the study optimises, from fresh seeds when confirmed; None for a trial that
            was stopped or did not get to its end.
        ci_low, ci_high: the 95 % interval of `value`, None below 5 seeds.
        ci_kind: as in `Interval`: `t`, `bootstrap` or `none`.
        value_from: the seeds behind `value`: `report`, `choose`, `search`, or "" without one.
        values: one a seed behind `value`; without a value, the last of each replicate.
        confirmed: it was run again on the fresh seeds that chose the winner: all of them, which a
            trial of an earlier, smaller confirm stage was not.
        seeds: how many `values`.
        search_value: the value in the search, on seeds that also did the choosing.
        choose_value: the mean over the seeds that ordered the confirmed trials.
        report_value: the mean over the seeds that chose nothing.
        choose_seeds, report_seeds: how many values are behind these two.
        rung, rung_value: the last rung it was judged at, -1 before the first, and its value.
        rung_env_steps: training env steps of each seed there; of a trial that a rule stopped it is
            where that was.
        stop_rule: the words of the rule that stopped it.
        env_steps: training env steps of all its replicates in the search.
        params: the searched knobs that are active.
        objectives: where there are several, one value each, from the seeds behind `value`.
        constraints: one value a constraint, likewise; of a stopped trial those at its last rung.
        feasible: it keeps all constraints; None where there are none or they were not measured.
        front: with several objectives 1 for a trial that no other of its state (confirmed or
            finished) dominates, and so on; None for all others.
        scores: of several environments, the mean score on each, from the seeds behind `value`.
        search_seeds: how many replicates are behind `search_value` or `rung_value`.
        hypervolume: of that state's front as a whole, see `volume_of`; equal in all its trials.
        is_default: it is the default configuration, from beginning to end.
    """

    rank: int
    trial: int
    state: TrialState
    value: float | None
    ci_low: float | None
    ci_high: float | None
    ci_kind: IntervalKind
    value_from: Literal["report", "choose", "search", ""]
    values: tuple[float, ...]
    confirmed: bool
    seeds: int
    search_value: float | None
    choose_value: float | None
    report_value: float | None
    rung: int
    rung_value: float | None
    stop_rule: str
    env_steps: int
    params: Mapping[str, Any]
    objectives: tuple[float, ...] = ()
    constraints: tuple[float, ...] = ()
    feasible: bool | None = None
    front: int | None = None
    hypervolume: float | None = None
    is_default: bool = False
    scores: tuple[float, ...] = ()
    choose_seeds: int = 0
    report_seeds: int = 0
    search_seeds: int = 0
    rung_env_steps: int | None = None

    @property
    def measured_value(self) -> float | None:
        """The value of full runs that a trial is compared by.

        Fresh seeds come first, also where `value` is none because the search stopped the trial:
        the default runs on them all the same.
        """
        return self.report_value if self.value is None else self.value

    @property
    def measured_from(self) -> Literal["report", "choose", "search", ""]:
        """The seeds behind `measured_value`, as in `value_from`."""
        return "report" if self.value is None and self.report_value is not None else (
            self.value_from
        )  # fmt: skip

    @property
    def measured_seeds(self) -> int:
        """How many these are; 0 without a value."""
        if self.measured_value is None:
            return 0
        return self.report_seeds if self.value is None else self.seeds

    def as_json(self) -> dict[str, Any]:
        """Plain data for a JSON document; numbers that are not finite become null.

        In `params` they become the texts `nan`, `inf`, `-inf`, since null switches a knob off.
        """
        fields = {name: _or_none(value) for name, value in vars(self).items()}
        fields["state"] = str(self.state)
        for name in ("values", "objectives", "constraints", "scores"):
            fields[name] = [_or_none(value) for value in getattr(self, name)]
        fields["params"] = finite_json(dict(self.params))
        fields["measured_value"] = _or_none(self.measured_value)
        return fields | {
            "measured_from": self.measured_from,
            "measured_seeds": self.measured_seeds,
        }


@dataclass(frozen=True)
class Ranking:
    """What decides beside the first metric.

    Attributes:
        goals: of all objectives, where there are several; else empty.
        limits: (min, max) of each constraint.
    """

    goals: tuple[str, ...] = ()
    limits: tuple[tuple[float | None, float | None], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the first metric alone decides."""
        return len(self.goals) < 2 and not self.limits

    def losses(self, objectives: Sequence[float]) -> tuple[float, ...]:
        """Return one loss an objective."""
        signs = (-1.0 if goal == "maximize" else 1.0 for goal in self.goals)
        return tuple(_key(value, sign) for value, sign in zip(objectives, signs, strict=True))

    def violation(self, constraints: Sequence[float]) -> float:
        """Return the sum of all constraint violations, infinite where one is not a number."""
        total = 0.0
        for value, (low, high) in zip(constraints, self.limits, strict=True):
            if not math.isfinite(value):
                return math.inf
            total += max(0.0, value - high if high is not None else 0.0)
            total += max(0.0, low - value if low is not None else 0.0)
        return total

    @classmethod
    def of(cls, meta: StudyMeta) -> Ranking:
        """Return that of a study from what its journal says about it."""
        return cls(
            tuple(str(objective["goal"]) for objective in meta.objectives),
            tuple((limit["min"], limit["max"]) for limit in meta.constraints),
        )


_PLAIN = Ranking()


def volume_of(entries: Sequence[Entry], ranking: Ranking) -> float | None:
    """Return the hypervolume of the front, as a share of the box that all trials span.

    The box goes from the best to the worst value of each objective among the trials of the
    front's state (confirmed, or finished if none is) that keep the constraints. None without
    several objectives, or where the box has no volume.
    """
    group = _shown_front(entries)
    if not group:
        return None
    losses = [ranking.losses(entry.objectives) for entry in group]
    low = [min(column) for column in zip(*losses, strict=True)]
    high = [max(column) for column in zip(*losses, strict=True)]
    if not all(0.0 < above - below < math.inf for below, above in zip(low, high, strict=True)):
        return None
    shares = [
        [
            (loss - below) / (above - below)
            for loss, below, above in zip(row, low, high, strict=True)
        ]
        for row, entry in zip(losses, group, strict=True)
        if entry.front == 1  # the others add nothing but time
    ]
    return hypervolume(shares, [1.0] * len(low))


def _shown_front(entries: Sequence[Entry]) -> list[Entry]:
    """Return the trials with a front: the confirmed ones, or the finished if none is."""
    placed = [entry for entry in entries if entry.front is not None]
    return [entry for entry in placed if entry.confirmed] or placed


def leaderboard_of(meta: StudyMeta, rows: Iterable[TrialRow]) -> list[Entry]:
    """Return the leaderboard of a study from what its journal says about it."""
    found = leaderboard(rows, meta.goal, meta.aggregate, Ranking.of(meta))
    bounds = value_bounds(meta)
    if bounds == Bounds():
        return found
    return [_kept_within(entry, bounds) for entry in found]


def _kept_within(entry: Entry, bounds: Bounds) -> Entry:
    """Return an entry whose interval does not leave the values that there can be."""
    around = bounds.around(Interval(entry.ci_low, entry.ci_high, entry.ci_kind))
    if (around.low, around.high) == (entry.ci_low, entry.ci_high):
        return entry
    return replace(entry, ci_low=around.low, ci_high=around.high)


def leaderboard(
    rows: Iterable[TrialRow],
    goal: str = "maximize",
    aggregate: str = "mean",
    ranking: Ranking = _PLAIN,
) -> list[Entry]:
    """Entries from the best to the last.

    Trials that run stand among the stopped ones, by the rung they passed and their value there.
    Only finite numbers rank: a trial whose value (or rung value, or choose or report mean) is
    NaN or infinite comes after all of these. Ties go to the smaller number.

    Args:
        rows: trials in any order.
        goal: `maximize` or `minimize`.
        aggregate: how the search's values were made of its replicates; decides their interval.
        ranking: further objectives and constraints.

    Raises:
        ConfigError: an unknown goal.
    """
    if goal not in ("maximize", "minimize"):
        raise ConfigError(f"unknown goal {goal!r}; known: maximize, minimize")
    sign = -1.0 if goal == "maximize" else 1.0
    rows = list(rows)
    default = default_of(rows)
    seeds = seeds_that_choose(rows)
    entries = [_entry(row, aggregate, ranking, row is default, seeds) for row in rows]
    keys = [_order(entry, sign) for entry in entries]
    if not ranking.is_plain:
        _place_groups(entries, keys, ranking)
    ordered = sorted(range(len(entries)), key=keys.__getitem__)
    ranked = [_at(rank, entries[at]) for rank, at in enumerate(ordered, start=1)]
    shown = {entry.trial for entry in _shown_front(ranked)}
    volume = volume_of(ranked, ranking) if shown else None
    return [replace(e, hypervolume=volume) if e.trial in shown else e for e in ranked]


def _at(rank: int, entry: Entry) -> Entry:
    """Return an entry with its place; `replace` would take a third of a leaderboard's time."""
    fields: dict[str, Any] = {**vars(entry), "rank": rank}
    return Entry(**fields)


def _place_groups(entries: list[Entry], keys: list[tuple[float, ...]], ranking: Ranking) -> None:
    """Order the confirmed among themselves, and the finished, by their places; note the fronts."""
    several = len(ranking.goals) > 1
    for group in (_CONFIRMED, _FINISHED):
        members = [index for index, key in enumerate(keys) if key[0] == group]
        losses = [_losses(entries[index], ranking, keys[index][1]) for index in members]
        excess = [_excess(entries[index], ranking) for index in members]
        for index, place in zip(members, places(losses, excess), strict=True):
            keys[index] = (group, *place.key, *keys[index][1:])
            if several and place.violation == 0.0:
                entries[index] = replace(entries[index], front=place.front)
    _below_feasible(entries, keys, ranking)


def _below_feasible(entries: list[Entry], keys: list[tuple[float, ...]], ranking: Ranking) -> None:
    """Among those with a value at one rung, put the ones that violate a constraint last."""
    for index, key in enumerate(keys):
        if key[0] == _AT_RUNG:
            keys[index] = (key[0], key[1], _excess(entries[index], ranking), *key[2:])


def _losses(entry: Entry, ranking: Ranking, first: float) -> tuple[float, ...]:
    if len(ranking.goals) < 2:
        return (first,)
    if len(entry.objectives) != len(ranking.goals):
        return (math.inf,) * len(ranking.goals)
    return ranking.losses(entry.objectives)


def _excess(entry: Entry, ranking: Ranking) -> float:
    known = len(entry.constraints) == len(ranking.limits)
    return ranking.violation(entry.constraints) if known else math.inf


class _Chosen(Protocol):
    """What has values on seeds that choose: a trial, or its row."""

    @property
    def choose_values(self) -> tuple[float, ...]: ...


def seeds_that_choose(trials: Iterable[_Chosen]) -> int:
    """Return on how many seeds the confirmed trials are compared, 0 without any.

    All of one confirm stage have a value on each of its seeds, and so has who had them before: a
    trial with fewer was confirmed by a smaller stage, with which none of these is compared.
    """
    return max((len(trial.choose_values) for trial in trials), default=0)


def _entry(row: TrialRow, aggregate: str, ranking: Ranking, is_default: bool, seeds: int) -> Entry:
    fresh = 0 < seeds == len(row.choose_values)
    constraints = row.choose_constraints if fresh else row.constraints
    measured = bool(ranking.limits) and len(constraints) == len(ranking.limits)
    choose = mean(row.choose_values) if row.choose_values else None
    report = mean(row.report_values) if row.report_values else None
    shown = None if len(ranking.goals) > 1 else report  # a front is of the seeds that chose it
    value, source, values, around = _shown(row, choose if fresh else None, shown, aggregate)
    return Entry(
        rank=0,
        trial=row.trial,
        state=TrialState.CONFIRMED if fresh else row.state,
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
        rung=row.rung,
        rung_value=row.rung_value,
        stop_rule=row.stop_rule,
        env_steps=row.env_steps,
        params=row.params,
        objectives=row.choose_objectives if fresh else row.objectives,
        constraints=constraints,
        feasible=ranking.violation(constraints) == 0.0 if measured else None,
        is_default=is_default,
        scores=_scores(row, source),
        choose_seeds=len(row.choose_values),
        report_seeds=len(row.report_values),
        search_seeds=len(row.seed_values),
        rung_env_steps=row.rung_env_steps,
    )


def _scores(row: TrialRow, source: str) -> tuple[float, ...]:
    return {"report": row.report_scores, "choose": row.choose_scores}.get(source, row.scores)


_Shown = tuple[
    float | None, Literal["report", "choose", "search", ""], tuple[float, ...], Interval
]


def search_interval(
    value: float, seeds: Sequence[float], aggregate: str, stop_rule: str
) -> Interval:
    """Return the interval of a value of the search; none where racing moved it or ended it.

    Args:
        value: the trial's.
        seeds: one value a replicate.
        aggregate: over these.
        stop_rule: the words of the rule that ended the trial.
    """
    around = interval(seeds, aggregate)
    if around is NO_INTERVAL or stop_rule.startswith("racing"):
        return NO_INTERVAL
    own = aggregated(seeds, aggregate)
    return around if math.isclose(value, own, rel_tol=1e-9, abs_tol=1e-12) else NO_INTERVAL


def _shown(row: TrialRow, choose: float | None, report: float | None, aggregate: str) -> _Shown:
    """The value shown, the seeds it is from, their values, its interval."""
    if choose is not None and report is not None:
        return report, "report", row.report_values, interval(row.report_values)
    if choose is not None:
        return choose, "choose", row.choose_values, interval(row.choose_values)
    if row.state is TrialState.FINISHED and row.value is not None:
        around = search_interval(row.value, row.seed_values, aggregate, row.stop_rule)
        return row.value, "search", row.seed_values, around
    if row.state is TrialState.REFERENCE and report is not None:
        return report, "report", row.report_values, interval(row.report_values)
    return None, "", row.seed_values, NO_INTERVAL


def _order(entry: Entry, sign: float) -> tuple[float, ...]:
    """Sort key: the group, then what counts inside it, then the trial's number."""
    value, at_rung = _key(entry.value, sign), _key(entry.rung_value, sign)
    if entry.confirmed:
        chosen = _key(entry.choose_value, sign)
        if max(chosen, value) < math.inf:
            return (_CONFIRMED, chosen, 0.0, entry.trial)
    elif entry.state is TrialState.FINISHED and value < math.inf:
        return (_FINISHED, value, 0.0, entry.trial)
    elif entry.state in _AT_A_RUNG and at_rung < math.inf:
        return (_AT_RUNG, -entry.rung, at_rung, entry.trial)
    return (_OTHER + _OTHER_ORDER.index(entry.state), -entry.rung, at_rung, entry.trial)


def _key(value: float | None, sign: float) -> float:
    """The smaller the better; infinite for what is missing or not finite."""
    return math.inf if value is None or not math.isfinite(value) else sign * value


def _or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
