"""A study as frozen data: what `load` makes of a YAML file and what the search loop reads.

Every field is filled in (defaults included), so that nothing below the loader ever sees a raw
mapping from a file; amounts are plain numbers (env steps, seconds), never text such as `200M`.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import Any, Literal

from ..environments.references import Reference
from ..errors import ConfigError
from ..knobs import complete
from ..spaces.space import Space
from ..store.aggregate_environments import Over
from .stopping_rules import RULES


@dataclass(frozen=True)
class EnvSpec:
    """An environment: a registered id and the fixed values of its keys.

    Attributes:
        id: for example `CartPole-v1`, `rmsa`, `gym:HalfCheetah-v5`.
        values: the keys given under `env:` besides `id`, static ones and float parameters alike.
        scale: of a study over several environments, what scores 0 and 1; else None.
        place: where a file names it, as `study.yaml:3`; "" where none does.
    """

    id: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scale: Reference | None = None
    place: str = field(default="", compare=False)

    @contextmanager
    def named_in_errors(self) -> Generator[None]:
        """Begin the message of a `ConfigError` raised within with the place that names it."""
        try:
            yield
        except ConfigError as error:
            if self.place:
                error.args = (f"{self.place}: {error}",)
            raise


def labels_of(environments: Sequence[EnvSpec]) -> tuple[str, ...]:
    """Return what tables, folders and words call the environments of a study, each once.

    The id; of several with one id the keys in which they differ, too. Only letters, digits, `.`,
    `_`, `-`, `=` are left, so that a label can name a folder.

    >>> labels_of([EnvSpec("CartPole-v1"), EnvSpec("rmsa", {"load": 200}), EnvSpec("rmsa")])
    ('CartPole-v1', 'rmsa_load=200', 'rmsa')
    >>> labels_of([EnvSpec("rmsa", {"k": 5, "load": load}) for load in (150.0, 250.0)])
    ('rmsa_load=150', 'rmsa_load=250')
    """
    found: list[str] = []
    for one in environments:
        same = [other.values for other in environments if other.id == one.id]
        words = [one.id]
        words += [
            f"{key}={_short(value)}"
            for key, value in sorted(one.values.items())
            if not all(key in other and other[key] == value for other in same)
        ]
        label = re.sub(r"[^0-9A-Za-z._=-]+", "_", "_".join(words))
        found.append(label if label not in found else f"{label}_{len(found)}")
    return tuple(found)


def _short(value: Any) -> str:
    """Return a value in words, whole numbers without a point."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value) if whole else value)


@dataclass(frozen=True)
class Metric:
    """What is optimised: `name` at the last evaluation, aggregated over the replicates."""

    name: str = "eval/return_mean"
    goal: Literal["maximize", "minimize"] = "maximize"
    aggregate: Literal["mean", "median", "min", "max", "iqm"] = "mean"


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric; a trial that violates one ranks below all that violate none.

    Attributes:
        metric: measured at the last evaluation.
        min, max: the bounds; at least one is given.
        aggregate: over the replicates.
    """

    metric: str
    min: float | None = None
    max: float | None = None
    aggregate: Literal["mean", "median", "min", "max", "iqm"] = "mean"

    def violation(self, value: float) -> float:
        """Return how far a value lies outside of the bounds, at most 0 inside.

        >>> Constraint("eval/length_mean", max=10.0).violation(12.0)
        2.0
        """
        if not isfinite(value):
            return inf
        above = value - self.max if self.max is not None else -inf
        below = self.min - value if self.min is not None else -inf
        return max(above, below)


@dataclass(frozen=True)
class Evaluation:
    """When and how a policy is evaluated, on seeds that training never uses.

    Attributes:
        every: `rungs` (each rung and the end) or a number of env steps (and the end).
        episodes: episodes an evaluation, if `steps` is None.
        steps: env steps an evaluation in continuous operation, else None.
        greedy: the distribution's mode instead of a sample.
        env: keys of the environment that differ in evaluation.
    """

    every: Literal["rungs"] | int = "rungs"
    episodes: int = 20
    steps: int | None = None
    greedy: bool = True
    env: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class WarmStart:
    """An earlier study whose trials inform the search: its folder or its `trials.parquet`."""

    study: str


@dataclass(frozen=True)
class SearchSpec:
    """Who proposes.

    Attributes:
        method: its name.
        random_share: share of the proposals that are drawn at random.
        options: of the method.
        warm_start: an earlier study that it knows.
        ahead: whether proposals are drawn while lanes run; `auto` leaves it to the method.
        driver: who decides: our own loop over `lanes`, or `ray_tune`.
        scheduler: of Ray Tune: `asha`, `pbt`, or the dotted name of a class.
        searcher: of Ray Tune: `random`, `optuna`, or the dotted name of a class.
        scheduler_options, searcher_options: keyword arguments of these classes.
    """

    method: str = "tpe"
    random_share: float = 0.2
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    warm_start: WarmStart | None = None
    ahead: Literal["auto", "always", "never"] = "auto"
    driver: Literal["lanes", "ray_tune"] = "lanes"
    scheduler: str = "asha"
    searcher: str = "random"
    scheduler_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    searcher_options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class EarlyTerminate:
    """Who is stopped early, or (`pbt`, `pb2`) who goes on from another's state with other knobs.

    Attributes:
        type: a rule of the table in `stopping_rules`.
        min: env steps of the first rung.
        eta: one in `eta` goes on; rungs are min * eta^i below the length of a run, of `plateau`
            every multiple of min.
        audit: share of stopped trials that run on, to measure false stops.
        patience: of `plateau`, rungs without an improvement that counts.
        tolerance: of `plateau`, the share of a trial's gain so far that counts as one.
        every: env steps between the rungs of a population that evolves.
        quantile: share of that population that takes over a state, and share that gives it.
        resample: chance that a knob of a copy is drawn anew.
        perturb: factors, one of which a knob of a copy is moved by if it is not drawn anew.
        pause: of `asha`, how many trials are kept paused at rungs in place of stopped.
        options: of a registered rule.
    """

    type: str = "asha"
    min: int = 0
    eta: float = 4.0
    audit: float = 0.0
    patience: int = 4
    tolerance: float = 0.02
    every: int = 0
    quantile: float = 0.25
    resample: float = 0.25
    perturb: tuple[float, ...] = (0.8, 1.25)
    pause: int = 0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def evolves(self) -> bool:
        """Whether all trials run side by side and take over states from each other.

        Of a rule whose file was not run here, in a study that is looked at, its keys tell.
        """
        rule = RULES.get(self.type)
        return rule.evolves if rule is not None else self.every > 0 and self.min == 0


@dataclass(frozen=True)
class Racing:
    """Seeds race: a trial begins with `start` and gets more unless it is clearly worse.

    Attributes:
        start: seeds before the first look.
        confidence: that a trial dropped is worse than the best one, all looks together.
    """

    start: int = 3
    confidence: float = 0.95


@dataclass(frozen=True)
class Seeds:
    """Replicates: `per_config` a trial at most, of which `tolerate` may diverge."""

    per_config: int = 1
    tolerate: int = 0
    racing: Racing | None = None

    @property
    def first(self) -> int:
        """Replicates that a trial begins with."""
        most = self.per_config
        return most if self.racing is None else min(self.racing.start, most)


@dataclass(frozen=True)
class Confirm:
    """The `top_k` are run again on `choose` fresh seeds, the winner and the default on others.

    Attributes:
        top_k: how many; 0 for none, so that there is no winner.
        choose: fresh seeds that select the winner.
        report: further seeds, of the winner.
        default: the default runs on these, too.
        also: (trial, seeds): trials that run on so many of the report seeds, whatever became of
            them in the search. They are asked for one by one, so `budget` does not bound them.
    """

    top_k: int = 5
    choose: int = 8
    report: int = 16
    default: bool = True
    also: tuple[tuple[int, int], ...] = ()

    def reports(self, objectives: int) -> int:
        """Return how many replicates may run on the report seeds; several objectives use none.

        Those of `also` apart.
        """
        chosen = objectives < 2 and self.top_k > 0
        return self.report * (2 if self.default else 1) if chosen else 0

    def runs(self, objectives: int) -> int:
        """Return how many replicates the whole stage may run; fewer if the default wins."""
        beside = objectives > 1 and self.default and self.top_k > 0  # the default, on `choose`
        return (self.top_k + beside) * self.choose + self.reports(objectives)

    @property
    def asked(self) -> int:
        """How many replicates `also` runs, at most: the winner or the default may be in it."""
        return sum(seeds for _, seeds in self.also)


@dataclass(frozen=True)
class PopulationSpec:
    """Lanes of one program; `lanes` None means the rule of `search.lanes` decides.

    `workers` step host environments, where a call may take `step_timeout` seconds, 0 for any;
    None leaves them to `search.hosting`.
    """

    lanes: int | None = None
    device: Literal["auto", "cpu", "gpu"] = "auto"
    deterministic: bool = False
    workers: int | None = None
    step_timeout: float | None = None


@dataclass(frozen=True)
class Budget:
    """Bounds of the whole study; None means unbounded.

    Attributes:
        trials: number of configurations proposed.
        env_steps: training env steps, search and confirm together; never exceeded.
        wall_seconds: running time over all starts of the study.
        max_failures: errors (not divergences) after which the study stops.
    """

    trials: int | None = 64
    env_steps: int | None = None
    wall_seconds: float | None = None
    max_failures: int = 20


@dataclass(frozen=True)
class Executor:
    """Where populations live.

    Attributes:
        type: `local`, this process; `ray`, workers of a cluster.
        workers: over which the lanes of every population are spread.
        address: of the cluster, `auto` or `host:port`; None: one on this machine alone.
        cpus: that each worker takes; None: its share of the cluster's.
    """

    type: Literal["local", "ray"] = "local"
    workers: int = 1
    address: str | None = None
    cpus: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """What is kept of trials, and how often everything is brought to disk.

    Attributes:
        keep_best: how many of the best policies.
        best_evaluation: whether the policy with the best evaluation of all is kept, too.
        each_seed: whether those of all seeds of the best trials are kept, too.
        policies_every: env steps between two policies kept of each seed; None: none.
        best_of_each: whether each trial's policy at its best evaluation is kept, too.
        parts: what is written beside each of them.
        commit_seconds: between two commits of the study, once it has run a while.
    """

    keep_best: int = 3
    best_evaluation: bool = False
    each_seed: bool = False
    policies_every: int | None = None
    best_of_each: bool = False
    parts: tuple[str, ...] = ()
    commit_seconds: float = 10.0


@dataclass(frozen=True)
class Init:
    """What every lane starts from instead of fresh parameters.

    Attributes:
        folder: of a saved policy, relative to the study file's.
        keep: all its parameters, the critic's or the policy's.
        optimiser: starts fresh, or as it was saved.
    """

    folder: str
    keep: Literal["all", "critic", "policy"] = "all"
    optimiser: Literal["fresh", "restored"] = "fresh"


@dataclass(frozen=True)
class Logger:
    """One sink beside the store: `console`, `csv`, `tensorboard` or `wandb`."""

    type: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Study:
    """A whole study; see docs/study.md for the file it comes from.

    Attributes:
        name: names the folder of results; letters, digits, `.`, `_`, `-`.
        seed: the one integer every random stream comes from.
        imports: paths of user code to import first, relative to the file's folder.
        env: the environment; of several the first.
        more_envs: those after the first, where a trial is one configuration on several.
        over_environments: how the scores of one seed on several become one value.
        env_steps: training env steps of one full run of one replicate.
        schedule_env_steps: that schedules and chunks are laid out over; None: over `env_steps`.
        fixed: knob -> value, for knobs that are not searched.
        space: what is searched.
        baselines: rules that learn nothing, measured on the streams that trials are evaluated on.
        enqueue: configurations (partial: the default fills the rest) tried first, after the
            default configuration, which is always trial 0.
        metric: what is optimised; the first of `objectives` where there are several.
        objectives: all of them where there are several, else empty.
        constraints: bounds that a good trial keeps.
        log_every: env steps between two rows of curves; None: those of a chunk.
        source: the folder the file came from (for relative paths); not compared, not hashed.
    """

    name: str
    env: EnvSpec
    env_steps: int
    space: Space
    seed: int = 0
    imports: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    enqueue: tuple[Mapping[str, Any], ...] = ()
    baselines: tuple[str, ...] = ()
    metric: Metric = Metric()
    objectives: tuple[Metric, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    evaluation: Evaluation = Evaluation()
    search: SearchSpec = SearchSpec()
    early_terminate: EarlyTerminate | None = None
    seeds: Seeds = Seeds()
    confirm: Confirm | None = None
    population: PopulationSpec = PopulationSpec()
    budget: Budget = Budget()
    executor: Executor = Executor()
    checkpoint: Checkpoint = Checkpoint()
    init: Init | None = None
    loggers: tuple[Logger, ...] = ()
    schedule_env_steps: int | None = None
    log_every: int | None = None
    more_envs: tuple[EnvSpec, ...] = ()
    over_environments: Over = "mean"
    source: str = field(default=".", compare=False)

    @property
    def spread(self) -> int:
        """How many environments there are, each of which a replicate trains on for its length."""
        return 1 + len(self.more_envs)

    @property
    def horizon(self) -> int:
        """Env steps that schedules and chunks are laid out over."""
        return self.env_steps if self.schedule_env_steps is None else self.schedule_env_steps

    def complete(self, params: Mapping[str, Any], own_words: bool = False) -> dict[str, Any]:
        """Return the whole configuration that searched values make with what is fixed.

        Args:
            params: active searched knob -> value.
            own_words: as of `knobs.complete`.

        Raises:
            ConfigError: a value is illegal, or values contradict each other.
        """
        return complete({**self.fixed, **params}, own_words)

    def default(self) -> dict[str, Any]:
        """Return the whole default configuration; refused as by `complete`."""
        return dict(self._default)

    @cached_property
    def _default(self) -> dict[str, Any]:
        return self.complete(self.space.default())
