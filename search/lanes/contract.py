"""The interface between the search loop and a population of lanes: requests and results."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import numpy as np

from ...errors import ConfigError, SearchError, counted
from ...store.codec import plain_json
from ...store.rows import EpisodeRow, Stream
from ...studies.spec import Study


@dataclass(frozen=True)
class Resolved:
    """One configuration ready to run in lanes; created by `PopulationFactory.resolve`."""

    config: Mapping[str, Any]  # complete and validated
    bucket: str  # short hash of the Plan: configurations with equal ones share a program
    steps_per_chunk: int  # training env steps of one lane per chunk
    payload: Any = field(default=None, repr=False)  # for populations created by the same factory


@dataclass(frozen=True)
class Refill:
    """A request to start a replicate in a lane."""

    lane: int
    resolved: Resolved
    stream: Stream
    replicate: int  # within the stream; with the study's seed, fixes every random number
    trial: int = -1  # names a process's folder; does not affect results


@dataclass(frozen=True)
class LaneChange:
    """New hyperparameters for a lane, possibly with another lane's training state."""

    lane: int
    resolved: Resolved  # only traced hyperparameters may differ
    # the lane from which networks, optimiser, normalisers, random stream and environments are
    # copied
    source: int | None = None

    @property
    def origin(self) -> int:
        """The lane whose training state is continued."""
        if self.source is None:
            return self.lane
        return self.source


@dataclass(frozen=True)
class ChunkRow:
    """The metrics of some of the updates in a chunk, for all lanes."""

    env_steps: int  # of one lane since the start of the chunk
    metrics: Mapping[str, np.ndarray]  # name -> float64 [lanes]


@dataclass(frozen=True)
class ChunkResult:
    """The results of one chunk, for all lanes."""

    metrics: Mapping[str, np.ndarray]  # name -> float64 [lanes], over the chunk's updates
    diverged: np.ndarray  # bool [lanes]; the numbers of these lanes are meaningless
    seconds: float  # wall time
    # lane -> why its environment failed; such a lane counts as diverged
    failed: Mapping[int, str] = field(default_factory=dict)
    rows: Sequence[ChunkRow] = ()  # parts of the chunk, if curves have several rows per chunk


@dataclass(frozen=True)
class EvaluationResult(EpisodeRow):
    """The results of one lane's evaluation."""

    failed: str = ""  # why the environment failed; all other fields are then empty

    @classmethod
    def failure(cls, why: str) -> EvaluationResult:
        return cls(np.zeros(0), np.zeros(0, np.int64), {}, why)


def refuse_failed(reasons: Iterable[str]) -> None:
    """Raise SearchError for a failed evaluation that does not belong to a trial."""
    why = next(filter(None, reasons), "")
    if why:
        raise SearchError(f"an environment failed: {why}")


_NOT_WRITTEN = "the state of these lanes cannot be saved; remove early_terminate.pause"
_NOT_SAVED = "these lanes cannot be saved"


class Population(Protocol):
    """The lanes of one bucket.

    Unless stated otherwise, methods compile nothing and write nothing.
    """

    lanes: int
    steps_per_chunk: int  # training env steps of one lane per chunk
    warmup_chunks: int  # chunks without training at the start of a replicate
    block: int  # lanes in one tile on every device; with fewer, part of the machine is idle

    @property
    def compiles(self) -> int:
        return 0

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """Refill lanes, then run one chunk; lanes that are not `busy` may stay idle."""
        raise NotImplementedError

    def change(self, changes: Sequence[LaneChange]) -> None:
        """Change lanes between two chunks; all sources are read before any lane changes.

        Raises ConfigError if these lanes cannot be changed.
        """
        raise NotImplementedError

    def take(self, lanes: Sequence[int]) -> list[Any]:
        """Return the training states of some lanes; ConfigError if they cannot be moved."""
        raise NotImplementedError

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        """Resume lanes from (state, configuration) pairs, from this or an equal population."""
        raise NotImplementedError

    def save_state(self, state: Any, directory: Path) -> None:
        """Write a state from `take` into a new directory."""
        raise ConfigError(f"{directory}: {_NOT_WRITTEN}")

    def restore_state(self, directory: Path) -> Any:
        """Return a state written by `save_state`, possibly by an equal population."""
        raise ConfigError(f"{directory}: {_NOT_WRITTEN}")

    def compile(self) -> None:
        """Compile the training program now instead of at the first chunk."""

    def compile_ahead(self) -> Callable[[], None] | None:
        """Return a function that compiles everything when another thread calls it, or None.

        User code runs in the calling thread, before this returns. Errors are raised again by
        `compile` or `compile_evaluation`, which wait for the thread.
        """
        return None

    def compile_evaluation(self) -> None:
        """Compile the evaluation now instead of at its first use."""

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        raise NotImplementedError

    def save(self, directory: Path) -> None:
        """Write the exact state of all lanes into a new directory."""
        raise SearchError(f"{directory}: {_NOT_SAVED}")

    def restore(self, directory: Path) -> None:
        """Read the state written by `save`; the next chunk is then bitwise identical."""
        raise SearchError(f"{directory}: {_NOT_SAVED}")

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        """Write one lane's policy; `about` (plain JSON values) describes its origin."""
        raise SearchError(f"{directory}: {_NOT_SAVED}")

    def evaluate_kept(
        self, resolved: Resolved, directory: Path, stream: Stream, replicate: int
    ) -> EvaluationResult:
        """Evaluate a policy written by `export_policy`; results equal its replicate's bitwise."""
        raise SearchError(f"{directory}: {_NOT_SAVED}")


@runtime_checkable
class RunsAlone(Protocol):
    """A population whose lanes advance at different speeds, each counted chunk by chunk."""

    def ready(self, refills: Sequence[Refill], busy: Sequence[int]) -> list[int]:
        """Start lanes, and return those in `busy` that have a chunk to count, possibly none.

        Lanes that are not `busy` are ended. The call waits only briefly.
        """
        ...

    def keep_only(self, kept: Collection[tuple[int, int]]) -> None:
        """End runs returned by `take`, except those of the (trial, replicate) pairs in `kept`."""
        ...


class PopulationFactory(Protocol):
    """Creates the populations of buckets."""

    @property
    def backend(self) -> str:
        """The backend, such as `cpu` or `gpu`; results differ bitwise between backends."""
        ...

    @property
    def device_count(self) -> int: ...

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """Prepare a configuration from `Study.complete` for lanes, without compiling.

        Raises ConfigError if no program can run it.
        """
        ...

    def make(self, resolved: Resolved, lanes: int | None) -> Population:
        """Create a bucket's population; by default, `lane_count` sets the number of lanes."""
        ...

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """Evaluate a heuristic from `Study.baselines` on the episodes of these replicates."""
        ...


def factory_here(study: Study, *args: Any, **rest: Any) -> Any:
    """Create this process's factory for a study's algorithm; see `LocalFactory`."""
    if study.algorithm.is_ppo:
        from .local import LocalFactory

        return LocalFactory(study, *args, **rest)
    if study.algorithm.is_process:
        from .process_factory import ProcessFactory

        return ProcessFactory(study, *args, **rest)
    from .custom_training import TrainingFactory

    return TrainingFactory(study, *args, **rest)


@dataclass(frozen=True)
class Division:
    """The division of a population's lanes into equal shares."""

    total: int  # lanes of the population
    tile: int  # lanes that a device computes together
    unit: int  # consecutive lanes that are assigned to a share together
    own: int  # lanes in each share's program; surplus ones stay idle

    @classmethod
    def of(cls, total: int, shares: int, tile: int, devices: int) -> Division:
        """Divide lanes in units of one tile per device, or of one tile if shares would be unequal.

        >>> Division.of(16, 2, 4, 2)
        Division(total=16, tile=4, unit=8, own=8)
        >>> Division.of(4, 2, 2, 2)
        Division(total=4, tile=2, unit=2, own=4)
        """
        unit = block = tile * devices
        if total % (shares * block):
            unit = tile
        units = -(-total // (unit * shares))
        return cls(total, tile, unit, -(-units * unit // block) * block)


def check_divides(factory: Any, resolved: Resolved, shares: int) -> None:
    """Raise ConfigError if a study has too few lanes for its number of workers."""
    division: Division = factory.divide(resolved, None, shares)
    tiles = division.total // division.tile
    if tiles < shares:
        raise ConfigError(
            f"population.lanes is {factory.study.population.lanes}, which is only "
            f"{counted(tiles, 'tile')} of {counted(division.tile, 'lane')} for {shares} workers; "
            f"use executor.workers: {tiles}, more lanes, or executor: {{type: local}}"
        )


@dataclass
class SimulatedLane:
    """The state of a lane in a `SimulatedPopulation` between chunks."""

    payload: Any  # from its `Resolved`
    stream: Stream
    replicate: int
    chunks: int = 0
    value: float = 0.0


class SimulatedPopulation(Population):
    """Lanes whose results come from a formula or a record instead of training.

    Subclasses define `advance` and `evaluate`.
    """

    def __init__(self, lanes: int, block: int, steps_per_chunk: int, warmup_chunks: int):
        self.lanes, self.block = lanes, block
        self.steps_per_chunk, self.warmup_chunks = steps_per_chunk, warmup_chunks
        self._state: list[SimulatedLane | None] = [None] * lanes

    def _lane(self, index: int) -> SimulatedLane:
        lane = self._state[index]
        if lane is None:
            raise ValueError(f"lane {index} is empty")
        return lane

    def _count_chunk(
        self, refills: Sequence[Refill], busy: Sequence[int]
    ) -> dict[int, SimulatedLane]:
        """Start replicates and count a chunk; return the busy lanes that are not empty."""
        for one in refills:
            lane = SimulatedLane(one.resolved.payload, one.stream, one.replicate)
            self._state[one.lane] = lane
        found = {at: lane for at in busy if (lane := self._state[at]) is not None}
        for lane in found.values():
            lane.chunks += 1
        return found

    def change(self, changes: Sequence[LaneChange]) -> None:
        before = list(self._state)
        for change in changes:
            lane = before[change.origin]
            if lane is None:
                raise ValueError(f"lane {change.origin} is empty and cannot be copied")
            self._state[change.lane] = replace(lane, payload=change.resolved.payload)

    def take(self, lanes: Sequence[int]) -> list[Any]:
        return [replace(self._lane(lane)) for lane in lanes]

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        for lane, (state, resolved) in states.items():
            self._state[lane] = replace(state, payload=resolved.payload)


_RECENT = 256


class Resolver:
    """Completes and resolves a study's configurations, each only once while it is in use.

    The same object is returned as long as it is referenced or among the most recent ones.
    """

    def __init__(self, study: Study, factory: PopulationFactory):
        self._study, self._factory = study, factory
        self._default = plain_json(study.space.default())
        self._known: WeakValueDictionary[str, Resolved] = WeakValueDictionary()
        self._recent: deque[Resolved] = deque(maxlen=_RECENT)

    def of(self, params: Mapping[str, Any]) -> Resolved:
        """Return the configuration for searched values (plain JSON), with the fixed ones added."""
        name = json.dumps(params, sort_keys=True)
        found = self._known.get(name)
        if found is None:
            if params == self._default:
                config = self._study.default()
            else:
                config = self._study.complete(params)
            found = self._factory.resolve(config)
            self._known[name] = found
        self.touch(found)
        return found

    def touch(self, resolved: Resolved) -> None:
        self._recent.append(resolved)

    def default(self) -> Resolved:
        return self.of(self._study.space.default())
