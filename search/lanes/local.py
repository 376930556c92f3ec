"""Creates this machine's populations: a bucket's program and its lanes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, Generic, TypeVar

import jax.numpy as jnp
import numpy as np

from ...core import program
from ...core.checkpoint import read_part
from ...core.envs import registry as environments
from ...core.envs.contract import same_observations
from ...core.envs.traced_once import trace_once
from ...core.hypers import Hypers
from ...core.lane_state import lane_key, reward_notes
from ...core.memory import estimate_memory, for_platform, gpu_tile, parameter_count
from ...core.plan import EnvPlan, Plan
from ...core.population import Device, Initial, kept, lane_shapes
from ...core.saved_policy import load_policy
from ...environments.hosted import is_hosted
from ...environments.registry import find
from ...errors import ConfigError, counted, ignore
from ...machine.devices import prepare_devices
from ...machine.in_process import InProcess
from ...machine.workers import Workers, workers_of
from ...store.rows import Stream
from ...studies.evaluation import cut_after
from ...studies.programs import buckets_of, words_of_bucket
from ...studies.spec import Study
from .configuration import Parts, Split, parts_of
from .contract import EvaluationResult, Resolved
from .lane_count import (
    Devices,
    Division,
    auto_lanes,
    fitting_lanes,
    lanes_of_share,
    population_replicates,
    startable_replicates,
    tile_of,
    wanted_lanes,
)
from .local_population import STREAMS, LocalPopulation, ProgramLanes, results_of

_Lanes = TypeVar("_Lanes", bound=ProgramLanes)
_TRIED = 12  # buckets for which a saved policy is checked before a study starts


class SavedStart:
    """The saved policy that a study's lanes start from, if any.

    Each warning is issued only once.
    """

    def __init__(self, split: Split, warn: Callable[[str], None]):
        self._split, self._warn = split, warn
        self._noted: set[str] = set()
        init = split.study.init
        if init is None:
            self._saved = None
            return
        self._folder = split.source / init.folder
        self._saved = load_policy(self._folder)

    def check(self) -> None:
        """Reject a policy that does not fit one of the first few buckets."""
        if self._saved is None:
            return
        study = self._split.study
        buckets = buckets_of(study, lambda config: self._split.resolve(config).bucket)
        for bucket in buckets.found[:_TRIED]:
            parts = self._split.parts(bucket.config)
            try:
                self.of(parts.plan, parts.hypers)
            except ConfigError as error:
                if len(buckets.found) == 1:
                    raise
                raise ConfigError(
                    f"{error} (of {words_of_bucket(study, bucket.config)})"
                ) from None

    def of(self, plan: Plan, example: Hypers) -> Initial | None:
        """Return the initial state for a plan's lanes; None if they start from scratch.

        Raises ConfigError if the policy does not fit, and StoreError if it lacks the optimiser's
        state.
        """
        init, saved = self._split.study.init, self._saved
        if init is None or saved is None:
            return None
        shapes = lane_shapes(plan, example)
        normalised = bool(saved.config["normalise_observations"])
        raw, units = bool(saved.config.get("raw_reward_deviation")), self._split.reward_units
        rewards = saved.rewards and saved.rewards.in_units(raw, units)
        initial = kept(
            plan,
            shapes,
            saved.params,
            saved.statistics,
            init.keep,
            normalised=normalised,
            rewards=rewards,
        )
        if init.keep != "policy":
            for line in reward_notes(plan, rewards, units == {raw}):
                if line not in self._noted:
                    self._noted.add(line)
                    self._warn(line)
        if init.optimiser == "restored":
            moments = read_part(self._folder, "optimiser", shapes.moments)
            initial = initial.replace(moments=moments)
        return initial


class DeviceFactory(Generic[_Lanes]):
    """Creates a study's populations on this machine's devices; subclasses provide the programs.

    Each compilation runs in a context from `compiling`. The machine's memory is shared by
    `environments` factories.
    """

    def __init__(
        self,
        study: Study,
        compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
        warn: Callable[[str], None] = ignore,
        cores: int | None = None,
        environments: int = 1,
    ):
        self.study = study
        self.compiling, self.warn = compiling, warn
        self._cores = cores or os.cpu_count() or 1
        self._environments = environments
        self.devices = prepare_devices(
            study.population.device, study.population.deterministic, cores
        )
        self.backend = self.devices[0].platform

    @property
    def device_count(self) -> int:
        return len(self.devices)

    def program_of(self, resolved: Resolved, lanes: int | None = None) -> Any:
        """Return the program of a configuration's bucket, without compiling it.

        A given number of lanes is rounded up to a multiple of the number of devices.
        """
        raise NotImplementedError

    def _make_population(self, compiled: Any, resolved: Resolved) -> _Lanes:
        raise NotImplementedError

    def make(self, resolved: Resolved, lanes: int | None) -> _Lanes:
        return self._make_population(self.program_of(resolved, lanes), resolved)

    def make_small(self, resolved: Resolved, replicates: int) -> _Lanes:
        """Create a population with few lanes whose results equal the study's bitwise."""
        whole = self.program_of(resolved)
        block = whole.tile * self.device_count
        lanes = -(-max(1, replicates) // block) * block
        return self._make_population(dataclasses.replace(whole, lanes=lanes), resolved)

    def make_share(self, resolved: Resolved, division: Division) -> _Lanes:
        """Create one share; its lanes give bitwise the same results as in a single process."""
        whole = self.program_of(resolved, division.own)
        return self._make_population(dataclasses.replace(whole, tile=division.tile), resolved)

    def notes(self, resolved: Resolved) -> Iterator[str]:
        """Yield notes about a run's lanes, before it starts.

        Results depend on the tile, because XLA sums in a different order for fewer lanes per tile.
        """
        asked = self.study.population.lanes
        if asked is None:
            return
        made, whole = self.program_of(resolved), self._whole_tile(resolved, asked)
        rounded = made.lanes != asked
        lanes = f"is {asked}"
        if rounded:
            lanes = f"is {made.lanes} instead of {asked}"
        block = whole * self.device_count
        if made.tile < whole:
            yield (
                f"population.lanes {lanes}, in tiles of {made.tile} instead of {whole}: "
                f"results with {made.lanes} lanes differ in the last digits from those with "
                f"{block}, {2 * block}, ... lanes; for identical results, set tiles: whole"
            )
        elif rounded:
            yield f"population.lanes {lanes}, a multiple of {block} ({self._tiles_text(whole)})"

    def _tiles_text(self, tile: int) -> str:
        devices = counted(self.device_count, "device")
        return f"{devices}, each with a tile of {counted(tile, 'lane')}"

    def _whole_tile(self, resolved: Resolved, lanes: int) -> int:
        raise NotImplementedError

    def _divide_lanes(self, lanes: int, shares: int, tile: int) -> Division:
        total = self._on_all_devices(lanes)
        return Division.of(-(-total // tile) * tile, shares, tile, self.device_count)

    def _on_all_devices(self, lanes: int) -> int:
        return -(-lanes // self.device_count) * self.device_count

    def _replicates_per_share(self, shares: int) -> tuple[int, int]:
        """Return how many replicates a share can have, and how many must run at the same time."""
        bounds = (startable_replicates(self.study), population_replicates(self.study))
        most, needed = (-(-bound // shares) for bound in bounds)
        return most, needed

    def _refuse_fewer(self, lanes: int, needed: int) -> None:
        if lanes < needed:
            raise ConfigError(
                f"the population needs {needed} lanes, but only {lanes} fit into memory; lower "
                "budget.trials or seeds.per_config"
            )

    @property
    def _memory_per_environment(self) -> int:
        return device_memory(self.devices) // self._environments


class LocalFactory(DeviceFactory[LocalPopulation]):
    """Creates populations that train with PPO."""

    def __init__(self, study: Study, *args: Any, **rest: Any):
        super().__init__(study, *args, **rest)
        self.split = Split(study)
        self.saved_start = SavedStart(self.split, self.warn)

    def check(self, resolved: Resolved) -> None:
        """Reject a configuration or saved policy that cannot run or needs too much memory."""
        self.saved_start.check()
        self.check_environments(resolved)
        _ = parts_of(resolved).hypers  # creates the environments, which may raise
        if population_replicates(self.study) > 1:  # each of them needs a lane
            self.program_of(resolved)

    def check_environments(self, resolved: Resolved) -> None:
        """Trace custom environments once, so that an error is reported before trials fail."""
        plan = parts_of(resolved).plan
        if find(plan.env.id) is None:
            for one in dict.fromkeys((plan.env, plan.eval_env)):
                trace_once(environments.make(one))

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        return self.split.resolve(config)

    def _lanes_per_tile(self, parts: Parts, lanes: int | None = None, shares: int = 1) -> int:
        """Return the lanes per tile; on a GPU, as many as fit into memory."""
        if self.backend != "cpu":
            count = self.device_count
            lanes = lanes or wanted_lanes(self.backend, *self._replicates_per_share(shares))
            plan = for_platform(parts.plan, self.backend)
            return gpu_tile(
                plan, parts.hypers, -(-lanes // count), self._memory_per_environment // count
            )
        # All lanes of a tile loop as long as the lane with the most epochs: with 2 to 10 epochs,
        # tiles of 1 did 1.2 times as much work per CPU-second as tiles of 4.
        if any(item.name == "update_epochs" for item in self.study.space.parameters):
            return 1
        return tile_of(self.backend, parameter_count(parts.plan, parts.hypers))

    def _fitting_tile(self, whole: int, lanes: int) -> int:
        """Return the lanes per tile for a study that requests this number of lanes.

        On two devices, whole tiles with idle lanes take 1.8 times as long as narrow ones for 4
        lanes, and 2.7 times as long for 1 or 2 lanes. So if one whole tile per device would have
        more lanes than requested, the lanes are distributed over all devices in narrow tiles.
        """
        tiles, enough = self.study.population.tiles, whole * self.device_count
        is_whole = tiles == "whole" or (tiles == "auto" and lanes >= enough)
        if self.backend == "cpu" and is_whole:
            return whole
        filled = self._on_all_devices(lanes) // self.device_count
        return next(tile for tile in range(min(whole, filled), 0, -1) if filled % tile == 0)

    def _make_population(self, compiled: program.Program, resolved: Resolved) -> LocalPopulation:
        words = words_of_bucket(self.study, resolved.config)
        return LocalPopulation(self.split, compiled, self.compiling, words)

    def _whole_tile(self, resolved: Resolved, lanes: int) -> int:
        if self.backend != "cpu":  # one tile takes as many as fit into memory
            return self.program_of(resolved, lanes).tile
        return self._lanes_per_tile(parts_of(resolved), lanes)

    def make_short(self, resolved: Resolved, lanes: int | None) -> LocalPopulation:
        """Create a population for timing, from the study's compiled programs.

        If the host steps the environments, only chunks of one update are compiled.
        """
        compiled = self.program_of(resolved, lanes)
        if is_hosted(compiled.plan.env.id):
            compiled = dataclasses.replace(compiled, updates=1)
        return self._make_population(compiled, resolved)

    def divide(
        self, resolved: Resolved, lanes: int | None, shares: int, neighbours: int = 1
    ) -> Division:
        """Divide a bucket's lanes into equal shares that form one population.

        A given number of lanes is the total over all shares; the default number is per share.
        `neighbours` is the number of shares in this machine's memory.
        """
        asked, parts, tile = self.study.population.lanes, parts_of(resolved), None
        if asked is None:
            tile = self._lanes_per_tile(parts, lanes_of_share(lanes, shares), shares)
        if tile is None:
            whole = self.program_of(resolved, asked)
            return self._divide_lanes(lanes or whole.lanes, shares, whole.tile)
        if lanes is None:
            lanes = shares * self._auto_lanes(parts, tile, shares, neighbours)
        return self._divide_lanes(lanes, shares, tile)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        parts = parts_of(resolved)
        return baseline_of(self.study, name, parts.plan.eval_env, parts.hypers.eval_params, seeds)

    def program_of(self, resolved: Resolved, lanes: int | None = None) -> program.Program:
        split = parts_of(resolved)
        plan, example = split.plan, split.hypers
        _check_alike(plan)
        if lanes is None:
            lanes = self.study.population.lanes
        tile = self._lanes_per_tile(split, lanes)
        if lanes is None:
            lanes = self._auto_lanes(split, tile)
        else:
            tile = self._fitting_tile(tile, lanes)
            block = self.device_count * tile
            lanes = -(-lanes // block) * block
        how = self.study.evaluation
        parts = {
            "plan": plan,
            "lanes": lanes,
            "updates": self.split.chunk_sizes(plan).updates_per_chunk,
            "tile": tile,
            "evaluation": program.EvaluationPlan(
                how.episodes, how.greedy, how.steps, cut_after(self.study)
            ),
            "devices": self.devices,
            "example": example,
            "initial": self.saved_start.of(plan, example),
        }
        if not is_hosted(plan.env.id):
            return program.Program(**parts)
        from ...core.host.host_program import HostProgram

        return HostProgram(**parts, workers=self._environment_workers, warn=self.warn)

    def expected_program(self, resolved: Resolved, buckets: int) -> program.Program:
        """Return the program with its likely number of lanes for this number of buckets."""
        whole = self.program_of(resolved)
        if buckets < 2 or self.study.population.lanes is not None:
            return whole
        block = whole.tile * self.device_count
        each = -(-startable_replicates(self.study) // buckets)
        lanes = fitting_lanes(whole.lanes, block, each)
        return dataclasses.replace(whole, lanes=lanes)

    def _auto_lanes(self, parts: Parts, tile: int, shares: int = 1, neighbours: int = 1) -> int:
        """Return the default number of lanes per share; ConfigError if fewer than needed fit."""
        count, memory = self.device_count, self._memory_per_environment
        plan = for_platform(parts.plan, self.backend)
        block = count * tile
        one, two = (estimate_memory(plan, parts.hypers, n * block, tile, count) for n in (1, 2))
        # On a GPU, one tile's temporaries serve all lanes; on a CPU each lane is counted as a
        # running one, as in all studies so far.
        each, shared = two - one, 2 * one - two
        if self.backend == "cpu":
            each, shared, memory = one, 0, memory // neighbours
        replicates, needed = self._replicates_per_share(shares)
        lanes = auto_lanes(
            Devices(self.backend, count, memory),
            tile,
            replicates,
            each // block,
            needed=needed,
            shared_bytes=shared,
        )
        self._refuse_fewer(lanes, needed)
        return lanes

    @cached_property
    def _environment_workers(self) -> Workers | InProcess:
        return workers_of(self.study, self._cores, self.warn)


def _check_alike(plan: Plan) -> None:
    """Reject an evaluation environment in which policies from the training one cannot run."""
    training_env, eval_env = environments.make(plan.env), environments.make(plan.eval_env)
    if training_env.action_space != eval_env.action_space:
        raise ConfigError(
            f"the actions of eval_env ({eval_env.action_space}) differ from those of the training "
            f"environment ({training_env.action_space}); remove the keys that change them"
        )
    if not same_observations(training_env, eval_env):
        raise ConfigError(
            f"the observations of eval_env ({eval_env.observation_struct}) differ from those of "
            f"the training environment ({training_env.observation_struct}); remove the keys that "
            "change them"
        )


def device_memory(devices: Sequence[Device]) -> int:
    if devices[0].platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return sum(int((device.memory_stats() or {}).get("bytes_limit", 0)) for device in devices)


def baseline_of(
    study: Study, name: str, plan: EnvPlan, params: Any, seeds: Sequence[tuple[Stream, int]]
) -> list[EvaluationResult]:
    """Evaluate a heuristic for an optical network on the same episodes as the replicates."""
    from ...core.envs.contract import unwrapped
    from ...core.envs.optical.heuristic_evaluation import evaluate_baseline
    from ...core.envs.optical.optical_environment import OpticalEnvironment, make_environment
    from ...core.envs.optical.optical_settings import parse_baseline

    environment = unwrapped(environments.make(plan))
    if not isinstance(environment, OpticalEnvironment):
        raise ConfigError(f"baseline {name!r}: {environment.id} is not an optical network")
    keys = [
        np.asarray(lane_key(*map(jnp.int32, (study.seed, STREAMS[stream], replicate))))
        for stream, replicate in seeds
    ]
    how, baseline = study.evaluation, parse_baseline(name)
    environment = make_environment(baseline.settings(environment.settings))
    rule, streams = baseline.rule, np.stack(keys)
    found = evaluate_baseline(
        environment, rule, params, streams, episodes=how.episodes, steps=how.steps
    )
    return results_of(found, range(len(seeds)))
