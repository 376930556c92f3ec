"""Lanes that replay recorded runs; see `PopulationFactory` and `Population`."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...store.rows import Stream
from ...studies.spec import Study
from ..lanes.contract import ChunkResult, EvaluationResult, Refill, Resolved
from ..lanes.simulated_lanes import SimulatedPopulation
from ..samplers.proposal_queue import Proposal, Proposals, Proposer, SeenConfigurations
from ..samplers.registry import ProposalBatch, Sampler
from .tables import BenchTable

_PREFIX = "eval/"
_RECENT = "episode_return_100"


@dataclass(frozen=True)
class SeedPlan:
    """The table columns for each kind of seed; no column is used for more than one kind."""

    search: tuple[int, ...]
    choose: tuple[int, ...]  # repeated if the study has more selection seeds
    test: tuple[int, ...]  # not used for selection; repeated if the study has more test seeds
    left: tuple[int, ...] = ()  # columns that the method did not need, so not used for selection

    def column(self, stream: Stream, replicate: int) -> int:
        kinds = {Stream.SEARCH: self.search, Stream.CHOOSE: self.choose, Stream.REPORT: self.test}
        columns = kinds[stream]
        return columns[replicate % len(columns)]


def plan_seeds(study: Study, order: Sequence[int], tests: int) -> SeedPlan:
    """Divide the columns: `tests` of them are test seeds, the others search and selection seeds.

    Methods that get the same order are tested on the same columns.

    Raises:
        ConfigError: there are too few columns.

    >>> from hpo.studies import loads
    >>> study = loads("{env: CartPole-v1, env_steps: 100k, seeds: {per_config: 3}, confirm: {}}")
    >>> plan_seeds(study, range(10), 2)
    SeedPlan(search=(2, 3, 4), choose=(5, 6, 7, 8, 9), test=(0, 1), left=())
    """
    left, own = tuple(order[tests:]), study.seeds.per_config
    chooses, further = 0, ""
    if study.confirm is not None:
        chooses = study.confirm.choose
    if own + (chooses > 0) > len(left):
        if chooses:
            further = ", and confirm needs at least one more"
        raise ConfigError(
            f"seeds.per_config is {own}{further}, but only {len(left)} of {len(order)} recorded "
            "seeds are not test seeds; lower seeds.per_config or bench.test_seeds"
        )
    search, choose, left = left[:own], left[own : own + chooses], left[own + chooses :]
    return SeedPlan(search, choose, tuple(order[:tests]), left)


@dataclass
class TableFactory:
    """Creates populations that replay a table; see `PopulationFactory`.

    A configuration that is not in the table is replaced by the nearest one that is. A
    `TableProposer` proposes only recorded configurations.
    """

    table: BenchTable
    seeds: SeedPlan
    lanes: int = 12
    # configuration -> the row that replaces it, and its distance from the proposal
    played: dict[Hashable, tuple[int, float]] = field(
        default_factory=dict[Hashable, tuple[int, float]], init=False
    )
    backend: str = field(default="none", init=False)
    device_count: int = field(default=1, init=False)

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`; the payload is a row of the table."""
        space = self.table.space
        params = space.resolve(lambda _, parameter: config[parameter.name])
        row, _ = self.find(params)
        return Resolved(config, "table", int(self.table.points[0]), row)

    def find(self, params: Mapping[str, Any]) -> tuple[int, float]:
        """Return the row that replaces a configuration, and its distance from the proposal."""
        name = self.table.space.canonical(params)
        if name not in self.played:
            self.played[name] = self.table.find(params)
        return self.played[name]

    def make(self, resolved: Resolved, lanes: int | None) -> TablePopulation:
        return TablePopulation(self, lanes or self.lanes)

    def baseline(self, name: str, resolved: Resolved, seeds: Sequence[Any]) -> Any:
        raise ConfigError(f"the table of {self.table.name} has no heuristics; remove baselines")


class TableProposer(Proposer):
    """Replaces each proposal by the nearest recorded configuration not proposed so far.

    Proposals with attributes, such as an evolutionary sampler's, are not replaced, because
    attributes belong to the exact configuration.
    """

    def __init__(self, study: Study, sampler: Sampler, factory: TableFactory):
        super().__init__(study, sampler)
        self._factory = factory

    def _propose_one(
        self, trial: int, batch: ProposalBatch, proposed: SeenConfigurations, result: Proposals
    ) -> Proposal | None:
        found, table = super()._propose_one(trial, batch, proposed, result), self._factory.table
        if found is None or found.attributes:
            return found
        row, away = table.find(found.params, proposed)
        if away == math.inf:  # every row has been proposed
            return None
        params = dict(table.params[row])
        self._factory.played[table.space.canonical(params)] = row, away
        return replace(found, params=params)


class TablePopulation(SimulatedPopulation):
    """Lanes whose payload is a table row; each training chunk is one point of the table."""

    def __init__(self, factory: TableFactory, lanes: int):
        super().__init__(lanes, 1, int(factory.table.points[0]), 0)
        self._table, self._seeds = factory.table, factory.seeds

    def _cell_index(self, index: int) -> tuple[int, int, int]:
        lane = self.lane_at(index)
        return lane.payload, self._seeds.column(lane.stream, lane.replicate), lane.chunks - 1

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        busy = list(self._count_chunk(refills, busy))
        cells = tuple(np.array([self._cell_index(index) for index in busy], np.intp).T)
        diverged = np.zeros(self.lanes, bool)
        diverged[busy] = np.isnan(self._table.values[cells])
        metrics: dict[str, np.ndarray] = {}
        for name, values in self._table.curves.items():
            metrics[name] = np.full(self.lanes, np.nan)
            metrics[name][busy] = values[cells]
        recent = metrics.pop(_RECENT, np.full(self.lanes, np.nan))
        known = np.isfinite(recent)  # a mean of 100 episodes, like the engine's rolling mean
        metrics["episodes"] = np.where(known, 100.0, 0.0)
        metrics["episode_return"] = np.where(known, recent, 0.0)
        metrics["episode_length"] = np.zeros(self.lanes)
        return ChunkResult(metrics, diverged, 0.0)

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """See `Population`; returns one episode, with the recorded mean over episodes."""
        found: list[EvaluationResult] = []
        for index in lanes:
            value = np.array([self._table.values[self._cell_index(index)]])
            returns, metrics = value, {}
            if "return_" not in self._table.metric:
                returns = np.full(1, np.nan)
                metrics = {self._table.metric.removeprefix(_PREFIX): value}
            found.append(EvaluationResult(returns, np.zeros(1, np.int64), metrics))
        return found
