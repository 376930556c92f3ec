"""Verdict on whether a front dominates the default; `front_text.py` has the wording."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .interim_analyses import fewest_pairs
from .mean_difference import Unless, paired_interval, paired_unless
from .statistics import mean, sign_of
from .unobserved import UNBOUNDED, Bounds

FrontVerdict = Literal["behind", "on_front", "open", "undecided"]
Vectors = Mapping[int, Sequence[float]]  # replicate -> one value per objective
_ERROR = 0.05


@dataclass(frozen=True)
class FrontObjective:
    """The properties of an objective that are needed for a verdict."""

    name: str
    goal: str = "maximize"
    bounds: Bounds = UNBOUNDED  # of its values
    is_cost: bool = False  # exact: equal on every seed


@dataclass(frozen=True)
class Apart:
    objective: str
    trial: int
    means: tuple[float, float]  # of the trial and of the default
    difference: float  # positive if the trial is better
    low: float | None  # lower end of its interval; None below 6 seeds
    high: float | None
    unless: Unless | None = None  # set if only outcomes that no seed has shown prevent a verdict

    @property
    def better_unless(self) -> int | None:
        """N if the trial is better unless 1 in N seeds differs, 0 if always better, else None."""
        return self._ahead_unless(1.0)

    @property
    def worse_unless(self) -> int | None:
        return self._ahead_unless(-1.0)

    def _ahead_unless(self, sign: float) -> int | None:
        if self.low is None or self.high is None:
            return None
        if min(sign * self.low, sign * self.high) > 0.0:
            return 0
        if self.unless is None or sign * self.difference <= 0.0:
            return None
        return self.unless.one_in


@dataclass(frozen=True)
class FrontConclusion:
    verdict: FrontVerdict
    trial: int | None  # better in every objective, possibly under the condition
    seeds: int  # number on which all ran
    compared: int  # number of trials
    objectives: tuple[Apart, ...]  # of that trial, or else of the leading trial in each objective
    fewest: int = 0  # number of seeds that any verdict needs
    unless: int | None = None  # if undecided: there is a verdict unless 1 in so many seeds differs
    of_seen: FrontVerdict | None = None  # the verdict under that condition


def conclude_front(
    default: Vectors,
    trials: Mapping[int, Vectors],
    objectives: Sequence[FrontObjective],
) -> FrontConclusion | None:
    """Return the verdict on whether the front dominates the default; None without common seeds."""
    seeds = sorted(set(default).intersection(*trials.values()))
    if not seeds or not trials:
        return None
    level = _ERROR / max(len(trials), len(objectives))
    against = [_objective_values(default, seeds, place) for place in range(len(objectives))]
    table = dict[int, list[Apart]]()
    for number, values in trials.items():
        own = [_objective_values(values, seeds, place) for place in range(len(objectives))]
        each = zip(objectives, own, against, strict=True)
        table[number] = [_compare_objective(number, *one, level) for one in each]
    verdict, trial, unless = _front_verdict(table)
    fewest = fewest_pairs(level)
    if len(seeds) < fewest:
        verdict, trial, unless = "undecided", None, 0
    shown = _leader_per_objective(table) if trial is None else table[trial]
    found = FrontConclusion(verdict, trial, len(seeds), len(table), tuple(shown), fewest)
    if not unless:
        return found
    return replace(found, verdict="open", unless=unless, of_seen=verdict)


def _objective_values(values: Vectors, seeds: Sequence[int], place: int) -> list[float]:
    """Return one objective's values, in seed order."""
    return [values[seed][place] for seed in seeds]


def _front_verdict(
    table: Mapping[int, Sequence[Apart]],
) -> tuple[FrontVerdict, int | None, int]:
    """Return the verdict, the dominating trial, and the N in "unless 1 in N seeds differs" (or 0).

    Unconditional verdicts have priority, then verdicts with weaker conditions.
    """
    ahead, behind = dict[int, int](), list[int | None]()
    for number, row in table.items():
        each = [one.better_unless for one in row]
        known = [one_in for one_in in each if one_in is not None]
        if len(known) == len(each):
            ahead[number] = max(known)  # all objectives must satisfy it
        losses = [one.worse_unless for one in row]
        behind.append(min((one_in for one_in in losses if one_in is not None), default=None))
    best = min(ahead, key=lambda number: ahead[number], default=None)
    all_behind = [one_in for one_in in behind if one_in is not None]
    if best is not None:
        return "behind", best, ahead[best]
    if len(all_behind) == len(table):
        return "on_front", None, max(all_behind)
    return "open", None, 0


def _leader_per_objective(table: Mapping[int, Sequence[Apart]]) -> list[Apart]:
    """Return, for each objective, the trial that leads in it."""
    columns = zip(*table.values(), strict=True)
    return [
        max(column, key=lambda a: a.difference if math.isfinite(a.difference) else -math.inf)
        for column in columns
    ]


def _compare_objective(
    trial: int,
    objective: FrontObjective,
    trial_values: list[float],
    default_values: list[float],
    level: float,
) -> Apart:
    sign = sign_of(objective.goal)
    trial_values = [sign * x for x in trial_values]
    default_values = [sign * x for x in default_values]
    difference = mean(trial_values) - mean(default_values)
    means = sign * mean(trial_values), sign * mean(default_values)
    bounds = objective.bounds.signed(sign)
    found = paired_interval(trial_values, default_values, level=level, bounds=bounds)
    unless = paired_unless(trial_values, default_values, level=level, bounds=bounds)
    low, high = found.low, found.high
    exact = objective.is_cost or found.low is None  # or equal differences on all seeds
    if exact and len(trial_values) >= fewest_pairs(level) and math.isfinite(difference):
        low, high, unless = difference, difference, None
    return Apart(objective.name, trial, means, difference, low, high, unless)
