"""Rules side by side on one record: what each would have stopped, saved and lost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...store.rows import TrialState
from ...studies.search_methods import METHODS
from ...studies.several_environments import metric_words
from ..state.objective import Objective
from .recorded_curves import (
    LOST,
    Guesses,
    Quantum,
    Record,
    quantum_of,
    read_record,
    up_to_shared_point,
    value_at,
)
from .replay import Replayed, located, matches, replay, trained_as_recorded
from .rules import Asked, asked_rules, is_own

_DRAWS = 10  # of what nobody saw, where a rule asks for it


@dataclass(frozen=True)
class Span:
    """A number and, where it depends on extrapolated values, its range over draws of those."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Span:
        return cls(statistics.median(values), min(values), max(values))

    @property
    def certain(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True)
class WhatIfRow:
    rule: str  # its words
    exact: bool  # a study with this rule did just this; else `why` says what it hangs on
    why: str  # "" if exact
    trials: int  # that began
    stopped: Span  # of these, by the rule, before their time
    env_steps: Span  # of training
    saved: Span  # the share of the env steps of the same trials run to their ends on all seeds
    # the trial that won, that of the first draw; None where none did, and with several objectives
    # or constraints
    winner: int | None = None
    # the share of draws in which it is the best trial of the record over all seeds
    kept: float | None = None
    # the best value of the record less the winner's, both over all recorded seeds; in units of the
    # metric, above 0 where the winner is worse
    lost: Span | None = None
    own: bool = False  # the study ran with this rule


@dataclass(frozen=True)
class WhatIf:
    study: str  # its name
    trials: int  # recorded, and how many seeds each rule was given
    seeds: int
    metric: str  # of the study
    goal: str
    recorded_rule: str  # the type of the rule that it ran with, "" without one
    # a study with another rule asks for the same trials: its method learns from nothing
    same_asks: bool
    method: str  # that proposed
    matched: int  # what came out as recorded when the record's own rule was replayed
    judgements: int
    best: int | None  # the best trial of the record over all seeds, None without one
    unseen: int  # trials that nobody saw to their end, of which drawn ones stand in
    audited: bool  # trials from which is drawn were audited ones
    rows: tuple[WhatIfRow, ...]  # one per rule
    env_steps: int = 0  # of a run, per seed
    # of a run that the study asked for, where no trial finished and `env_steps` is earlier
    asked_env_steps: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def what_if(
    folder: Path,
    rules: Sequence[str] = (),
    seeds: int | None = None,
    quantum: Quantum = quantum_of,
) -> WhatIf:
    """Judge the recorded curves of a study by other rules."""
    record = up_to_shared_point(read_record(folder, quantum))
    asked = asked_rules(folder, record, list(rules), seeds)
    record = located(record)
    own = replay(record, record.study, Guesses(record, 0))
    matched, judgements = matches(record, own)
    truth = _Truth(record)
    learns = (
        record.study.search.method not in METHODS or METHODS[record.study.search.method].learns
    )
    same_asks = not learns and record.study.search.driver == "lanes"
    ordered = "order" if matched < judgements or not trained_as_recorded(record, own) else ""
    ordered = ordered or ("lost" if _guessed_losses(record) else "")

    def inexact(asked: Asked) -> str:
        """Return why a result may differ; only the recorded rule proposes the same in any case."""
        return ordered if same_asks or is_own(record, asked) else "asks"

    early = record.study.early_terminate
    return WhatIf(
        study=record.study.name,
        trials=len(record.trials),
        seeds=asked[0].study.seeds.per_config,
        metric=metric_words(record.study),
        goal=record.study.metric.goal,
        recorded_rule="" if early is None else early.type,
        same_asks=same_asks,
        method=record.study.search.method,
        matched=matched,
        judgements=judgements,
        best=truth.best(0)[0],
        unseen=len(truth.unseen),
        audited=bool(truth.unseen) and any(row.audited for row in record.trials),
        rows=tuple(_row(record, truth, rule, inexact(rule)) for rule in asked),
        env_steps=record.study.env_steps,
        asked_env_steps=record.asked_env_steps,
    )


class _Truth:
    """Every trial's result at its end over all recorded seeds, extrapolated where unseen."""

    def __init__(self, record: Record):
        self._record, self._loss = record, Objective.of(record.study).loss
        self._plain = not record.study.objectives[1:] and not record.study.constraints
        self._draws: dict[int, tuple[Guesses, dict[tuple[int, int], float]]] = {}
        self.unseen = [row.trial for row in record.trials
                       if row.state not in LOST and not record.is_whole(row.trial)
                       and not _is_tolerated(record, row.trial)]  # fmt: skip

    def guesses(self, draw: int) -> Guesses:
        return self._of(draw)[0]

    def _of(self, draw: int) -> tuple[Guesses, dict[tuple[int, int], float]]:
        draw = draw if self.unseen else 0
        if draw not in self._draws:
            self._draws[draw] = (Guesses(self._record, draw), {})
        return self._draws[draw]

    def loss(self, draw: int, trial: int, env_steps: int) -> float:
        """Return a trial's loss over all recorded seeds; infinite if it was lost before."""
        guesses, known = self._of(draw)
        if (trial, env_steps) not in known:
            value = value_at(self._record, guesses, trial, env_steps)
            known[trial, env_steps] = float("inf") if value is None else self._loss(value)
        return known[trial, env_steps]

    def best(self, draw: int) -> tuple[int | None, float]:
        if not self._plain:
            return None, float("nan")
        each = [(self.loss(draw, row.trial, self._record.length(row.trial)), row.trial)
                for row in self._record.trials if row.state is not TrialState.FAILED]  # fmt: skip
        loss, trial = min(each)
        return (trial, loss) if loss < float("inf") else (None, loss)


def _is_tolerated(record: Record, trial: int) -> bool:
    """Return whether the seeds of a trial that were not seen to the end are those it lost."""
    end = record.length(trial)
    each = [record.seen(trial, replicate) for replicate in range(record.replicates)]
    return all(end in seen.results or seen.lost_at is not None for seen in each)


def _guessed_losses(record: Record) -> bool:
    """Return whether it is taken to be, and not recorded, which seed of a trial was lost where.

    Where seeds may be lost, a trial that lost more of them says its env steps together alone.
    """
    lost = any(row.state in LOST and row.env_steps for row in record.trials)
    return lost and record.study.seeds.tolerate > 0 and record.replicates > 1


def _row(record: Record, truth: _Truth, asked: Asked, why: str) -> WhatIfRow:
    first = replay(record, asked.study, truth.guesses(0))
    found = [first]
    if first.guessed:
        found += [replay(record, asked.study, truth.guesses(n)) for n in range(1, _DRAWS)]
    draws = range(_DRAWS if truth.unseen else 1)
    pairs = [(draw, found[draw] if len(found) > 1 else first) for draw in draws]
    lost, kept = list[float](), list[bool]()
    for draw, done in pairs:
        (best, least), winner = truth.best(draw), done.winner
        if winner is not None and best is not None:
            end = done.end_of(winner) or record.length(winner)
            lost.append(truth.loss(draw, winner, end) - least)
            kept.append(winner == best)
    if first.exhausted:
        why = why or "more"
    if first.guessed:
        why = "unseen"
    elif first.between:
        why = why or "between"
    return WhatIfRow(
        rule=asked.words,
        exact=not why,
        why=why,
        trials=sum(bool(trial.env_steps) for trial in first.trials.values()),
        stopped=Span.of([float(len(done.stopped)) for done in found]),
        env_steps=Span.of([float(done.env_steps) for done in found]),
        saved=Span.of([1.0 - done.env_steps / max(1, _whole(record, done)) for done in found]),
        winner=first.winner,
        own=is_own(record, asked),
        kept=sum(kept) / len(kept) if kept else None,
        lost=Span.of(lost) if lost else None,
    )


def _whole(record: Record, done: Replayed) -> int:
    """Return the env steps of the trials that began, run to their ends on all seeds.

    One that diverges takes what it took.
    """
    total = 0
    for number, trial in done.trials.items():
        row = record.trials[number]
        if trial.env_steps and row.state in LOST:
            total += row.env_steps
        elif trial.env_steps:
            length = record.length(number)
            seen = [record.seen(number, rep) for rep in range(record.replicates)]
            each = sum(length if one.lost_at is None else one.lost_at for one in seen)
            total += each * record.study.spread
    return total
