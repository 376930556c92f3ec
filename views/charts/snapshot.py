"""The data for charts and reports: all from one commit, so it is consistent even during a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...errors import ConfigError
from ...search.analysis.across_environments import EnvironmentScores, environment_scores
from ...search.analysis.checkpoint_values import CheckpointValues, point_at, points_of
from ...search.analysis.knob_significance import SignificantKnobs, answer_at
from ...search.analysis.verdict import conclusion_of
from ...search.state.usage import Usage
from ...store.audits import Audit, audit_of
from ...store.baselines import BaselineEntry, baseline_entries, baselines_of
from ...store.journal import Journal
from ...store.leaderboard import Entry, Ranking, default_entry, leaderboard_of, volume_of
from ...store.rows import (
    HALTED,
    BaselineRow,
    CommitHead,
    DecisionRow,
    StudyMeta,
    TrialRow,
    TrialState,
    counts_evaluations_alone,
)
from ...store.statistics import sign_of
from ...store.study_folder import StudyFolder, state_of, trials_seen
from ...store.value_bounds import value_bounds
from ...store.verdict import Conclusion
from ...studies.spec import Study
from ...studies.stopping_rules import finishing_rules
from ...studies.study_environments import value_words
from ..formatting import steps
from ..time_spent import usage_at
from .model import Scale, round_ticks


@dataclass(frozen=True)
class Snapshot:
    folder: StudyFolder
    meta: StudyMeta
    head: CommitHead
    points: CheckpointValues
    entries: Sequence[Entry]
    baselines: Sequence[BaselineEntry]
    decisions: Sequence[DecisionRow]
    audit: Audit | None
    usage: Usage
    standing: str  # running, finished, interrupted or died
    conclusion: Conclusion
    baseline_rows: Sequence[BaselineRow] = ()
    evaluations_alone: bool = False  # whether training returns did not count
    scores: EnvironmentScores = field(default_factory=EnvironmentScores)

    @cached_property
    def answer(self) -> SignificantKnobs | None:
        if not self.study.space.parameters:
            return None
        try:
            return answer_at(self.points, point_at(self.points))
        except ConfigError:  # too few trials
            return None

    @property
    def study(self) -> Study:
        return self.points.study

    @property
    def unit(self) -> str:
        """The unit of run length: env steps, or the unit defined by a custom training class."""
        return self.study.algorithm.unit

    @property
    def rows(self) -> Mapping[int, TrialRow]:
        return self.points.trials

    @cached_property
    def searched(self) -> Mapping[int, TrialRow]:
        """The trials, excluding a default that ran only for comparison with the winner."""
        return {number: row for number, row in self.rows.items() if number >= 0}

    @property
    def stopped(self) -> set[int]:
        """The trials that a rule ended early: stopped, finished, or paused and never resumed."""
        ended = {row.trial for row in self.decisions if row.action in ("stop", "finish")}
        return ended | {n for n, row in self.searched.items() if row.state is TrialState.STOPPED}

    @property
    def sign(self) -> float:
        """1 if larger values are better, otherwise -1."""
        return sign_of(self.meta.goal)

    @property
    def metric(self) -> str:
        """The name of the metric in which search values are given."""
        return value_words(self.study, self.evaluations_alone)

    @property
    def winner(self) -> Entry | None:
        if not self.entries or self.entries[0].value is None:
            return None
        return self.entries[0]

    @property
    def winner_word(self) -> str:
        """The label for `winner`: `leader` until the confirm stage has selected a winner."""
        if self.winner is not None and self.winner.confirmed:
            return "winner"
        return "leader"

    @cached_property
    def default_entry(self) -> Entry | None:
        return default_entry(self.entries)

    @property
    def default(self) -> int | None:
        if self.default_entry is None:
            return None
        return self.default_entry.trial

    @cached_property
    def places(self) -> Mapping[int, int]:
        """The ranks of trials."""
        return {entry.trial: entry.rank for entry in self.entries}

    @property
    def volume(self) -> float | None:
        return volume_of(self.entries, Ranking.of(self.meta))

    def leaders(self, most: int) -> list[Entry]:
        valued = [entry for entry in self.entries if entry.value is not None]
        others = [entry for entry in self.entries if entry.rung_value is not None]
        return (valued or others)[:most]

    def state(self, trial: int) -> str:
        row = self.rows[trial]
        if row.state in HALTED and row.rung_env_steps is not None:
            return f"{row.state} {steps(row.rung_env_steps)}"
        return str(row.state)

    def thinned(self, trials: Iterable[int], most: int) -> list[int]:
        """Return at most `most` trials: half are the best, half an even sample of the rest."""
        ordered = sorted(trials, key=lambda trial: self.places[trial])
        if len(ordered) <= most:
            return ordered
        best, rest = ordered[: most // 2], ordered[most // 2 :]
        wanted = most - len(best)
        return best + [rest[index * len(rest) // wanted] for index in range(wanted)]

    def kept_words(self, most: int) -> str:
        count = len(self.searched)
        if count <= most:
            return ""
        return f" ({most:,} of {count:,} drawn: the best and an even sample of the others)"

    def numbers_scale(self) -> Scale:
        last = max(self.rows, default=0)
        ticks = [at for at in round_ticks(0.0, float(max(1, last))) if at == int(at)]
        labels = tuple((at, f"{int(at)}") for at in ticks)
        return Scale(-0.5, last + 0.5, labels, "trial")


def read_snapshot(folder: StudyFolder) -> Snapshot:
    with Journal(folder.path, copied=True) as journal, journal.at_one_commit():
        meta, head = journal.meta, journal.head()
        decisions = journal.decisions()
        points = points_of(journal, decisions)
        trial_rows = trials_seen(journal, points.trials.values())
        points = replace(points, trials={row.trial: row for row in trial_rows})
        rows = list(points.trials.values())
        entries = leaderboard_of(meta, rows)
        rules = baselines_of(journal)
        return Snapshot(
            folder,
            meta,
            head,
            points,
            entries,
            baselines=baseline_entries(rules, entries, meta.goal, value_bounds(meta)),
            decisions=decisions,
            audit=audit_of(meta, rows, decisions, finishing_rules()),
            usage=usage_at(head),
            standing=state_of(folder.path, head),
            baseline_rows=rules,
            scores=environment_scores(journal, rows),
            conclusion=conclusion_of(journal, rows, entries),
            evaluations_alone=counts_evaluations_alone(journal.attributes()),
        )


def finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
