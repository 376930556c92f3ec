"""What a study has shown: one verdict about its winner; `conclusion_words.py` says it.

Everything that speaks of a winner uses this: the end of a run, `top`, `show`, the report, JSON and
Python. Values come from fresh seeds that chose nothing, the same for both sides.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import ConfigError
from .front_conclusion import FrontConclusion, FrontVerdict
from .looks import fewest_pairs, next_level
from .paired import Bounds, chance_of_better
from .statistics import NO_INTERVAL, Interval, mean
from .verdicts import decided_pairs

__all__ = ["Against", "Conclusion", "Sample", "Verdict", "WithoutCopying", "conclude"]

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
