"""A study as frozen data, and the declaration of every key in its file.

Each field is declared once by `key`, with default, range and meaning. The loader, the resolved
study, the JSON Schema and the reference are derived from these declarations. After loading,
amounts are plain numbers (env steps, seconds), never text such as `200M`.
"""

# ruff: noqa: RUF009  # `key` returns a field

from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from ..environments.registry import Reference, find
from ..errors import ConfigError
from ..spaces.space import Space
from ..store.aggregate_environments import Over
from .algorithm import Algorithm
from .field import REQUIRED, Field, key
from .search_methods import METHODS
from .stopping_rules import RULES, rule_fields

LONGEST = 100_000  # largest number of env steps in an episode, in any environment
SHORTEST_CUT = 20_000  # no episode is cut earlier than this many env steps
PARTS = ("parameters", "optimiser", "losses", "gradients", "advantages", "trajectories")
_RULE_DEFAULTS = {field.key: field.default for field in rule_fields()}
Aggregate = Literal["mean", "median", "min", "max", "iqm"]
_MOST_UNITS = 20_000  # largest number of steps counted in one run of a process
SCORE = "score"  # name, in tables, of a trial's value over several environments
WITH_TRAINING = " with training returns"


@dataclass(frozen=True)
class EnvSpec:
    """An environment: a registered id and the fixed values of its keys."""

    id: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scale: Reference | None = None  # what scores 0 and 1, for several environments
    place: str = field(default="", compare=False)  # place in a file, such as `study.yaml:3`

    @contextmanager
    def named_in_errors(self) -> Generator[None]:
        """Add the place to the message of any `ConfigError` raised in the context."""
        try:
            yield
        except ConfigError as error:
            if self.place:
                error.args = (f"{self.place}: {error}",)
            raise


def labels_of(environments: Sequence[EnvSpec]) -> tuple[str, ...]:
    """Return unique names of a study's environments, for tables, folders and text.

    The name is the id; if several share an id, the name includes the keys in which they differ.
    Names consist of letters, digits, `.`, `_`, `-`, `=`, so that they are valid folder names.

    >>> labels_of([EnvSpec("CartPole-v1"), EnvSpec("rmsa", {"load": 200}), EnvSpec("rmsa")])
    ('CartPole-v1', 'rmsa_load=200', 'rmsa')
    >>> labels_of([EnvSpec("rmsa", {"k": 5, "load": load}) for load in (150.0, 250.0)])
    ('rmsa_load=150', 'rmsa_load=250')
    """
    found: list[str] = []
    for one in environments:
        words = [one.id]
        for name, value in sorted(one.values.items()):
            same = (_has_value(other, name, value) for other in environments if other.id == one.id)
            if not all(same):
                words.append(f"{name}={_number_text(value)}")
        label = re.sub(r"[^0-9A-Za-z._=-]+", "_", "_".join(words))
        if label in found:
            label = f"{label}_{len(found)}"
        found.append(label)
    return tuple(found)


def _has_value(env: EnvSpec, name: str, value: Any) -> bool:
    return name in env.values and env.values[name] == value


def _number_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


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
            "selection values; test values, and all values if a trial has no training "
            "episode, use evaluations alone"
        ),
        low=0.0,
        high=1.0,
        late=True,
    )


@dataclass(frozen=True)
class Constraint:
    """A limit on a metric; trials that violate one rank below all feasible trials."""

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
        None, "env steps per evaluation instead, for environments without episodes", low=1
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
    driver: Literal["lanes", "ray_tune"] = key("lanes", "scheduler: hpo itself, or Ray Tune")
    scheduler: str = key("asha", "ray_tune: asha, pbt, or the dotted name of a class")
    searcher: str = key("random", "ray_tune: random, optuna, or the dotted name of a class")
    scheduler_options: Mapping[str, Any] = key({}, "ray_tune: keyword arguments of that class")
    searcher_options: Mapping[str, Any] = key({}, "ray_tune: keyword arguments of that class")


@dataclass(frozen=True)
class EarlyTerminate:
    """A rule from `stopping_rules` with its keys, declared there; other rules' keys are unused."""

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

        If the rule is not registered here (in a recorded study), its keys decide.
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
    per_config: int = key(1, "replicates per trial", low=1, high=1000)
    tolerate: int = key(0, "replicates that may diverge before the trial counts as diverged")
    racing: Racing | None = key(None, "stop spending seeds on clear losers; null: no")

    @property
    def first(self) -> int:
        """The number of replicates with which a trial starts."""
        if self.racing is None:
            return self.per_config
        return min(self.racing.start, self.per_config)


@dataclass(frozen=True)
class Confirm:
    """New runs of the best trials on selection seeds, and of winner and default on test seeds."""

    top_k: int = key(5, "number of trials that run again; 0: none, and no winner", high=1000)
    choose: int = key(
        8, "selection seeds: new seeds that decide the winner; 0: the search decides", high=1000
    )
    report: int = key(16, "test seeds: further seeds, for the final comparison", high=1000)
    interim: int | None = key(
        None,
        "test seeds after which the test ends if the difference from the default is clear, or "
        "does not favour the winner",
        low=8,
        high=1000,
    )
    default: bool = key(True, "also run the default configuration on the test seeds")
    also: tuple[tuple[int, int], ...] = key(  # (trial, seeds)
        (),
        (
            "trial: seeds; these trials also run on that many test seeds, beyond the budget; "
            "-1: the default"
        ),
        type="map",
        late=True,
    )

    def reports(self, objectives: int) -> int:
        """Return the maximum number of test-seed replicates, without `also`; 0 for a front."""
        if objectives > 1 or self.top_k == 0:
            return 0
        return self.report * (1 + bool(self.default))

    def runs(self, objectives: int) -> int:
        """Return the maximum number of replicates in the stage; fewer run if the default wins."""
        default = objectives > 1 and self.default and self.top_k > 0  # on `choose` seeds
        return (self.top_k + default) * self.choose + self.reports(objectives)

    @property
    def asked(self) -> int:
        """The maximum number of replicates for `also`, including any of the winner or default."""
        return sum(seeds for _, seeds in self.also)


@dataclass(frozen=True)
class PopulationSpec:
    """Lanes of a program; None means `auto`: `search.lanes` and `search.hosting` decide."""

    lanes: int | None = key(
        None,
        "lanes per program, or auto; rounded up to whole tiles",
        low=1,
        high=1_000_000,
        words=("auto",),
    )
    tiles: Literal["auto", "whole", "narrow"] = key(
        "auto",
        (
            "grouping of lanes on a CPU: whole tiles give a run the same numbers for any "
            "number of lanes; narrow ones fit the lanes; auto: whole, but narrow for fewer "
            "lanes than one tile per device"
        ),
    )
    device: Literal["auto", "cpu", "gpu"] = key("auto", "where lanes run")
    deterministic: bool = key(False, "bitwise reproducible results on a GPU, at some cost")
    workers: int | None = key(
        None, "processes that step gym: environments, or auto; 0: none", high=1024, words=("auto",)
    )
    step_timeout: float | None = key(
        None,
        (
            "time after which a call to a gym: environment counts as hung, or auto: 2m for "
            "a step, 5m to create one; 0: no limit"
        ),
        type="seconds",
        low=0,
        high=1e9,
        words=("auto",),
        late=True,
    )


@dataclass(frozen=True)
class Budget:
    """Limits of the whole study; None means unlimited."""

    trials: int | None = key(64, "number of configurations proposed", low=1, high=1e9)
    env_steps: int | None = key(None, "training env steps of the whole study", low=1)
    wall_seconds: float | None = key(
        None,
        "total running time over all starts",
        key="wall",
        type="seconds",
        low=0,
        low_open=True,
        high=1e9,
    )
    max_failures: int = key(20, "errors after which the study stops", high=1e9)


@dataclass(frozen=True)
class Executor:
    type: Literal["local", "ray", "slurm"] = key(
        "local", "this process, workers of a Ray cluster, or SLURM jobs (only with command)"
    )
    workers: int = key(1, "ray: processes over which lanes are spread", low=1, high=1024)
    address: str | None = key(
        None, "ray: address of the cluster, auto or host:port; null: this machine alone"
    )
    cpus: int | None = key(
        None, "ray: CPUs per worker; null: its share of the cluster's CPUs", low=1, high=4096
    )
    partition: str | None = key(
        None, "slurm: partition of the jobs; null: the cluster's default", type="text", late=True
    )
    time: float | None = key(
        None,
        "slurm: time limit of each job; null: that of the partition",
        type="seconds",
        low=60,
        high=1e9,
        late=True,
    )
    options: Mapping[str, Any] = key(
        {}, "slurm: further sbatch options, such as {account: lab, mem: 8G}", late=True
    )
    setup: str | None = key(
        None,
        "slurm: shell lines that run before the command, such as module load cuda",
        type="text",
        late=True,
    )
    poll: float = key(
        15.0,
        "slurm: time between two calls of squeue",
        type="seconds",
        low=0,
        high=3600,
        late=True,
    )


@dataclass(frozen=True)
class Processes:
    """The processes of a study with `command`."""

    at_once: int | None = key(
        None,
        "processes at the same time, or auto: as many as GPUs and CPU cores allow",
        low=1,
        high=4096,
        words=("auto",),
    )
    gpus: float | None = key(
        None,
        "GPUs per process; 0.5: two share one; 0: none visible; null: all visible",
        low=0,
        high=64,
    )
    threads: int | None = key(
        None,
        "threads per process, as OMP_NUM_THREADS; auto: its share of the cores",
        low=1,
        high=4096,
        words=("auto",),
    )
    timeout: float = key(
        3600.0,
        "time without a metric after which a process counts as hung; 0: no limit",
        type="seconds",
        low=0,
        high=1e9,
    )
    grace: float = key(
        10.0, "time between SIGTERM and SIGKILL", type="seconds", low=0, high=86_400
    )


@dataclass(frozen=True)
class MetricFiles:
    """The source from which a process's metrics are read."""

    type: Literal["stdout", "jsonl", "csv", "tensorboard", "wandb"] = key(
        "stdout",
        (
            "source: printed JSON lines, a file of such lines, a CSV file, event files, or "
            "offline W&B runs"
        ),
    )
    file: str | None = key(
        None,
        "path or pattern of the files, with placeholders; null: in {folder}",
        type="text",
    )
    step: str = key("step", "the name of the step in each line or row")
    mean_of: int = key(1, "number of last metric values that are averaged", low=1, high=100_000)


@dataclass(frozen=True)
class Checkpoint:
    """The policies to save, and the time between commits."""

    keep_best: int = key(3, "number of best trials whose final policies are kept", high=1000)
    best_evaluation: bool = key(False, "also keep the policy with the best evaluation of all")
    each_seed: bool = key(False, "also keep the policies of all seeds of the best trials")
    policies_every: int | None = key(
        None,
        "env steps between saved policies of each seed of the best trials; null: none",
        low=1,
        high=1e13,
        late=True,
    )
    best_of_each: bool = key(
        False, "also keep each trial's policy at its best evaluation", late=True
    )
    parts: tuple[str, ...] = key((), "parts saved with each policy", type="words", words=PARTS)
    commit_seconds: float = key(
        10.0,
        "time between commits, shorter after a start; 0: at every boundary",
        key="commit_every",
        type="seconds",
        low=0,
        high=1e9,
        late=True,
    )


@dataclass(frozen=True)
class Init:
    folder: str = key(REQUIRED, "folder of a saved policy, relative to this file", key="from")
    keep: Literal["all", "critic", "policy"] = key(
        "all", "parameters to keep; the rest starts fresh"
    )
    optimiser: Literal["fresh", "restored"] = key(
        "fresh", "restored needs keep: all and a policy saved with its optimiser"
    )


@dataclass(frozen=True)
class Logger:
    """A sink in addition to the store: `console`, `csv`, `tensorboard`, `wandb` or `mlflow`."""

    type: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class Study:
    """A complete study; docs/study.md describes the file."""

    name: str = key(REQUIRED, "name of the results folder; omitted: the file's name", default=None)
    seed: int = key(0, "seed for all random numbers of the study", high=2**31 - 1)
    imports: tuple[str, ...] = key(
        (), "Python files that register environments, networks, samplers"
    )
    algorithm: Algorithm = key(
        Algorithm(),
        "what lanes train: ppo, or a custom class as FILE.py:CLASS",
        type="map",
        late=True,
    )
    command: str | None = key(
        None,
        "command line of a training script, which runs as a process, with {hyperparameter}, "
        "{seed}, {env_steps}, {folder} and {trial}",
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
    metrics: MetricFiles | None = key(None, "command: where metrics are read", late=True)
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
    fixed: Mapping[str, Any] = key({}, "knob -> value, for knobs that are not searched")
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
            "heuristics to compare with, on the same evaluation streams; omitted: ksp_ff, ff_ksp "
            "in optical networks"
        ),
    )
    search: SearchSpec = key(SearchSpec(), "how trials are proposed")
    early_terminate: EarlyTerminate | None = key(
        None, "the rule that stops trials early; null: none"
    )
    seeds: Seeds = key(Seeds(), "replicates")
    confirm: Confirm | None = key(None, "re-run the best trials on new seeds; null: skip this")
    population: PopulationSpec = key(PopulationSpec(), "lanes and device")
    budget: Budget = key(Budget(), "limits of the whole study")
    executor: Executor = key(Executor(), "where populations run")
    checkpoint: Checkpoint = key(Checkpoint(), "which policies are kept")
    init: Init | None = key(None, "a saved policy that lanes start from; null: fresh")
    log_every: int | None = key(
        None,
        "env steps between two rows of curves; omitted: one chunk",
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
    def spread(self) -> int:
        """The number of environments on which each replicate trains for its full length."""
        return 1 + len(self.more_envs)

    @property
    def tested(self) -> int:
        """The maximum number of replicates on test seeds, without `confirm.also`."""
        if self.confirm is None:
            return 0
        most = self.confirm.reports(len(self.objectives))
        if self._has_default_alone:
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
        if self._has_default_alone:
            chosen = min(chosen, self.confirm.choose)
        return chosen + self.tested

    @property
    def _has_default_alone(self) -> bool:
        """Whether only the default configuration is tried."""
        if self.enqueue or self.search.portfolio:
            return False
        return self.budget.trials == 1 or not self.space.parameters

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
        """Return the `Training` for a custom training's complete configuration."""
        given = None
        if self.algorithm.takes_env:
            given = self._environment
        return self.algorithm.training(config, self.horizon, given)

    @cached_property
    def _environment(self) -> Any:
        from ..core.envs.registry import plan_of_env  # imports jax
        from ..core.training import StudyEnvironment

        with self.env.named_in_errors():
            plan, params = plan_of_env(self.env.id, self.env.values, self.source)
        longest = LONGEST
        if find(self.env.id) is None:
            longest = min(LONGEST, max(SHORTEST_CUT, self.env_steps))
        return StudyEnvironment(plan, params, self.evaluation.steps, longest)

    def default(self) -> dict[str, Any]:
        return dict(self._default)

    @cached_property
    def _default(self) -> dict[str, Any]:
        return self.complete(self.space.default())


def _unit_of(length: int) -> int:
    """Return a round number of steps as the granularity of a process.

    >>> _unit_of(20_000), _unit_of(200_000), _unit_of(3_000_000)
    (1, 10, 200)
    """
    unit, factors = 1, itertools.cycle((2, 2.5, 2))  # 1, 2, 5, 10, 20, ...
    while length / unit > _MOST_UNITS:
        unit = round(unit * next(factors))
    return unit


def environments_of(study: Study) -> tuple[EnvSpec, ...]:
    return (study.env, *study.more_envs)


def labels(study: Study) -> tuple[str, ...]:
    """Return the environments' names in tables; () for a single environment."""
    if not study.more_envs:
        return ()
    return labels_of(environments_of(study))


def scales(study: Study) -> tuple[Reference, ...]:
    """Return the reference scores; () for a single environment."""
    if not study.more_envs:
        return ()
    return tuple(one.scale for one in environments_of(study) if one.scale is not None)


def each_alone(study: Study) -> tuple[Study, ...]:
    if not study.more_envs:
        return (study,)
    return tuple(alone(study, index) for index in range(study.spread))


def alone(study: Study, index: int) -> Study:
    """Return the study on one of its environments, with that environment's hyperparameters.

    Replicates are numbered as in the whole study: replicate r has the same random numbers in both.
    """
    env = environments_of(study)[index]
    searched = tuple(p for p in study.space.parameters if has_key(env.id, p.name))
    return replace(
        study,
        env=replace(env, scale=None),
        more_envs=(),
        over_environments="mean",
        space=replace(study.space, parameters=searched, forbid=()),
        enqueue=tuple(own_config(env.id, entry) for entry in study.enqueue),
    )


def env_words(study: Study) -> str:
    """Name the environments; if there are more than three, only two of them.

    >>> first, *more = map(EnvSpec, "abc")
    >>> env_words(Study(name="s", env=first, env_steps=1, more_envs=tuple(more)))
    'a, b and c'
    """
    names = list(labels(study))
    if not names:
        return study.env.id
    if len(names) > 3:
        return f"{names[0]}, {names[1]} and {len(names) - 2} more environments"
    *others, last = names
    return f"{', '.join(others)} and {last}"


def metric_words(study: Study) -> str:
    if study.more_envs:
        return SCORE
    return study.metric.name


def value_words(study: Study, alone: bool = False) -> str:
    """Return the name of values used for selection; test values do not have `WITH_TRAINING`.

    With `alone`, only evaluations count, because some trial had no training return.
    """
    words = metric_words(study)
    if study.metric.training_weight and not alone:
        words += WITH_TRAINING
    return words


def only_one_environment(study: Study, what: str) -> None:
    if study.more_envs:
        text = f"{what} supports one environment, but {study.name} has {env_words(study)}"
        raise ConfigError(f"{text}; use a study with env: {study.env.id}")


def only_ppo(study: Study, what: str) -> None:
    if not study.algorithm.is_ppo:
        raise ConfigError(
            f"{what} supports only PPO, but {study.name} trains {study.algorithm.label}"
        )


def own_config(id_: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if has_key(id_, name)}


def has_key(id_: str, name: str) -> bool:
    """Return whether an environment has a parameter `env.<name>`; True for other names.

    An environment that is defined only by imported code is assumed to have every parameter.

    >>> has_key("CartPole-v1", "env.gravity"), has_key("Acrobot-v1", "env.gravity")
    (True, False)
    """
    if not name.startswith("env."):
        return True
    known, key = find(id_), name.removeprefix("env.")
    return known is None or known.is_open or key in known.params or key in known.keys
