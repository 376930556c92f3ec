"""A search run again over its record: the real engine, with another rule or fewer seeds.

Trials are asked for in the recorded order. Where a method learns from nothing (random, grid,
sobol) these are the trials that the study with that rule asks for, in that order, and the replay
is what that study does; where it learns, the verdicts hold for the trials that were asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...store.rows import DecisionRow, TrialState
from ...studies.spec import Checkpoint, Executor, Study
from ..engine.engine import engine_in_memory
from ..engine.interrupts import Interrupts
from ..engine.loop import Loop
from ..engine.refill import Intake
from ..lanes.contract import (
    ChunkResult,
    EvaluationResult,
    Refill,
    Resolved,
    SimulatedLane,
    SimulatedPopulation,
)
from ..rules.registry import make_pruner
from ..samplers.proposal_queue import AskAhead, Proposal, Proposals, Proposer
from ..state.loop_state import Phase
from ..state.search_state import Ledger
from ..state.trials import Trial
from .recorded_curves import LOST, Guesses, Record, config_key


class RecordedFactory:
    """Makes populations that play a record; see `PopulationFactory`.

    With `counts` a trial that was lost ends where all its replicates together have trained as much
    as was recorded, whichever of them was lost.
    """

    backend = "none"

    def __init__(self, record: Record, study: Study, guesses: Guesses, counts: bool = False):
        self.record, self.study, self.guesses = record, study, guesses
        self.device_count = record.devices
        self.used = Counter[str]()  # evaluations, by how they are known
        self.counts, self.trained = counts, Counter[int]()
        # with `counts`, trial that was lost -> replicate -> env steps that it had trained
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

    def baseline(self, name: str, resolved: Resolved, seeds: Sequence[Any]) -> Any:
        raise NotImplementedError


class RecordedPopulation(SimulatedPopulation):
    """The lanes of one bucket; the payload of each is the number of its trial."""

    def __init__(self, factory: RecordedFactory, quantum: int, lanes: int):
        warmup = factory.record.warmup_chunks
        super().__init__(lanes, factory.device_count, quantum, warmup)
        self._factory, self._record = factory, factory.record

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        diverged, failed = np.zeros(self.lanes, bool), dict[int, str]()
        lanes = self._count_chunk(refills, busy)
        for lane in lanes.values():
            if lane.chunks > self.warmup_chunks:
                self._factory.trained[lane.payload] += (
                    self.steps_per_chunk * self._factory.study.spread
                )
                self._factory.ends[lane.payload][lane.replicate] = self._env_steps(lane)
        for index, lane in lanes.items():
            if self._is_lost(lane):
                diverged[index] = True
                row = self._record.trials[lane.payload]
                if row.state is TrialState.FAILED:
                    failed[index] = row.error
        return ChunkResult({}, diverged, 0.0, failed)

    def _is_lost(self, lane: SimulatedLane) -> bool:
        row = self._record.trials[lane.payload]
        if self._factory.counts and row.state in LOST:
            return self._factory.trained[lane.payload] >= row.env_steps
        lost_at = self._record.seen(lane.payload, lane.replicate).lost_at
        return lost_at is not None and self._env_steps(lane) >= lost_at

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        found: list[EvaluationResult] = []
        for index in lanes:
            lane = self._lane(index)
            at = self._env_steps(lane)
            result, how = self._factory.guesses.at(lane.payload, lane.replicate, at)
            self._factory.used[how] += 1
            found.append(result)
        return found

    def _env_steps(self, lane: SimulatedLane) -> int:
        return max(0, lane.chunks - self.warmup_chunks) * self.steps_per_chunk


@dataclass(frozen=True)
class Replayed:
    trials: Mapping[int, Trial]  # by number, ended
    decisions: Sequence[DecisionRow]  # all judgements, in order
    # batch -> trials proposed and trials told
    asks: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]
    env_steps: int  # of training
    # the best of those that ran to their end, None without one or with several objectives or
    # constraints, where there is no one value to lose
    winner: int | None
    guessed: int  # evaluations that were drawn, or interpolated
    between: int
    exhausted: bool  # it would have asked for trials that the record does not have

    @property
    def stopped(self) -> list[int]:
        return [
            number
            for number, trial in self.trials.items()
            if trial.stop_rule and not trial.audited
        ]

    def end_of(self, trial: int) -> int | None:
        """Return the env steps at which a rule ended a trial with its value, else None."""
        ends = [row.env_steps for row in self.decisions
                if row.trial == trial and row.action == "finish"]  # fmt: skip
        return ends[0] if ends else None


def replay(record: Record, study: Study, guesses: Guesses) -> Replayed:
    study = _searching(study)
    factory = RecordedFactory(record, study, guesses)
    ledger = _search(record, study, factory)
    finished = [
        trial
        for trial in ledger.trials.values()
        if trial.state is TrialState.FINISHED and trial.value is not None
    ]
    plain = ledger.objectives.is_plain
    total = study.budget.trials
    return Replayed(
        ledger.trials,
        tuple(ledger.unwritten.decisions),
        {ask.batch: (ask.trials, ask.told) for ask in ledger.unwritten.asks},
        ledger.state.usage.env_steps,
        ledger.best(finished).number if finished and plain else None,
        factory.used["guessed"],
        factory.used["between"],
        ledger.state.exhausted
        and not record.exhausted
        and (total is None or len(ledger.trials) < total),
    )


def _search(record: Record, study: Study, factory: RecordedFactory) -> Ledger:
    engine = engine_in_memory(study, factory, rows=True)
    state = engine.ledger.state
    with closing(AskAhead(_Asks(record))) as ahead:
        loop = Loop(engine, Intake(engine, ahead), make_pruner(study))
        loop.run(Interrupts(asked=lambda: state.phase is not Phase.SEARCH))
    return engine.ledger


def located(record: Record) -> Record:
    """Return the record with the replicates that trials were lost by, as the search had them.

    A trial that diverged records how much its replicates trained together; which of them had
    started when follows from the recorded rule's search, run again.
    """
    lost = [row for row in record.trials if row.state in LOST and row.env_steps]
    if not lost or record.study.seeds.tolerate or not record.last_rows:
        return record
    study = _searching(record.study)
    factory = RecordedFactory(record, study, Guesses(record, 0), counts=True)
    _search(record, study, factory)
    runs = dict(record.runs)
    for row in lost:
        ends = factory.ends[row.trial]
        if sum(ends.values()) * record.study.spread != row.env_steps:  # another order
            continue
        bare = {rep: at for rep, at in ends.items()
                if record.last_rows.get((row.trial, rep), 0) < at}  # fmt: skip
        if not bare:  # what an evaluation showed was not finite
            bare = {rep: at for rep, at in ends.items()
                    if at not in record.seen(row.trial, rep).results}  # fmt: skip
        for rep in range(record.replicates):
            seen = record.seen(row.trial, rep)
            runs[row.trial, rep] = replace(seen, lost_at=bare.get(rep))
    return replace(record, runs=runs)


def matches(record: Record, found: Replayed) -> tuple[int, int]:
    """Return how many recorded judgements and batches came out the same, and how many there are.

    A batch has the order in which the sampler got results, so a study without a rule has an order
    to compare as well.
    """
    now = {(row.trial, row.rung): _told(row) for row in found.decisions}
    same = sum(now.get((row.trial, row.rung)) == _told(row) for row in record.decisions)
    same += sum(found.asks.get(ask.batch) == (ask.trials, ask.told) for ask in record.asks)
    return same, len(record.decisions) + len(record.asks)


def trained_as_recorded(record: Record, found: Replayed) -> bool:
    """Return whether every trial that had ended trained as many env steps as is recorded."""
    return all(
        found.trials[row.trial].env_steps == row.env_steps
        for row in record.trials
        if row.ended_at is not None and row.trial in found.trials
    )


def _told(row: DecisionRow) -> tuple[object, ...]:
    return row.action, row.env_steps, row.value, row.cutoff, row.rank, row.judged


def _searching(study: Study) -> Study:
    """Return the study without what changes nothing in its search, or is measured in seconds."""
    return replace(
        study,
        search=replace(study.search, driver="lanes"),
        budget=replace(study.budget, wall_seconds=None),
        checkpoint=Checkpoint(keep_best=0),
        executor=Executor(),
        loggers=(),
        baselines=(),
        log_every=None,
    )


class _Asks(Proposer):
    """Proposes the recorded trials in their order."""

    def __init__(self, record: Record):
        self._record = record

    def propose(self, batch: int, trials: Sequence[int], history: Sequence[object]) -> Proposals:
        rows = self._record.trials
        known = [number for number in trials if number < len(rows)]
        return Proposals([Proposal(n, dict(rows[n].params), rows[n].proposed_by) for n in known])
