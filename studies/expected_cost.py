"""The expected env steps and time of a study, before it runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .chunk_sizes import ChunkSizes
from .portfolio import given_configurations, trial_count, trials_paid
from .rung_forecast import Race, trials_past
from .search_methods import method_row
from .spec import Study
from .stopping_rules import RULES

_USUAL_LANES = 16  # used if the number of lanes is unknown
_STARTUP = 10  # random trials before a method has a model, unless it declares the number
FACTOR = 1.5  # ratio between actual and expected time, as seen in ten shipped studies


@dataclass(frozen=True)
class Expected:
    """A study's expected training env steps, without those of evaluations."""

    trials: int | None  # None if only steps or time end the study
    full: int | None  # for the search without early stopping
    search: int | None  # for the search with early stopping
    passing: tuple[float, ...]  # expected number of trials past each rung
    confirm: int  # upper limit; lower if the default wins
    budget: int | None
    asked: int = 0  # for `confirm.also`, at most; outside the budget

    @property
    def limit(self) -> int | None:
        """The most env steps that the budget allows, with those of `confirm.also`."""
        if self.budget is None:
            return None
        return self.budget + self.asked

    @property
    def ends_early(self) -> bool:
        """Whether the budget of env steps ends the search before its last trial."""
        if self.search is None or self.budget is None:
            return False
        return self.search + self.confirm > self.budget

    @property
    def is_rough(self) -> bool:
        """Whether the search's cost depends on the trials' values."""
        stops = self.trials is not None and any(past < self.trials for past in self.passing)
        return stops and (self.limit is None or self.total != self.limit)

    @property
    def total(self) -> int | None:
        """Env steps of search and confirm, limited by the budget, plus those of `confirm.also`."""
        bounds = list[int]()
        if self.search is not None:
            bounds.append(self.search + self.confirm)
        if self.budget is not None:
            bounds.append(self.budget)
        if not bounds:
            return None
        return min(bounds) + self.asked


def expected_steps(study: Study, chunk_sizes: ChunkSizes, lanes: int | None = None) -> Expected:
    """Estimate a study's cost from the chunks and lanes of its default configuration's bucket."""
    run = chunk_sizes.env_steps * study.spread
    runs, asked = study.confirming, 0
    if study.confirm is not None:
        asked = study.confirm.asked * run
    trials, paid = trial_count(study), trials_paid(study)
    if trials is None:
        return Expected(None, None, None, (), runs * run, study.budget.env_steps, asked)
    if paid is not None:
        trials = min(trials, paid)
    counts = [float(trials), *_passing_rungs(study, trials, chunk_sizes, lanes)]
    marks = [0, *chunk_sizes.rungs, chunk_sizes.env_steps]
    steps = study.spread * sum(
        count * (high - low)
        for count, (low, high) in zip(counts, itertools.pairwise(marks), strict=True)
    )
    full, search = trials * run * study.seeds.per_config, round(steps * study.seeds.first)
    bound = study.budget.env_steps
    return Expected(trials, full, search, tuple(counts[1:]), runs * run, bound, asked)


def confirm_words(study: Study, expected: Expected) -> str:
    """Return the env steps of the confirm stage, and the saving if the default wins."""
    confirm, tested, also = study.confirm, study.tested, ""
    if expected.asked:
        also = f" and {expected.asked:,} for confirm.also"
    if confirm is None or tested <= confirm.report:
        return f"{expected.confirm:,}{also}"
    own = expected.confirm // study.confirming * confirm.report
    return f"{expected.confirm:,} ({own:,} less if the default wins){also}"


def _passing_rungs(
    study: Study, trials: int, chunk_sizes: ChunkSizes, lanes: int | None
) -> list[float]:
    early, search = study.early_terminate, study.search
    unstopped = [float(trials)] * len(chunk_sizes.rung_chunks)
    if early is None or early.type not in RULES or not unstopped:
        return unstopped  # nothing stops trials, or it is not known how many
    rule = RULES[early.type]
    if rule.passing == "all":
        return unstopped
    lanes, learns_from = lanes or study.population.lanes or _USUAL_LANES, None
    if search.driver == "lanes" and method_row(search.method).learns_from_results:
        learns_from = search.options.get("n_startup_trials", _STARTUP)
    race = Race(
        trials,
        max(1, lanes // study.seeds.first),
        (*chunk_sizes.rung_chunks, chunk_sizes.chunks),
        rule.passing,
        early.eta,
        pause=early.pause,
        audit=early.audit,
        guesses=len(given_configurations(study)),
        learns_from=learns_from,
        random_share=search.random_share,
        keeps_first=search.portfolio > 0,
    )
    return [*trials_past(race)]


@dataclass(frozen=True)
class TimeEstimate:
    phases: Mapping[str, float]  # expected seconds, in chronological order
    at_most: float | None  # seconds without early stopping, if the study stops trials
    wall: float | None  # seconds in `budget.wall`
    basis: str  # source of the numbers
    assumes: tuple[str, ...]

    def seconds(self, factor: float = 1.0) -> float:
        """Return the sum of all phases times `factor`, limited by the budget."""
        return min(sum(self.phases.values()) * factor, self.wall or math.inf)

    @property
    def is_cut(self) -> bool:
        """Whether the wall time ends the study before its last trial."""
        return self.wall is not None and sum(self.phases.values()) > self.wall

    def share(self, phase: str) -> float:
        """Return a phase's share of the total."""
        return self.phases.get(phase, 0.0) / max(self.seconds(), 1e-9)

    def words(self) -> tuple[str, str, str]:
        """Return the expected time and its interval, as text."""
        one, low, high = (span_of_time(self.seconds(f)) for f in (1.0, 1.0 / FACTOR, FACTOR))
        return one, low, high

    def as_data(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds(), 1),
            "low": round(self.seconds(1.0 / FACTOR), 1),
            "high": round(self.seconds(FACTOR), 1),
            "at_most": None if self.at_most is None else round(self.at_most, 1),
            "phases": {name: round(seconds, 1) for name, seconds in self.phases.items()},
            "basis": self.basis,
            "assumes": list(self.assumes),
        }

    def lines(self) -> list[str]:
        one, low, high = self.words()
        phases = ", ".join(f"{name} {span_of_time(took)}" for name, took in self.phases.items())
        most = ""
        if self.at_most is not None and self.at_most > self.seconds(FACTOR):
            most = f"; at most {span_of_time(self.at_most)} without early stopping"
        return [
            f"time       about {one} here, {low} to {high}: {phases}{most}",
            f"           {self.basis}; assumes {'; '.join(self.assumes)}",
        ]


def span_of_time(seconds: float) -> str:
    """Format seconds to about two digits, the precision of an estimate.

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
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"
