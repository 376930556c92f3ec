"""Derives a study's verdict about its winner from the evidence.

`study_verdict.py` reads the evidence from a study's rows; `verdict_text.py` has the sentences.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from ..errors import ConfigError
from .against import (
    Against,
    ConstraintSamples,
    Sample,
    Terms,
    Verdict,
    compare_samples,
    with_constraints,
)
from .chance_of_best import ChosenTrial
from .comparison import sharing_error
from .front_verdict import FrontConclusion, FrontVerdict
from .statistics import mean, sign_of
from .unobserved import UNBOUNDED, Bounds

_DECIDED = ("better", "worse")
_NO_OTHER = "It is the default, and no other trial was confirmed."


@dataclass(frozen=True)
class WithoutCopying:
    """The winner of the same study run without exploit/explore."""

    study: str
    trial: int
    values: Sample  # on test seeds

    def __str__(self) -> str:
        return f"trial {self.trial} of {self.study}"


@dataclass(frozen=True)
class Evidence:
    """Evidence from test seeds about a winner and its opponents.

    Raises:
        ConfigError: the goal is unknown.
    """

    winner: Sample | None  # None if no trial has a value
    default: Sample | None = None
    _: KW_ONLY
    goal: str = "maximize"
    name: str = "the winner"  # name in sentences
    rival: str = "the default"
    is_default: bool = False  # the default won
    beaten: int = 0  # number of other trials compared with it
    of_search: bool = False  # whether they were compared in the search
    baselines: Mapping[str, Sample] = field(
        default_factory=dict[str, Sample]
    )  # heuristics by name
    ceiling: float | None = None  # the best possible value
    bounds: Bounds = UNBOUNDED  # of the values
    sharing: int = 0  # number of other trials with all the winner's values
    shown: Collection[float] = ()  # all values in the study
    feasible: bool | None = None  # on selection seeds, which do not show how new seeds behave
    constraints: ConstraintSamples | None = None  # their results on test seeds
    why: str = ""  # a sentence if `default` is None
    alone: WithoutCopying | None = None
    earlier: Sequence[int] = ()  # see `interim_analyses.winners_looks`
    interim: bool = False  # see `interim_analyses.level_of`

    def __post_init__(self) -> None:
        if self.goal not in ("maximize", "minimize"):
            raise ConfigError(f"unknown goal {self.goal!r}; known: maximize, minimize")

    @property
    def sign(self) -> float:
        return sign_of(self.goal)


@dataclass(frozen=True)
class Conclusion:
    winner: str | None  # name in sentences: `trial 17`
    against: Against  # the comparison with the default, or with a given trial
    baselines: tuple[Against, ...] = ()
    # the best possible value, known or observed, if the winner has it
    ceiling: float | None = None
    # value shared by all seeds of the winner and of others: ceiling or floor
    alike: float | None = None
    sharing: int = 0  # number of other trials with all the winner's values
    beaten: int = 0  # if the default won: number of other trials compared with it
    of_search: bool = False  # whether search seeds selected it
    violates: bool = False  # on selection seeds, like all other trials
    why: tuple[str, ...] = ()  # sentences on why there is no verdict
    said: tuple[str, ...] = ()  # all sentences, the most important first
    front: FrontConclusion | None = None  # with several objectives
    # exploit/explore: the winner against the best trial without copying
    copying: Against | None = None
    alone: str = ""  # name of the latter, such as `trial 5 of pbt-alone`
    tells: str = ""  # a sentence on how to get it
    lone: bool = False  # there is only one trial, so its search seeds did not select it
    chosen: ChosenTrial | None = None  # by the seeds that selected the winner
    failed: tuple[str, ...] = ()  # names of sides whose lost test seeds include failed runs

    @property
    def verdict(self) -> Verdict | FrontVerdict:
        if self.front is not None:
            return self.front.verdict
        if self.copying is not None:
            return self.copying.verdict
        return self.against.verdict

    @property
    def better_rule(self) -> Against | None:
        """The heuristic with the largest lead over the winner, if any is better.

        This includes heuristics that are better under a condition (`unless`).
        """
        ahead = [one for one in self.baselines if one.verdict == "worse" or one.is_behind_unless]
        return min(ahead, key=lambda one: one.difference or 0.0, default=None)

    def __str__(self) -> str:
        return "\n".join(self.said)


def conclude(evidence: Evidence) -> Conclusion:
    """Return the verdict about a winner."""
    winner = evidence.winner
    if not winner:
        return Conclusion(None, Against(evidence.rival, "nothing"))
    alike = _shared_value(evidence, winner)
    top = None
    beaten = 0
    if _is_ceiling(evidence, alike):
        alike, top = None, alike
    if evidence.is_default:
        beaten = evidence.beaten
    terms = _comparison_terms(evidence, top)
    found = Conclusion(
        winner=evidence.name,
        against=_of_default(evidence, winner, terms),
        baselines=_of_baselines(evidence, winner, terms),
        ceiling=top,
        alike=alike,
        sharing=evidence.sharing,
        beaten=beaten,
        of_search=evidence.of_search,
        violates=evidence.feasible is False,
    )
    copying = _of_copying(evidence, winner, terms)
    if copying is None:
        return found
    return replace(found, copying=copying, alone=str(evidence.alone))


def _comparison_terms(evidence: Evidence, top: float | None) -> Terms:
    sign = evidence.sign
    bounds = evidence.bounds.signed(sign)
    if evidence.ceiling is not None:
        bounds = replace(bounds, high=sign * evidence.ceiling)
    return Terms(sign, top, bounds, evidence.earlier, evidence.interim)


def _of_default(evidence: Evidence, winner: Sample, terms: Terms) -> Against:
    if evidence.is_default:
        return _default_won(evidence, winner)
    found = compare_samples(winner, evidence.default or {}, evidence.rival, terms)
    if found.verdict == "nothing":
        return replace(found, why=evidence.why)
    limited = evidence.constraints
    if limited is None:
        return found
    return with_constraints(found, limited, limited.default, terms.level)


def _default_won(evidence: Evidence, winner: Sample) -> Against:
    if not evidence.beaten:
        return Against(evidence.rival, "nothing", why=_NO_OTHER)
    finite = [value for value in winner.values() if math.isfinite(value)]
    means = None
    if finite:
        means = (mean(finite), mean(finite))
    return Against(
        evidence.rival,
        "default",
        seeds=len(winner),
        pairs=len(finite),
        own_diverged=len(winner) - len(finite),
        means=means,
    )


def _of_baselines(evidence: Evidence, winner: Sample, terms: Terms) -> tuple[Against, ...]:
    """Compare the winner with each heuristic, at a joint error rate of at most 5 %."""
    baselines = evidence.baselines
    found = sharing_error(
        [name for name, values in baselines.items() if winner.keys() & values.keys()],
        lambda name, among: compare_samples(winner, baselines[name], name, terms, among),
        lambda one: one.verdict in _DECIDED,
    )
    return tuple(found.get(name, Against(name, "nothing")) for name in baselines)


def _of_copying(evidence: Evidence, winner: Sample, terms: Terms) -> Against | None:
    """Compare the winner with the best trial without exploit/explore, if it is known."""
    if evidence.alone is None:
        return None
    found = compare_samples(winner, evidence.alone.values, "the best trial without copying", terms)
    if found.verdict == "nothing":
        return None
    limited = evidence.constraints
    if limited is None:
        return found
    return with_constraints(found, limited, limited.alone, terms.level)


def _shared_value(evidence: Evidence, winner: Sample) -> float | None:
    """Return the value that all the winner's seeds have, if it is the ceiling or shared."""
    values = set(winner.values())
    if len(values) != 1:
        return None
    (only,) = values
    qualifies = evidence.sharing > 0 or set((evidence.default or {}).values()) == values
    if evidence.ceiling is not None:
        qualifies = only == evidence.ceiling
    if not qualifies or not math.isfinite(only):
        return None
    return only


def _is_ceiling(evidence: Evidence, alike: float | None) -> bool:
    """Return whether a shared value is a ceiling: some values are worse, and none is better."""
    if evidence.ceiling is not None:
        return True
    if alike is None:
        return False
    sign, beside = evidence.sign, [evidence.default or {}, *evidence.baselines.values()]
    shown = [*evidence.shown, *(value for sample in beside for value in sample.values())]
    own = sign * alike  # a mean of equal values may differ from them by rounding
    others = [sign * one for one in shown if math.isfinite(one)]
    unlike = [one for one in others if not math.isclose(one, own)]
    return bool(unlike) and max(unlike) < own
