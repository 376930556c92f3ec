"""Whether the default configuration lies behind the front of a study with several objectives.

Trials and default ran on the same fresh seeds, which chose none of those compared. A trial is
better than the default in an objective if the interval of their mean paired difference leaves 0
out. The default lies behind the front if some trial is better in every objective, which errs for
as many trials, and is on it if every trial is worse in some, which errs for as many objectives. So
the 5 % are divided by the greater number of both (Berger 1982), and answers are wrong in at most
5 % of studies.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .looks import fewest_pairs
from .paired import paired_interval
from .statistics import mean

__all__ = ["Apart", "FrontConclusion", "FrontVerdict", "conclude_front", "front_sentences"]

FrontVerdict = Literal["behind", "on_front", "open", "undecided"]
Vectors = Mapping[int, Sequence[float]]
"""Replicate -> a value for each objective."""
_ERROR = 0.05


@dataclass(frozen=True)
class Apart:
    """A trial beside the default in one objective.

    Attributes:
        objective: its metric.
        trial: its number.
        means: of the trial and of the default.
        difference: of these; positive where the trial is better, whatever the goal.
        low, high: its interval; None below 6 seeds.
    """

    objective: str
    trial: int
    means: tuple[float, float]
    difference: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class FrontConclusion:
    """Where the default stands to the front.

    Attributes:
        verdict: `behind`, `on_front`, `open` where these seeds do not tell, or `undecided` where
            there are too few of them for any answer.
        trial: one that is better in every objective, None without one.
        seeds: on which all ran.
        compared: how many trials.
        objectives: an entry each: of that trial, else of the trial that is the furthest ahead.
        fewest: seeds that any answer needs.
    """

    verdict: FrontVerdict
    trial: int | None
    seeds: int
    compared: int
    objectives: tuple[Apart, ...]
    fewest: int = 0


def conclude_front(
    default: Vectors,
    trials: Mapping[int, Vectors],
    goals: Sequence[str],
    names: Sequence[str],
    costs: Container[str] = (),
) -> FrontConclusion | None:
    """Decide whether the default lies behind the front; None where there is nothing to compare.

    Args:
        default: its values.
        trials: those of the others by number, the best first.
        goals: `maximize` or `minimize`, of each objective.
        names: their metrics.
        costs: those that are no sample: every seed has the value of the trial.
    """
    shared = set(default)
    for values in trials.values():
        shared &= set(values)
    seeds = sorted(shared)
    if not seeds or not trials:
        return None
    level = _ERROR / max(len(trials), len(goals))
    signs = [1.0 if goal == "maximize" else -1.0 for goal in goals]
    table = {
        number: [
            _apart(number, names[j], [values[s][j] for s in seeds],
                   [default[s][j] for s in seeds], signs[j], level, names[j] in costs)
            for j in range(len(goals))
        ]
        for number, values in trials.items()
    }  # fmt: skip
    better = [n for n, row in table.items() if all(a.low is not None and a.low > 0 for a in row)]
    worse = [n for n, row in table.items() if any(a.high is not None and a.high < 0 for a in row)]
    verdict: FrontVerdict = "open"
    fewest = fewest_pairs(level)
    if len(seeds) < fewest:
        verdict = "undecided"
    elif better:
        verdict = "behind"
    elif len(worse) == len(table):
        verdict = "on_front"
    shown = table[better[0]] if better else [
        max((row[j] for row in table.values()), key=lambda a: _ahead(a.difference))
        for j in range(len(goals))
    ]  # fmt: skip
    first = better[0] if better else None
    return FrontConclusion(verdict, first, len(seeds), len(table), tuple(shown), fewest)


def _ahead(difference: float) -> float:
    return difference if math.isfinite(difference) else -math.inf


def _apart(
    trial: int, objective: str, ours: list[float], theirs: list[float], sign: float, level: float,
    is_cost: bool,
) -> Apart:  # fmt: skip
    ours, theirs = [sign * x for x in ours], [sign * x for x in theirs]
    difference, means = mean(ours) - mean(theirs), (sign * mean(ours), sign * mean(theirs))
    found = paired_interval(ours, theirs, level=level)
    low, high = found.low, found.high
    sure = is_cost or found.low is None  # no sample, or the same difference on every seed
    if sure and len(ours) >= fewest_pairs(level) and math.isfinite(difference):
        low = high = difference
    return Apart(objective, trial, means, difference, low, high)


def front_sentences(found: FrontConclusion) -> list[str]:
    """Return what to say of the default and the front, the verdict first."""
    seeds = f"{found.seeds} new seed{'' if found.seeds == 1 else 's'}"
    first = {
        "behind": f"The default is behind the front: trial {found.trial} is better in every "
        "objective.",
        "on_front": "The default is on the front: every other trial is worse in some objective.",
        "open": f"No significant difference: {seeds} do not show the default behind the front.",
        "undecided": f"Undecided: {seeds} are too few to show the default behind the front.",
    }[found.verdict]
    if found.verdict == "undecided":
        return [first, *map(_said, found.objectives),
                f"confirm: {{choose: {found.fewest}}} would allow an answer."]  # fmt: skip
    count = f"{found.compared} trial{'' if found.compared == 1 else 's'}"
    held = f"Of {seeds}, paired, with {count}; answers are wrong in at most 5 % of studies."
    return [first, *map(_said, found.objectives), held]


def _said(apart: Apart) -> str:
    who, other = (f"trial {apart.trial}", "the default")
    around = "" if apart.low is None or apart.high is None or apart.low == apart.high else (
        f" [{_short(apart.low)}, {_short(apart.high)}]"
    )  # fmt: skip
    own, theirs = apart.means
    if not math.isfinite(apart.difference):
        return f"In {apart.objective} a seed has no finite value."
    return (
        f"In {apart.objective} {who} has {_short(own)} and {other} {_short(theirs)}, "
        f"better by {_short(apart.difference)}{around}."
        if apart.difference > 0
        else f"In {apart.objective} no trial is ahead: {who} has {_short(own)}, {other} "
        f"{_short(theirs)}"
        f"{around and f', a difference of {_short(apart.difference)}'}{around}."
    )


def _short(value: float) -> str:
    """Four digits; whole numbers, such as env steps, in full.

    >>> _short(0.123456), _short(40960.0)
    ('0.1235', '40,960')
    """
    return f"{value:,.0f}" if value.is_integer() and abs(value) >= 10_000 else f"{value:.4g}"
