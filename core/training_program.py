"""Runs a custom training class compiled for L lanes: refills, K updates, evaluation.

The lanes of a tile run side by side under `vmap`; a device runs its tiles one after the other, in
place. A tile of one lane is not vmapped, so its conditionals remain conditionals, and its numbers
equal those of a plain loop over `jit(update)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Bool, Float, Int, UInt32

from ..errors import ConfigError, StoreError
from ..files.plain_data import freeze
from ..knobs.configuration import canonical_value
from . import population
from .checkpoint import restore_lane
from .evaluation import film, trace
from .lane_state import lane_key, use_key
from .policy_document import TRAINING, read_training, saved_env
from .population import EVERYWHERE, INIT, LANES, TIME_FIRST, Changes, Device, Lanes
from .program import LaneProgram, compiled_property, compiler_options
from .pytree import Leaf, Pytree, over_lanes, pytree, where
from .saved_policy import HELD_OUT
from .training import Lane, StudyEnvironment, Training


@pytree
class TrainedState(Pytree):
    """The contents of lanes, [L, ...]."""

    key: UInt32[Array, "... 2"]  # of (seed, stream, replicate)
    updates: Int[Array, "..."]
    leaves: list[Any]


@pytree
class Starts(Pytree):
    """Masks of the lanes that start and of those that run; rows of all other lanes are ignored."""

    mask: Bool[Leaf, " L"]
    busy: Bool[Leaf, " L"]
    stream: Int[Leaf, " L"]
    replicate: Int[Leaf, " L"]
    hypers: dict[str, Any]  # float32 [L]


def init_state(
    lane: Lane, seed: Any, stream: Any, replicate: Any, hypers: Mapping[str, Any]
) -> TrainedState:
    key = lane_key(seed, stream, replicate)
    leaves = lane.init(use_key(key, INIT), hypers)
    return TrainedState(key, jnp.zeros((), jnp.int32), leaves)


def shapes_of_lane(lane: Lane) -> TrainedState:
    zero, hypers = np.int32(0), dict.fromkeys(lane.names, np.float32(0))
    return jax.eval_shape(partial(init_state, lane), zero, zero, zero, hypers)


@dataclass(frozen=True, eq=False)
class TrainingProgram(LaneProgram):
    """A training class with one combination of fixed values, compiled for L lanes."""

    lane: Lane
    lanes: int  # L; a multiple of devices times tile
    updates: int  # K, per chunk
    tile: int
    episodes: int  # of one evaluation
    devices: tuple[Device, ...]

    def __post_init__(self) -> None:
        block = len(self.devices) * self.tile
        if self.lanes % block:
            raise ValueError(f"lanes is {self.lanes}; it must be a multiple of {block}")

    @cached_property
    def lane_shapes(self) -> TrainedState:
        return shapes_of_lane(self.lane)

    def empty(self) -> Lanes:
        def zeros(leaf: Any) -> np.ndarray:
            return np.zeros((self.lanes, *leaf.shape), leaf.dtype)

        return self.place(Lanes(self._no_hypers(), jax.tree.map(zeros, self.lane_shapes)))

    def _no_hypers(self) -> dict[str, Any]:
        return {name: np.zeros(self.lanes, np.float32) for name in self.lane.names}

    def starts(
        self, busy: Sequence[int], fresh: Mapping[int, tuple[int, int, Mapping[str, Any]]]
    ) -> Starts:
        """Return `Starts` from the busy lanes and a (stream, replicate, values) per fresh lane."""
        made = Starts(
            np.zeros(self.lanes, bool),
            np.zeros(self.lanes, bool),
            np.zeros(self.lanes, np.int32),
            np.zeros(self.lanes, np.int32),
            self._no_hypers(),
        )
        made.busy[list(busy)] = True
        for lane, (stream, replicate, hypers) in fresh.items():
            made.mask[lane], made.stream[lane], made.replicate[lane] = True, stream, replicate
            for name, value in hypers.items():
                made.hypers[name][lane] = value
        return made

    def changes(self, given: Mapping[int, tuple[int, Mapping[str, Any]]]) -> Changes:
        """Return changes as arrays; `given` maps a lane to (lane to copy, new hyperparameters)."""
        order = np.arange(self.lanes, dtype=np.int32)
        made = Changes(order, np.zeros(self.lanes, bool), self._no_hypers())
        for lane, (source, hypers) in given.items():
            made.mask[lane] = True
            made.source[lane] = source
            for name, value in hypers.items():
                made.hypers[name][lane] = value
        return made

    def _run_device_lanes(
        self, seed: Any, lanes: Lanes, starts: Starts, shared: Any
    ) -> tuple[Lanes, dict[str, Float[Array, "K lanes"]]]:
        """Run one chunk on the lanes of a device."""
        hypers = where(starts.mask, starts.hypers, lanes.hypers)
        own, lane = starts.mask.shape[0], self.lane.reading(shared)

        def one(state: TrainedState, values: Any) -> tuple[TrainedState, dict[str, Any]]:
            leaves, metrics = lane.update(state.leaves, values)
            return state.replace(leaves=leaves, updates=state.updates + 1), metrics

        def tile(at: Any, carry: Any) -> Any:
            state, metrics = carry

            def mine(tree: Any) -> Any:
                return jax.tree.map(
                    lambda x: jax.lax.dynamic_slice_in_dim(x, at * self.tile, self.tile), tree
                )

            here, values, rows = mine(state), mine(hypers), mine(starts)

            def begin() -> TrainedState:
                def start(stream: Any, replicate: Any, values: Any) -> TrainedState:
                    return init_state(lane, seed, stream, replicate, values)

                fresh = over_lanes(start)(rows.stream, rows.replicate, values)
                return where(rows.mask, fresh, here)

            here = jax.lax.cond(jnp.any(rows.mask), begin, lambda: here)

            def run() -> Any:
                step = over_lanes(one)
                return jax.lax.scan(lambda s, _: step(s, values), here, None, self.updates)

            here, found = population.unless_idle(rows.busy, run, here)

            def put(axis: int) -> Any:
                return lambda all_, new: jax.lax.dynamic_update_slice_in_dim(
                    all_, new, at * self.tile, axis
                )

            return jax.tree.map(put(0), state, here), jax.tree.map(put(1), metrics, found)

        empty = {name: jnp.zeros((self.updates, own), jnp.float32) for name in self._metric_names}
        state, metrics = jax.lax.fori_loop(0, own // self.tile, tile, (lanes.state, empty))
        return Lanes(hypers, state), metrics

    @cached_property
    def _metric_names(self) -> list[str]:
        hypers = dict.fromkeys(self.lane.names, np.float32(0))
        return list(jax.eval_shape(self.lane.update, self.lane_shapes.leaves, hypers)[1])

    @cached_property
    def _lowered(self) -> Any:
        mapped = population.over_devices(
            self._run_device_lanes,
            self.mesh,
            (EVERYWHERE, LANES, LANES, EVERYWHERE),
            (LANES, TIME_FIRST),
        )
        args = (
            np.int32(0),
            self.empty(),
            self.place(self.starts((), {})),
            self._shared_on_devices,
        )
        return jax.jit(mapped, donate_argnums=1).lower(*args)

    @cached_property
    def _evaluation_lowered(self) -> Any:
        """Lower the evaluation, which returns name -> [L, episodes] (zeros in unwanted lanes)."""

        def local(lanes: Lanes, wanted: Any, shared: Any) -> dict[str, Any]:
            lane = self.lane.reading(shared)

            def of_lane(state: TrainedState, values: Any) -> dict[str, Any]:
                return lane.episodes(state.leaves, values, state.key, self.episodes)

            def tile(args: Any) -> dict[str, Any]:
                lanes, wanted = args

                def run() -> dict[str, Any]:
                    return over_lanes(of_lane)(lanes.state, lanes.hypers)

                return jax.lax.cond(jnp.any(wanted), run, lambda: population.zeros_of(run))

            tiles = population.in_tiles((lanes, wanted), self.tile)
            return population.untiled(jax.lax.map(tile, tiles))

        mapped = population.over_devices(local, self.mesh, (LANES, LANES, EVERYWHERE), LANES)
        nobody = self.place(np.zeros(self.lanes, bool))
        return jax.jit(mapped).lower(self.empty(), nobody, self._shared_on_devices)

    @cached_property
    def _shared_on_devices(self) -> Any:
        """The shared arrays of the training class, on every device."""
        return jax.device_put(self.lane.shared, NamedSharding(self.mesh, EVERYWHERE))

    @compiled_property
    def _evaluate(self) -> Any:
        return self._compile_lowered("_evaluation_lowered", compiler_options(self.devices))

    def advance(
        self, seed: int, lanes: Lanes, starts: Starts
    ) -> tuple[Lanes, dict[str, np.ndarray]]:
        """Start lanes, then run one chunk; `lanes` is donated. Metrics are [K, L]."""
        lanes, metrics = self._advance(
            np.int32(seed), lanes, self.place(starts), self._shared_on_devices
        )
        return lanes, jax.device_get(metrics)

    def evaluate(self, lanes: Lanes, which: Sequence[int]) -> dict[str, np.ndarray]:
        """Return the episode values of some lanes, name -> float32 [len(which), episodes]."""
        wanted = np.zeros(self.lanes, bool)
        wanted[list(which)] = True
        found = jax.device_get(self._evaluate(lanes, self.place(wanted), self._shared_on_devices))
        return {name: values[list(which)] for name, values in found.items()}


@dataclass(frozen=True)
class SavedTraining:
    """A lane saved by a study; its methods' `seed` selects episodes that no study uses."""

    lane: Lane
    leaves: list[Array]
    hypers: Mapping[str, np.float32]

    @classmethod
    def read(cls, folder: Path, made: type[Training]) -> SavedTraining:
        """Read a saved lane; raises the same errors as `hpo.load_training`."""
        record, path = read_training(folder), folder / TRAINING
        knobs = made.declared()
        try:
            values, length = dict(record["config"]), int(record["length"])
            given = None
            if "env" in record:
                keys = {name: freeze(value) for name, value in record["env"]["keys"].items()}
                plan = saved_env(record["env"]["id"], keys, folder)
                given = StudyEnvironment(plan, record["env_params"], record["steps"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} is damaged: {error!r}") from error
        if set(values) != set(knobs) or (given is not None) != made.takes_environment():
            raise ConfigError(
                f"{path} has the hyperparameters {', '.join(values)}, but {made.__name__} "
                f"declares {', '.join(knobs)}; load it with the class that trained it, "
                f"{record['algorithm']}"
            )
        config = {name: canonical_value(knobs[name], value) for name, value in values.items()}
        hypers = {name: np.float32(config[name]) for name, knob in knobs.items() if knob.traced}
        fixed = {name: value for name, value in config.items() if name not in hypers}
        lane = Lane(made.of(fixed, length, given), tuple(hypers))
        like = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes_of_lane(lane))
        return cls(lane, list(map(jnp.asarray, restore_lane(folder, like).leaves)), hypers)

    @property
    def env_id(self) -> str:
        return self._study_environment.plan.id

    @property
    def _study_environment(self) -> StudyEnvironment:
        training = self.lane.training
        if training.given is None or not training.acts():
            name = type(training).__name__
            raise ConfigError(
                "recording needs a class that sets env = hpo.environment() and defines act; "
                f"{name} has a custom evaluate"
            )
        return training.given

    def evaluate(self, episodes: int, seed: int) -> dict[str, np.ndarray]:
        """Return the episodes' values by name, float32 [episodes]."""
        run = jax.jit(partial(self.lane.episodes, count=episodes))
        return dict(jax.device_get(run(self.leaves, self.hypers, _player_key(seed))))

    def trace(self, episodes: int, seed: int) -> dict[str, np.ndarray]:
        """Return every env step of the evaluated episodes, as columns."""
        return trace(
            self._maker_of_player(seed), self.leaves, episodes, self._study_environment.steps
        )

    def film(self, episodes: int, seed: int) -> tuple[float, Iterator[np.ndarray]]:
        """Return the frame rate and the frames of the evaluated episodes.

        Raises:
            ConfigError: the environment cannot be rendered.
        """
        self._study_environment  # noqa: B018  # refuses a class that does not act
        return film(self._maker_of_player(seed), self.leaves, episodes)

    def _maker_of_player(self, seed: int) -> Any:
        lane, hypers = self.lane, self.lane.hypers(self.hypers)
        return lambda leaves: lane.training.player(
            lane.state(leaves, self.hypers), hypers, _player_key(seed)
        )


def _player_key(seed: int) -> Any:
    return lane_key(jnp.int32(seed), jnp.int32(HELD_OUT), jnp.int32(0))
