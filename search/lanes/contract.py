"""The interface between the search loop and a population of lanes: requests and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import ConfigError, SearchError
from ...store.rows import EpisodeRow, Stream


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


class RunsAlone(ABC):
    """A population whose lanes advance at different speeds, each counted chunk by chunk."""

    @abstractmethod
    def ready(self, refills: Sequence[Refill], busy: Sequence[int]) -> list[int]:
        """Start lanes, and return those in `busy` that have a chunk to count, possibly none.

        Lanes that are not `busy` are ended. The call waits only briefly.
        """

    @abstractmethod
    def keep_only(self, kept: Collection[tuple[int, int]]) -> None:
        """End runs returned by `take`, except those of the (trial, replicate) pairs in `kept`."""


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
