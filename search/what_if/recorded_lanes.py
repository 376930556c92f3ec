"""Lanes that show what was recorded instead of training: the engine's own decisions over them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...store.rows import Stream, TrialState
from ...studies.spec import Study
from ..lanes.contract import Change, ChunkResult, EvaluationResult, Refill, Resolved
from ..lanes.not_written import Imagined
from .guesses import Guesses
from .record import LOST, Record, Seen, config_key

__all__ = ["RecordedFactory"]


class RecordedFactory:
    """Makes populations that play a record; see `PopulationFactory`.

    Args:
        record: what is played; a configuration that is not in it is refused.
        study: as it is asked for now, which says how long chunks are.
        guesses: for what was not seen.
        counts: let a trial that was lost end where all its replicates together have trained as
            much as was recorded, whoever of them it was.

    Attributes:
        used: evaluations played, by how they are known.
        ends: with `counts`, trial that was lost -> replicate -> env steps that it had trained.
    """

    backend = "none"

    def __init__(self, record: Record, study: Study, guesses: Guesses, counts: bool = False):
        self.record, self.study, self.guesses = record, study, guesses
        self.device_count, self.used = record.devices, Counter[str]()
        self.counts, self.trained = counts, Counter[int]()
        self.ends: dict[int, dict[int, int]] = defaultdict(dict)

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`; the payload is the number of the trial."""
        trial = self.record.by_config[config_key(config)]
        row = self.record.trials[trial]
        if not row.bucket and row.state is TrialState.FAILED:
            raise ConfigError(row.error)
        return Resolved(config, row.bucket, self.record.quantum(self.study, config), trial)

    def make(self, resolved: Resolved, lanes: int | None) -> RecordedPopulation:
        """See `PopulationFactory`; as many lanes as there were at first."""
        known = {**self.record.lanes, **self.record.offered}
        wanted = lanes or known.get(resolved.bucket, max(known.values(), default=1))
        return RecordedPopulation(self, resolved.steps_per_chunk, wanted)

    def count(self, trial: int, replicate: int, env_steps: int, now: int) -> None:
        """Count a chunk of training of a replicate, which has trained `now` env steps.

        Of several environments on each of them.
        """
        self.trained[trial] += env_steps * self.study.spread
        self.ends[trial][replicate] = now

    def play(self, how: str) -> None:
        """Count an evaluation by how it is known."""
        self.used[how] += 1

    def baseline(self, name: str, resolved: Resolved, seeds: Sequence[Any]) -> Any:
        """See `PopulationFactory`; a replay has none."""
        raise NotImplementedError


@dataclass
class _Lane:
    trial: int
    stream: Stream
    replicate: int
    chunks: int = 0

    def step(self) -> None:
        """Run a chunk."""
        self.chunks += 1


class RecordedPopulation(Imagined):
    """The lanes of one bucket; see `Population`."""

    def __init__(self, factory: RecordedFactory, quantum: int, lanes: int):
        self._factory, self._record = factory, factory.record
        self.lanes, self.steps_per_chunk = lanes, quantum
        self.warmup_chunks, self.block = factory.record.warmup_chunks, factory.device_count
        self._state: list[_Lane | None] = [None] * lanes

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """See `Population`."""
        for refill in refills:
            trial = refill.resolved.payload
            self._state[refill.lane] = _Lane(trial, refill.stream, refill.replicate)
        diverged, failed = np.zeros(self.lanes, bool), dict[int, str]()
        lanes = {index: self._lane(index) for index in busy}
        for lane in lanes.values():
            lane.step()
            if lane.chunks > self.warmup_chunks:
                at = self._env_steps(lane)
                self._factory.count(lane.trial, lane.replicate, self.steps_per_chunk, at)
        for index, lane in lanes.items():
            if self._is_lost(lane):
                diverged[index] = True
                row = self._record.trials[lane.trial]
                if row.state is TrialState.FAILED:
                    failed[index] = row.error
        return ChunkResult({}, diverged, 0.0, failed)

    def _is_lost(self, lane: _Lane) -> bool:
        row = self._record.trials[lane.trial]
        if self._factory.counts and row.state in LOST:
            return self._factory.trained[lane.trial] >= row.env_steps
        lost_at = self._record.runs.get((lane.trial, lane.replicate), Seen()).lost_at
        return lost_at is not None and self._env_steps(lane) >= lost_at

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """See `Population`."""
        found: list[EvaluationResult] = []
        for index in lanes:
            lane = self._lane(index)
            at = self._env_steps(lane)
            result, how = self._factory.guesses.at(lane.trial, lane.replicate, at)
            self._factory.play(how)
            found.append(result)
        return found

    def _lane(self, index: int) -> _Lane:
        lane = self._state[index]
        if lane is None:
            raise ValueError(f"lane {index} is empty")
        return lane

    def _env_steps(self, lane: _Lane) -> int:
        return max(0, lane.chunks - self.warmup_chunks) * self.steps_per_chunk

    def take(self, lanes: Sequence[int]) -> list[Any]:
        """See `Population`."""
        return [replace(self._lane(index)) for index in lanes]

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        """See `Population`."""
        for lane, (state, _) in states.items():
            self._state[lane] = replace(state)

    def change(self, changes: Sequence[Change]) -> None:
        """See `Population`; a replay changes nothing."""
        raise NotImplementedError
