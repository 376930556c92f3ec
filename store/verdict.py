"""What a study has shown: one verdict about its winner; `conclusion_words.py` says it.

Everything that speaks of a winner uses this: the end of a run, `top`, `show`, the report, JSON and
Python. Values come from fresh seeds that chose nothing, the same for both sides.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import ConfigError
from .comparison import decided_pairs
from .interim_analyses import fewest_pairs, next_level
from .paired import Bounds, chance_of_better, paired_interval
from .statistics import NO_INTERVAL, Interval, mean

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


Verdict = Literal[
    "better", "worse", "no_difference", "undecided", "ceiling", "default", "diverged", "feasible",
    "nothing",
]  # fmt: skip
"""The first four are those of `verdicts.py`."""
Sample = Mapping[int, float]
"""Replicate -> value; a seed that diverged has NaN."""

_NO_OTHER = "No other trial has a value on every new seed; the best `confirm.top_k` run on them."


@dataclass(frozen=True)
class Against:
    """A winner beside one rival, paired on the seeds that both ran on.

    Attributes:
        rival: its name, as a sentence takes it: `the default`, `ksp_ff`.
        verdict: about the winner.
        seeds: how many both ran on.
        pairs: on how many of these both have a finite value.
        diverged: on how many of these the rival has no finite value.
        own_diverged: on how many the winner has none.
        means: of the winner and of the rival, over seeds where both have a value.
        difference: of these; positive where the winner is better, whatever the goal.
        interval: its interval, which holds at all looks together in 95 %.
        probability: that the winner is better on a fresh seed, a tie counting half.
        probability_interval: its 95 % interval.
        more_seeds: where undecided, how many more would decide.
        why: there is nothing to compare, as a sentence; "" where nobody knows.
    """

    rival: str
    verdict: Verdict
    seeds: int = 0
    pairs: int = 0
    diverged: int = 0
    means: tuple[float, float] | None = None
    difference: float | None = None
    interval: Interval = NO_INTERVAL
    probability: float | None = None
    probability_interval: Interval = NO_INTERVAL
    more_seeds: int | None = None
    own_diverged: int = 0
    why: str = ""


@dataclass(frozen=True)
class WithoutCopying:
    """The winner of the study that equals a population that copies, but copies nothing.

    Attributes:
        study: its name.
        trial: its winner.
        values: of that on the seeds that report, which are the population's too.
        feasible: it keeps all constraints; None where there are none.
    """

    study: str
    trial: int
    values: Sample
    feasible: bool | None = None

    def __str__(self) -> str:
        return f"trial {self.trial} of {self.study}"


@dataclass(frozen=True)
class Conclusion:
    """What a study has shown.

    Attributes:
        winner: its name, as a sentence takes it: `trial 17`; None if there is none.
        against: the winner beside the default, or what stands for it.
        baselines: the winner beside each baseline.
        ceiling: the best value that can be had, given or seen, where the winner has it.
        alike: the value of every seed of the winner and of others, where nothing tells whether it
            is a ceiling or a floor.
        sharing: how many other trials have the winner's values too.
        beaten: where the default won, how many others ran on the seeds that chose it.
        violates: the winner violates constraints, as all others do.
        why: nothing is concluded, in sentences; empty where something is.
        said: the whole conclusion in sentences, what matters most first.
        front: with several objectives, where the default stands to the front.
        copying: of a population that copies, the winner beside the best without copying.
        alone: whose that is, such as `trial 5 of pbt-alone`; "" where nobody knows.
        tells: what to type to know it, as a sentence; "" where there is nothing to know.
        lone: one trial ran alone, so that the seeds of its search chose nothing.
    """

    winner: str | None
    against: Against
    baselines: tuple[Against, ...] = ()
    ceiling: float | None = None
    alike: float | None = None
    sharing: int = 0
    beaten: int = 0
    violates: bool = False
    why: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    front: FrontConclusion | None = None
    copying: Against | None = None
    alone: str = ""
    tells: str = ""
    lone: bool = False

    @property
    def verdict(self) -> Verdict | FrontVerdict | Literal["infeasible"]:
        """What is to be said first."""
        if self.front is not None:
            return self.front.verdict
        if self.violates:
            return "infeasible"
        return self.against.verdict if self.copying is None else self.copying.verdict

    def __str__(self) -> str:
        return "\n".join(self.said)


def conclude(
    winner: Sample | None,
    default: Sample | None,
    *,
    goal: str = "maximize",
    name: str = "the winner",
    rival: str = "the default",
    is_default: bool = False,
    beaten: int = 0,
    baselines: Mapping[str, Sample] | None = None,
    ceiling: float | None = None,
    sharing: int = 0,
    shown: Collection[float] = (),
    feasible: bool | None = None,
    rival_feasible: bool | None = None,
    why: str = "",
    alone: WithoutCopying | None = None,
    earlier: Sequence[int] = (),
) -> Conclusion:
    """Decide what a study has shown.

    Args:
        winner: its values on seeds that chose nothing; None if no trial has one.
        default: those of the default on the same seeds; None where it did not run on them.
        goal: `maximize`, or `minimize` where smaller values are better.
        name: of the winner.
        rival: what `default` is, where it is something else: a named trial. A trial whose knobs
            were changed on the way is no default.
        is_default: the winner is that rival itself.
        beaten: how many other trials ran on the seeds that chose it; without any it won nothing.
        baselines: name -> values on the same seeds.
        ceiling: the best possible value, where it is known.
        sharing: how many other trials were seen with the very values of the winner.
        shown: what trials of the study showed at any time, seed by seed or as a mean.
        feasible: the winner keeps all constraints; None where there are none.
        rival_feasible: likewise its rival.
        why: `default` is None, as a sentence.
        alone: of a population that copies, the best of the same one without copying.
        earlier: at how many seeds earlier looks were, 0 for one at another winner's values
            (`looks.winners_looks`).

    Raises:
        ConfigError: an unknown goal.
    """
    if goal not in ("maximize", "minimize"):
        raise ConfigError(f"unknown goal {goal!r}; known: maximize, minimize")
    if not winner:
        return Conclusion(None, Against(rival, "nothing"))
    sign = 1.0 if goal == "maximize" else -1.0
    alike = _alike(winner, default, ceiling, sharing)
    beside = [default or {}, *(baselines or {}).values()]
    seen = [*shown, *(value for sample in beside for value in sample.values())]
    known = ceiling is not None or _is_best([sign * one for one in seen], alike, sign)
    top = alike if known else None
    bounds = Bounds() if ceiling is None else Bounds(high=sign * ceiling)
    paired = _Pairing(sign, top, bounds, earlier)
    if is_default and not beaten:
        against = Against(rival, "nothing", why=_NO_OTHER)
    elif is_default:
        lost = _lost(winner)
        against = Against(rival, "default", len(winner), len(winner) - lost,
                          means=_own_means(winner), own_diverged=lost)  # fmt: skip
    else:
        against = _beside(winner, default or {}, rival, paired)
        if against.verdict == "nothing":
            against = replace(against, why=why)
        elif feasible and rival_feasible is False:
            against = replace(against, verdict="feasible")
    others = tuple(
        _beside(winner, values, named, paired) for named, values in (baselines or {}).items()
    )
    found = Conclusion(
        name, against, others, top, None if known else alike, sharing, beaten if is_default else 0,
        violates=feasible is False,
    )  # fmt: skip
    if alone is None:
        return found
    copying = _beside(winner, alone.values, "the best without copying", paired)
    if copying.verdict == "nothing":
        return found
    if feasible and alone.feasible is False:
        copying = replace(copying, verdict="feasible")
    return replace(found, copying=copying, alone=str(alone))


def _lost(sample: Sample) -> int:
    return sum(not math.isfinite(value) for value in sample.values())


def _own_means(winner: Sample) -> tuple[float, float] | None:
    finite = [value for value in winner.values() if math.isfinite(value)]
    return (mean(finite), mean(finite)) if finite else None


def _alike(
    winner: Sample, default: Sample | None, known: float | None, sharing: int
) -> float | None:
    """Return the value of every seed of the winner if it is the ceiling, or others have it too."""
    values = set(winner.values())
    if len(values) != 1:
        return None
    (only,) = values
    if not math.isfinite(only) or (known is not None and only != known):
        return None
    seen = sharing > 0 or (bool(default) and set((default or {}).values()) == values)
    return only if known is not None or seen else None


def _is_best(shown: Sequence[float], value: float | None, sign: float) -> bool:
    """Return whether a value was seen to be a ceiling: worse ones were shown, and no better one.

    Where nobody showed a worse one it may be a floor that nobody left.
    """
    if value is None:
        return False
    own = sign * value  # a mean of equal values may be a rounding away
    apart = [one for one in shown if math.isfinite(one) and not math.isclose(one, own)]
    return bool(apart) and max(apart) < own


@dataclass(frozen=True)
class _Pairing:
    """How samples are compared.

    Attributes:
        sign: 1 where greater is better, else -1.
        top: the ceiling, where every seed of the winner is at it.
        bounds: of a mean, signed.
        earlier: seeds at earlier looks.
    """

    sign: float
    top: float | None
    bounds: Bounds
    earlier: Sequence[int]


def _beside(winner: Sample, other: Sample, rival: str, how: _Pairing) -> Against:
    """Pair two samples and decide."""
    sign, top = how.sign, how.top
    both = sorted(winner.keys() & other.keys())
    if not both:
        return Against(rival, "nothing")
    pairs = [(sign * winner[seed], sign * other[seed]) for seed in both]
    chance, chance_interval = chance_of_better(*_sides(pairs))
    finite = [pair for pair in pairs if all(map(math.isfinite, pair))]
    lost = sum(not math.isfinite(theirs) for _, theirs in pairs)
    own_lost = sum(not math.isfinite(ours) for ours, _ in pairs)
    if not finite:
        enough = len(both) >= fewest_pairs(next_level(how.earlier)) and lost > own_lost
        told: Verdict = "diverged" if own_lost else "better" if enough else "nothing"
        return Against(rival, told, len(both), 0, lost, probability=chance, own_diverged=own_lost,
                       probability_interval=chance_interval)  # fmt: skip
    ours, theirs = _sides(finite)
    known = [seed for seed, pair in zip(both, pairs, strict=True) if all(map(math.isfinite, pair))]
    before = [sum(seed < size for seed in known) for size in how.earlier]
    found = decided_pairs(ours, theirs, before, how.bounds)
    verdict: Verdict = found.verdict
    more = found.more_seeds
    if own_lost > lost:  # values that are there flatter who has fewer of them
        verdict, more = "diverged", None
    if top is not None and lost == 0 and set(theirs) == {sign * top}:
        verdict, more = "ceiling", None
    return Against(
        rival=rival,
        verdict=verdict,
        seeds=len(both),
        pairs=len(finite),
        diverged=lost,
        means=(sign * mean(ours), sign * mean(theirs)),
        difference=mean(ours) - mean(theirs),
        interval=found.interval,
        probability=chance,
        probability_interval=chance_interval,
        more_seeds=more,
        own_diverged=own_lost,
    )


def _sides(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
