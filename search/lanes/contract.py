"""What the search loop asks of a population of lanes, and what it gets back.

`search.local_population` implements it over `hpo.core`; tests implement it with analytic learning
curves, so that the loop's rules are tested in milliseconds.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from ...errors import ConfigError, SearchError
from ...store.codec import plain_json
from ...store.rows import Stream
from ...studies.spec import Study


@dataclass(frozen=True)
class Resolved:
    """One configuration, ready for lanes; `PopulationFactory.resolve` makes it once.

    Attributes:
        config: every knob and environment parameter, complete and validated.
        bucket: short hash of its Plan; configurations with equal ones share a program.
        steps_per_chunk: env steps of one chunk of one lane of that program (the quantum).
        payload: what the populations of its factory take of it.
    """

    config: Mapping[str, Any]
    bucket: str
    steps_per_chunk: int
    payload: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Refill:
    """Start a replicate in a lane.

    Attributes:
        lane: 0 .. lanes-1; whatever ran there is forgotten.
        resolved: the configuration.
        stream: which seeds.
        replicate: index within the stream; with the study's seed it fixes every random number.
    """

    lane: int
    resolved: Resolved
    stream: Stream
    replicate: int


@dataclass(frozen=True)
class Change:
    """Go on with other hyperparameters in a lane, and perhaps with another lane's training state.

    Attributes:
        lane: 0 .. lanes-1.
        resolved: the configuration from here on; it differs from the one before in traced knobs
            alone.
        source: the lane whose whole training state (networks, optimiser, normalisers, random
            stream, environments) this one takes over; None keeps its own.
    """

    lane: int
    resolved: Resolved
    source: int | None = None


@dataclass(frozen=True)
class ChunkRow:
    """A part of a chunk's updates, all lanes.

    Attributes:
        env_steps: of one lane from the start of the chunk to the end of the part.
        metrics: name -> float64 [lanes], over the updates of the part.
    """

    env_steps: int
    metrics: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ChunkResult:
    """One chunk of all lanes.

    Attributes:
        metrics: name -> float64 [lanes], over the chunk's updates.
        diverged: bool [lanes]; retire the replicate, its numbers mean nothing.
        seconds: wall time of the chunk.
        failed: lane -> why its environment failed; it counts as diverged too.
        rows: its parts in order, where curves have several rows a chunk, else empty.
    """

    metrics: Mapping[str, np.ndarray]
    diverged: np.ndarray
    seconds: float
    failed: Mapping[int, str] = field(default_factory=dict)
    rows: Sequence[ChunkRow] = ()


@dataclass(frozen=True)
class EvaluationResult:
    """One lane's evaluation.

    Attributes:
        returns: float64 [episodes].
        lengths: int64 [episodes], env steps.
        metrics: the environment's own, name -> float64 [episodes].
        failed: why the lane's environment failed, and there is nothing else; else "".
    """

    returns: np.ndarray
    lengths: np.ndarray
    metrics: Mapping[str, np.ndarray]
    failed: str = ""


def refuse_failed(reasons: Iterable[str]) -> None:
    """Stop where there is no trial that could fail in place of everything.

    Args:
        reasons: `failed` of results; empty ones are fine.

    Raises:
        SearchError: an environment failed.
    """
    why = next(filter(None, reasons), "")
    if why:
        raise SearchError(f"an environment failed: {why}")


class Population(Protocol):
    """The lanes of one bucket.

    Attributes:
        lanes: how many.
        steps_per_chunk: training env steps one lane does in one chunk (its quantum).
        warmup_chunks: whole chunks at the start of every replicate that do not train; each costs
            `steps_per_chunk` env steps, counted apart.
        block: lanes of one tile on every device; work for fewer leaves part of the machine idle.
    """

    lanes: int
    steps_per_chunk: int
    warmup_chunks: int
    block: int

    @property
    def compiles(self) -> int:
        """Training programs compiled so far."""
        ...

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """Refill lanes, then run one chunk; blocks until done.

        Args:
            refills: replicates to start first.
            busy: lanes whose results matter, those of `refills` included; others may rest.
        """
        ...

    def change(self, changes: Sequence[Change]) -> None:
        """Change lanes between two chunks; all take over what was there before any change.

        Raises:
            ConfigError: lanes of this kind cannot be changed.
        """
        ...

    def take(self, lanes: Sequence[int]) -> list[Any]:
        """Return the whole training states of some lanes, to be kept, or put elsewhere.

        Raises:
            ConfigError: lanes of this kind cannot be moved.
        """
        ...

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        """Let lanes go on from states that `take` gave, here or in an equal population.

        Args:
            states: lane -> state and the configuration it goes on with, as in `Change`.

        Raises:
            ConfigError: as of `take`.
        """
        ...

    def save_state(self, state: Any, directory: Path) -> None:
        """Write a state that `take` gave into a new directory.

        Raises:
            ConfigError: as of `take`.
        """
        ...

    def restore_state(self, directory: Path) -> Any:
        """Return the state that `save_state` wrote, also by an equal population.

        Raises:
            StoreError: it is missing or damaged.
        """
        ...

    def compile(self) -> None:
        """Compile the training program now (else at the first chunk)."""
        ...

    def compile_ahead(self) -> Callable[[], None] | None:
        """Return what compiles all of it in another thread, while other lanes run.

        What runs user code has run when this returns, in the thread that calls. An error there
        or in the thread comes again out of `compile` or `compile_evaluation`, which wait for the
        thread. None where there is nothing to compile beside other lanes.
        """
        ...

    def compile_evaluation(self) -> None:
        """Compile the evaluation now (else at the first one)."""
        ...

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """Evaluate the policies of some lanes, in that order."""
        ...

    def save(self, directory: Path) -> None:
        """Write the exact state of all lanes into a new directory."""
        ...

    def restore(self, directory: Path) -> None:
        """Read what `save` wrote; the next chunk gives the same bits."""
        ...

    def export_policy(
        self,
        lane: int,
        resolved: Resolved,
        directory: Path,
        about: Mapping[str, Any] = {},
    ) -> None:
        """Write one lane's policy (with normaliser and resolved configuration).

        Args:
            lane: whose.
            resolved: the configuration that it was trained with.
            directory: a new folder.
            about: where it comes from, to be kept with it; plain JSON values.
        """
        ...


class PopulationFactory(Protocol):
    """Makes the population of a bucket, and says beforehand what it will be.

    Attributes:
        backend: `cpu`, `gpu`, ...; other backends give other bits.
        device_count: devices that lanes are spread over.
    """

    @property
    def backend(self) -> str:
        """What populations run on."""
        ...

    @property
    def device_count(self) -> int:
        """How many devices lanes are spread over."""
        ...

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """Return a complete configuration, ready for the lanes of this factory; no compile.

        Args:
            config: as `Study.complete` gives it.

        Raises:
            ConfigError: no program can run it.
        """
        ...

    def make(self, resolved: Resolved, lanes: int | None) -> Population:
        """Make the population of this configuration's bucket; None leaves lanes to the rule."""
        ...

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """Evaluate a rule that learns nothing as replicates are evaluated.

        Args:
            name: one of `Study.baselines`.
            resolved: whose evaluation environment it serves.
            seeds: stream and replicate of each evaluation.
        """
        ...


@dataclass(frozen=True)
class Division:
    """How the lanes of a population are divided into equal shares.

    Attributes:
        total: lanes of the population, as one process would have them.
        tile: lanes that a device works on at a time.
        unit: lanes that are dealt to a share together, one after the other.
        own: lanes of the program of each share; those that are dealt nothing stay idle.
    """

    total: int
    tile: int
    unit: int
    own: int

    @classmethod
    def of(cls, total: int, shares: int, tile: int, devices: int) -> Division:
        """Divide lanes by whole tiles, by tiles of all devices at once where that comes out even.

        Args:
            total: a multiple of the tile.
            shares: how many.
            tile: lanes that a device works on at a time.
            devices: of each share.

        >>> Division.of(16, 2, 4, 2)
        Division(total=16, tile=4, unit=8, own=8)
        >>> Division.of(4, 2, 2, 2)
        Division(total=4, tile=2, unit=2, own=4)
        """
        block = tile * devices
        unit = tile if total % (shares * block) else block
        units = -(-total // (unit * shares))
        return cls(total, tile, unit, -(-units * unit // block) * block)


class NotWritten:
    """The part of a `Population` that writes single states, where there is none."""

    def save_state(self, state: Any, directory: Path) -> None:
        """See `Population`.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{directory}: {_WHY}")

    def restore_state(self, directory: Path) -> Any:
        """See `Population`.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{directory}: {_WHY}")


class Imagined(NotWritten):
    """The part of a `Population` that compiles and writes, where lanes only stand for others.

    A rehearsal and a replay of a record ask for none of what raises `NotImplementedError`.
    """

    compiles = 0

    def compile(self) -> None:
        """See `Population`; there is nothing to compile."""

    def compile_ahead(self) -> None:
        """See `Population`; there is nothing to compile."""

    def compile_evaluation(self) -> None:
        """See `Population`; there is nothing to compile."""

    def save(self, directory: Path) -> None:
        """See `Population`; there is nothing to write."""
        raise NotImplementedError

    def restore(self, directory: Path) -> None:
        """See `Population`; nothing was written."""
        raise NotImplementedError

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        """See `Population`; there is no policy."""
        raise NotImplementedError


_WHY = "states of these lanes are not written; leave out early_terminate.pause"


_RECENT = 256


class Resolver:
    """Completes the configurations of a study and resolves them, each once while it is in use.

    One that is asked for again is the same object as long as somebody holds it, or it is among
    the latest.

    Args:
        study: whose configurations.
        factory: resolves them.
    """

    def __init__(self, study: Study, factory: PopulationFactory):
        self._study, self._factory = study, factory
        self._default = plain_json(study.space.default())
        self._known: WeakValueDictionary[str, Resolved] = WeakValueDictionary()
        self._recent: deque[Resolved] = deque(maxlen=_RECENT)

    def of(self, params: Mapping[str, Any]) -> Resolved:
        """Return the configuration that some searched values make with what is fixed.

        Args:
            params: active searched knobs, plain JSON values.

        Raises:
            ConfigError: values contradict each other, or no program can run them.
        """
        name = json.dumps(params, sort_keys=True)
        found = self._known.get(name)
        if found is None:
            is_default = params == self._default
            found = self._factory.resolve(
                self._study.default() if is_default else self._study.complete(params)
            )
            self._known[name] = found
        self.touch(found)
        return found

    def touch(self, resolved: Resolved) -> None:
        """Count a configuration among the latest."""
        self._recent.append(resolved)

    def default(self) -> Resolved:
        """Return the default configuration.

        Raises:
            ConfigError: as of `of`.
        """
        return self.of(self._study.space.default())
