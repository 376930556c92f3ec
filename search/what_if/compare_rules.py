"""Compares a study's rule with others: env steps, stopped trials, and the winner of each replay.

For a method that does not learn (random, grid, sobol), a replay equals a study with that rule. For
a search method that learns, the verdict applies only to the recorded trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import ignore
from ...store.rows import LOST
from ...studies.search_methods import METHODS
from ...studies.study_environments import metric_words
from ..state.objective import Objective
from .record import Quantum, RecordedSearch, quantum_of, read_record
from .replay import Replayed, matches, replay
from .rules import ReplayedRule, asked_rules


@dataclass(frozen=True)
class WhatIfRow:
    rule: str  # the rule as text
    # whether a study with this rule would give the same; otherwise `why` gives the reason
    exact: bool
    why: str  # "" if exact
    trials: int  # number of trials started
    # number of these that the rule stopped early; None if no recorded value decides about any
    stopped: int | None
    env_steps: int  # of training
    # env steps saved, as a share of those of the same trials on all seeds to their ends; None as
    # above
    saved: float | None
    # the winning trial; None if there is none, or with several objectives or constraints
    winner: int | None
    # whether it is the best finished trial of the record; and that trial's value minus the
    # winner's over all recorded seeds, above 0 if the winner is worse, None if not recorded
    kept: bool | None
    lost: float | None
    own: bool  # whether the study ran with this rule


@dataclass(frozen=True)
class WhatIf:
    study: str  # name of the study
    trials: int  # recorded trials, and how many seeds each rule was given
    seeds: int
    most_seeds: int  # seeds of a full run, which `saved` refers to
    metric: str  # the study's metric
    goal: str
    recorded_rule: str  # type of the rule with which it ran, "" without one
    # whether a study with another rule would propose the same trials, because its method does not
    # learn
    same_asks: bool
    method: str  # method that proposed the trials
    matched: int  # number of judgements reproduced by a replay with the record's own rule
    judgements: int
    best: int | None  # the best finished trial of the record; None without one
    env_steps: int  # per run and seed
    asked_env_steps: int | None  # requested env steps per run, if no trial ran that long
    rows: tuple[WhatIfRow, ...]  # one per rule

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def what_if(
    folder: Path,
    rules: Sequence[str] = (),
    seeds: int | None = None,
    *,
    quantum: Quantum = quantum_of,
    source: Path | None = None,
    report: Callable[[int, int, str], None] = ignore,
) -> WhatIf:
    """Apply different rules to a study's recorded curves.

    `source` is the folder of the study file and its other files; by default, the last known
    folder. It is needed only for custom training classes and registered rules. Files run only if
    they are unchanged. `report` is called before each replay with its number, the total, and the
    rule.
    """
    record = read_record(folder, quantum, source)
    study, early = record.study, record.study.early_terminate
    asked = asked_rules(record, rules, seeds)
    total = 1 + len(asked)
    report(1, total, "the study's own rule")
    reference = ReferenceReplay.of(record)
    rows = list[WhatIfRow]()
    for at, rule in enumerate(asked, start=2):
        report(at, total, rule.words)
        rows.append(reference.row(rule))
    return WhatIf(
        study=study.name,
        trials=len(record.trials),
        seeds=seeds or record.seeds,
        most_seeds=study.seeds.per_config,
        metric=metric_words(study),
        goal=study.metric.goal,
        recorded_rule="" if early is None else early.type,
        same_asks=reference.same_asks,
        method=study.search.method,
        matched=reference.matched,
        judgements=reference.judgements,
        best=reference.best,
        env_steps=study.env_steps,
        asked_env_steps=record.shortened,
        rows=tuple(rows),
    )


@dataclass(frozen=True)
class ReferenceReplay:
    """The reference for other rules: the record, and a replay with the recorded rule."""

    record: RecordedSearch
    matched: int  # number of judgements reproduced by a replay with the record's own rule
    judgements: int
    in_order: bool  # whether all of them were, and the lengths of all trials
    same_asks: bool  # whether a study with another rule would propose the same trials
    losses: Mapping[int, float]  # of each trial with a value for its full run

    @classmethod
    def of(cls, record: RecordedSearch) -> ReferenceReplay:
        study, own = record.study, replay(record, record.study)
        matched, judgements = matches(record, own)
        method = METHODS.get(study.search.method)
        knows_nothing = method is not None and not method.learns_from_results
        return cls(
            record,
            matched,
            judgements,
            in_order=matched == judgements and _has_same_lengths(record, own),
            same_asks=knows_nothing and study.search.driver == "lanes",
            losses=_losses_of_full_runs(record),
        )

    @property
    def best(self) -> int | None:
        """The best finished trial of the record; None if there is none."""
        return min(self.losses, key=self.losses.__getitem__, default=None)

    def row(self, rule: ReplayedRule) -> WhatIfRow:
        """Replay the record with a different rule."""
        record, done = self.record, replay(self.record, rule.study)
        why = _why_inexact(record, done, rule, self.same_asks)
        if not why and not self.in_order:
            why = "order"
        trials, lost = done.search_state.trials.values(), self._regret_of_winner(done)
        stopped, saved = None, None
        if _decides_on_records(record, done):
            stopped = sum(bool(trial.stop_rule) and not trial.audited for trial in trials)
            saved = 1.0 - done.env_steps / max(1, _unstopped_env_steps(record, done))
        return WhatIfRow(
            rule=rule.words,
            exact=not why,
            why=why,
            trials=sum(bool(trial.env_steps) for trial in trials),
            stopped=stopped,
            env_steps=done.env_steps,
            saved=saved,
            winner=done.winner,
            kept=None if lost is None else done.winner == self.best,
            lost=lost,
            own=rule.own,
        )

    def _regret_of_winner(self, done: Replayed) -> float | None:
        """Return how much worse the winner is than the best trial; None if unknown."""
        best, winner = self.best, done.winner
        if best is None or winner is None or done.shown["unseen"]:
            return None
        end = done.end_of(winner)
        if end is None and winner in self.losses:
            return self.losses[winner] - self.losses[best]
        if end is not None and self.record.study.seeds.racing is not None:
            return None  # these two trials may have different seeds
        value = self.record.value(winner, end or self.record.length(winner))
        if value is None:
            return None
        return Objective.of(self.record.study).loss(value) - self.losses[best]


def _has_same_lengths(record: RecordedSearch, own: Replayed) -> bool:
    """Return whether every ended trial has the same length in a replay with the recorded rule."""
    trials = own.search_state.trials
    ended = [row for row in record.trials if row.ended_at is not None and row.trial in trials]
    return all(trials[row.trial].env_steps == row.env_steps for row in ended)


def _losses_of_full_runs(record: RecordedSearch) -> dict[int, float]:
    """Return trial -> the loss of a full run; {} with several objectives or constraints."""
    study = record.study
    if study.objectives[1:] or study.constraints:
        return {}
    objective, found = Objective.of(study), dict[int, float]()
    for row in record.trials:
        if row.state in LOST:
            continue
        value = row.value
        if value is None:
            value = record.value(row.trial, record.length(row.trial))
        if value is not None:
            found[row.trial] = objective.loss(value)
    return found


def _why_inexact(
    record: RecordedSearch, done: Replayed, rule: ReplayedRule, same_asks: bool
) -> str:
    """Return why a real study with this rule might differ from the replay; "" if it would not."""
    study = rule.study
    lost = any(
        row.state in LOST and row.env_steps and record.is_staggered(row) for row in record.trials
    )
    more = study.budget.trials is None or len(done.search_state.trials) < study.budget.trials
    reasons: dict[str, object] = {
        "unseen": done.shown["unseen"] > 0,
        "asks": not same_asks and not rule.own,
        "lost": lost and not rule.own,
        "more": done.search_state.state.exhausted and not record.state.exhausted and more,
        "between": done.shown["between"] > 0,
    }
    return next((name for name, holds in reasons.items() if holds), "")


def _decides_on_records(record: RecordedSearch, done: Replayed) -> bool:
    """Return whether all decisions, or at least one stop, used recorded values.

    Otherwise every possible stop depends on values after the last evaluation.
    """
    recorded = [record.value(row.trial, row.env_steps) is not None for row in done.decisions]
    stops = (row.action in ("stop", "finish", "pause") for row in done.decisions)
    return all(recorded) or any(
        is_recorded and stop for is_recorded, stop in zip(recorded, stops, strict=True)
    )


def _unstopped_env_steps(record: RecordedSearch, done: Replayed) -> int:
    """Return the env steps of the started trials if all of them had finished on all seeds."""
    total, study = 0, record.study
    for number, trial in done.search_state.trials.items():
        row = record.trials[number]
        if trial.env_steps and row.state in LOST:
            total += max(row.env_steps, trial.env_steps)
        elif trial.env_steps:
            total += record.length(number) * study.seeds.per_config * study.spread
    return total
