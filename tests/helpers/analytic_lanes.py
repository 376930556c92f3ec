"""Lanes that follow a formula instead of training: to test and time a search in milliseconds.

All that the loop sees of a population is there: buckets, quanta, warm-up, divergence,
errors, exact save and restore. The best configuration is `best_rate` with gamma 0.99; as a
second objective `thrift` wants small learning rates.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpo.files.atomic_files import new_folder, read_text, write_text
from hpo.search.cluster.worker_shards import Machine
from hpo.search.lanes.contract import ChunkResult, ChunkRow, EvaluationResult, Refill, Resolved
from hpo.search.lanes.lane_count import Division
from hpo.search.lanes.simulated_lanes import SimulatedLane, SimulatedPopulation
from hpo.search.seeds import generator, uniform
from hpo.store.rows import Stream
from hpo.studies.chunk_sizes import row_ends

_STREAMS = list(Stream)
_TIME_CONSTANT = 20_000  # env steps
_NOISE = 3.0


@dataclass(frozen=True)
class AnalyticFactory:
    """Makes analytic populations; trials with equal `hidden_sizes` share a bucket.

    Attributes:
        seed: of the study.
        lanes: of every bucket.
        quanta: env steps of a chunk, by bucket; 1,000 for those not in it.
        chunk_seconds: how long a chunk pretends to take.
        warmup_chunks: chunks of every replicate that do not train.
        block: lanes that keep the whole pretended machine busy.
        diverges_above: the learning rate above which a lane diverges in its second training chunk.
        best_rate: the learning rate of the best configuration.
        episodes: of one evaluation.
        rows: of a chunk's curve.
    """

    seed: int = 0
    lanes: int = 16
    quanta: Mapping[str, int] = field(default_factory=dict)
    chunk_seconds: float = 0.0
    warmup_chunks: int = 0
    block: int = 2
    diverges_above: float = 0.5
    best_rate: float = 1e-3
    episodes: int = 2
    rows: int = 1
    backend: str = "analytic"
    device_count: int = 1

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`; the payload is the configuration as plain JSON."""
        bucket = "x".join(str(width) for width in config["hidden_sizes"])
        plain = json.loads(json.dumps(config))
        return Resolved(config, bucket, self.quanta.get(bucket, 1_000), plain)

    def notes(self, resolved: Resolved) -> Iterator[str]:
        """Yield nothing: lanes that compute no floats have no tiles."""
        yield from ()

    def make(self, resolved: Resolved, lanes: int | None) -> AnalyticPopulation:
        return AnalyticPopulation(self, resolved.steps_per_chunk, lanes or self.lanes)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """See `PopulationFactory`; what a lane with no skill would return."""
        population = self.make(resolved, self.lanes)
        return [
            population.result_of(SimulatedLane(resolved.payload, stream, replicate))
            for stream, replicate in seeds
        ]


class AnalyticPopulation(SimulatedPopulation):
    """The lanes of one bucket; see `Population`."""

    _compiled = 0

    def __init__(self, factory: AnalyticFactory, quantum: int, lanes: int):
        super().__init__(lanes, factory.block, quantum, factory.warmup_chunks)
        self._factory = factory

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        started = time.perf_counter()
        self.compile()
        diverged = np.zeros(self.lanes, dtype=bool)
        skills, before = np.zeros(self.lanes), np.zeros(self.lanes)
        for index, lane in self._count_chunk(refills, busy).items():
            before[index] = lane.value
            diverged[index] = self.train_chunk(lane)
            skills[index] = lane.value
        left = self._factory.chunk_seconds - (time.perf_counter() - started)
        if left > 0.0:
            time.sleep(min(left, self._factory.chunk_seconds))
        return ChunkResult(
            metrics={"skill": skills, "loss": 1.0 - skills},
            diverged=diverged,
            seconds=time.perf_counter() - started,
            rows=self._parts(before, skills),
        )

    def _parts(self, before: np.ndarray, after: np.ndarray) -> tuple[ChunkRow, ...]:
        found: list[ChunkRow] = []
        for end in row_ends(self.steps_per_chunk, self._factory.rows):
            skills = before + (after - before) * (end / self.steps_per_chunk)
            found.append(ChunkRow(end, {"skill": skills, "loss": 1.0 - skills}))
        return tuple(found)

    def train_chunk(self, lane: SimulatedLane) -> bool:
        """Train one lane for a chunk; return whether it diverged."""
        if lane.chunks <= self.warmup_chunks:
            return False
        share = 1.0 - math.exp(-self.steps_per_chunk / _TIME_CONSTANT)
        noise = uniform(self._factory.seed, f"{lane.stream}", lane.replicate, lane.chunks) - 0.5
        lane.value += (
            share * (_best_skill(lane.payload, self._factory.best_rate) - lane.value)
            + 0.01 * noise
        )
        unstable = lane.payload["learning_rate"] > self._factory.diverges_above
        return unstable and lane.chunks > self.warmup_chunks + 1

    @property
    def compiles(self) -> int:
        return self._compiled

    def compile(self) -> None:
        self._compiled = 1

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """See `Population`; returns are between 0 and 100, each with noise."""
        return [self.result_of(self.lane_at(lane)) for lane in lanes]

    def result_of(self, lane: SimulatedLane) -> EvaluationResult:
        number, count = _STREAMS.index(lane.stream), self._factory.episodes
        rng = generator(self._factory.seed, "evaluate", number, lane.replicate)
        returns = 100.0 * lane.value + _NOISE * rng.standard_normal(count)
        lengths = np.full(count, 10 + lane.chunks, dtype=np.int64)
        thrift = -math.log10(lane.payload["learning_rate"])  # at odds with skill
        metrics = {"skill": np.full(count, lane.value), "thrift": np.full(count, thrift)}
        return EvaluationResult(returns, lengths, metrics)

    def save_state(self, state: Any, directory: Path) -> None:
        write_text(new_folder(directory) / "lane.json", json.dumps(vars(state)))

    def restore_state(self, directory: Path) -> Any:
        return _lane_of(json.loads(read_text(directory / "lane.json")))

    def save(self, directory: Path) -> None:
        text = json.dumps([None if lane is None else vars(lane) for lane in self._state])
        write_text(new_folder(directory) / "lanes.json", text)

    def restore(self, directory: Path) -> None:
        lanes = json.loads(read_text(directory / "lanes.json"))
        self._state = [None if lane is None else _lane_of(lane) for lane in lanes]

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        state = vars(self.lane_at(lane))
        text = json.dumps({**state, "config": resolved.config, "about": dict(about)})
        write_text(new_folder(directory) / "policy.json", text)


def _lane_of(data: dict[str, Any]) -> SimulatedLane:
    return SimulatedLane(**{**data, "stream": Stream(data["stream"])})


def _best_skill(config: Mapping[str, Any], best_rate: float) -> float:
    """Return what a configuration reaches in the end: 1 for the best, falling off around it."""
    away = math.log10(config["learning_rate"] / best_rate) ** 2 / 4.0
    away += math.log10((1.0 - min(config["gamma"], 0.99999)) / 0.01) ** 2 / 8.0
    return math.exp(-away)


def analytic_shares(
    factory: AnalyticFactory, shares: int, neighbours: int, warn: Callable[[str], None]
) -> AnalyticShares:
    """Return what makes shares of the lanes that a factory would make."""
    return AnalyticShares(factory, shares)


@dataclass(frozen=True)
class AnalyticShares:
    """Makes one of several equal shares; see `ShareSource`."""

    factory: AnalyticFactory
    shares: int

    @property
    def machine(self) -> Machine:
        return Machine(self.factory.backend, self.factory.device_count, {})

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        return self.factory.resolve(config)

    def check(self, resolved: Resolved) -> None:
        """See `ShareSource`; every configuration can run."""

    def divide(self, resolved: Resolved, lanes: int | None) -> Division:
        """See `ShareSource`; a block is as many devices of one lane."""
        return Division.of(lanes or self.factory.lanes, self.shares, 1, self.factory.block)

    def make(self, resolved: Resolved, division: Division) -> AnalyticPopulation:
        return self.factory.make(resolved, division.own)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        return self.factory.baseline(name, resolved, seeds)
