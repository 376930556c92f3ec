"""`AutoRLEnv`: a vector environment of PPO runs whose actions are hyperparameters.

So schedules and policies that change hyperparameters during a run can be tried and learnt. The
interface is that of Gymnasium's vector environments; all runs share one compiled program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..environments.via_gymnasium import is_gymnasium
from ..errors import ConfigError, suggestion
from ..knobs import KNOBS
from ..machine.software import enable_compilation_cache
from ..spaces.space import Parameter, Space
from ..store.rows import Stream
from ..studies.load import load, loads
from ..studies.several_environments import only_one_environment, only_ppo
from ..studies.spec import EarlyTerminate, Seeds, Study
from ..studies.user_code import run_own_code
from ..studies.yaml_io import to_yaml
from .lanes.contract import Change, ChunkResult, EvaluationResult, Refill, Resolver, refuse_failed
from .state.objective import measure
from .state.schedule import schedule_of

Action = Mapping[str, Any] | Sequence[Mapping[str, Any]] | np.ndarray
"""One mapping for all runs, one per run, or numbers from 0 to 1 [runs, knobs]."""


class Actions:
    """Reads actions for a number of runs; `knobs` has the order of arrays."""

    def __init__(self, space: Space, runs: int):
        for parameter in space.parameters:
            if parameter.when:
                raise ConfigError(
                    f"{parameter.name} has a `when`; here all hyperparameters must be active"
                )
        self._space, self._runs = space, runs
        self._parameters = {parameter.name: parameter for parameter in space.parameters}
        self.knobs = tuple(self._parameters)

    def read(self, given: Action, before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return one whole configuration per run; omitted values stay as they were `before`."""
        if isinstance(given, np.ndarray):
            shape = (self._runs, len(self.knobs))
            if given.shape != shape or not np.all(np.isfinite(given)):
                raise ConfigError(
                    f"an action is an array of shape {given.shape}; allowed: finite, of shape "
                    f"{shape}"
                )
            return [self._of_shares(row) for row in np.clip(given.astype(np.float64), 0.0, 1.0)]
        rows = [given] * self._runs if isinstance(given, Mapping) else list(given)
        if len(rows) != self._runs:
            raise ConfigError(f"{len(rows)} configurations were given for {self._runs} runs")
        return [self._changed(old, row) for old, row in zip(before, rows, strict=True)]

    def shares(self, params: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Return configurations as numbers from 0 to 1 [runs, knobs]."""
        rows = [
            [self._parameters[name].distribution.share(row[name]) for name in self.knobs]
            for row in params
        ]
        return np.asarray(rows, np.float64).reshape(len(params), len(self.knobs))

    def _changed(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
        for name in new:
            if name not in self._parameters:
                hint, known = suggestion(name, self.knobs), ", ".join(self.knobs)
                raise ConfigError(f"{name!r} is not in the space;{hint} Known: {known}")
        return self._space.complete({**old, **new})

    def _of_shares(self, row: np.ndarray) -> dict[str, Any]:
        share = dict(zip(self.knobs, row, strict=True))

        def choose(_: str, parameter: Parameter) -> Any:
            axis = parameter.distribution.axis
            return parameter.distribution.outward(axis.at(float(share[parameter.name])))

        return self._space.complete(self._space.resolve(choose))


PARTS: Mapping[str, tuple[str, ...]] = {
    "policy": ("params",),
    "optimiser": ("moments",),
    "normalisers": ("observation_statistics", "return_statistics", "discounted_return"),
    "environment": ("env_state", "observation", "episode_return", "episode_length"),
    "position": ("key", "updates", "total_updates"),
}
"""Part -> its fields of `core.lane_state.LaneState`; all other fields belong to `environment`."""


def fields_of(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the fields of a lane's state that parts consist of."""
    from ..core.lane_state import LaneState

    named = {field for fields in PARTS.values() for field in fields}
    others = [field.name for field in dataclasses.fields(LaneState) if field.name not in named]
    fields: list[str] = []
    for part in parts:
        if part not in PARTS:
            known = ", ".join(PARTS)
            raise ConfigError(f"unknown part {part!r};{suggestion(part, PARTS)} Known: {known}")
        fields += [*PARTS[part], *(others if part == "environment" else ())]
    if not fields:
        raise ConfigError(f"no part was named; known: {', '.join(PARTS)}")
    return tuple(fields)


def study_of(study: Study | str | Path | Mapping[str, Any], runs: int, steps: int) -> Study:
    """Return the study whose chunks end at the decisions, and whose lanes hold the runs."""
    if isinstance(study, Mapping):
        study = loads(to_yaml({"name": "autorl", **study}), "study")
    elif not isinstance(study, Study):
        study = load(study)
    if runs < 1 or steps < 1 or steps > study.env_steps:
        raise ConfigError(
            f"runs is {runs} and steps {steps}; allowed: at least 1 of each, and no more steps "
            f"than the {study.env_steps} env steps of a run"
        )
    every = -(-study.env_steps // steps)
    return dataclasses.replace(
        study,
        early_terminate=EarlyTerminate("pbt", every=every),
        seeds=Seeds(),
        confirm=None,
        population=dataclasses.replace(study.population, lanes=None),
        budget=dataclasses.replace(study.budget, trials=max(2, runs)),
    )


def check_changeable(study: Study) -> None:
    """Raise ConfigError for a searched static hyperparameter; the study's imports have run."""
    from ..core.envs.registry import float_params

    only_ppo(study, "AutoRL")
    only_one_environment(study, "AutoRL")
    floats = {f"env.{name}" for name in float_params(study.env.id)}
    for name in study.space.names:
        if name not in floats and (name.startswith("env.") or not KNOBS[name].traced):
            where = "`env`" if name.startswith("env.") else "`fixed`"
            raise ConfigError(
                f"{name} is part of the compiled program and cannot change during a run; put it "
                f"under {where}"
            )


FEATURES = (
    "loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "ratio_std",
    "early_stopped", "explained_variance", "advantage_std", "grad_norm", "grad_variance",
    "param_norm", "learning_rate", "clip_eps", "ent_coef", "episode_return", "episode_length",
    "reward_mean",
)  # fmt: skip
"""Metrics of training in an observation, of the last chunk of a step.

Those that are also objectives or in the space appear once, as these.
"""


class AutoRLEnv:
    """PPO runs in parallel; a step trains each for a part of its run with given hyperparameters.

    An action is a mapping of searched hyperparameters to values per run, or one for all, or an
    array [runs, knobs] of numbers from 0 to 1, which their distributions turn into values (`knobs`
    has their order). Omitted hyperparameters keep their values.

    Args:
        study: a study file, its data, or a loaded study. Its environment, length of a run
            (`env_steps`), `fixed`, `space`, `evaluation`, `metric` and `seed` count.
        runs: how many.
        steps: decisions of a run; each trains `env_steps / steps`, rounded up to whole chunks.
        objectives: metrics, `eval/...` of an evaluation after each step, or names of `FEATURES`;
            omitted: the study's metric.
        reward: `value`: the objective after the step; `gain`: its rise since the last step of the
            run; the first step gives the whole value.

    Attributes:
        num_envs: runs.
        knobs: names of the hyperparameters, in the order of arrays.
        features: names of the entries of an observation.
        objectives: names of the entries of a reward.
        steps: decisions of a run.

    Raises:
        ConfigError: a searched hyperparameter or key of the environment is static, or an
            objective is not known.
    """

    metadata: Mapping[str, Any] = {"autoreset_mode": "disabled", "render_modes": []}

    def __init__(
        self,
        study: Study | str | Path | Mapping[str, Any],
        runs: int = 16,
        steps: int = 16,
        objectives: Sequence[str] | None = None,
        reward: Literal["value", "gain"] = "value",
    ):
        self._study = study_of(study, runs, steps)
        run_own_code(self._study)
        check_changeable(self._study)
        enable_compilation_cache()
        from .lanes.local import LocalFactory

        self._space = self._study.space
        self.objectives = tuple(map(_checked_objective, objectives or [self._study.metric.name]))
        if reward not in ("value", "gain"):
            raise ConfigError(f"reward is {reward!r}; allowed: value, gain")
        self._reward = reward
        factory = LocalFactory(self._study)
        self._resolver = Resolver(self._study, factory)
        self._population = factory.make_small(self._resolver.default(), runs)
        self.num_envs = runs
        self._actions = Actions(self._space, runs)
        self.knobs = self._actions.knobs
        schedule = schedule_of(self._study, self._population.steps_per_chunk)
        self._marks = tuple(sorted({*schedule.rungs, schedule.length}))
        self.steps = len(self._marks)
        entries = {*self.objectives, *self.knobs}
        self._shown = [at for at, name in enumerate(FEATURES) if name not in entries]
        shown = (FEATURES[at] for at in self._shown)
        self.features = ("progress", *shown, *self.objectives, *self.knobs)
        self._episode = 0
        self._clear()

    def _clear(self) -> None:
        count = self.num_envs
        self._params: list[dict[str, Any]] = [self._space.default() for _ in range(count)]
        self._done_steps = np.zeros(count, np.int64)
        self._alive = np.zeros(count, bool)
        self._fresh: dict[int, Refill] = {}
        self._metrics = np.zeros((count, len(FEATURES)), np.float32)
        self._values = np.full((count, len(self.objectives)), np.nan)
        self._replicates = np.arange(count)

    # ------------------------------------------------------------------ spaces of Gymnasium

    @property
    def single_observation_space(self) -> Any:
        """One run's observations, as a Gymnasium space."""
        return self._box(-np.inf, np.inf, len(self.features))

    @property
    def single_action_space(self) -> Any:
        """One run's actions as numbers from 0 to 1, as a Gymnasium space."""
        return self._box(0.0, 1.0, len(self.knobs))

    @property
    def observation_space(self) -> Any:
        """All runs' observations, as a Gymnasium space."""
        return self._box(-np.inf, np.inf, self.num_envs, len(self.features))

    @property
    def action_space(self) -> Any:
        """All runs' actions as numbers from 0 to 1, as a Gymnasium space."""
        return self._box(0.0, 1.0, self.num_envs, len(self.knobs))

    def _box(self, low: float, high: float, *shape: int) -> Any:
        try:
            from gymnasium.spaces import Box
        except ImportError as error:
            raise ConfigError(
                "spaces are Gymnasium's, which is not installed; pip install 'hpo-lanes[gym]'"
            ) from error
        return Box(low, high, shape, np.float32)

    # ------------------------------------------------------------------ the interface

    def reset(
        self,
        configs: Action | None = None,
        *,
        seed: int | None = None,
        runs: Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start runs; each has separate random numbers.

        Args:
            configs: their first hyperparameters, as an action; omitted: the space's default.
            seed: run i is replicate `seed * num_envs + i` of the study; omitted: the next seed.
            runs: only these; the others stay as they are.
            options: `configs` and `runs` may also be given here.

        Returns:
            Observations, of a new run zeros except its hyperparameters, and {"replicate": [runs]}.
        """
        options = options or {}
        configs = options.get("configs", configs)
        chosen = options.get("runs", runs)
        chosen = list(range(self.num_envs)) if chosen is None else [int(run) for run in chosen]
        self._episode = self._episode + 1 if seed is None else int(seed) + 1
        defaults = [self._space.default() for _ in range(self.num_envs)]
        given = defaults if configs is None else self._actions.read(configs, defaults)
        starts = {run: self._resolver.of(given[run]) for run in chosen}
        for run, resolved in starts.items():
            self._params[run] = given[run]
            self._replicates[run] = (self._episode - 1) * self.num_envs + run
            replicate = int(self._replicates[run])
            self._fresh[run] = Refill(run, resolved, Stream.SEARCH, replicate)
            self._done_steps[run], self._alive[run] = 0, True
            self._metrics[run], self._values[run] = 0.0, np.nan
        return self._observe(), {"replicate": self._replicates.copy()}

    def step(
        self, hyperparameters: Action | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Train every run that has not ended for one step, with these hyperparameters.

        A run that has ended rests, and gives NaN, until it is reset.

        Args:
            hyperparameters: see the class; None keeps them all.

        Returns:
            observation: float32 [runs, features].
            objectives: float64 [runs], or [runs, objectives] if there are several.
            terminated: the run diverged.
            truncated: the run has its full length.
            info: `values` (the objectives), `knobs` (one mapping per run), `env_steps`, and
                `evaluation` (returns of every episode, None for a run that rests).

        Raises:
            ConfigError: a hyperparameter is unknown or its value not in the space; nothing was
                trained.
        """
        if not self._alive.any():
            raise ConfigError("every run has ended, or none was started; call reset()")
        self._set(hyperparameters)
        before = self._values.copy()
        moved = self._alive.copy()
        diverged, evaluations = self._train()
        rewards = (
            self._values
            if self._reward == "value"
            else self._values - np.where(np.isfinite(before), before, 0.0)
        )
        rewards = np.where(moved[:, None], rewards, np.nan)
        self._done_steps[moved] += 1
        truncated = moved & ~diverged & (self._done_steps >= self.steps)
        self._alive &= ~diverged & ~truncated
        info = {
            "values": self._values.copy(),
            "knobs": [dict(params) for params in self._params],
            "env_steps": self._env_steps(),
            "evaluation": evaluations,
        }
        shown = rewards[:, 0] if len(self.objectives) == 1 else rewards
        return self._observe(), shown, diverged, truncated, info

    def close(self) -> None:
        """Do nothing; part of Gymnasium's interface."""

    # ------------------------------------------------------------------ checkpoints

    def save(self, directory: str | Path, parts: Iterable[str] = tuple(PARTS)) -> None:
        """Write chosen parts of all runs into a new folder.

        Args:
            directory: must not exist.
            parts: names of `PARTS`.

        Raises:
            ConfigError: a part is unknown or cannot be written, or a run was just reset.
        """
        self._population.save_fields(Path(directory), self._movable_fields(parts))

    def restore(self, directory: str | Path, parts: Iterable[str] = tuple(PARTS)) -> None:
        """Read chosen parts of all runs back; other parts stay as they are.

        With `policy` alone, for example, a new optimiser trains an already trained network.

        Args:
            directory: written by `save` with at least these parts.
            parts: names of `PARTS`.

        Raises:
            ConfigError: a part is unknown or cannot be read, or a run was just reset.
            StoreError: the folder is damaged, or of other runs.
        """
        self._population.restore_fields(Path(directory), self._movable_fields(parts))

    def _movable_fields(self, parts: Iterable[str]) -> tuple[str, ...]:
        if self._fresh:
            raise ConfigError("runs were reset and have no state yet; step() first")
        asked, id_ = tuple(parts), self._study.env.id
        if "environment" in asked and is_gymnasium(id_):
            others = ", ".join(repr(name) for name in PARTS if name != "environment")
            raise ConfigError(
                f"the host steps {id_}, whose environments cannot be restored within an episode; "
                f"name the other parts: [{others}]"
            )
        return fields_of(asked)

    # ------------------------------------------------------------------ one step

    def _train(self) -> tuple[np.ndarray, list[tuple[float, ...] | None]]:
        """Run the chunks of one step; return the diverged runs, and the evaluations' episodes."""
        population, count = self._population, self.num_envs
        warm = population.warmup_chunks
        begun = [int(step) for step in self._done_steps]
        marks = (0, *self._marks)
        left = np.array([marks[min(step + 1, self.steps)] - marks[step] for step in begun])
        left += np.array([warm if run in self._fresh else 0 for run in range(count)])
        left[~self._alive] = 0
        diverged = np.zeros(count, bool)
        while busy := [int(run) for run in np.flatnonzero((left > 0) & ~diverged)]:
            refills = [self._fresh.pop(run) for run in busy if run in self._fresh]
            result = population.advance(refills, busy)
            refuse_failed(result.failed.values())
            left[busy] -= 1
            diverged[busy] = result.diverged[busy]
            self._keep(result, [run for run in busy if left[run] == 0])
        due = [int(run) for run in np.flatnonzero(self._alive & ~diverged)]
        evaluations: list[tuple[float, ...] | None] = [None] * count
        found: dict[int, EvaluationResult] = {}
        if due and any(name not in FEATURES for name in self.objectives):
            found = dict(zip(due, population.evaluate(due), strict=True))
            refuse_failed(result.failed for result in found.values())
        for run in due:
            if run in found:
                evaluations[run] = tuple(float(value) for value in found[run].returns)
            self._values[run] = [self._value(name, run, found) for name in self.objectives]
        self._values[diverged] = np.nan
        return diverged & self._alive, evaluations

    def _value(self, name: str, run: int, found: Mapping[int, EvaluationResult]) -> float:
        if name in FEATURES:
            return float(self._metrics[run, FEATURES.index(name)])
        return measure(name, found[run])

    def _keep(self, result: ChunkResult, runs: Sequence[int]) -> None:
        """Take the metrics of the last chunk; a mean over no episode keeps the one before."""
        for column, name in enumerate(FEATURES):
            values = result.metrics[name][runs]
            known = np.isfinite(values)
            self._metrics[np.asarray(runs, int)[known], column] = values[known]

    def _observe(self) -> np.ndarray:
        progress = (self._done_steps / self.steps)[:, None]
        shares = self._actions.shares(self._params)
        metrics = self._metrics[:, self._shown]
        parts = [progress, metrics, np.nan_to_num(self._values), shares]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _env_steps(self) -> np.ndarray:
        marks = np.array((0, *self._marks))
        return marks[self._done_steps] * self._population.steps_per_chunk

    def _set(self, given: Action | None) -> None:
        """Change the hyperparameters of the runs that have not ended."""
        if given is None:
            return
        wanted = self._actions.read(given, self._params)
        alive = [int(run) for run in np.flatnonzero(self._alive)]
        moved = {
            run: self._resolver.of(wanted[run])
            for run in alive
            if wanted[run] != self._params[run]
        }
        for run, resolved in moved.items():
            self._params[run] = wanted[run]
            if run in self._fresh:
                self._fresh[run] = dataclasses.replace(self._fresh[run], resolved=resolved)
        changes = [Change(run, new) for run, new in moved.items() if run not in self._fresh]
        if changes:
            self._population.change(changes)


def _checked_objective(name: str) -> str:
    if name in FEATURES or name.startswith("eval/"):
        return name
    known = ("eval/return_mean", *FEATURES)
    raise ConfigError(
        f"unknown objective {name!r};{suggestion(name, known)} Known: eval/<metric>, "
        f"{', '.join(FEATURES)}"
    )
