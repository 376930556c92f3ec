"""`AutoRLEnv`: a vector environment of PPO runs whose actions are hyperparameters.

Use it to test schedules, or to learn policies that change hyperparameters during a run. It has the
interface of a Gymnasium vector environment. All runs share one compiled program.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from ...environments.hosted import is_hosted
from ...errors import ConfigError, MissingExtraError, StoreError, listed, suggestion
from ...files import atomic_files
from ...knobs import KNOBS
from ...machine.software import enable_compilation_cache
from ...store.rows import Stream
from ...studies.load import Source, read_study
from ...studies.search_spec import EarlyTerminate, Seeds
from ...studies.spec import Study, only_ppo
from ...studies.study_environments import only_one_environment
from ...studies.user_code import run_own_code
from ..lanes.contract import ChunkResult, EvaluationResult, LaneChange, Refill, refuse_failed
from ..lanes.resolver import Resolver
from ..state.objective import measure
from ..state.schedule import schedule_of
from .actions import Action, ActionReader, Configuration

FEATURES = (
    "loss",
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "ratio_std",
    "early_stopped",
    "explained_variance",
    "advantage_std",
    "grad_norm",
    "grad_variance",
    "param_norm",
    "learning_rate",
    "clip_eps",
    "ent_coef",
    "episode_return",
    "episode_length",
    "reward_mean",
)
"""Training metrics in an observation, from the last chunk of a step.

A metric that is also an objective or a searched hyperparameter appears only as such.
"""

PARTS: Mapping[str, tuple[str, ...]] = {
    "policy": ("params",),
    "optimiser": ("moments", "gradient_steps"),
    "normalisers": (
        "observation_statistics",
        "return_statistics",
        "discounted_return",
        "average_reward",
        "average_trace",
    ),
    "environment": ("env_state", "observation", "carry", "episode_return", "episode_length"),
    "position": ("key", "updates", "total_updates"),
}
"""Part of a checkpoint -> its fields of `core.lane_state.LaneState`."""

Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
_POSITION = "position.json"


class AutoRLEnv:
    """Parallel PPO runs; each step trains every run with the hyperparameters of an action.

    An action is a mapping of searched hyperparameters to values, a list of one mapping per run, or
    an array [runs, hyperparameters]. Array entries are positions from 0 to 1 on the axes of the
    space, in the order of `knobs`. Omitted hyperparameters keep their values.

    Args:
        study: a study file, its data, or a loaded study. It defines the environment, the length of
            a run (`env_steps`), `fixed`, `space`, `evaluation`, `metric` and `seed`.
        runs: number of runs.
        steps: decisions per run; after each, the run trains for `env_steps / steps` env steps,
            rounded up to whole chunks.
        objectives: names of metrics, either `eval/...` (from an evaluation after each step) or
            from `FEATURES`; by default, the study's metric.
        reward: `value` is the objective after the step; `gain` is its increase since the run's
            last step (for the first step, the whole value).

    Attributes:
        num_envs: number of runs.
        knobs: names of the hyperparameters, in the order of array entries.
        features: names of the entries of an observation.
        objectives: names of the entries of a reward.
        steps: decisions per run.

    Raises:
        ConfigError: a searched hyperparameter or environment key shapes the program, or an
            objective is unknown.

    Example:
        env = hpo.AutoRLEnv("study.yaml", runs=16, steps=8)
        observation, info = env.reset(seed=0)
        observation, value, terminated, truncated, info = env.step({"learning_rate": 1e-3})
    """

    metadata: Mapping[str, Any] = {"autoreset_mode": "disabled", "render_modes": []}

    def __init__(
        self,
        study: Source,
        *,
        runs: int = 16,
        steps: int = 16,
        objectives: Sequence[str] | None = None,
        reward: Literal["value", "gain"] = "value",
    ):
        if reward not in ("value", "gain"):
            raise ConfigError(f"reward is {reward!r}; allowed: value, gain")
        self._study, self._reward = _study_of(study, runs, steps), reward
        named = objectives or (self._study.metric.name,)
        self.objectives = tuple(map(_checked_objective, named))
        run_own_code(self._study)
        _check_changeable(self._study)
        enable_compilation_cache()
        from ..lanes.local import LocalFactory

        factory = LocalFactory(self._study)
        self._resolver = Resolver(self._study, factory)
        self._population = factory.make_small(self._resolver.default(), runs)
        self.num_envs = runs
        self._actions = ActionReader(self._study.space, runs)
        self.knobs = self._actions.knobs
        schedule = schedule_of(self._study, self._population.steps_per_chunk)
        # number of chunks trained after 0, 1, ... decisions
        self._marks = (0, *sorted({*schedule.rungs, schedule.length}))
        self.steps = len(self._marks) - 1
        entries = {*self.objectives, *self.knobs}
        self._shown = [at for at, name in enumerate(FEATURES) if name not in entries]
        shown = (FEATURES[at] for at in self._shown)
        self.features = ("progress", *shown, *self.objectives, *self.knobs)
        self._episode = 0
        self._clear_runs()

    def _clear_runs(self) -> None:
        count, default = self.num_envs, self._study.space.default()
        self._params: list[Configuration] = [dict(default) for _ in range(count)]
        self._done_steps = np.zeros(count, np.int64)
        self._alive = np.zeros(count, bool)
        self._fresh: dict[int, Refill] = {}  # runs that were reset and do not have a state yet
        self._metrics = np.zeros((count, len(FEATURES)), np.float32)
        self._values = np.full((count, len(self.objectives)), np.nan)
        self._replicates = np.arange(count)

    # ------------------------------------------------------------------ spaces

    @property
    def single_observation_space(self) -> Any:
        """The observation space of one run, as a Gymnasium space."""
        return _box_space(-np.inf, np.inf, len(self.features))

    @property
    def single_action_space(self) -> Any:
        """The action space of one run, as a Gymnasium space of numbers from 0 to 1."""
        return _box_space(0.0, 1.0, len(self.knobs))

    @property
    def observation_space(self) -> Any:
        """The observation space of all runs, as a Gymnasium space."""
        return _box_space(-np.inf, np.inf, self.num_envs, len(self.features))

    @property
    def action_space(self) -> Any:
        """The action space of all runs, as a Gymnasium space of numbers from 0 to 1."""
        return _box_space(0.0, 1.0, self.num_envs, len(self.knobs))

    @property
    def config_space(self) -> Any:
        """The searched hyperparameters, as a ConfigSpace space."""
        from ...spaces.via_configspace import as_configspace

        return as_configspace(self._study.space)

    # ------------------------------------------------------------------ the interface

    def reset(
        self,
        configs: Action | None = None,
        *,
        seed: int | None = None,
        runs: Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Float32[np.ndarray, "runs features"], dict[str, Any]]:
        """Start runs, each with separate random numbers.

        Args:
            configs: their initial hyperparameters, as an action; by default, the defaults of the
                space.
            seed: run i becomes replicate `seed * num_envs + i` of the study; by default, the next
                seed.
            runs: the runs to reset; the others are not changed. By default, all.
            options: may contain `configs` and `runs` instead.

        Returns:
            Observations, which are zero for new runs except for their hyperparameters, and
                {"replicate": [runs]}.
        """
        options = options or {}
        given, chosen = options.get("configs", configs), options.get("runs", runs)
        if chosen is None:
            chosen = range(self.num_envs)
        chosen = self._checked_runs(chosen)
        default = self._study.space.default()
        params = self._actions.read(given, [default] * self.num_envs)
        starts = {run: self._resolver.of(params[run]) for run in chosen}
        episode = self._episode
        if seed is not None:
            episode = int(seed)
        self._episode = episode + 1
        for run, resolved in starts.items():
            replicate = episode * self.num_envs + run
            self._fresh[run] = Refill(run, resolved, Stream.SEARCH, replicate)
            self._params[run], self._replicates[run] = params[run], replicate
            self._done_steps[run], self._alive[run] = 0, True
            self._metrics[run], self._values[run] = 0.0, np.nan
        return self._observe(), {"replicate": self._replicates.copy()}

    def step(self, hyperparameters: Action | None = None) -> Step:
        """Train every unfinished run for one step with these hyperparameters.

        A finished run is not trained, and returns NaN until it is reset.

        Args:
            hyperparameters: an action, see the class; None keeps all values.

        Returns:
            observation: float32 [runs, features].
            objectives: float64 [runs], or [runs, objectives] if there are several.
            terminated: bool [runs], whether the run diverged.
            truncated: bool [runs], whether the run has reached its full length.
            info: `values` (the objectives), `knobs` (one mapping per run), `env_steps`, `seconds`
                and `evaluation` (the return of each episode; None for a finished run).

        Raises:
            ConfigError: a hyperparameter is unknown, or its value is not in the space; nothing was
                trained.
        """
        if not self._alive.any():
            raise ConfigError("every run has ended, or none was started; call reset()")
        self._change_hypers(self._actions.read(hyperparameters, self._params))
        before, moved = self._values.copy(), self._alive.copy()
        diverged, seconds = self._train_chunks()
        found = self._evaluate_runs(moved & ~diverged)
        self._update_values(moved & ~diverged, found)
        self._values[diverged] = np.nan
        self._done_steps[moved] += 1
        truncated = moved & ~diverged & (self._done_steps >= self.steps)
        self._alive &= ~diverged & ~truncated
        info = {
            "values": self._values.copy(),
            "knobs": [dict(params) for params in self._params],
            "env_steps": self._env_steps(),
            "evaluation": [_episode_returns(found.get(run)) for run in range(self.num_envs)],
            "seconds": seconds,
        }
        return self._observe(), self._rewards(before, moved), diverged, truncated, info

    def close(self) -> None:
        """Do nothing; part of Gymnasium's interface."""

    # ------------------------------------------------------------------ checkpoints

    def save(self, directory: str | Path, parts: Iterable[str] = tuple(PARTS)) -> None:
        """Write some parts of all runs to a new folder.

        Args:
            directory: the folder, which must not exist yet.
            parts: names from `PARTS`; `position` includes the number of decisions taken.

        Raises:
            ConfigError: a part is unknown or cannot be written, or a run was just reset.
        """
        chosen, folder = self._movable_parts(parts), Path(directory)
        if self._fresh:
            raise ConfigError("runs were reset and have no state yet; call step() first")
        self._population.save_fields(folder, _fields_of(chosen))
        if "position" in chosen:
            known = {
                "decisions": self._done_steps.tolist(),
                "running": self._alive.tolist(),
                "steps": self.steps,
            }
            atomic_files.write_text(folder / _POSITION, json.dumps(known))

    def restore(self, directory: str | Path, parts: Iterable[str] = tuple(PARTS)) -> None:
        """Restore some parts of all runs; their other parts and hyperparameters do not change.

        Restoring only `policy`, for example, continues training with a new optimiser.

        Args:
            directory: a folder written by `save` with at least these parts.
            parts: names from `PARTS`; if all parts are restored, no `reset` is needed first.

        Raises:
            ConfigError: a part is unknown or cannot be read, or only some parts were requested for
                a run that was just reset. StoreError: the folder is damaged, or its runs have a
                different shape or number of steps.
        """
        chosen, folder = self._movable_parts(parts), Path(directory)
        whole = set(chosen) == set(PARTS)
        if not whole and (self._fresh or not self._alive.any()):
            raise ConfigError("runs were reset and have no state yet; call step() first")
        position = None
        if "position" in chosen:
            position = self._read_position(folder)
        self._population.restore_fields(folder, _fields_of(chosen))
        if position is not None:
            self._done_steps = np.array(position["decisions"], np.int64)
            self._alive = np.array(position["running"], bool)
        if whole:
            self._fresh.clear()
            every = range(self.num_envs)
            known = [LaneChange(run, self._resolver.of(self._params[run])) for run in every]
            self._population.change(known)

    def _movable_parts(self, parts: Iterable[str]) -> tuple[str, ...]:
        if isinstance(parts, str):
            parts = (parts,)
        asked = tuple(parts)
        for part in asked:
            if part not in PARTS:
                known = ", ".join(PARTS)
                hint = suggestion(part, PARTS)
                raise ConfigError(f"unknown part {part!r};{hint} Known: {known}")
        if not asked:
            raise ConfigError(f"name at least one part; known: {', '.join(PARTS)}")
        id_ = self._study.env.id
        if "environment" in asked and is_hosted(id_):
            others = ", ".join(repr(name) for name in PARTS if name != "environment")
            raise ConfigError(
                f"{id_} runs outside the compiled program and cannot be restored within an "
                f"episode; name the other parts: [{others}]"
            )
        return asked

    def _read_position(self, folder: Path) -> dict[str, Any]:
        if not folder.is_dir():
            raise StoreError(f"no checkpoint at {folder}")
        try:
            found = json.loads(atomic_files.read_text(folder / _POSITION))
            runs, steps = len(found["decisions"]), found["steps"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{folder / _POSITION} cannot be read; it is written by save(..., ['position'])"
            ) from error
        if (runs, steps) != (self.num_envs, self.steps):
            raise StoreError(
                f"{folder} has {runs} runs of {steps} decisions, but this environment has "
                f"{self.num_envs} runs of {self.steps}"
            )
        return found

    # ------------------------------------------------------------------ one step

    def _change_hypers(self, wanted: Sequence[Configuration]) -> None:
        """Change the hyperparameters of all unfinished runs."""
        moved = {
            run: self._resolver.of(new)
            for run, new in enumerate(wanted)
            if self._alive[run] and new != self._params[run]
        }
        changes: list[LaneChange] = []
        for run, resolved in moved.items():
            self._params[run] = wanted[run]
            if run in self._fresh:
                self._fresh[run] = dataclasses.replace(self._fresh[run], resolved=resolved)
            else:
                changes.append(LaneChange(run, resolved))
        if changes:
            self._population.change(changes)

    def _train_chunks(self) -> tuple[Bool[np.ndarray, " runs"], float]:
        """Run the chunks of one step; return the runs that diverged, and the seconds taken."""
        left = self._chunks_left()
        diverged = np.zeros(self.num_envs, bool)
        seconds = 0.0
        while (running := (left > 0) & ~diverged).any():
            busy = [int(run) for run in np.flatnonzero(running)]
            refills = [self._fresh.pop(run) for run in busy if run in self._fresh]
            result = self._population.advance(refills, busy)
            refuse_failed(result.failed.values())
            seconds += result.seconds
            left[busy] -= 1
            diverged[busy] = result.diverged[busy]
            self._store_metrics(result, [run for run in busy if left[run] == 0])
        return diverged, seconds

    def _chunks_left(self) -> Int[np.ndarray, " runs"]:
        """Return each run's number of chunks until its next decision, 0 for a finished run."""
        left = np.zeros(self.num_envs, np.int64)
        for run in np.flatnonzero(self._alive):
            done = int(self._done_steps[run])
            left[run] = self._marks[done + 1] - self._marks[done]
            if int(run) in self._fresh:
                left[run] += self._population.warmup_chunks
        return left

    def _store_metrics(self, result: ChunkResult, runs: Sequence[int]) -> None:
        """Store the metrics of the last chunk; a mean over no episodes keeps its last value."""
        for column, name in enumerate(FEATURES):
            values = result.metrics[name][runs]
            known = np.isfinite(values)
            self._metrics[np.asarray(runs, int)[known], column] = values[known]

    def _evaluate_runs(self, sound: Bool[np.ndarray, " runs"]) -> dict[int, EvaluationResult]:
        due = [int(run) for run in np.flatnonzero(sound)]
        if not due or all(name in FEATURES for name in self.objectives):
            return {}
        found = self._population.evaluate(due)
        refuse_failed(result.failed for result in found)
        return dict(zip(due, found, strict=True))

    def _update_values(
        self, sound: Bool[np.ndarray, " runs"], found: Mapping[int, EvaluationResult]
    ) -> None:
        for run in np.flatnonzero(sound):
            for column, name in enumerate(self.objectives):
                if name in FEATURES:
                    value = float(self._metrics[run, FEATURES.index(name)])
                else:
                    value = measure(name, found[int(run)])
                self._values[run, column] = value

    def _rewards(
        self, before: Float[np.ndarray, "runs objectives"], moved: Bool[np.ndarray, " runs"]
    ) -> np.ndarray:
        rewards = self._values.copy()
        if self._reward == "gain":
            rewards -= np.where(np.isfinite(before), before, 0.0)
        rewards[~moved] = np.nan
        if len(self.objectives) == 1:
            return rewards[:, 0]
        return rewards

    def _observe(self) -> Float32[np.ndarray, "runs features"]:
        progress = (self._done_steps / self.steps)[:, None]
        shares = self._actions.shares(self._params)
        metrics = self._metrics[:, self._shown]
        parts = [progress, metrics, np.nan_to_num(self._values), shares]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _env_steps(self) -> Int[np.ndarray, " runs"]:
        return np.array(self._marks)[self._done_steps] * self._population.steps_per_chunk

    def _checked_runs(self, runs: Sequence[int]) -> list[int]:
        chosen = [int(run) for run in runs]
        for run in chosen:
            if not 0 <= run < self.num_envs:
                raise ConfigError(f"there is no run {run}; allowed: 0 to {self.num_envs - 1}")
        return chosen


def _study_of(given: Source, runs: int, steps: int) -> Study:
    """Return a study whose chunks end at decision points, with enough lanes for all runs."""
    if isinstance(given, Mapping):
        given = {"name": "autorl", **given}
    study, _ = read_study(given)
    only_ppo(study, "AutoRLEnv")
    only_one_environment(study, "AutoRLEnv")
    if runs < 1 or steps < 1 or steps > study.env_steps:
        raise ConfigError(
            f"runs is {runs} and steps is {steps}; allowed: at least 1 of each, and at most "
            f"{study.env_steps} steps (the env steps of a run)"
        )
    return dataclasses.replace(
        study,
        # a rule that decides every `every` env steps, when actions are taken
        early_terminate=EarlyTerminate("pbt", every=math.ceil(study.env_steps / steps)),
        seeds=Seeds(),
        confirm=None,
        population=dataclasses.replace(study.population, lanes=None),
        budget=dataclasses.replace(study.budget, trials=max(2, runs)),
    )


def _check_changeable(study: Study) -> None:
    """Reject searched static hyperparameters; called after the study's imports have run."""
    from ...core.envs.registry import float_params

    floats = {f"env.{name}" for name in float_params(study.env.id)}
    for name in study.space.names:
        changes, section = name in floats, "env"
        if not name.startswith("env."):
            changes, section = KNOBS[name].traced, "fixed"
        if not changes:
            raise ConfigError(
                f"{name} is part of the compiled program and cannot change during a run; put it "
                f"under `{section}`"
            )


def _checked_objective(name: str) -> str:
    if name in FEATURES or name.startswith("eval/"):
        return name
    known = ("eval/return_mean", *FEATURES)
    raise ConfigError(
        f"unknown objective {name!r};{suggestion(name, known)} {listed(name, known)}, or "
        "eval/<metric>"
    )


def _fields_of(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(field for part in parts for field in PARTS[part])


def _episode_returns(found: EvaluationResult | None) -> tuple[float, ...] | None:
    if found is None:
        return None
    return tuple(map(float, found.returns))


def _box_space(low: float, high: float, *shape: int) -> Any:
    try:
        from gymnasium.spaces import Box
    except ImportError as error:
        raise MissingExtraError("gymnasium", "gym", "action_space") from error
    return Box(low, high, shape, np.float32)
