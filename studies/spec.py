"""A study as frozen data, which declares every top-level key of a study file.

Each field is declared once by `key`, with default, range and meaning. The classes of the file's
sections are in `search_spec` and `execution_spec`. The loader, the resolved study, the JSON Schema
and the reference are derived from these declarations. After loading, amounts are plain numbers
(env steps, seconds), never text such as `200M`.
"""

# ruff: noqa: RUF009  # `key` returns a field

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..environments.registry import find
from ..errors import ConfigError
from ..spaces.space import Space
from ..store.aggregate_environments import Over
from .algorithm import Algorithm
from .env_spec import LONGEST, SHORTEST_CUT, EnvSpec
from .execution_spec import (
    Budget,
    Checkpoint,
    Executor,
    Init,
    Logger,
    MetricFiles,
    PopulationSpec,
    Processes,
)
from .field import REQUIRED, Field, key
from .search_spec import Confirm, Constraint, EarlyTerminate, Evaluation, Metric, SearchSpec, Seeds

_MOST_UNITS = 20_000  # largest number of steps counted in one run of a process


@dataclass(frozen=True, kw_only=True)
class Study:
    """A complete study; docs/study.md describes the file."""

    name: str = key(REQUIRED, "name of the results folder; omitted: the file's name", default=None)
    seed: int = key(0, "seed for all random numbers of the study", high=2**31 - 1)
    imports: tuple[str, ...] = key(
        (), "Python files that register environments, networks or samplers"
    )
    algorithm: Algorithm = key(
        Algorithm(),
        "the algorithm to train: ppo, or a custom class as FILE.py:CLASS",
        type="map",
        late=True,
    )
    command: str | None = key(
        None,
        "command line of a training script, with the placeholders {hyperparameter}, {seed}, "
        "{env_steps}, {folder} and {trial}",
        type="text",
        late=True,
    )
    resume: str | None = key(
        None,
        "command: the line that continues a run from its checkpoint in {folder}; `...` stands for "
        "the command",
        type="text",
        late=True,
    )
    processes: Processes | None = key(None, "command: settings of its processes", late=True)
    metrics: MetricFiles | None = key(None, "command: source of its metrics", late=True)
    env: EnvSpec = key(  # the first of several
        REQUIRED, "an id, or {id: ..., key: value}; or a list of several"
    )
    more_envs: tuple[EnvSpec, ...] = ()
    over_environments: Over = key(
        "mean", "several environments: how the scores of a seed are combined"
    )
    env_steps: int = key(REQUIRED, "training env steps of one full run", low=1, high=1e13)
    schedule_env_steps: int | None = key(
        None,
        "run length for schedules and chunks, in env steps; omitted: env_steps",
        low=1,
        high=1e13,
        late=True,
    )
    fixed: Mapping[str, Any] = key({}, "knob -> value, the same in every trial")
    space: Space = key(
        Space(),
        "knob -> distribution, or {file: ..., override: {...}}",
        also=(Field("forbid", "list", (), "combinations that are never run"),),
    )
    enqueue: tuple[Mapping[str, Any], ...] = key(  # partial: defaults fill the rest
        (), "configurations tried first"
    )
    metric: Metric = key(Metric(), "the objective")  # the first of several objectives
    objectives: tuple[Metric, ...] = key(
        (), "several metrics instead of `metric`, each {name, goal, aggregate}"
    )
    constraints: tuple[Constraint, ...] = key(
        (), "bounds on metrics, each {metric, min, max, aggregate}"
    )
    evaluation: Evaluation = key(
        Evaluation(),
        "when and how policies are evaluated",
        also=(Field("eval_env", "map", {}, "keys of env that differ in evaluation"),),
    )
    baselines: tuple[str, ...] = key(
        (),
        (
            "heuristics to compare with, on the same evaluation seeds; omitted: ksp_ff, ff_ksp "
            "in optical networks"
        ),
    )
    search: SearchSpec = key(SearchSpec(), "how trials are proposed")
    early_terminate: EarlyTerminate | None = key(
        None, "the rule that stops trials early; null: none"
    )
    seeds: Seeds = key(Seeds(), "replicates")
    confirm: Confirm | None = key(None, "re-run the best trials on new seeds; null: no re-runs")
    population: PopulationSpec = key(PopulationSpec(), "lanes and device")
    budget: Budget = key(Budget(), "limits of the whole study")
    executor: Executor = key(Executor(), "where populations run")
    checkpoint: Checkpoint = key(Checkpoint(), "which policies are kept")
    init: Init | None = key(None, "a saved policy to start from; null: start fresh")
    log_every: int | None = key(
        None,
        "env steps between two curve rows; omitted: one chunk",
        low=1,
        high=1e13,
        late=True,
    )
    loggers: tuple[Logger, ...] = key((), "tools that also receive the results")
    # folder of the file, to which paths are relative
    source: str = field(default=".", compare=False)
    goals_left_out: tuple[str, ...] = field(default=(), compare=False)
    """The metrics whose goal is the default, because the file does not give it."""

    @property
    def objective_names(self) -> list[str]:
        """The metrics of the objectives; [] if there is only one."""
        return [metric.name for metric in self.objectives]

    @property
    def spread(self) -> int:
        """The number of environments; a replicate trains on each of them for the full length."""
        return 1 + len(self.more_envs)

    @property
    def tested(self) -> int:
        """The maximum number of replicates on test seeds, without `confirm.also`."""
        if self.confirm is None:
            return 0
        most = self.confirm.reports(len(self.objectives))
        if self.has_default_alone:
            return min(most, self.confirm.report)
        return most

    @property
    def confirming(self) -> int:
        """The maximum number of replicates in the confirm stage.

        Fewer run if the default wins, which is certain if no other configuration is tried.
        """
        if self.confirm is None:
            return 0
        objectives = len(self.objectives)
        chosen = self.confirm.runs(objectives) - self.confirm.reports(objectives)
        if self.has_default_alone:
            chosen = min(chosen, self.confirm.choose)
        return chosen + self.tested

    @property
    def has_default_alone(self) -> bool:
        """Whether only the default configuration is tried."""
        if self.budget.trials == 1:
            return True  # `enqueue` and the portfolio come after the default
        return not (self.space.parameters or self.enqueue or self.search.portfolio)

    @property
    def horizon(self) -> int:
        if self.schedule_env_steps is None:
            return self.env_steps
        return self.schedule_env_steps

    def complete(self, params: Mapping[str, Any], own_words: bool = False) -> dict[str, Any]:
        """Return the complete configuration: searched values, `fixed` and defaults."""
        return self.algorithm.complete({**self.fixed, **params}, own_words)

    def steps_per_update(self, config: Mapping[str, Any]) -> int:
        """Return the env steps per update of one lane, for a complete configuration."""
        if self.algorithm.is_ppo:
            return config["num_envs"] * config["rollout_length"]
        if self.algorithm.is_process:
            return _unit_of(self.horizon)
        return self.training(config).steps_per_update

    def training(self, config: Mapping[str, Any]) -> Any:
        """Return the `Training` for a complete configuration of a custom training class."""
        given = None
        if self.algorithm.takes_env:
            given = self._study_environment
        return self.algorithm.training(config, self.horizon, given)

    @cached_property
    def _study_environment(self) -> Any:
        from ..core.envs.registry import plan_of_env  # imports jax
        from ..core.training import StudyEnvironment

        with self.env.named_in_errors():
            plan, params = plan_of_env(self.env.id, self.env.values, self.source)
        longest = LONGEST
        if find(self.env.id) is None:
            longest = min(LONGEST, max(SHORTEST_CUT, self.env_steps))
        return StudyEnvironment(plan, params, self.evaluation.steps, longest)

    def default(self) -> dict[str, Any]:
        return dict(self._default_configuration)

    @cached_property
    def _default_configuration(self) -> dict[str, Any]:
        return self.complete(self.space.default())


def _unit_of(length: int) -> int:
    """Return the chunk size of a process: a round number of steps.

    >>> _unit_of(20_000), _unit_of(200_000), _unit_of(3_000_000)
    (1, 10, 200)
    """
    unit, factors = 1, itertools.cycle((2, 2.5, 2))  # 1, 2, 5, 10, 20, ...
    while length / unit > _MOST_UNITS:
        unit = round(unit * next(factors))
    return unit


def only_ppo(study: Study, what: str) -> None:
    if not study.algorithm.is_ppo:
        raise ConfigError(
            f"{what} supports only PPO, but {study.name} trains {study.algorithm.label}"
        )
