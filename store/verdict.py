"""The verdict of a study about its winner; `verdict_text.py` has the sentences.

Values are from test seeds, the same for both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from ..errors import ConfigError, counted
from .comparison import (
    UNBOUNDED,
    Bounds,
    Unless,
    chance_of_better,
    decided_pairs,
    deviation,
    paired_interval,
    paired_unless,
    sharing_error,
)
from .constraint_tests import Feasibility, Limit, Range, Values, feasibility
from .interim_analyses import fewest_pairs, next_level
from .libraries import np
from .statistics import NO_INTERVAL, Interval, mean

_LEAST, _MOST = 3, 200  # trials
_DRAWS = 4_000
_SHARE = 0.05  # spread of true means: at least this share of the noise of a seed
_KNOWN = 0.5  # of the degrees of freedom: returns vary less evenly than normal ones


@dataclass(frozen=True)
class ChosenTrial:
    trials: int  # including it
    chance: float  # that its true mean is the highest, by the model of `chance_of_best`

    @property
    def words(self) -> str:
        """Return the chance in words, as coarsely as it is known.

        Of simulated studies the best was chosen in 89 to 99 % of those from 0.9 on, in 60 to 83 %
        from 0.6 on, in 35 to 60 % from 0.3 on, and in 12 to 37 % below.

        >>> ChosenTrial(3, 0.97).words, ChosenTrial(3, 0.2).words
        ('is almost certainly the best', 'is one of several that may be the best')
        """
        if self.chance >= 0.9:
            return "is almost certainly the best"
        if self.chance >= 0.6:
            return "is probably the best"
        if self.chance >= 0.3:
            return "may be the best, or another one"
        return "is one of several that may be the best"


def chance_of_best(values: Sequence[Sequence[float]], chosen: int) -> ChosenTrial | None:
    """Return how likely `values[chosen]` has the highest true mean; None where that is unknown.

    `values` [trials, seeds], on the same seeds, greater is better; at least three trials and two
    seeds, not all the same. An empirical Bayes model, integrated over its two unknown variances:
    the seeds' common effects are taken out, the noise of a seed is pooled over trials, and true
    means are normal around their median, with the spread of the upper half (poor trials say
    nothing about the top). Only the 200 highest means count.
    """
    y = np.asarray(values, np.float64)
    trials, seeds = y.shape if y.ndim == 2 else (0, 0)
    if trials < _LEAST or seeds < 2 or not np.isfinite(y).all():
        return None
    own = y - y.mean(axis=0)
    means = own.mean(axis=1)
    squares, degrees = float(((own - means[:, None]) ** 2).sum()), (trials - 1) * (seeds - 1)
    if squares <= 1e-18 * degrees * float((y**2).max()):
        return None
    above = means - np.median(means)
    upper = above[above >= 0.0]
    generator = np.random.Generator(np.random.PCG64(0))
    known = _KNOWN * degrees
    noise = _KNOWN * squares / generator.chisquare(known, _DRAWS)
    total = float((upper**2).sum()) / generator.chisquare(len(upper), _DRAWS)
    spread = np.maximum(total - noise / seeds, _SHARE * noise)
    kept = spread / (spread + noise / seeds)
    order = np.argsort(-above, kind="stable")[:_MOST]
    place = np.flatnonzero(order == chosen)
    if not len(place):
        return ChosenTrial(trials, 0.0)
    normal = generator.standard_normal((_DRAWS, len(order)))
    drawn = kept[:, None] * above[order] + np.sqrt(kept * noise / seeds)[:, None] * normal
    is_best = np.asarray(drawn.argmax(axis=1), np.int64) == int(place[0])
    return ChosenTrial(trials, float(np.count_nonzero(is_best)) / _DRAWS)


FrontVerdict = Literal["behind", "on_front", "open", "undecided"]
Vectors = Mapping[int, Sequence[float]]  # replicate -> a value per objective
_ERROR = 0.05


@dataclass(frozen=True)
class Objective:
    """An objective of a study, as verdicts need it."""

    name: str
    goal: str = "maximize"
    bounds: Bounds = UNBOUNDED  # of its values
    is_cost: bool = False  # exact: no seed has a different value


@dataclass(frozen=True)
class Apart:
    objective: str
    trial: int
    means: tuple[float, float]  # of the trial and of the default
    difference: float  # positive if the trial is better
    low: float | None  # its interval; None below 6 seeds
    high: float | None
    unless: Unless | None = None  # only outcomes that no seed has shown stand against a side

    @property
    def better_unless(self) -> int | None:
        """The trial is better unless 1 in so many seeds differs; 0: in any case; None: neither."""
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
    trial: int | None  # better in every objective, perhaps on the condition
    seeds: int  # on which all ran
    compared: int  # trials
    objectives: tuple[Apart, ...]  # of that trial, else of the trial that leads in each
    fewest: int = 0  # seeds that any verdict needs
    unless: int | None = None  # of an open one: a verdict unless 1 in so many seeds differs
    of_seen: FrontVerdict | None = None  # that verdict


def conclude_front(
    default: Vectors,
    trials: Mapping[int, Vectors],
    objectives: Sequence[Objective],
) -> FrontConclusion | None:
    """Decide whether the front dominates the default; None without common seeds."""
    seeds = sorted(set(default).intersection(*trials.values()))
    if not seeds or not trials:
        return None
    level = _ERROR / max(len(trials), len(objectives))
    table = dict[int, list[Apart]]()
    for number, values in trials.items():
        table[number] = [
            _apart(
                number,
                objective,
                [values[seed][place] for seed in seeds],
                [default[seed][place] for seed in seeds],
                level,
            )
            for place, objective in enumerate(objectives)
        ]
    verdict, trial, unless = _front_verdict(table)
    fewest = fewest_pairs(level)
    if len(seeds) < fewest:
        verdict, trial, unless = "undecided", None, 0
    shown = _leaders(table) if trial is None else table[trial]
    found = FrontConclusion(verdict, trial, len(seeds), len(table), tuple(shown), fewest)
    return replace(found, verdict="open", unless=unless, of_seen=verdict) if unless else found


def _front_verdict(
    table: Mapping[int, Sequence[Apart]],
) -> tuple[FrontVerdict, int | None, int]:
    """Return the verdict, the trial that dominates and N: unless 1 in N seeds differs (0: none).

    A verdict without a condition comes first, then that of the weaker condition.
    """
    ahead, behind = dict[int, int](), list[int | None]()
    for number, row in table.items():
        each = [one.better_unless for one in row]
        known = [one_in for one_in in each if one_in is not None]
        if len(known) == len(each):
            ahead[number] = max(known)  # all objectives have to hold
        losses = [one.worse_unless for one in row]
        behind.append(min((one_in for one_in in losses if one_in is not None), default=None))
    best = min(ahead, key=lambda number: ahead[number], default=None)
    all_behind = [one_in for one_in in behind if one_in is not None]
    if best is not None:
        return "behind", best, ahead[best]
    if len(all_behind) == len(table):
        return "on_front", None, max(all_behind)
    return "open", None, 0


def _leaders(table: Mapping[int, Sequence[Apart]]) -> list[Apart]:
    """Return the trial that leads in each objective."""
    columns = zip(*table.values(), strict=True)
    return [
        max(column, key=lambda a: a.difference if math.isfinite(a.difference) else -math.inf)
        for column in columns
    ]


def _apart(
    trial: int, objective: Objective, ours: list[float], theirs: list[float], level: float
) -> Apart:
    sign = 1.0 if objective.goal == "maximize" else -1.0
    ours, theirs = [sign * x for x in ours], [sign * x for x in theirs]
    difference, means = mean(ours) - mean(theirs), (sign * mean(ours), sign * mean(theirs))
    bounds = objective.bounds.signed(sign)
    found = paired_interval(ours, theirs, level=level, bounds=bounds)
    unless = paired_unless(ours, theirs, level=level, bounds=bounds)
    low, high = found.low, found.high
    exact = objective.is_cost or found.low is None  # or the same difference on every seed
    if exact and len(ours) >= fewest_pairs(level) and math.isfinite(difference):
        low, high, unless = difference, difference, None
    return Apart(objective.name, trial, means, difference, low, high, unless)


def front_sentences(found: FrontConclusion) -> list[str]:
    seeds = counted(found.seeds, "new seed")
    first, why = {
        "behind": (
            "The front dominates the default",
            f"trial {found.trial} is better in every objective",
        ),
        "on_front": (
            "The default is on the front",
            "every other trial is worse in some objective",
        ),
        "open": (f"No significant difference between the default and the front on {seeds}", ""),
        "undecided": (
            f"Undecided: {seeds} are too few to compare the default with the front",
            "",
        ),
    }[found.of_seen or found.verdict]
    said = [f"{first}: {why}." if why else f"{first}."]
    if found.unless is not None:
        condition = f"unless 1 in {found.unless} seeds differs from these"
        said = [f"{first} {condition}.", f"{why[:1].upper()}{why[1:]}."]
    if found.verdict == "undecided":
        last = f"confirm: {{choose: {found.fewest}}} would allow an answer."
    else:
        count = counted(found.compared, "trial")
        last = f"Of {seeds}, paired, with {count}; answers are wrong in at most 5 % of studies."
    return [*said, *map(_sentence, found.objectives), last]


def _sentence(apart: Apart) -> str:
    who, other = f"trial {apart.trial}", "the default"
    around = (
        ""
        if apart.low is None or apart.high is None or apart.low == apart.high
        else (f" [{_short(apart.low)}, {_short(apart.high)}]")
    )
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
    """Format four digits; from 10,000 on whole, such as env steps.

    >>> _short(0.123456), _short(40960.0), _short(12345.6)
    ('0.1235', '40,960', '12,346')
    """
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:z.4g}"


Verdict = Literal[
    "better",
    "worse",
    "no_difference",
    "undecided",
    "ceiling",
    "default",
    "diverged",
    "feasible",
    "infeasible",
    "nothing",
]
Advice = Literal["take", "keep", ""]
"""Take the winner or keep its opponent."""
Sample = Mapping[int, float]  # replicate -> value; NaN if it diverged

_DECIDED = ("better", "worse")
_NO_OTHER = "It is the default, and no other trial was confirmed."


@dataclass(frozen=True)
class Against:
    """A winner compared with one opponent, paired on the seeds that both ran on."""

    rival: str  # as in a sentence: `the default`, `ksp_ff`
    verdict: Verdict  # about the winner
    seeds: int = 0
    pairs: int = 0  # seeds on which both have a finite value
    wins: int = 0  # of them, the winner is better
    ties: int = 0
    diverged: int = 0  # seeds on which the opponent has none
    means: tuple[float, float] | None = None  # of the winner and the opponent, over pairs
    difference: float | None = None  # positive if the winner is better
    standard_error: float | None = None  # of the difference, from pairs; None for one pair
    interval: Interval = NO_INTERVAL  # 95 % over all looks together
    probability: float | None = None  # that the winner is better on a new seed, a tie half
    probability_interval: Interval = NO_INTERVAL
    more_seeds: int | None = None  # that would decide, if it is undecided
    unless: Unless | None = None  # only outcomes that no seed has shown stand against a verdict
    own_diverged: int = 0  # seeds on which the winner has no finite value
    why: str = ""  # there is nothing to compare, as a sentence
    by_value: Verdict | None = None  # of the metric alone, if constraints rule
    limits: LimitsOfBoth | None = None  # with constraints

    @property
    def is_behind_unless(self) -> bool:
        """Whether the opponent is better, on the condition that `unless` names."""
        return self.unless is not None and (self.difference or 0.0) < 0.0

    @property
    def advice(self) -> Advice:
        """Return which of the two to use, "" if test seeds do not say.

        Where the test does not decide, the winner must lead by more than one standard error of the
        paired differences. Of two equal ones it does in 16 to 20 % of studies, which does no harm.
        """
        if self.verdict in ("better", "feasible"):
            return "take"
        if self.verdict in ("worse", "default", "ceiling", "diverged", "infeasible"):
            return "keep"
        if self.verdict == "nothing" or self.difference is None:
            return ""
        if self.unless is not None:
            return "take" if self.difference > 0.0 else "keep"
        if self.standard_error is None:
            return "keep"
        return "take" if self.difference > self.standard_error else "keep"


@dataclass(frozen=True)
class LimitsOfBoth:
    """Whether a winner and its opponent keep the constraints, on test seeds."""

    winner: Feasibility
    rival: Feasibility


@dataclass(frozen=True)
class ConstraintSamples:
    """What test seeds show of the constraints.

    `seen`: for each constraint the range of its values on all new seeds of the compared trials.
    """

    limits: tuple[Limit, ...]
    winner: Values | None
    default: Values | None
    seen: tuple[Range, ...] = ()
    alone: Values | None = None  # of the best trial without copying


@dataclass(frozen=True)
class WithoutCopying:
    """The winner of the same study without exploit/explore."""

    study: str
    trial: int
    values: Sample  # on test seeds

    def __str__(self) -> str:
        return f"trial {self.trial} of {self.study}"


@dataclass(frozen=True)
class Conclusion:
    winner: str | None  # as in a sentence: `trial 17`
    against: Against  # the default, or a named trial
    baselines: tuple[Against, ...] = ()
    ceiling: float | None = None  # the best possible value, given or seen, if the winner has it
    alike: float | None = None  # the value of all seeds of the winner and others: ceiling or floor
    sharing: int = 0  # other trials with all the winner's values
    beaten: int = 0  # if the default won: other trials that it was compared with
    of_search: bool = False  # the search seeds chose it
    violates: bool = False  # on selection seeds, as all others do
    why: tuple[str, ...] = ()  # there is no verdict, in sentences
    said: tuple[str, ...] = ()  # all sentences, the most important first
    front: FrontConclusion | None = None  # with several objectives
    copying: Against | None = None  # exploit/explore: the winner and the best without copying
    alone: str = ""  # the latter, such as `trial 5 of pbt-alone`
    tells: str = ""  # how to get it, as a sentence
    lone: bool = False  # there is only one trial, so its search seeds selected nothing
    chosen: ChosenTrial | None = None  # by the seeds that chose the winner

    @property
    def verdict(self) -> Verdict | FrontVerdict:
        if self.front is not None:
            return self.front.verdict
        return self.against.verdict if self.copying is None else self.copying.verdict

    @property
    def better_rule(self) -> Against | None:
        """The heuristic that is furthest ahead of the winner, of those that are better.

        Also of those that are better on a condition (`unless`).
        """
        ahead = [one for one in self.baselines if one.verdict == "worse" or one.is_behind_unless]
        return min(ahead, key=lambda one: one.difference or 0.0, default=None)

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
    of_search: bool = False,
    baselines: Mapping[str, Sample] | None = None,
    ceiling: float | None = None,
    bounds: Bounds = UNBOUNDED,
    sharing: int = 0,
    shown: Collection[float] = (),
    feasible: bool | None = None,
    constraints: ConstraintSamples | None = None,
    why: str = "",
    alone: WithoutCopying | None = None,
    earlier: Sequence[int] = (),
    interim: bool = False,
) -> Conclusion:
    """Return the verdict about a winner (None: no trial has a value) on test seeds.

    `beaten`: other trials that were compared with it (`of_search`: in the search); `bounds`:
    of the values; `sharing`: other trials with all the winner's values; `shown`: all values of the
    study; `feasible`: whether the winner keeps the constraints on selection seeds, which say
    nothing about new ones; `constraints`: what test seeds say; `why`: `default` is None, as a
    sentence; `earlier`, `interim`: see `interim_analyses.winners_looks` and `level_of`.
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
    ends = bounds.signed(sign)
    if ceiling is not None:
        ends = replace(ends, high=sign * ceiling)
    compared = partial(
        _compared, winner, sign=sign, top=top, bounds=ends, earlier=earlier, interim=interim
    )
    if is_default and not beaten:
        against = Against(rival, "nothing", why=_NO_OTHER)
    elif is_default:
        finite = [value for value in winner.values() if math.isfinite(value)]
        against = Against(
            rival,
            "default",
            len(winner),
            len(finite),
            own_diverged=len(winner) - len(finite),
            means=(mean(finite), mean(finite)) if finite else None,
        )
    else:
        against = compared(default or {}, rival)
        if against.verdict == "nothing":
            against = replace(against, why=why)
        elif constraints is not None:
            level = next_level(earlier, interim)
            against = with_constraints(against, constraints, constraints.default, level)
    others = _compared_together(compared, winner, baselines or {})
    found = Conclusion(
        name,
        against,
        others,
        top,
        None if known else alike,
        sharing,
        beaten if is_default else 0,
        of_search=of_search,
        violates=feasible is False,
    )
    if alone is None:
        return found
    copying = compared(alone.values, "the best without copying")
    if copying.verdict == "nothing":
        return found
    if constraints is not None:
        level = next_level(earlier, interim)
        copying = with_constraints(copying, constraints, constraints.alone, level)
    return replace(found, copying=copying, alone=str(alone))


def _compared_together(
    compared: Callable[..., Against], winner: Sample, baselines: Mapping[str, Sample]
) -> tuple[Against, ...]:
    """Compare the winner with each heuristic; any of the verdicts is wrong in at most 5 %."""
    shared = [name for name, values in baselines.items() if winner.keys() & values.keys()]
    found = sharing_error(
        shared,
        lambda name, among: compared(baselines[name], name, among=among),
        lambda against: against.verdict in _DECIDED,
    )
    return tuple(found.get(name, Against(name, "nothing")) for name in baselines)


def with_constraints(
    against: Against, samples: ConstraintSamples, rival: Values | None, level: float
) -> Against:
    """Return a comparison with the verdict that constraints allow; `by_value` has the other."""
    both = LimitsOfBoth(
        winner=feasibility(samples.limits, samples.winner, level, samples.seen),
        rival=feasibility(samples.limits, rival, level, samples.seen),
    )
    found = replace(against, by_value=against.verdict, limits=both)
    if against.verdict == "diverged":
        return found
    if both.winner.state == "violated":
        return replace(found, verdict="infeasible")
    if both.rival.state != "violated":
        return found
    if both.winner.state == "kept":
        return replace(found, verdict="feasible")
    if against.verdict == "worse":  # a better value does not make up for a violation
        return replace(found, verdict="undecided", more_seeds=None)
    return found


def _alike(
    winner: Sample, default: Sample | None, known: float | None, sharing: int
) -> float | None:
    """Return the value of all seeds of the winner if it is the ceiling, or others have it too."""
    values = set(winner.values())
    if len(values) != 1:
        return None
    (only,) = values
    if not math.isfinite(only) or (known is not None and only != known):
        return None
    seen = sharing > 0 or (bool(default) and set((default or {}).values()) == values)
    return only if known is not None or seen else None


def _is_best(shown: Sequence[float], value: float | None, sign: float) -> bool:
    """Return whether worse values were seen and no better ones; else it may be a floor."""
    if value is None:
        return False
    own = sign * value  # a mean of equal values may be a rounding away
    others = [one for one in shown if math.isfinite(one) and not math.isclose(one, own)]
    return bool(others) and max(others) < own


def _compared(
    winner: Sample,
    other: Sample,
    rival: str,
    *,
    sign: float,
    top: float | None,
    bounds: Bounds,
    earlier: Sequence[int],
    interim: bool,
    among: int = 1,
) -> Against:
    """Pair two samples and decide; `top`: the ceiling, if all seeds of the winner are at it.

    `among`: the number of comparisons that share the error rate.
    """
    both = sorted(winner.keys() & other.keys())
    if not both:
        return Against(rival, "nothing")
    pairs = [(sign * winner[seed], sign * other[seed]) for seed in both]
    chance, chance_interval = chance_of_better(*zip(*pairs, strict=True))
    finite = [pair for pair in pairs if all(map(math.isfinite, pair))]
    lost = sum(not math.isfinite(theirs) for _, theirs in pairs)
    own_lost = sum(not math.isfinite(ours) for ours, _ in pairs)
    if not finite:
        level = next_level(earlier, interim) / among
        enough = len(both) >= fewest_pairs(level) and lost > own_lost
        only: Verdict = "diverged" if own_lost else "better" if enough else "nothing"
        return Against(
            rival,
            only,
            len(both),
            0,
            lost,
            probability=chance,
            own_diverged=own_lost,
            probability_interval=chance_interval,
        )
    ours, theirs = zip(*finite, strict=True)
    known = [seed for seed, pair in zip(both, pairs, strict=True) if all(map(math.isfinite, pair))]
    before = [sum(seed < size for seed in known) for size in earlier]
    found = decided_pairs(ours, theirs, before, bounds, interim, among=among)
    verdict: Verdict = found.verdict
    more = found.more_seeds
    error = None
    if len(finite) > 1:
        spread = deviation([own - other for own, other in finite])
        error = spread / math.sqrt(len(finite))
    if own_lost > lost:  # fewer values are biased upwards
        verdict, more = "diverged", None
    if top is not None and lost == 0 and set(theirs) == {sign * top}:
        verdict, more = "ceiling", None
    return Against(
        rival=rival,
        verdict=verdict,
        seeds=len(both),
        pairs=len(finite),
        wins=sum(1 for own, other in finite if own > other),
        ties=sum(1 for own, other in finite if own == other),
        diverged=lost,
        means=(sign * mean(ours), sign * mean(theirs)),
        difference=mean(ours) - mean(theirs),
        standard_error=error,
        interval=found.interval,
        probability=chance,
        probability_interval=chance_interval,
        more_seeds=more,
        unless=found.unless if verdict == "undecided" else None,
        own_diverged=own_lost,
    )
