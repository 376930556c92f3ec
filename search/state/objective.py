"""Converts evaluations to metrics, and replicates' values to a trial's values.

Samplers, pruners and rankings use losses (lower is better); rows contain values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ...environments.registry import Reference, normalised
from ...errors import UnknownNameError
from ...store.aggregate_environments import Over, together
from ...store.leaderboard import Ranking
from ...store.pareto import places
from ...store.rows import EpisodeRow, Stream
from ...store.statistics import aggregate
from ...studies.search_spec import Constraint, Metric
from ...studies.spec import Study
from ...studies.study_environments import scales
from ...studies.study_keys import COSTS, METRICS

_PREFIX = "eval/"
TRAINING_RETURN = "training_return"
"""Metric of an evaluation: the training return so far; see `Metric.training_weight`."""
_STATISTICS: Mapping[str, Callable[..., np.ndarray]] = {
    "mean": np.mean, "median": np.median, "min": np.min, "max": np.max, "std": np.std,
}  # fmt: skip
E = TypeVar("E", bound=EpisodeRow)


def with_training(result: E, training_return: float) -> E:
    """Add a seed's training return to the metrics of its evaluation."""
    trained = {TRAINING_RETURN: np.full(len(result.returns), training_return)}
    return replace(result, metrics={**result.metrics, **trained})


def measure(name: str, result: EpisodeRow) -> float:
    """Return the metric `name` of an evaluation.

    `eval/return_mean` etc. (`median`, `min`, `max`, `std`; `return` or `length`) are statistics
    over episodes; any other `eval/<name>` is the mean of the environment's metric with that name.
    """
    if name in result.metrics and not name.startswith(_PREFIX):  # as reported by a command
        return float(np.mean(result.metrics[name]))
    key = name.removeprefix(_PREFIX)
    quantity, _, statistic = key.rpartition("_")
    if quantity in ("return", "length") and statistic in _STATISTICS:
        values = {"return": result.returns, "length": result.lengths}[quantity]
        return float(_STATISTICS[statistic](np.asarray(values, dtype=np.float64)))
    if name.startswith(_PREFIX) and key in result.metrics:
        return float(np.mean(result.metrics[key]))
    known = [*METRICS, *(f"{_PREFIX}{key}" for key in result.metrics)]
    raise UnknownNameError("metric", name, known)


def parts_of(result: EpisodeRow, environments: int) -> list[EpisodeRow]:
    """Split an evaluation on several environments into one part per environment.

    >>> both = EpisodeRow(np.array([1.0, 2.0]), np.array([3, 4]), {})
    >>> [part.returns.tolist() for part in parts_of(both, 2)]
    [[1.0], [2.0]]
    """
    each = len(result.returns) // environments

    def part(at: int) -> EpisodeRow:
        own = slice(at * each, (at + 1) * each)
        metrics = {name: values[own] for name, values in result.metrics.items()}
        return EpisodeRow(result.returns[own], result.lengths[own], metrics)

    return [part(at) for at in range(environments)]


@dataclass(frozen=True)
class Objective:
    """A metric and its direction; for several environments, a single score.

    >>> Objective(Metric(goal="maximize", aggregate="min")).aggregate([2.0, 1.0])
    1.0
    """

    metric: Metric
    # for several environments: the values with scores 0 and 1 on each
    scales: tuple[Reference, ...] = ()
    over: Over = "mean"  # how scores are aggregated over environments

    @classmethod
    def of(cls, study: Study) -> Objective:
        return cls(study.metric, scales(study), study.over_environments)

    @cached_property
    def of_test(self) -> Objective:
        """The objective on test seeds, where training returns do not count."""
        return replace(self, metric=replace(self.metric, training_weight=0.0))

    def on(self, stream: Stream) -> Objective:
        """Return the objective that measures the runs of a stream."""
        if stream is Stream.REPORT:
            return self.of_test
        return self

    def measure(self, result: EpisodeRow) -> float:
        """Return the metric of one evaluation; for several environments, the aggregated score."""
        return self.value_and_scores(result)[0]

    def measure_alone(self, result: EpisodeRow) -> float | None:
        """Return `measure` without training returns; None if they do not count anyway."""
        if not self.metric.training_weight:
            return None
        return self.of_test.measure(result)

    def value_and_scores(self, result: EpisodeRow) -> tuple[float, list[float]]:
        """Return `measure`, and the score on each environment if there are several."""
        if not self.scales:
            return self._with_training(measure(self.metric.name, result), result), []
        each = zip(parts_of(result, len(self.scales)), self.scales, strict=True)
        scores = [normalised(measure(self.metric.name, part), scale) for part, scale in each]
        return together(scores, self.over), scores

    def lacks_training(self, result: EpisodeRow) -> bool:
        """Return whether training returns should count but are missing (no episode has ended)."""
        if not self.metric.training_weight or self.scales:
            return False
        trained = result.metrics.get(TRAINING_RETURN)
        return trained is None or not np.isfinite(trained[0])

    def _with_training(self, value: float, result: EpisodeRow) -> float:
        weight = self.metric.training_weight
        if not weight or self.lacks_training(result):
            return value  # it is only compared with values from evaluations alone
        return (1.0 - weight) * value + weight * float(result.metrics[TRAINING_RETURN][0])

    def aggregate(self, values: Sequence[float]) -> float:
        return aggregate(values, self.metric.aggregate)

    def loss(self, value: float) -> float:
        """Convert a value to a loss or back; a non-finite value becomes an infinite loss."""
        if not math.isfinite(value):
            return math.inf
        if self.metric.goal == "maximize":
            return -value
        return value


@dataclass(frozen=True)
class Objectives:
    """The objectives after the first, and constraints on metrics.

    Their values are called `extras`. A replicate's extras come from its evaluations; a trial's are
    aggregated over replicates and include costs.
    """

    others: tuple[Objective, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, study: Study) -> Objectives:
        return cls(tuple(map(Objective, study.objectives[1:])), study.constraints)

    @property
    def is_plain(self) -> bool:
        return not self.others and not self.constraints

    @cached_property
    def _metric_aggregates(self) -> tuple[tuple[str, str], ...]:
        asked = [(objective.metric.name, objective.metric.aggregate) for objective in self.others]
        return (*asked, *((limit.metric, limit.aggregate) for limit in self.constraints))

    @cached_property
    def _constraint_ranking(self) -> Ranking:
        return Ranking(limits=tuple((limit.min, limit.max) for limit in self.constraints))

    @cached_property
    def _measured_metrics(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._metric_aggregates if name not in COSTS)

    def measure(self, result: EpisodeRow) -> list[float]:
        return [measure(name, result) for name in self._measured_metrics]

    def aggregate(
        self, replicates: Sequence[Sequence[float]], costs: Mapping[str, float]
    ) -> list[float]:
        """Aggregate the extra metrics of a trial's replicates, and add the trial's costs."""
        columns = iter(zip(*replicates, strict=True))
        return [
            costs[name] if name in COSTS else aggregate(list(next(columns)), how)
            for name, how in self._metric_aggregates
        ]

    def losses(self, extras: Sequence[float]) -> tuple[float, ...]:
        own = extras[: len(self.others)]
        return tuple(objective.loss(v) for objective, v in zip(self.others, own, strict=True))

    def values(self, extras: Sequence[float]) -> tuple[float, ...]:
        return tuple(extras[: len(self.others)])

    def limited(self, extras: Sequence[float]) -> tuple[float, ...]:
        return tuple(extras[len(self.others) :])

    def violation(self, limited: Sequence[float]) -> float:
        """Return the sum of constraint violations; 0 if none was measured."""
        if len(limited) != len(self.constraints):
            return 0.0
        return self._constraint_ranking.violation(limited)

    def keys(self, losses: Sequence[Sequence[float]], violations: Sequence[float]) -> list[Any]:
        """Return a sort key per trial, smaller is better: loss, or feasibility and front."""
        if self.is_plain:
            return [own[0] for own in losses]
        return [place.key for place in places(losses, violations)]

    def violations(self, limited: Sequence[float]) -> tuple[float, ...]:
        return self._constraint_ranking.violations(limited)
