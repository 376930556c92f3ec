"""Populations on this machine: the search loop's protocol over programs of `hpo.core`.

A configuration is split into the Plan of its bucket and the traced rest; populations are made
with the lanes that the rule of `search.lanes` gives, spread over the local devices.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import checkpoint, program, saved_policy
from ..core.envs import registry as environments
from ..core.envs.contract import same_observations
from ..core.evaluation import Episodes
from ..core.host.workers import Workers
from ..core.hypers import Hypers, make_hypers
from ..core.initial import Initial, kept
from ..core.look import look
from ..core.metrics import chunk_rows
from ..core.parts import read_part, write_parts
from ..core.plan import FEATURES, EnvPlan, Plan, features_of, make_plan, plan_hash
from ..core.population import Device, lane_shapes
from ..core.state import LaneState, lane_key
from ..environments import files_of
from ..errors import ConfigError
from ..knobs import KNOBS, complete
from ..store.rows import Stream
from ..studies.quanta import Quanta, quanta_of
from ..studies.spec import Study
from ..via_gymnasium import is_gymnasium
from .hosting import workers_of
from .lanes import (
    Machine,
    auto_lanes,
    population_replicates,
    startable_replicates,
    tile_of,
)
from .population import Change, ChunkResult, EvaluationResult, Refill

__all__ = ["LocalFactory", "LocalPopulation"]

_STREAMS = {Stream.SEARCH: 0, Stream.CHOOSE: 1, Stream.REPORT: 2}


class LocalFactory:
    """Makes populations of this machine's devices for one study.

    Args:
        study: what is asked.
        compiling: entered around each compile of a program, with words for it.
        warn: takes a line about what went wrong with some environments.
    """

    def __init__(
        self,
        study: Study,
        compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
        warn: Callable[[str], None] = lambda text: None,
    ):
        """Choose the devices; jax's backend starts here."""
        self.study = study
        self.compiling, self.warn = compiling, warn
        self.devices = program.prepare_devices(
            study.population.device, study.population.deterministic
        )
        self.backend = self.devices[0].platform
        self.device_count = len(self.devices)
        self.features = features_of(_possible(study))
        _check_parts(study)
        self._saved = _saved(study)
        if self._saved is not None:  # one that does not fit is refused before anything begins
            default = complete({**study.fixed, **study.space.default()})
            self._initial(self.plan(default), self.hypers(default))

    def _env_plan(self, config: Mapping[str, Any], overrides: Mapping[str, Any]) -> EnvPlan:
        """Give the static part of the environment: given keys that are no traced parameter."""
        id_ = self.study.env.id
        given = {**self.study.env.values, **_env_values(config), **overrides}
        floats = environments.float_params(id_)
        keys = {name: _frozen(value) for name, value in given.items() if name not in floats}
        folder = self.study.source if files_of(id_, keys) else ""
        return EnvPlan(id_, tuple(sorted(keys.items())), folder)

    def _params(self, plan: EnvPlan, config: Mapping[str, Any], overrides: Mapping[str, Any]
                ) -> dict[str, float]:  # fmt: skip
        given = {**self.study.env.values, **_env_values(config), **overrides}
        static = dict(plan.keys)
        return {name: value for name, value in given.items() if name not in static}

    def plan(self, config: Mapping[str, Any]) -> Plan:
        """Give the static part of a configuration of this study."""
        overrides = self.study.evaluation.env
        env, eval_env = self._env_plan(config, {}), self._env_plan(config, overrides)
        knobs = {name: value for name, value in config.items() if not name.startswith("env.")}
        return make_plan(knobs, env, eval_env, self.features)

    def env_params(self, config: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
        """Give the given parameters of the training and of the evaluation environment."""
        plan = self.plan(config)
        overrides = self.study.evaluation.env
        return self._params(plan.env, config, {}), self._params(plan.eval_env, config, overrides)

    def hypers(self, config: Mapping[str, Any]) -> Hypers:
        """Give the traced part of a configuration of this study."""
        plan = self.plan(config)
        train, held_out = self.env_params(config)
        knobs = {name: value for name, value in config.items() if not name.startswith("env.")}
        return make_hypers(
            knobs,
            environments.params_of(environments.make(plan.env), train),
            environments.params_of(environments.make(plan.eval_env), held_out),
        )

    def bucket_of(self, config: Mapping[str, Any]) -> str:
        """Give the short hash of the Plan of a complete configuration; no compile."""
        return plan_hash(self.plan(config))

    def quantum(self, config: Mapping[str, Any]) -> int:
        """Give the env steps of one chunk of one lane in this configuration's bucket."""
        return self.quanta(self.plan(config)).steps_per_chunk

    def quanta(self, plan: Plan) -> Quanta:
        """Say how the runs of a bucket are cut into chunks."""
        return quanta_of(self.study, plan.steps_per_update)

    def _tile(self, plan: Plan, example: Hypers) -> int:
        """Give the lanes a tile; one on CPU where update_epochs varies.

        All lanes of a tile loop as long as the one with the most epochs: with epochs drawn from
        2 .. 10, tiles of 1 did 1.2 times the work per CPU-second of tiles of 4.
        """
        tile = tile_of(self.backend, program.parameter_count(plan, example))
        varies = any(item.name == "update_epochs" for item in self.study.space.parameters)
        return 1 if varies and self.backend == "cpu" else tile

    def make(self, config: Mapping[str, Any], lanes: int | None) -> LocalPopulation:
        """Make the population of this configuration's bucket; None leaves lanes to the rule."""
        return LocalPopulation(self, self.program_of(config, lanes))

    def make_small(self, config: Mapping[str, Any], replicates: int) -> LocalPopulation:
        """Make a population for few replicates that gives the bits of the study's own.

        It has the tile, the devices and the features of the study's, and so few lanes as hold
        the replicates.
        """
        whole = self.program_of(config)
        block = whole.tile * len(whole.devices)
        lanes = -(-max(1, replicates) // block) * block
        return LocalPopulation(self, dataclasses.replace(whole, lanes=lanes))

    def baseline(
        self, name: str, config: Mapping[str, Any], seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """Evaluate a heuristic of an optical network as replicates are evaluated."""
        from ..core.envs.optical.baselines import evaluate_baseline
        from ..core.envs.optical.environment import OpticalEnvironment

        environment = environments.make(self.plan(config).eval_env)
        if not isinstance(environment, OpticalEnvironment):
            raise ConfigError(f"baseline {name!r}: {environment.id} is no optical network")
        keys = [
            np.asarray(lane_key(*map(jnp.int32, (self.study.seed, _STREAMS[stream], replicate))))
            for stream, replicate in seeds
        ]
        how = self.study.evaluation
        found = evaluate_baseline(
            environment, name, self.hypers(config).eval_params, np.stack(keys), how.episodes,
            how.steps,
        )  # fmt: skip
        return _results(found, range(len(seeds)))

    def program_of(self, config: Mapping[str, Any], lanes: int | None = None) -> program.Program:
        """Give the program of this configuration's bucket: its lanes and tile; no compile."""
        plan, example = self.plan(config), self.hypers(config)
        _check_alike(plan)
        tile = self._tile(plan, example)
        if lanes is None:
            lanes = self.study.population.lanes
        count = len(self.devices)
        needed = population_replicates(self.study)
        if lanes is None:
            machine = Machine(self.backend, count, _memory(self.devices))
            per_lane = program.estimate_memory(plan, example, count * tile, tile, count)
            each = per_lane // (count * tile)
            lanes = auto_lanes(machine, tile, startable_replicates(self.study), each, needed)
            if lanes < needed:
                raise ConfigError(
                    f"the population needs {needed} lanes, but memory holds {lanes}; lower "
                    "budget.trials or seeds.per_config"
                )
        else:
            while lanes % (count * tile) and tile > 1:
                tile -= 1
        how = self.study.evaluation
        parts = {
            "plan": plan,
            "lanes": lanes,
            "updates": self.quanta(plan).updates_per_chunk,
            "tile": tile,
            "evaluation": program.EvaluationPlan(how.episodes, how.greedy, how.steps),
            "devices": self.devices,
            "example": example,
            "initial": self._initial(plan, example),
        }
        if not is_gymnasium(plan.env.id):
            return program.Program(**parts)
        from ..core.host.program import HostProgram

        return HostProgram(**parts, workers=self._workers, warn=self.warn)

    @cached_property
    def _workers(self) -> Workers | None:
        """The processes that step host environments, shared by all populations."""
        return workers_of(self.study, os.cpu_count() or 1)

    def _initial(self, plan: Plan, example: Hypers) -> Initial | None:
        """Give what lanes of a plan start with, if the study says so.

        Raises:
            ConfigError: it does not fit this plan.
            StoreError: it has no state of the optimiser, and that was asked for.
        """
        init = self.study.init
        if init is None or self._saved is None:
            return None
        shapes, saved = lane_shapes(plan, example), self._saved
        initial = kept(plan, shapes, saved.params, saved.statistics, init.keep)
        if init.optimiser == "restored":
            moments = read_part(_init_folder(self.study), "optimiser", shapes.moments)
            initial = initial.replace(moments=moments)
        return initial


class LocalPopulation:
    """The lanes of one program; lane numbers are those of the loop, in filling order."""

    def __init__(self, factory: LocalFactory, compiled: program.Program):
        """Start with empty lanes."""
        self._factory, self._program = factory, compiled
        self._lanes = compiled.empty()
        self._place = compiled.lane_order()
        plan = compiled.plan
        self.lanes = compiled.lanes
        self.block = compiled.tile * len(compiled.devices)
        self.steps_per_chunk = compiled.updates * plan.steps_per_update
        warmup = environments.make(plan.env).warmup_steps
        self.warmup_chunks = -(-warmup // (compiled.updates * plan.rollout_length))
        self._total_updates = factory.quanta(plan).chunks * compiled.updates

    @property
    def program(self) -> program.Program:
        """What runs; for those who time it."""
        return self._program

    @property
    def compiles(self) -> int:
        """Training programs compiled so far: 0 before the first chunk, then 1."""
        return int(self._program.compiled)

    def _compile(self) -> None:
        """Compile the training program if this is its first chunk."""
        if self._program.compiled:
            return
        with self._factory.compiling(f"the training program: {self._words()}"):
            self._program.compile()

    def _words(self) -> str:
        plan = self._program.plan
        return f"{plan.env.id}, hidden sizes {list(plan.hidden_sizes)}, {self.lanes} lanes"

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """Refill lanes, then run one chunk; blocks until done."""
        self._compile()
        started = time.perf_counter()
        rows = self._program.no_refills()
        rows.busy[:] = False
        rows.busy[self._place[list(busy)]] = True
        for refill in refills:
            at = self._place[refill.lane]
            rows.mask[at] = True
            rows.stream[at] = _STREAMS[refill.stream]
            rows.replicate[at] = refill.replicate
            rows.updates[at] = -self.warmup_chunks * self._program.updates
            rows.total_updates[at] = self._total_updates
            _put_row(rows.hypers, self._factory.hypers(refill.config), at)
        self._lanes, metrics = self._program.advance(self._factory.study.seed, self._lanes, rows)
        values, diverged = chunk_rows(metrics)
        values = {name: value[self._place] for name, value in values.items()}
        return ChunkResult(values, diverged[self._place], time.perf_counter() - started)

    def change(self, changes: Sequence[Change]) -> None:
        """Copy training states between lanes and change their knobs; see `Population`."""
        rows = self._program.no_changes()
        for change in changes:
            at = self._place[change.lane]
            rows.mask[at] = True
            if change.source is not None:
                rows.source[at] = self._place[change.source]
            _put_row(rows.hypers, self._factory.hypers(change.config), at)
        self._lanes = self._program.change(self._lanes, rows)

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """Evaluate the policies of some lanes, in that order."""
        if not self._program.evaluation_compiled:
            with self._factory.compiling(f"the evaluation: {self._words()}"):
                self._program.compile_evaluation()
        found = self._program.evaluate(self._lanes, self._place[list(lanes)])
        return _results(found, range(len(lanes)))

    def save(self, directory: Path) -> None:
        """Write the exact state of all lanes into a new directory."""
        self._program.save(self._lanes, directory)

    def restore(self, directory: Path) -> None:
        """Read what `save` wrote; the next chunk gives the same bits."""
        self._lanes = self._program.restore(self._lanes, directory)

    def save_fields(self, directory: Path, names: Sequence[str]) -> None:
        """Write some fields of the state of all lanes into a new directory, a folder each."""
        directory.mkdir(parents=True)
        for name in names:
            value = getattr(self._lanes.state, name)
            if jax.tree.leaves(value):
                checkpoint.save_tree(directory / name, value)

    def restore_fields(self, directory: Path, names: Sequence[str]) -> None:
        """Read some of the fields that `save_fields` wrote; the others stay as they are."""
        state = self._lanes.state
        old = {
            name: getattr(state, name) for name in names if jax.tree.leaves(getattr(state, name))
        }
        found = {
            name: checkpoint.restore_tree(directory / name, value) for name, value in old.items()
        }
        placed = jax.tree.map(lambda new, was: jax.device_put(new, was.sharding), found, old)
        self._lanes = self._lanes.replace(state=state.replace(**placed))

    def export_policy(self, lane: int, config: Mapping[str, Any], directory: Path) -> None:
        """Write one lane's policy (with normaliser and resolved configuration)."""
        state = self._program.lane(self._lanes, int(self._place[lane]))
        knobs = {name: value for name, value in config.items() if not name.startswith("env.")}
        train, held_out = self._factory.env_params(config)
        saved = saved_policy.SavedPolicy(
            plan=self._program.plan,
            config=complete(knobs),
            env_params=train,
            eval_params=held_out,
            params=state.params,
            statistics=state.observation_statistics,
            about={"study": self._factory.study.name},
        )
        saved_policy.save_policy(directory, saved)
        write_parts(directory, self._parts(config, state))

    def _parts(self, config: Mapping[str, Any], state: LaneState) -> dict[str, Any]:
        """Give the parts of a lane that the study wants beside its policies."""
        wanted = self._factory.study.checkpoint.parts
        found = {"parameters": state.params, "optimiser": state.moments}
        if not set(wanted) <= set(found):
            found |= jax.device_get(self._look(self._factory.hypers(config), state))
        return {part: found[part] for part in wanted}

    @cached_property
    def _look(self) -> Callable[[Hypers, LaneState], dict[str, Any]]:
        return jax.jit(partial(look, self._program.plan))


def _check_parts(study: Study) -> None:
    """Refuse parts that need a rollout where the host steps the environments.

    Raises:
        ConfigError: names the part.
    """
    rollouts = [name for name in study.checkpoint.parts if name not in ("parameters", "optimiser")]
    if rollouts and is_gymnasium(study.env.id):
        raise ConfigError(
            f"checkpoint.parts: {rollouts[0]} needs a rollout inside of a compiled program, but "
            f"{study.env.id} is stepped by the host; allowed: parameters, optimiser"
        )


def _init_folder(study: Study) -> Path:
    return Path(study.source) / (study.init.folder if study.init is not None else "")


def _saved(study: Study) -> saved_policy.SavedPolicy | None:
    """Give the policy that the study's lanes start from."""
    return None if study.init is None else saved_policy.load_policy(_init_folder(study))


def _results(found: Episodes, rows: Iterable[int]) -> list[EvaluationResult]:
    return [
        EvaluationResult(
            returns=np.asarray(found.returns[i], np.float64),
            lengths=np.asarray(found.lengths[i], np.int64),
            metrics={
                name: np.asarray(value[i], np.float64) for name, value in found.metrics.items()
            },
        )
        for i in rows
    ]


def _check_alike(plan: Plan) -> None:
    """Refuse an evaluation environment that policies of the training environment do not fit.

    Raises:
        ConfigError: it has other actions or observations.
    """
    ours, theirs = environments.make(plan.env), environments.make(plan.eval_env)
    if ours.action_space != theirs.action_space:
        raise ConfigError(
            f"eval_env: it has other actions ({theirs.action_space}) than the environment that "
            f"trains ({ours.action_space}); leave out what changes them"
        )
    if not same_observations(ours, theirs):
        raise ConfigError(
            f"eval_env: it has other observations ({theirs.observation_struct}) than the "
            f"environment that trains ({ours.observation_struct}); leave out what changes them"
        )


def _put_row(rows: Hypers, row: Hypers, at: int) -> None:
    def put(all_rows: np.ndarray, one: np.ndarray) -> None:
        all_rows[at] = one

    jax.tree.map(put, rows, row)


def _env_values(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name[4:]: value for name, value in config.items() if name.startswith("env.")}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


def _possible(study: Study) -> dict[str, set[Any]]:
    """Give, for the knob of each feature, the values that the study can give it, or as good."""
    possible: dict[str, set[Any]] = {}
    searched = {parameter.name for parameter in study.space.parameters}
    for name in FEATURES.values():
        if name in searched:
            possible[name] = {True, False}
        else:
            possible[name] = {study.fixed.get(name, KNOBS[name].default)}
        possible[name] |= {given[name] for given in study.enqueue if name in given}
    return possible


def _memory(devices: Sequence[Device]) -> int:
    """Give the bytes of memory of all devices together."""
    if devices[0].platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return sum(int((device.memory_stats() or {}).get("bytes_limit", 0)) for device in devices)
