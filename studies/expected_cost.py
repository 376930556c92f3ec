"""How many env steps a study will take, before it runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .chunk_sizes import Quanta
from .spec import Study
from .stopping_rules import RULES

_MEDIAN_FROM = 5
_MOST_TRIALS = 1_000_000


@dataclass(frozen=True)
class Expected:
    """Training env steps, evaluation apart.

    Attributes:
        trials: configurations that will be proposed; None if only steps or time end the study.
        full: of the search, if nobody were stopped.
        search: of the search, as the rule of early stopping lets us expect.
        passing: trials expected to pass each rung.
        confirm: of the confirm stage, at most: the default may win and needs no second run.
        budget: the bound of the whole study, None if there is none.
        asked: of the trials of `confirm.also`, at most, which the budget does not bound.
    """

    trials: int | None
    full: int | None
    search: int | None
    passing: tuple[int, ...]
    confirm: int
    budget: int | None
    asked: int = 0

    @property
    def total(self) -> int | None:
        """Search and confirm, cut at the budget, and what is asked for beyond it."""
        if self.search is None:
            return None if self.budget is None else self.budget + self.asked
        total = self.search + self.confirm
        return (total if self.budget is None else min(total, self.budget)) + self.asked


def expected_steps(study: Study, quanta: Quanta) -> Expected:
    """Estimate a study from the quanta of its default configuration's bucket."""
    run = quanta.env_steps * study.spread
    confirm = study.confirm
    runs = 0 if confirm is None else confirm.runs(len(study.objectives))
    asked = 0 if confirm is None else confirm.asked * run
    trials = _trials(study)
    if trials is None:
        return Expected(None, None, None, (), runs * run, study.budget.env_steps, asked)
    counts = [trials, *_passing_rungs(study, trials, len(quanta.rungs))]
    marks = [0, *quanta.rungs, quanta.env_steps]
    steps = study.spread * sum(
        count * (high - low)
        for count, (low, high) in zip(counts, itertools.pairwise(marks), strict=True)
    )
    seeds = study.seeds.per_config
    return Expected(
        trials,
        trials * run * seeds,
        steps * study.seeds.first,
        tuple(counts[1:]),
        runs * run,
        study.budget.env_steps,
        asked,
    )


def confirm_words(study: Study, expected: Expected) -> str:
    """Return the env steps of the confirm stage, and what a default that wins would save."""
    confirm, objectives = study.confirm, len(study.objectives)
    also = f" and {expected.asked:,} for confirm.also" if expected.asked else ""
    if confirm is None or not confirm.default or not confirm.reports(objectives):
        return f"{expected.confirm:,}{also}"
    own = expected.confirm // confirm.runs(objectives) * confirm.report
    return f"{expected.confirm:,} ({own:,} less if the default wins){also}"


def passing(kind: str, eta: float, judged: int) -> int:
    """Return how many of `judged` trials pass a rung, if they arrive singly in a random order.

    The n-th passes halving when it is among the best ceil(n / eta) of n, which has probability
    ceil(n / eta) / n (1 while n < eta); it passes the median rule with probability 1/2, once five
    trials were judged.

    >>> passing("halving", 4, 64), passing("half", 4, 64)
    (19, 34)
    """
    if kind == "all":
        return judged  # depends on the curves alone, or nobody knows
    if kind == "half":
        return min(judged, round(_MEDIAN_FROM + 0.5 * max(0, judged - _MEDIAN_FROM)))
    exact = min(judged, 10_000)
    count = sum(1.0 if n < eta else math.ceil(n / eta) / n for n in range(1, exact + 1))
    return min(judged, round(count + (judged - exact) / eta))


def _passing_rungs(study: Study, trials: int, rungs: int) -> list[int]:
    early = study.early_terminate
    if early is None:  # nobody stops them, or Ray Tune, whose rules are its own
        return [trials] * rungs
    rule = RULES.get(early.type)
    kind = "all" if rule is None else rule.passing
    if kind == "brackets":
        return _passing_brackets(early.eta, trials, rungs)
    counts: list[int] = []
    for _ in range(rungs):
        trials = passing(kind, early.eta, trials)
        counts.append(trials)
    return counts


def _passing_brackets(eta: float, trials: int, rungs: int) -> list[int]:
    """Each bracket halves among its own; bracket b is not judged before rung b."""
    weights = [eta**s / (s + 1) for s in range(rungs, -1, -1)]
    left = [round(trials * weight / sum(weights)) for weight in weights]
    counts: list[int] = []
    for rung in range(rungs):
        left = [passing("halving", eta, n) if b <= rung else n for b, n in enumerate(left)]
        counts.append(min(trials, sum(left)))
    return counts


def _trials(study: Study) -> int | None:
    """Return the number of trials: the budget's, or fewer if the space has fewer points."""
    asked = study.budget.trials
    small = all(p.distribution.axis.kind != "real" for p in study.space.parameters)
    if study.search.method != "grid" and not small:
        return asked
    points = study.search.options.get("points", 5) if study.search.method == "grid" else 2**31
    limit = min(_MOST_TRIALS, asked if asked is not None else _MOST_TRIALS)
    space = study.space
    first = {space.canonical(params) for params in (space.default(), *_enqueued(study))}
    grid = itertools.islice(space.grid(points), limit + 1)
    return min(limit, len(first) + sum(space.canonical(params) not in first for params in grid))


def _enqueued(study: Study) -> list[dict[str, Any]]:
    return [study.space.complete(entry) for entry in study.enqueue]


LONG_SECONDS = 3600.0
"""A study that takes longer is worth a word before it runs."""


@dataclass(frozen=True)
class Span:
    """Some seconds: the expected ones, and the interval around them."""

    low: float
    expected: float
    high: float

    def __add__(self, other: Span) -> Span:
        """Return both, one after the other."""
        return Span(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def times(self, low: float, expected: float, high: float) -> Span:
        """Return each of the three so many times."""
        return Span(low * self.low, expected * self.expected, high * self.high)


@dataclass(frozen=True)
class TimeEstimate:
    """How long a study takes.

    Attributes:
        phases: name -> its span; in order, their sum is the whole.
        at_most: seconds if nobody is stopped early, None where nobody could be.
        wall: seconds after which the study's own budget ends it.
        basis: what the numbers rest on.
        assumes: what was taken for granted, each in words.
    """

    phases: Mapping[str, Span]
    at_most: float | None
    wall: float | None
    basis: str
    assumes: tuple[str, ...]

    @property
    def total(self) -> Span:
        """All phases, one after the other, cut at the budget."""
        whole = sum(self.phases.values(), Span(0.0, 0.0, 0.0))
        if self.wall is None:
            return whole
        return Span(*(min(self.wall, seconds) for seconds in asdict(whole).values()))

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON data; seconds."""
        total = self.total
        return {
            "seconds": round(total.expected, 1),
            "low": round(total.low, 1),
            "high": round(total.high, 1),
            "at_most": None if self.at_most is None else round(self.at_most, 1),
            "phases": {name: round(span.expected, 1) for name, span in self.phases.items()},
            "basis": self.basis,
            "assumes": list(self.assumes),
        }

    def lines(self) -> list[str]:
        """Return it as lines for a terminal."""
        total = self.total
        phases = ", ".join(
            f"{name} {span_of_time(span.expected)}" for name, span in self.phases.items()
        )
        most = ""
        if self.at_most is not None and self.at_most > 1.05 * total.high:
            most = f"; at most {span_of_time(self.at_most)} if nobody is stopped early"
        found = [
            f"time       about {span_of_time(total.expected)} here, {span_of_time(total.low)} to "
            f"{span_of_time(total.high)}: {phases}{most}",
            f"           {self.basis}; taken for granted: {'; '.join(self.assumes)}",
        ]
        if total.expected > LONG_SECONDS:
            found.append(f"warning    {self.long_words()}")
        return found

    def long_words(self) -> str:
        """Return a warning that the study takes hours, and what would shorten it most."""
        total = self.total.expected
        share = {name: span.expected / max(total, 1e-9) for name, span in self.phases.items()}
        name = max(share, key=lambda phase: share[phase])
        advice = {
            "search": "budget.trials, env_steps or seeds.per_config",
            "confirm": "confirm.top_k, choose or report, or env_steps",
            "evaluation": "evaluation.episodes, or evaluate less often",
            "compile": "the values of static knobs, which make programs",
        }.get(name, "env_steps")
        return (
            f"this takes {span_of_time(total)} here, {share[name]:.0%} of it {name}; "
            f"lower {advice}"
        )


def time_lines(time: TimeEstimate | None, note: str) -> list[str]:
    """Return the lines on time of `hpo check`: the estimate, or why there is none."""
    if time is not None:
        return time.lines()
    return [f"time       not known: {note}"] if note else []


def span_of_time(seconds: float) -> str:
    """Format a span of time, to two digits or so: nobody knows it better.

    >>> span_of_time(7.3), span_of_time(95), span_of_time(1210), span_of_time(9700)
    ('7s', '1m35s', '20 min', '2.7 h')
    """
    if seconds < 60:
        return f"{max(1, round(seconds))}s"
    if seconds < 600:
        whole = 5 * round(seconds / 5)
        return f"{whole // 60}m{whole % 60:02d}s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
