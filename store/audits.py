"""The rate of false stops, from audited trials.

Audited trials are a random sample of the trials that a rule would have stopped; they run to
completion instead (`early_terminate.audit`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .libraries import np
from .rows import DecisionRow, StudyMeta, TrialRow, TrialState
from .statistics import binomial_interval, median, sign_of

_FEWEST = 5


@dataclass(frozen=True)
class AuditedRung:
    rung: int | None  # None for all rungs together, like `env_steps`
    env_steps: int | None
    judged: int
    stopped: int  # number of judged trials that were stopped, including audited ones
    audited: int  # number of stopped trials with a known end
    wrong: int  # audited trials that ended above the median of the trials never stopped
    level: int  # audited trials exactly at that median, as at a ceiling
    winners: int  # audited trials better than all trials never stopped
    share: float | None  # wrong / audited; None without audited trials
    low: float | None  # its exact 95 % interval
    high: float | None
    # Kendall's tau-b between values at the rung and at the end; an audited trial represents the
    # trials stopped at its rung. None below 5 trials, or if a rung with stops has no audited
    # trial.
    correlation: float | None


@dataclass(frozen=True)
class Audit:
    rungs: tuple[AuditedRung, ...]  # rungs with stops
    whole: AuditedRung
    survivors: int  # trials never stopped that ran to their end
    bar: float  # the median of their values


def audit_of(
    meta: StudyMeta,
    rows: Iterable[TrialRow],
    decisions: Sequence[DecisionRow],
    finishing: Collection[str],
) -> Audit | None:
    """Return a study's audit; None with constraints, or if no audited trial has finished.

    `finishing` names the rules whose stops are not audited, because the runs that they end count
    as complete.
    """
    if meta.objectives or meta.constraints:
        return None
    sign = sign_of(meta.goal)
    ends = _final_values(rows, sign)
    stops = _Stops(_stops_of(decisions, finishing), ends)
    survivors = [end for n, end in ends.items() if n not in stops.rows and math.isfinite(end)]
    if not stops.known or not survivors:
        return None
    bar, best = median(survivors), max(survivors)
    found: list[AuditedRung] = []
    for rung in stops.rungs:
        judged = [row for row in decisions if row.rung == rung]
        rates = _audit_fields(stops.ends_at(rung), bar, best)
        tau = _rank_correlation(judged, stops, ends, sign)
        steps = min(row.env_steps for row in judged)
        found.append(AuditedRung(rung, steps, len(judged), stops.count_at(rung), *rates, tau))
    rates = _audit_fields([ends[n] for n in stops.known], bar, best)
    everyone = len({row.trial for row in decisions})
    whole = AuditedRung(None, None, everyone, len(stops.rows), *rates, None)
    return Audit(tuple(found), whole, len(survivors), sign * bar)


@dataclass(frozen=True, eq=False)
class _Stops:
    """The stops in a study, and the final values of audited trials."""

    rows: Mapping[int, DecisionRow]  # by trial
    ends: Mapping[int, float]

    @cached_property
    def known(self) -> list[int]:
        """The audited trials whose final values are known."""
        return [n for n, row in self.rows.items() if row.action == "audit" and n in self.ends]

    @property
    def rungs(self) -> list[int]:
        return sorted({row.rung for row in self.rows.values()})

    def count_at(self, rung: int) -> int:
        return sum(row.rung == rung for row in self.rows.values())

    def ends_at(self, rung: int) -> list[float]:
        """Return the final values of the trials audited at a rung."""
        return [self.ends[n] for n in self.known if self.rows[n].rung == rung]

    @cached_property
    def weights(self) -> dict[int, float]:
        """The number of stopped trials that each audited trial represents at its rung."""
        stopped = Counter(row.rung for row in self.rows.values())
        audited = Counter(self.rows[n].rung for n in self.known)
        return {n: stopped[self.rows[n].rung] / audited[self.rows[n].rung] for n in self.known}


def _stops_of(
    decisions: Sequence[DecisionRow], finishing: Collection[str]
) -> dict[int, DecisionRow]:
    """Return the decision that stopped each trial, including audited ones."""
    ending = {row.rule for row in decisions if row.action == "finish"}
    found: dict[int, DecisionRow] = {}
    for row in decisions:
        is_judged = row.rule not in ending and row.rule.split(" ")[0] not in finishing
        if row.action in ("stop", "audit") and is_judged:
            found[row.trial] = row
    return found


def _final_values(rows: Iterable[TrialRow], sign: float) -> dict[int, float]:
    known = ((row.trial, _final_value(row, sign)) for row in rows)
    return {trial: end for trial, end in known if end is not None}


def _final_value(row: TrialRow, sign: float) -> float | None:
    """Return the final value, higher is better; -inf if diverged, None if unknown."""
    if row.state is TrialState.DIVERGED:
        return -math.inf
    if row.state is not TrialState.FINISHED or row.value is None:
        return None
    if not math.isfinite(row.value):
        return -math.inf
    return sign * row.value


def _audit_fields(
    audited: Sequence[float], bar: float, best: float
) -> tuple[int, int, int, int, float | None, float | None, float | None]:
    """Return the fields `audited` to `high` of `AuditedRung` from final values."""
    if not audited:
        return 0, 0, 0, 0, None, None, None
    wrong, count = sum(end > bar for end in audited), len(audited)
    level, winners = sum(end == bar for end in audited), sum(end > best for end in audited)
    return count, wrong, level, winners, wrong / count, *binomial_interval(wrong, count)


def _rank_correlation(
    judged: Sequence[DecisionRow], stops: _Stops, ends: Mapping[int, float], sign: float
) -> float | None:
    weights = stops.weights
    stopped = {row.trial: stops.rows[row.trial].rung for row in judged if row.trial in stops.rows}
    if set(stopped.values()) - {rung for n, rung in stopped.items() if n in weights}:
        return None  # a rung with stops has no audited trial
    shown = [row for row in judged if row.trial not in stopped or row.trial in weights]
    rows = [
        (sign * row.value, ends[row.trial], weights.get(row.trial, 1.0))
        for row in shown
        if row.trial in ends
    ]
    if len(rows) < _FEWEST:
        return None
    return weighted_kendall(*zip(*rows, strict=True))


def weighted_kendall(
    first: Sequence[float], second: Sequence[float], weights: Sequence[float]
) -> float | None:
    """Return Kendall's tau-b (1945); a pair's weight is the product of its items' weights.

    The result is None if one of the orders has only ties.

    >>> weighted_kendall([1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 1.0, 1.0])
    0.3333333333333333
    """
    one, other, weight = (np.asarray(values, np.float64) for values in (first, second, weights))
    agree = untied_first = untied_second = 0.0
    for index in range(1, len(one)):  # one row of the matrix of pairs at a time
        pairs = weight[index] * weight[:index]
        here, there = (  # not np.sign of a difference: infinite values are equal
            1.0 * (side[index] > side[:index]) - 1.0 * (side[index] < side[:index])
            for side in (one, other)
        )
        agree += float(np.sum(pairs * here * there))
        untied_first += float(np.sum(pairs * np.abs(here)))
        untied_second += float(np.sum(pairs * np.abs(there)))
    if untied_first == 0.0 or untied_second == 0.0:
        return None
    return agree / math.sqrt(untied_first * untied_second)
