"""A search run again over its record: the real engine, with another rule or fewer seeds.

Trials are asked for in the recorded order. Where a method learns from nothing (random, grid,
sobol) these are the trials that the study with that rule asks for, in that order, and the replay
is what that study does; where it learns, the verdicts hold for the trials that were asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...store.rows import DecisionRow, TrialState
from ...studies.spec import Checkpoint, Executor, Study
from ..book.ledger import Ledger
from ..book.state import Phase
from ..book.trials import Trial
from ..engine.in_memory import engine_in_memory
from ..engine.intake import Intake
from ..engine.interrupts import Interrupts
from ..engine.loop import Loop
from ..rules.registry import make_pruner
from ..samplers.ask_ahead import AskAhead
from ..samplers.proposer import Proposal, Proposals
from .guesses import Guesses
from .record import LOST, Record, Seen
from .recorded_lanes import RecordedFactory

__all__ = ["Replayed", "located", "matches", "replay"]


@dataclass(frozen=True)
class Replayed:
    """What a search did.

    Attributes:
        trials: by number, ended.
        decisions: all judgements, in order.
        asks: batch -> trials proposed and trials told.
        env_steps: of training.
        winner: the best of those that ran to their end, None without one or with several
            objectives or constraints, where there is no one value to lose.
        guessed, between: evaluations that were drawn, or interpolated.
        exhausted: it would have asked for trials that the record does not have.
    """

    trials: Mapping[int, Trial]
    decisions: Sequence[DecisionRow]
    asks: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]
    env_steps: int
    winner: int | None
    guessed: int
    between: int
    exhausted: bool

    @property
    def stopped(self) -> list[int]:
        """The trials that a rule ended before their time."""
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
    """Run a search over a record.

    Args:
        record: of a study.
        study: that study with another rule or other seeds.
        guesses: for what was not seen.

    Raises:
        SearchError: it only fails, as the study would.
        ConfigError: the record does not say what the rule must know.
    """
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
    loop = Loop(engine, Intake(engine, _Asks(record)), make_pruner(study))
    loop.run(_WhileSearching(asked=lambda: state.phase is not Phase.SEARCH))
    return engine.ledger


def located(record: Record) -> Record:
    """Return the record with the replicates that trials were lost by, as the search had them.

    A trial that diverged says how much its replicates trained together; which of them had begun
    when is what the recorded rule's own search says, run once more.
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
        if (
            sum(ends.values()) * record.study.spread != row.env_steps
        ):  # another order: as it was taken to be
            continue
        bare = {rep: at for rep, at in ends.items()
                if record.last_rows.get((row.trial, rep), 0) < at}  # fmt: skip
        if not bare:  # what an evaluation showed was not finite
            bare = {rep: at for rep, at in ends.items()
                    if at not in runs.get((row.trial, rep), Seen()).results}  # fmt: skip
        for rep in range(record.replicates):
            seen = runs.get((row.trial, rep), Seen())
            runs[row.trial, rep] = replace(seen, lost_at=bare.get(rep))
    return replace(record, runs=runs)


def matches(record: Record, found: Replayed) -> tuple[int, int]:
    """Return how many recorded judgements and batches came out the same, and how many there are.

    A batch holds who was told to the sampler in which order, so a study without a rule has an
    order to compare as well.
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


class _WhileSearching(Interrupts):
    """Ends a replay where the search ends."""

    @property
    def requested(self) -> bool:
        """Whether it has."""
        return self._asked()


class _Asks(AskAhead):
    """Gives the recorded trials in their order; see `AskAhead`."""

    def __init__(self, record: Record):
        self._record = record
        self._trials: Sequence[int] = ()

    def start(self, batch: int, trials: Sequence[int], history: Sequence[object]) -> None:
        """Begin a batch."""
        self._trials = trials

    def join(self) -> Proposals:
        """Return the batch begun."""
        return self.ask(0, self._trials, ())

    def ask(self, batch: int, trials: Sequence[int], history: Sequence[object]) -> Proposals:
        """Return those of some trials that were recorded."""
        rows = self._record.trials
        return Proposals(
            [
                Proposal(number, dict(rows[number].params), rows[number].proposed_by)
                for number in trials
                if number < len(rows)
            ]
        )

    def close(self) -> None:
        """Do nothing."""
