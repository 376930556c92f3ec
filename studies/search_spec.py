"""Frozen dataclasses for the sections of a study file that define its objective and search.

They cover evaluations, seeds, proposals, early stopping and the confirm stage. Where and how long
trials run is in `execution_spec`.
"""

# ruff: noqa: RUF009  # `key` returns a field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .field import REQUIRED, key
from .search_methods import METHODS
from .stopping_rules import RULES, rule_fields

Aggregate = Literal["mean", "median", "min", "max", "iqm"]
_RULE_DEFAULTS = {field.key: field.default for field in rule_fields()}


@dataclass(frozen=True)
class Metric:
    """The objective: the metric `name` at the last evaluation, aggregated over replicates."""

    name: str = key("eval/return_mean", "a metric from docs/reference/study-file.md")
    goal: Literal["maximize", "minimize"] = key("maximize", "whether higher or lower is better")
    aggregate: Aggregate = key("mean", "aggregation over the seeds of a trial")
    training_weight: float = key(
        0.0,
        (
            "weight of the mean return of the last 100 training episodes in search and "
            "selection values; not used in test values, or if a trial has no training episode"
        ),
        low=0.0,
        high=1.0,
        late=True,
    )


@dataclass(frozen=True)
class Constraint:
    """A limit on a metric; trials that violate a limit rank below all feasible trials."""

    metric: str = key(REQUIRED, "a metric from docs/reference/study-file.md, or a cost")
    min: float | None = key(None, "smallest allowed value")
    max: float | None = key(None, "largest allowed value")
    aggregate: Aggregate = key("mean", "aggregation over the seeds of a trial")


@dataclass(frozen=True)
class Evaluation:
    """When and how policies are evaluated, on seeds that training never uses."""

    every: Literal["rungs"] | int = key(
        "rungs", "env steps between evaluations; rungs: at rungs and at the end", low=1
    )
    episodes: int = key(20, "episodes per evaluation", low=1, high=100_000)
    steps: int | None = key(
        None, "env steps per evaluation, for environments whose episodes never end", low=1
    )
    greedy: bool = key(True, "use the mode of the policy instead of a sample")
    env: Mapping[str, Any] = field(default_factory=dict[str, Any])  # `eval_env` in the file


@dataclass(frozen=True)
class WarmStart:
    """An earlier study whose trials inform the search."""

    study: str = key(REQUIRED, "folder or trials.parquet of that study, relative to this file")


@dataclass(frozen=True)
class SearchSpec:
    method: str = key("tpe", "how trials are proposed", type="word", words=tuple(METHODS))
    portfolio: int = key(
        0,
        "learnt configurations to try right after the default and `enqueue`",
        low=0,
        high=8,
        late=True,
    )
    random_share: float = key(0.2, "share of proposals drawn at random", low=0, high=1)
    options: Mapping[str, Any] = key({}, "options of the method")
    warm_start: WarmStart | None = key(
        None, "an earlier study whose trials inform the search; null: none"
    )
    ahead: Literal["auto", "always", "never"] = key(
        "auto", "propose while lanes run: saves time, but uses fewer results"
    )
    driver: Literal["lanes", "ray_tune"] = key(
        "lanes", "the scheduler that runs the trials: hpo's, or Ray Tune's"
    )
    scheduler: str = key("asha", "ray_tune: asha, pbt, or the dotted name of a class")
    searcher: str = key("random", "ray_tune: random, optuna, or the dotted name of a class")
    scheduler_options: Mapping[str, Any] = key({}, "ray_tune: arguments for the scheduler class")
    searcher_options: Mapping[str, Any] = key({}, "ray_tune: arguments for the searcher class")


@dataclass(frozen=True)
class EarlyTerminate:
    """A rule from `stopping_rules`, which declares its keys; keys of other rules are unused."""

    type: str = "asha"
    min: int = 0
    eta: float = _RULE_DEFAULTS["eta"]
    audit: float = _RULE_DEFAULTS["audit"]
    patience: int = _RULE_DEFAULTS["patience"]
    tolerance: float = _RULE_DEFAULTS["tolerance"]
    every: int = 0
    quantile: float = _RULE_DEFAULTS["quantile"]
    resample: float = _RULE_DEFAULTS["resample"]
    perturb: tuple[float, ...] = _RULE_DEFAULTS["perturb"]
    pause: int = _RULE_DEFAULTS["pause"]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # keys of a registered rule

    @property
    def evolves(self) -> bool:
        """Whether all trials run at the same time and copy each other's states.

        For a rule that is not registered here (in a recorded study), its keys determine this.
        """
        if self.type in RULES:
            return RULES[self.type].evolves
        return self.every > 0 and self.min == 0


@dataclass(frozen=True)
class Racing:
    """A trial starts with `start` seeds, and gets more unless it is clearly worse."""

    start: int = key(3, "seeds before the first comparison", low=2, high=1000)
    confidence: float = key(
        0.95,
        "confidence that a dropped trial is worse, over all comparisons",
        low=0.5,
        high=0.9999,
    )


@dataclass(frozen=True)
class Seeds:
    per_config: int = key(1, "seeds per trial", low=1, high=1000)
    tolerate: int = key(0, "number of seeds that may diverge before the trial counts as diverged")
    racing: Racing | None = key(None, "add seeds only to trials that may still win; null: no")

    @property
    def first(self) -> int:
        """The number of replicates with which a trial starts."""
        if self.racing is None:
            return self.per_config
        return min(self.racing.start, self.per_config)


@dataclass(frozen=True)
class Confirm:
    """New runs: the best trials on selection seeds, then winner and default on test seeds."""

    top_k: int = key(5, "number of trials to re-run; 0: none, and no winner", high=1000)
    choose: int = key(
        8, "selection seeds: new seeds to pick the winner; 0: search values are used", high=1000
    )
    report: int = key(16, "test seeds: more new seeds for the final comparison", high=1000)
    interim: int | None = key(
        None,
        "number of test seeds after which the test ends if the difference from the default is "
        "clear, or does not favour the winner",
        low=8,
        high=1000,
    )
    default: bool = key(True, "also run the default configuration on the test seeds")
    also: tuple[tuple[int, int], ...] = key(  # (trial, seeds)
        (),
        (
            "{trial: seeds}: trials that also run on this many test seeds, in addition to the "
            "budget; trial -1 is the default configuration"
        ),
        type="map",
        late=True,
    )

    def reports(self, objectives: int) -> int:
        """Return the maximum number of test replicates, without `also`; 0 for a Pareto front."""
        if objectives > 1 or self.top_k == 0:
            return 0
        return self.report * (1 + bool(self.default))

    def runs(self, objectives: int) -> int:
        """Return the maximum number of replicates in the stage; fewer run if the default wins."""
        default = objectives > 1 and self.default and self.top_k > 0  # on `choose` seeds
        return (self.top_k + default) * self.choose + self.reports(objectives)

    @property
    def asked(self) -> int:
        """The maximum number of replicates for `also`, which may include winner or default."""
        return sum(seeds for _, seeds in self.also)
