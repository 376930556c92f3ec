"""A search over a record: the engine runs, and its lanes read recorded values instead of training.

Trials are proposed in the recorded order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...store.codec import plain_json
from ...store.rows import LOST, DecisionRow, TrialRow, TrialState
from ...studies.execution_spec import Checkpoint, Executor
from ...studies.spec import Study
from ..engine.engine import engine_in_memory
from ..engine.interrupts import Interrupts
from ..engine.loop import Loop
from ..engine.refill import RefillQueue
from ..lanes.contract import ChunkResult, EvaluationResult, Refill, Resolved
from ..lanes.simulated_lanes import SimulatedPopulation
from ..rules.registry import make_pruner
from ..samplers.proposal_queue import AskAhead, Proposal, Proposals, Proposer
from ..state.loop_state import Phase
from ..state.search_state import SearchState
from .record import RecordedSearch


class RecordedFactory:
    """Creates populations that replay a record; see `PopulationFactory`."""

    backend = "none"

    def __init__(self, record: RecordedSearch, study: Study):
        self.record, self.study, self.device_count = record, study, record.devices
        self.shown, self.trained = Counter[str](), Counter[int]()
        self.first = record.first_point  # used for runs without an evaluation
        each = reversed([*enumerate(record.configs)])
        self._by_config = {_configuration_key(config): trial for trial, config in each}
        buckets = record.state.buckets
        self._lanes = {one.key: one.offered or one.lanes for one in buckets}
        self.warmup = max(
            -(
                -row.warmup_env_steps
                // (record.quantum(study, config) * study.spread * max(1, record.seeds))
            )
            for row, config in zip(record.trials, record.configs, strict=True)
        )

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`; the payload is the number of the trial."""
        trial = self._by_config[_configuration_key(config)]
        row = self.record.trials[trial]
        if not row.bucket and row.state is TrialState.FAILED:
            raise ConfigError(row.error)
        return Resolved(config, row.bucket, self.record.quantum(self.study, config), trial)

    def make(self, resolved: Resolved, lanes: int | None) -> RecordedPopulation:
        known = self._lanes.get(resolved.bucket) or max(self._lanes.values(), default=1)
        return RecordedPopulation(self, resolved.steps_per_chunk, lanes or known)

    def baseline(self, name: str, resolved: Resolved, seeds: Sequence[Any]) -> Any:
        raise NotImplementedError


def _configuration_key(config: Mapping[str, Any]) -> str:
    return json.dumps(plain_json(dict(config)), sort_keys=True)


class RecordedPopulation(SimulatedPopulation):
    """Lanes that replay a record; a diverged trial diverges after the same amount of training."""

    def __init__(self, factory: RecordedFactory, quantum: int, lanes: int):
        super().__init__(lanes, factory.device_count, quantum, factory.warmup)
        self._factory, self._record = factory, factory.record

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        diverged, failed = np.zeros(self.lanes, bool), dict[int, str]()
        lanes = self._count_chunk(refills, busy)
        steps, trained = self.steps_per_chunk, self._factory.trained
        for lane in lanes.values():
            if lane.chunks > self.warmup_chunks:
                trained[lane.payload] += steps * self._factory.study.spread
        share = self._factory.study.seeds.first / self._record.seeds
        for index, lane in lanes.items():
            row = self._record.trials[lane.payload]
            over = row.state in LOST and trained[row.trial] >= share * row.env_steps
            # otherwise its seeds may wait for their first evaluation
            ended = row.ended_at is not None
            bare = ended and (row.trial, lane.replicate) not in self._record.results
            diverged[index] = over or (bare and self._env_steps(index) >= self._factory.first)
            if diverged[index] and row.state is TrialState.FAILED:
                failed[index] = row.error
        return ChunkResult({}, diverged, 0.0, failed)

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        found: list[EvaluationResult] = []
        for index in lanes:
            lane = self.lane_at(index)
            result, how = self._record.at(lane.payload, lane.replicate, self._env_steps(index))
            self._factory.shown[how] += 1
            found.append(result)
        return found

    def _env_steps(self, index: int) -> int:
        return max(0, self.lane_at(index).chunks - self.warmup_chunks) * self.steps_per_chunk


class _Asks(Proposer):
    """Proposes the recorded trials in order."""

    def __init__(self, rows: Sequence[TrialRow]):
        self._rows = rows

    def propose(self, batch: int, trials: Sequence[int], history: Sequence[object]) -> Proposals:
        known = [self._rows[number] for number in trials if number < len(self._rows)]
        return Proposals([Proposal(row.trial, dict(row.params), row.proposed_by) for row in known])


@dataclass(frozen=True)
class Replayed:
    search_state: SearchState  # its trials have ended, and no row of it was written
    winner: int | None  # None without one, or with several objectives or constraints
    shown: Mapping[str, int]  # source of evaluations -> their number

    @property
    def decisions(self) -> Sequence[DecisionRow]:
        return self.search_state.unwritten.decisions

    @property
    def env_steps(self) -> int:
        return self.search_state.state.usage.env_steps

    def end_of(self, trial: int) -> int | None:
        """Return the env steps at which a rule finished a trial early with its value, or None."""
        ends = (row for row in self.decisions if row.trial == trial and row.action == "finish")
        return next((row.env_steps for row in ends), None)


def replay(record: RecordedSearch, study: Study) -> Replayed:
    """Run a study's search over a record, without policies, baselines or a time limit."""
    study = replace(
        study,
        search=replace(study.search, driver="lanes"),
        # lanes of a failed trial end together here, so they count more errors than recorded
        budget=replace(study.budget, wall_seconds=None, max_failures=10**9),
        checkpoint=Checkpoint(keep_best=0),
        executor=Executor(),
        loggers=(),
        baselines=(),
        log_every=None,
    )
    factory = RecordedFactory(record, study)
    engine = engine_in_memory(study, factory, rows=True)
    search_state = engine.search_state
    with closing(AskAhead(_Asks(record.trials))) as ahead:
        loop = Loop(engine, RefillQueue(engine, ahead), make_pruner(study))
        loop.run(Interrupts(asked=lambda: search_state.state.phase is not Phase.SEARCH))
    finished = [
        trial
        for trial in search_state.trials.values()
        if trial.state is TrialState.FINISHED and trial.value is not None
    ]
    winner = None
    if finished and search_state.objectives.is_plain:
        winner = search_state.best(finished).number
    return Replayed(search_state, winner, factory.shown)


def matches(record: RecordedSearch, found: Replayed) -> tuple[int, int]:
    """Return how many recorded judgements and batches were reproduced, and how many there are."""
    judged = attrgetter("action", "env_steps", "value", "cutoff", "rank", "judged")
    now = {(row.trial, row.rung): judged(row) for row in found.decisions}
    asks = {ask.batch: (ask.trials, ask.told) for ask in found.search_state.unwritten.asks}
    same = sum(now.get((row.trial, row.rung)) == judged(row) for row in record.decisions)
    same += sum(asks.get(ask.batch) == (ask.trials, ask.told) for ask in record.asks)
    return same, len(record.decisions) + len(record.asks)
