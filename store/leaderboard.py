"""The order of trials: confirmed, then finished, then stopped, then all others, never mixed.

Confirmed trials are ordered by the mean of their `choose` seeds; the number shown for the winner
is the mean of its `report` seeds, which chose nothing and so are not flattered by the choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import ConfigError
from .codec import finite_json
from .rows import TrialRow, TrialState
from .statistics import NO_INTERVAL, Interval, interval, mean

__all__ = ["Entry", "leaderboard"]

_CONFIRMED, _FINISHED, _STOPPED, _OTHER = range(4)
_OTHER_ORDER = (
    TrialState.RUNNING,
    TrialState.UNFINISHED,
    TrialState.FINISHED,  # here only with a value that is not finite
    TrialState.STOPPED,
    TrialState.DIVERGED,
    TrialState.FAILED,
    TrialState.WAITING,
)


@dataclass(frozen=True)
class Entry:
    """One line of the leaderboard.

    Attributes:
        rank: 1 is the best.
        trial: its number.
        state: where it stands.
        value: what the study optimises, from fresh seeds when confirmed; None for a trial that
            was stopped or did not get to its end.
        ci_low, ci_high: the 95 % interval of `value`, None below 5 seeds.
        ci_kind: `t`, `bootstrap` or `none`.
        value_from: the seeds behind `value`: `report`, `choose`, `search`, or "" without one.
        values: one a seed behind `value`; without a value, the last of each replicate.
        confirmed: it was run again on fresh seeds.
        seeds: how many `values`.
        search_value: the value in the search, on seeds that also did the choosing.
        choose_value: the mean over the seeds that ordered the confirmed trials.
        report_value: the mean over the seeds that chose nothing.
        rung, rung_value: the last rung it was judged at, -1 before the first, and its value.
        stop_rule: the words of the rule that stopped it.
        env_steps: training env steps of all its replicates in the search.
        params: the searched knobs that are active.
    """

    rank: int
    trial: int
    state: TrialState
    value: float | None
    ci_low: float | None
    ci_high: float | None
    ci_kind: Literal["none", "t", "bootstrap"]
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

    def as_json(self) -> dict[str, Any]:
        """Plain data for a JSON document; numbers that are not finite become null.

        In `params` they become the texts `nan`, `inf`, `-inf`, since null switches a knob off.
        """
        fields = {name: _or_none(value) for name, value in vars(self).items()}
        fields["state"] = str(self.state)
        fields["values"] = [_or_none(value) for value in self.values]
        fields["params"] = finite_json(dict(self.params))
        return fields


def leaderboard(
    rows: Iterable[TrialRow], goal: str = "maximize", aggregate: str = "mean"
) -> list[Entry]:
    """Entries from the best to the last.

    Only finite numbers rank: a trial whose value (or rung value, or choose or report mean) is
    NaN or infinite comes after all stopped ones. Ties go to the smaller number.

    Args:
        rows: trials in any order.
        goal: `maximize` or `minimize`.
        aggregate: how the search's values were made of its replicates; decides their interval.

    Raises:
        ConfigError: an unknown goal.
    """
    if goal not in ("maximize", "minimize"):
        raise ConfigError(f"unknown goal {goal!r}; known: maximize, minimize")
    sign = -1.0 if goal == "maximize" else 1.0
    entries = [_entry(row, aggregate) for row in rows]
    entries.sort(key=lambda entry: _order(entry, sign))
    return [replace(entry, rank=index) for index, entry in enumerate(entries, start=1)]


def _entry(row: TrialRow, aggregate: str) -> Entry:
    choose = mean(row.choose_values) if row.choose_values else None
    report = mean(row.report_values) if row.report_values else None
    value, source, values, around = _shown(row, choose, report, aggregate)
    return Entry(
        rank=0,
        trial=row.trial,
        state=row.state,
        value=value,
        ci_low=around.low,
        ci_high=around.high,
        ci_kind=around.kind,
        value_from=source,
        values=values,
        confirmed=choose is not None,
        seeds=len(values),
        search_value=row.value,
        choose_value=choose,
        report_value=report,
        rung=row.rung,
        rung_value=row.rung_value,
        stop_rule=row.stop_rule,
        env_steps=row.env_steps,
        params=row.params,
    )


_Shown = tuple[
    float | None, Literal["report", "choose", "search", ""], tuple[float, ...], Interval
]


def _shown(row: TrialRow, choose: float | None, report: float | None, aggregate: str) -> _Shown:
    """The value shown, the seeds it is from, their values, its interval."""
    if choose is not None and report is not None:
        return report, "report", row.report_values, interval(row.report_values)
    if choose is not None:
        return choose, "choose", row.choose_values, interval(row.choose_values)
    if row.state is TrialState.FINISHED and row.value is not None:
        return row.value, "search", row.seed_values, interval(row.seed_values, aggregate)
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
    elif entry.state is TrialState.STOPPED and at_rung < math.inf:
        return (_STOPPED, -entry.rung, at_rung, entry.trial)
    return (_OTHER + _OTHER_ORDER.index(entry.state), -entry.rung, at_rung, entry.trial)


def _key(value: float | None, sign: float) -> float:
    """The smaller the better; infinite for what is missing or not finite."""
    return math.inf if value is None or not math.isfinite(value) else sign * value


def _or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
