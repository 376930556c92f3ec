"""The learnt portfolio: PPO configurations that a search tries first, in order.

`scripts/portfolio` learns them from recorded runs on many environments. The file that it writes
documents the method and the data. This module fits them into a study's space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from ..errors import counted
from ..files.plain_data import is_number
from ..spaces.distributions import Categorical, Ordinal
from ..spaces.space import Parameter, Space
from .chunk_sizes import full_run
from .search_spec import Metric
from .spec import Study

_FOLDER = Path(__file__).resolve().parent.parent / "results" / "portfolio"
FILE, FORECAST = _FOLDER / "portfolio.yaml", _FOLDER / "forecast.yaml"

_BLOCKED = "eval/service_blocking_probability"  # the metric of recorded optical networks
_MOST_COUNTED = 20_000  # configurations; larger spaces count as unlimited


@dataclass(frozen=True)
class Portfolio:
    digest: str  # sha256 of the configurations
    places: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Placed:
    """A learnt configuration, fitted into a study's space."""

    number: int  # its place in the portfolio, from 1
    params: dict[str, Any]  # active searched hyperparameters
    moved: tuple[str, ...] = ()  # hyperparameters whose learnt value is outside their range


@dataclass(frozen=True)
class Placement:
    """The learnt configurations that a study tries, and those that it skips."""

    used: tuple[Placed, ...] = ()
    repeated: tuple[int, ...] = ()  # equal to the default, to an enqueued one or to an earlier one
    forbidden: tuple[int, ...] = ()  # excluded by a rule of the space


@lru_cache(maxsize=1)
def read_portfolio() -> Portfolio:
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return Portfolio(content["digest"], tuple(content["places"]))


@dataclass(frozen=True)
class Forecast:
    """How often, in replays, a short study found a configuration better than the default."""

    better: float
    low: float  # lower end of the 95 % interval over tables
    high: float
    worse: float
    tables: int

    @property
    def words(self) -> str:
        """Return the forecast as a phrase.

        >>> Forecast(0.36, 0.07, 0.65, 0.007, 14).words
        'better than the default in 36 % [7, 65] of replays on 14 environments; worse in 1 %'
        """
        around = f"[{100 * self.low:.0f}, {100 * self.high:.0f}]"
        better = f"better than the default in {100 * self.better:.0f} % {around} of replays"
        return f"{better} on {self.tables} environments; worse in {100 * self.worse:.0f} %"


def forecast_of(study: Study) -> Forecast | None:
    """Return the forecast from replays for a study that tries only learnt configurations.

    For any other study, return None. The forecast is that of the largest recorded plan that has at
    most as many configurations and test seeds as this study.
    """
    confirm, places = study.confirm, len(tried_places(study))
    if not places or study.objectives or study.constraints or confirm is None:
        return None
    if not tries_only_given(study) or not _runs_as_replayed(study):
        return None
    if (confirm.top_k, confirm.choose, confirm.default) != (1, 0, True):
        return None
    plans = yaml.safe_load(FORECAST.read_text(encoding="utf-8"))["plans"]
    known = [
        plan for plan in plans if plan["portfolio"] <= places and plan["report"] <= confirm.report
    ]
    if not known:
        return None
    best = max(known, key=lambda plan: (plan["portfolio"], plan["report"]))
    return Forecast(*(best[name] for name in ("better", "low", "high", "worse", "tables")))


def _runs_as_replayed(study: Study) -> bool:
    """Return whether all trials run to their end for a metric of the recorded tables."""
    is_recorded = study.metric.name in (Metric().name, _BLOCKED)
    return is_recorded and study.early_terminate is None and not study.more_envs


def places_of(study: Study) -> Placement:
    """Fit the requested number of learnt configurations into a study's space.

    A number outside its range is clipped to the range. A choice that is not in the space is
    replaced by the hyperparameter's default, as is a missing learnt value. Hyperparameters that
    are not in the space keep the study's values. Repeated and forbidden configurations are
    skipped.
    """
    space = study.space
    given = [space.default(), *(space.complete(entry) for entry in study.enqueue)]
    known = {space.canonical(params) for params in given}
    used = list[Placed]()
    repeated = list[int]()
    forbidden = list[int]()
    for number, learnt in enumerate(read_portfolio().places, start=1):
        if len(used) == study.search.portfolio:
            break
        placed = _place_in_space(space, number, learnt)
        key = space.canonical(placed.params)
        if space.forbidden(placed.params) is not None:
            forbidden.append(number)
        elif key in known:
            repeated.append(number)
        else:
            known.add(key)
            used.append(placed)
    return Placement(tuple(used), tuple(repeated), tuple(forbidden))


def tried_places(study: Study) -> tuple[Placed, ...]:
    """Return the learnt configurations that the budget covers."""
    used, trials = places_of(study).used, within_budget(study, study.budget.trials)
    if trials is None:
        return used
    return used[: max(0, trials - 1 - len(study.enqueue))]


def given_configurations(study: Study) -> list[dict[str, Any]]:
    """Return the searched values of the trials before the method's first proposal, in order."""
    space = study.space
    enqueued = [space.complete(entry) for entry in study.enqueue]
    return [space.default(), *enqueued, *(placed.params for placed in places_of(study).used)]


def trial_count(study: Study) -> int | None:
    """Return the number of trials, limited by the budget and the space; None if unlimited."""
    limit, points = study.budget.trials, 2**31
    if study.search.method == "grid":
        points = study.search.options.get("points", 5)
    elif any(one.distribution.axis.kind == "real" for one in study.space.parameters):
        return limit
    most = min(limit or _MOST_COUNTED, _MOST_COUNTED)
    space = study.space
    first = {space.canonical(params) for params in given_configurations(study)}
    found = len(first | space.grid_keys(points, most + 1))
    if found > most:
        return limit
    return found


def within_budget(study: Study, trials: int | None) -> int | None:
    """Return a number of trials, or the number that `budget.env_steps` pays for if it is less."""
    paid = trials_paid(study)
    if trials is None or paid is None:
        return trials or paid
    return min(trials, paid)


def trials_paid(study: Study) -> int | None:
    """Return the most trials that `budget.env_steps` pays for; None if unlimited or unknown.

    It is unknown if a rule or Ray Tune's scheduler ends trials early, or if racing adds seeds.
    """
    total, seeds = study.budget.env_steps, study.seeds
    varies = study.early_terminate is not None or seeds.first < seeds.per_config
    if total is None or varies or study.search.driver != "lanes":
        return None
    run = full_run(study)
    return max(1, (total - study.confirming * run) // (run * seeds.first))


def tries_only_given(study: Study) -> bool:
    """Return whether the search ends before the method's first proposal."""
    trials = within_budget(study, trial_count(study))
    if trials is None or study.search.driver != "lanes":
        return False
    return trials <= len(given_configurations(study))


def placement_words(study: Study) -> str:
    """Describe the part of the portfolio that a study tries: `5 learnt configurations (...)`."""
    found, tried = places_of(study), tried_places(study)
    moved = [placed for placed in tried if placed.moved]
    notes = list[str]()
    if moved:
        names = dict.fromkeys(name for placed in moved for name in placed.moved)
        notes.append(f"{len(moved)} moved into the range of {', '.join(names)}")
    if found.repeated:
        notes.append(f"{len(found.repeated)} repeated, skipped")
    if found.forbidden:
        notes.append(f"{len(found.forbidden)} forbidden, skipped")
    if not tried:
        notes.append(_why_none(study, found))
    words = counted(len(tried), "learnt configuration")
    return f"{words} ({'; '.join(notes)})" if notes else words


def _why_none(study: Study, found: Placement) -> str:
    """Return why a study tries no learnt configuration."""
    if found.used:
        return "the budget leaves no trial for them"
    space, known = study.space, {name for learnt in read_portfolio().places for name in learnt}
    if not known & {*space.names}:
        return f"they set none of the searched hyperparameters: {', '.join(space.names)}"
    places = (_place_in_space(space, *one) for one in enumerate(read_portfolio().places, start=1))
    moved = dict.fromkeys(name for placed in places for name in placed.moved)
    why = "in this space, none differs from the default or an enqueued configuration"
    if moved:
        why += f"; learnt values of {', '.join(moved)} are outside its range"
    return why


def _place_in_space(space: Space, number: int, learnt: Mapping[str, Any]) -> Placed:
    moved = list[str]()

    def choose(_: str, parameter: Parameter) -> Any:
        if parameter.name not in learnt:
            return parameter.default
        value = learnt[parameter.name]
        if parameter.distribution.why_not(value) is None:
            return parameter.distribution.canonical(value)
        moved.append(parameter.name)
        return _nearest_legal_value(parameter, value)

    params = space.resolve(choose)
    return Placed(number, params, tuple(moved))


def _nearest_legal_value(parameter: Parameter, value: Any) -> Any:
    """Return the hyperparameter's legal value nearest to an illegal one."""
    distribution = parameter.distribution
    if not is_number(value):
        return parameter.default
    if not isinstance(distribution, (Categorical, Ordinal)):
        return distribution.canonical(value)
    numbers = [known for known in distribution.values if is_number(known)]
    if not numbers:
        return parameter.default
    return min(numbers, key=lambda known: _value_distance(known, value))


def _value_distance(one: float, other: float) -> float:
    """Return the absolute log ratio of two positive numbers, or else the absolute difference."""
    if one > 0 and other > 0:
        return abs(math.log(one / other))
    return abs(one - other)
