"""The next trials: the default, enqueued and portfolio configurations, then the sampler's.

Configurations that a rule forbids, or that were proposed before, are drawn again, because a
repeated configuration would give bitwise the same run. Proposals do not depend on timing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from ...spaces.space import DRAWS
from ...store.codec import plain_json
from ...studies.portfolio import places_of
from ...studies.search_methods import method_row
from ...studies.spec import Study
from ..seeds import generator, uniform
from .registry import Draw, PriorTrial, ProposalBatch, Sampler


@dataclass(frozen=True)
class Proposal:
    """One configuration to try; its fields have the same meaning as in `Trial`."""

    trial: int
    params: dict[str, Any]
    proposed_by: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Proposals:
    # fewer than requested if nothing new is left
    found: list[Proposal] = field(default_factory=list)
    draws: int = 0  # number of configurations drawn to get them
    refused: int = 0  # how many of those a rule rejected


class Proposer:
    def __init__(self, study: Study, sampler: Sampler):
        self._study, self._sampler = study, sampler
        self._learns_from_results = method_row(study.search.method).learns_from_results
        self._first = [
            ("default", study.space.default()),
            *(("enqueue", study.space.complete(entry)) for entry in study.enqueue),
            *(("portfolio", placed.params) for placed in places_of(study).used),
        ]
        self._configurations: set[Hashable] = set()  # configurations in the histories so far
        self._known: set[int] = set()  # the trials of these configurations
        self._earlier = 0  # number of trials from earlier studies among them
        self._is_finite = all(
            parameter.distribution.axis.kind != "real" for parameter in study.space.parameters
        )

    def propose(
        self, batch: int, trials: Sequence[int], history: Sequence[PriorTrial]
    ) -> Proposals:
        open_batch = self._sampler.begin(batch, history)
        proposed = SeenConfigurations(self._read_history(history))
        result = Proposals()
        for trial in trials:
            proposal = self._propose_one(trial, open_batch, proposed, result)
            if proposal is None:
                break
            open_batch.keep(trial, proposal.params)
            proposed.add(self._study.space.canonical(proposal.params))
            result.found.append(proposal)
        return result

    def _propose_one(
        self, trial: int, batch: ProposalBatch, proposed: SeenConfigurations, result: Proposals
    ) -> Proposal | None:
        if trial < len(self._first):
            source, params = self._first[trial]
            return Proposal(trial, plain_json(params), source)
        search, space, seed = self._study.search, self._study.space, self._study.seed
        drawn = (batch.draw(trial, attempt) for attempt in range(DRAWS))
        random = (
            Draw(space.draw(generator(seed, "random", trial, attempt))) for attempt in range(DRAWS)
        )
        sources: list[tuple[str, Iterator[Draw | None]]] = [("random", random)]
        is_random = uniform(seed, "random_share", trial) < search.random_share
        if not (is_random and self._learns_from_results):
            sources.insert(0, (search.method, drawn))
        if self._is_finite:  # last resort: try every possible configuration
            sources.append(("random", (Draw(params) for params in space.grid(points=2**31))))
        for source, draws in sources:
            for draw in draws:
                if draw is None:
                    return None
                result.draws += 1
                if space.forbidden(draw.params) is not None:
                    result.refused += 1
                elif space.canonical(draw.params) not in proposed:
                    params, attributes = plain_json(draw.params), plain_json(draw.attributes)
                    return Proposal(trial, params, source, attributes)
        return None

    def _read_history(self, history: Sequence[PriorTrial]) -> set[Hashable]:
        """Return the configurations in a history; only new trials are read."""
        new = [*takewhile(self._is_new, reversed(history))]
        # not the history that grew
        if self._earlier + len(self._known) + len(new) != len(history):
            self._configurations, self._known = set(), set()
            new = [past for past in history if past.trial >= 0]
            self._earlier = len(history) - len(new)
        for past in new:
            self._known.add(past.trial)
            self._configurations.add(self._study.space.canonical(past.params))
        return self._configurations

    def _is_new(self, past: PriorTrial) -> bool:
        return past.trial >= 0 and past.trial not in self._known


@dataclass
class SeenConfigurations:
    """Configurations that are not proposed again: those in the history and the current batch."""

    before: set[Hashable]
    here: set[Hashable] = field(default_factory=set[Hashable])

    def add(self, configuration: Hashable) -> None:
        self.here.add(configuration)

    def __contains__(self, configuration: Hashable) -> bool:
        return configuration in self.before or configuration in self.here


class AskAhead:
    """Draws one batch at a time in a separate thread."""

    def __init__(self, proposer: Proposer):
        self._proposer = proposer
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ask")
        self._future: Future[Proposals] | None = None

    def start(self, batch: int, trials: Sequence[int], history: Sequence[PriorTrial]) -> None:
        """Start drawing a batch; `join` must have returned the previous one."""
        if self._future is not None:
            raise RuntimeError("a batch is already being drawn")
        self._future = self._threads.submit(
            self._proposer.propose, batch, tuple(trials), tuple(history)
        )

    def join(self) -> Proposals:
        """Wait for the batch and return it; the sampler's errors are raised here."""
        if self._future is None:
            raise RuntimeError("no batch is being drawn")
        future, self._future = self._future, None
        return future.result()

    def ask(self, batch: int, trials: Sequence[int], history: Sequence[PriorTrial]) -> Proposals:
        return self._proposer.propose(batch, trials, history)

    def close(self) -> None:
        """Wait for the thread; an unfinished batch is lost, and drawn again on resuming."""
        self._threads.shutdown(wait=True, cancel_futures=True)
