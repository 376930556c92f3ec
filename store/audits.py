"""How often early stopping was wrong: trials that were to be stopped and ran on to their ends.

Audited trials are a random share of the stopped ones (`early_terminate.audit`), so what they show
holds for all that were stopped.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .rows import DecisionRow, StudyMeta, TrialRow, TrialState
from .statistics import binomial_interval, median

_FEWEST = 5


@dataclass(frozen=True)
class AuditedRung:
    """The stops of one rung, or of all of them.

    Attributes:
        rung: its index, None for all together.
        env_steps: of the rung, None for all together.
        judged: trials that were judged there.
        stopped: those of them that were stopped, audited ones included.
        audited: those of the stopped that ran on and whose end is known.
        wrong: audited trials that ended better than the median of the trials never stopped.
        level: those that ended exactly at it, as where a metric has an upper end.
        winners: audited trials that ended better than all of these.
        share: wrong of audited; None without any.
        low, high: its exact 95 % interval.
        correlation: Kendall's tau-b between values at the rung and at the end, over all judged
            there: audited trials count for all that were stopped beside them. None below 5 trials,
            or where the ends of some stopped ones are told by nobody.
    """

    rung: int | None
    env_steps: int | None
    judged: int
    stopped: int
    audited: int
    wrong: int
    level: int
    winners: int
    share: float | None
    low: float | None
    high: float | None
    correlation: float | None


@dataclass(frozen=True)
class Audit:
    """What the audited trials of a study say.

    Attributes:
        rungs: those where trials were stopped.
        whole: all of them together.
        survivors: trials that were never stopped and ran to their end.
        bar: the median of their values.
    """

    rungs: tuple[AuditedRung, ...]
    whole: AuditedRung
    survivors: int
    bar: float

    def as_json(self) -> dict[str, Any]:
        """Plain data for a JSON document."""
        return asdict(self)


def audit_of(
    meta: StudyMeta,
    rows: Iterable[TrialRow],
    decisions: Sequence[DecisionRow],
    finishing: Collection[str],
) -> Audit | None:
    """Return the audit of a study, None where no audited trial has come to its end.

    Args:
        meta: says which way is better. With several objectives or constraints there is no one
            value to be wrong about, and no audit.
        rows: the trials.
        decisions: all judgements.
        finishing: names of rules that end trials with the value they have: no loss to be wrong
            about. A rule that ended one so in these decisions is one of them without its name.
    """
    if meta.objectives or meta.constraints:
        return None
    sign = 1.0 if meta.goal == "maximize" else -1.0
    trials = {row.trial: row for row in rows}
    ends = {n: end for n, row in trials.items() if (end := _end(row, sign)) is not None}
    ending = {row.rule for row in decisions if row.action == "finish"}
    stops: dict[int, DecisionRow] = {
        row.trial: row
        for row in decisions
        if row.action in ("stop", "audit")
        and row.rule not in ending
        and row.rule.split(" ")[0] not in finishing
    }
    survivors = [end for n, end in ends.items() if n not in stops and math.isfinite(end)]
    known = {n for n, row in stops.items() if row.action == "audit" and n in ends}
    if not known or not survivors:
        return None
    bar, best = median(survivors), max(survivors)
    found: list[AuditedRung] = []
    weights = _weights(stops, known)
    for rung in sorted({row.rung for row in stops.values()}):
        judged = [row for row in decisions if row.rung == rung]
        here = [n for n, row in stops.items() if row.rung == rung]
        counted = _counted(here, known, ends, bar, best)
        tau = _correlation(judged, stops, ends, weights, sign)
        steps = min(row.env_steps for row in judged)
        found.append(AuditedRung(rung, steps, len(judged), len(here), *counted, tau))
    everyone = len({row.trial for row in decisions})
    counted = _counted(list(stops), known, ends, bar, best)
    whole = AuditedRung(None, None, everyone, len(stops), *counted, None)
    return Audit(tuple(found), whole, len(survivors), sign * bar)


def _end(row: TrialRow, sign: float) -> float | None:
    """Return the value at the end, higher is better; the worst of a diverged one, None unknown."""
    if row.state is TrialState.DIVERGED:
        return -math.inf
    if row.state is not TrialState.FINISHED or row.value is None:
        return None
    return sign * row.value if math.isfinite(row.value) else -math.inf


def _counted(
    stopped: Sequence[int],
    known: set[int],
    ends: Mapping[int, float],
    bar: float,
    best: float,
) -> tuple[int, int, int, int, float | None, float | None, float | None]:
    """Return audited, wrong, level, winners, share, low, high of some stopped trials."""
    audited = [ends[n] for n in stopped if n in known]
    wrong = sum(end > bar for end in audited)
    level = sum(end == bar for end in audited)
    winners = sum(end > best for end in audited)
    if not audited:
        return 0, 0, 0, 0, None, None, None
    share = wrong / len(audited)
    return len(audited), wrong, level, winners, share, *binomial_interval(wrong, len(audited))


def _weights(stops: Mapping[int, DecisionRow], known: set[int]) -> dict[int, float]:
    """Return for how many stopped trials of its rung an audited one stands."""
    at: dict[int, list[int]] = defaultdict(list)
    for number, row in stops.items():
        at[row.rung].append(number)
    return {
        number: len(here) / len(told)
        for here in at.values()
        if (told := [n for n in here if n in known])
        for number in told
    }


def _correlation(
    judged: Sequence[DecisionRow],
    stops: Mapping[int, DecisionRow],
    ends: Mapping[int, float],
    weights: Mapping[int, float],
    sign: float,
) -> float | None:
    stopped = {row.trial: stops[row.trial].rung for row in judged if row.trial in stops}
    told = {rung for n, rung in stopped.items() if n in weights}
    if set(stopped.values()) - told:  # nobody stands for those that were stopped at some rung
        return None
    rows = [
        (sign * row.value, ends[row.trial], weights.get(row.trial, 1.0))
        for row in judged
        if row.trial in ends and (row.trial not in stops or row.trial in weights)
    ]
    if len(rows) < _FEWEST:
        return None
    return weighted_kendall(*zip(*rows, strict=True))


def weighted_kendall(
    first: Sequence[float], second: Sequence[float], weights: Sequence[float]
) -> float | None:
    """Return Kendall's tau-b of two orders, where a pair counts the product of its weights.

    With equal weights it is the tau-b of Kendall 1945. None where one order has only ties.

    >>> weighted_kendall([1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 1.0, 1.0])
    0.3333333333333333
    """
    import numpy as np  # loaded on use: `hpo top` of a study without audits starts faster

    one, other, weight = (np.asarray(values, np.float64) for values in (first, second, weights))
    agree = untied_first = untied_second = 0.0
    for index in range(1, len(one)):  # a row of the matrix of pairs at a time
        pairs = weight[index] * weight[:index]
        here = _signs(one[index], one[:index])
        there = _signs(other[index], other[:index])
        agree += float(np.sum(pairs * here * there))
        untied_first += float(np.sum(pairs * np.abs(here)))
        untied_second += float(np.sum(pairs * np.abs(there)))
    if untied_first == 0.0 or untied_second == 0.0:
        return None
    return agree / math.sqrt(untied_first * untied_second)


def _signs(value: Any, others: Any) -> Any:
    """Return 1, 0, -1 where a value is above, equal to, below others; infinite ones are equal."""
    return (value > others) * 1.0 - (value < others) * 1.0
