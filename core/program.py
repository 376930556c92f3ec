"""A program for one plan, number of lanes and chunk length, compiled once.

Other packages access the core only through `Program`: it creates, advances and evaluates lanes,
and estimates its cost before compiling.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array

from ..errors import ConfigError
from . import population
from .checkpoint import restore_tree, save_tree
from .evaluation import STEP_LIMIT, Episodes, Policies, evaluate
from .hypers import Hypers
from .memory import estimate_memory, for_platform
from .metrics import Metrics
from .plan import Plan
from .population import EVERYWHERE, LANES, Changes, Device, Initial, Lanes, Refills, lane_shapes
from .update import inspect_lane

# Without region analysis XLA copies the state of a CPU loop more often than necessary: without
# these copies one lane did 1.5 times the work per CPU-second, with the same bits.
_CPU_OPTIONS = {"xla_cpu_copy_insertion_use_region_analysis": True}


# XLA would merge the first layers of two towers into one product. Bias and activation would then
# take two more kernels, and the gradient three times the traffic; unmerged, they are part of each
# product.
_GPU_OPTIONS = {"xla_gpu_dot_merger_threshold_mb": 0}


def compiler_options(devices: Sequence[Device]) -> dict[str, bool | int]:
    if devices[0].platform == "cpu":
        return dict(_CPU_OPTIONS)
    return dict(_GPU_OPTIONS)


@dataclasses.dataclass(frozen=True)
class EvaluationPlan:
    episodes: int = 20
    greedy: bool = True
    steps: int | None = None
    cut_after: int = STEP_LIMIT


class compiled_property(cached_property[Any]):  # used like a built-in decorator
    """A cached property that different programs can compute at the same time.

    Before Python 3.12, all instances share the lock of a `cached_property`, so two programs could
    not compile at the same time. This class needs no lock, because each program is compiled by
    only one thread at a time.
    """

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        kept, name = instance.__dict__, self.attrname
        if name not in kept:
            kept[name] = self.func(instance)
        return kept[name]


class LaneProgram:
    """Places, copies and stores lanes, for every kind of training."""

    lanes: int  # L; a multiple of devices times tile
    tile: int  # lanes per tile
    devices: tuple[Device, ...]
    _lowered: Any
    _evaluation_lowered: Any
    _evaluate: Any

    @cached_property
    def mesh(self) -> Mesh:
        return population.lane_mesh(self.devices)

    @cached_property
    def _lane_sharding(self) -> NamedSharding:
        return NamedSharding(self.mesh, LANES)

    def lane_order(self) -> np.ndarray:
        places = np.arange(self.lanes).reshape(len(self.devices), -1, self.tile)
        return np.moveaxis(places, 0, 1).reshape(-1)

    def place(self, lanes: Any) -> Any:
        return jax.device_put(lanes, self._lane_sharding)

    @compiled_property
    def _advance(self) -> Any:
        return self._compile_lowered("_lowered", compiler_options(self.devices))

    def _compile_lowered(self, name: str, options: dict[str, bool | int] | None = None) -> Any:
        compiled = getattr(self, name).compile(compiler_options=options)
        self.__dict__.pop(name)
        return compiled

    def trace(self) -> None:
        """Trace training and evaluation, so that any thread can compile them."""
        if not self.compiled:
            _ = self._lowered
        if not self.evaluation_compiled:
            _ = self._evaluation_lowered

    def compile(self) -> None:
        _ = self._advance

    def compile_evaluation(self) -> None:
        _ = self._evaluate

    @property
    def compiled(self) -> bool:
        return "_advance" in self.__dict__

    @property
    def evaluation_compiled(self) -> bool:
        return "_evaluate" in self.__dict__

    @cached_property
    def _change(self) -> Any:
        return population.change_function(self.mesh)

    def change(self, lanes: Any, changes: Any) -> Any:
        """Copy states between (donated) lanes and change hyperparameters, between two chunks."""
        if len(self.devices) == 1:
            # XLA marks the result of a chunk as replicated, which on one device is the same
            # placement under a different name: `jit` would compile a program for each name.
            lanes = self.place(lanes)
        return self._change(lanes, changes)

    @cached_property
    def _pick(self) -> Any:
        return jax.jit(lambda lanes, at: jax.tree.map(lambda x: x[at], lanes.state))

    def lane_state(self, lanes: Any, which: int) -> Any:
        return jax.device_get(self._pick(lanes, np.int32(which)))

    def save(self, lanes: Any, directory: Path) -> None:
        save_tree(directory, lanes)

    def restore(self, lanes: Any, directory: Path) -> Any:
        return self.place(restore_tree(directory, lanes))


@dataclasses.dataclass(frozen=True, eq=False)
class Program(LaneProgram):
    plan: Plan
    lanes: int  # L; a multiple of devices times tile
    updates: int  # K, per chunk
    tile: int  # lanes per tile
    evaluation: EvaluationPlan
    devices: tuple[Device, ...]
    example: Hypers  # any configuration's traced part, for the shapes
    initial: Initial | None = None  # replaces fresh parameters; host arrays

    def __post_init__(self) -> None:
        plan = for_platform(self.plan, self.devices[0].platform)
        object.__setattr__(self, "plan", plan)  # compiled with these choices
        share = len(self.devices) * self.tile
        if self.lanes % share:
            fitting = math.ceil(self.lanes / share) * share
            raise ConfigError(
                f"{self.lanes} lanes do not fill tiles of {self.tile} lanes on "
                f"{len(self.devices)} devices; the next possible number is {fitting}"
            )

    def empty(self) -> Lanes:
        return population.empty_lanes(self.plan, self.lanes, self.example, self.mesh)

    def no_refills(self) -> Refills:
        """Return empty refills in which all lanes run, as host arrays to be filled in."""
        nothing, everyone = np.zeros(self.lanes, bool), np.ones(self.lanes, bool)
        numbers = (np.zeros(self.lanes, np.int32) for _ in range(4))
        return Refills(nothing, everyone, self._hyper_rows(), *numbers)

    def no_changes(self) -> Changes:
        source = np.arange(self.lanes, dtype=np.int32)
        return Changes(source, np.zeros(self.lanes, bool), self._hyper_rows())

    def _hyper_rows(self) -> Hypers:
        def rows(leaf: Any) -> np.ndarray:
            return np.broadcast_to(leaf, (self.lanes, *np.shape(leaf))).copy()

        return jax.tree.map(rows, self.example)

    @cached_property
    def _lowered(self) -> Any:
        function = population.advance_function(self.plan, self.mesh, self.tile, self.updates)
        args = (np.int32(0), self.empty(), self.place(self.no_refills()), self._initial_on_devices)
        return function.lower(*args)

    @cached_property
    def _initial_on_devices(self) -> Initial | None:
        return jax.device_put(self.initial, NamedSharding(self.mesh, EVERYWHERE))

    def advance(self, seed: int, lanes: Lanes, refills: Refills) -> tuple[Lanes, Metrics]:
        """Refill lanes, then run one chunk; `lanes` is donated and must not be used again."""
        return self._advance(np.int32(seed), lanes, self.place(refills), self._initial_on_devices)

    def failures(self) -> dict[int, str]:
        return {}

    def phase_seconds(self) -> dict[str, np.ndarray]:
        """Return seconds per phase of the last chunk's updates, name -> [K]; {} unless hosted."""
        return {}

    @property
    def evaluation_width(self) -> int:
        if self.devices[0].platform == "cpu":
            return 4 * len(self.devices)
        return 64 * len(self.devices)

    def _evaluate_episodes(self, policies: Policies) -> Episodes:
        how = self.evaluation
        return evaluate(
            self.plan,
            policies,
            how.episodes,
            how.greedy,
            steps=how.steps,
            cut_after=how.cut_after,
        )

    @compiled_property
    def _evaluate(self) -> Any:
        return self._compile_lowered("_evaluation_lowered")

    @cached_property
    def _evaluation_lowered(self) -> Any:
        mapped = population.over_devices(self._evaluate_episodes, self.mesh, LANES, LANES)
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._lane_sharding),
            self._policy_shapes(self.evaluation_width),
        )
        return jax.jit(mapped).lower(like)

    def _policy_shapes(self, width: int) -> Policies:
        lanes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((self.lanes, *x.shape), x.dtype),
            Lanes(self.example, lane_shapes(self.plan, self.example)),
        )
        return jax.eval_shape(self._gather, lanes, np.zeros(width, np.int32))

    @cached_property
    def _gather(self) -> Any:
        def pick(lanes: Lanes, at: Array) -> Policies:
            state = lanes.state
            policies = Policies(
                lanes.hypers, state.params, state.observation_statistics, state.key
            )
            return jax.tree.map(lambda x: x[at], policies)

        return jax.jit(pick, out_shardings=self._lane_sharding)

    def _evaluate_padded(self, lanes: Lanes, padded: np.ndarray, count: int) -> Episodes:
        return self._evaluate_wide(self._gather(lanes, padded), count)

    def _evaluate_wide(self, policies: Policies, count: int) -> Episodes:
        """Evaluate padded policies [evaluation_width, ...]; return the first `count` episodes."""
        result = jax.device_get(self._evaluate(policies))
        return jax.tree.map(lambda x: x[:count], result)

    def look(self, lanes: Lanes, which: int, hypers: Hypers) -> dict[str, Any]:
        return jax.device_get(self._look(hypers, self.lane_state(lanes, which)))

    @cached_property
    def _look(self) -> Any:
        return jax.jit(partial(inspect_lane, self.plan))

    def evaluate(self, lanes: Lanes, which: Sequence[int] | np.ndarray) -> Episodes:
        width = self.evaluation_width
        if len(which) == 0:
            return self._no_episodes()
        found = []
        for start in range(0, len(which), width):
            part = list(which[start : start + width])
            padded = np.asarray(part + part[-1:] * (width - len(part)), np.int32)
            found.append(self._evaluate_padded(lanes, padded, len(part)))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *found)

    def evaluate_policy(self, policies: Policies) -> Episodes:
        """Return the episodes of one policy [1, ...], bitwise equal to those of its lane."""
        width = self.evaluation_width
        wide = jax.tree.map(lambda x: np.repeat(np.asarray(x), width, axis=0), policies)
        return self._evaluate_wide(self.place(wide), 1)

    def _no_episodes(self) -> Episodes:
        shapes = jax.eval_shape(
            self._evaluate_episodes, self._policy_shapes(self.evaluation_width)
        )
        return jax.tree.map(lambda x: np.zeros((0, *x.shape[1:]), x.dtype), shapes)

    def memory_bytes(self) -> int:
        return estimate_memory(self.plan, self.example, self.lanes, self.tile, len(self.devices))
