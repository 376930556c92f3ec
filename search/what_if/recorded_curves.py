"""What a study has recorded of each replicate: its evaluations, and where it was lost.

Values between two evaluations are interpolated; later values of a stopped trial are extrapolated
from trials that ran on (`Guesses`). Both are counted where they are used.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...store.codec import plain_json
from ...store.journal import Journal
from ...store.query import query
from ...store.rows import AskRow, DecisionRow, Stream, TrialRow, TrialState
from ...store.study_folder import StudyFolder
from ...studies.chunk_sizes import quanta_of
from ...studies.load import loads, recorded
from ...studies.spec import Study
from ..analysis.checkpoint_values import result_of
from ..lanes.contract import EvaluationResult
from ..seeds import generator
from ..state.loop_state import LoopState
from ..state.objective import Objective
from ..state.schedule import BUDGET_ENDED, schedule_of

Quantum = Callable[[Study, Mapping[str, Any]], int]
"""Study and complete configuration -> env steps of a chunk of one lane."""

LOST = (TrialState.DIVERGED, TrialState.FAILED)


def quantum_of(study: Study, config: Mapping[str, Any]) -> int:
    return quanta_of(study, study.steps_per_update(config)).steps_per_chunk


@dataclass(frozen=True)
class Seen:
    # env steps -> its evaluation there
    results: Mapping[int, EvaluationResult] = field(default_factory=dict)
    # env steps at the end of the chunk in which it diverged or failed, None if it did not
    lost_at: int | None = None

    @cached_property
    def points(self) -> tuple[int, ...]:
        return tuple(sorted(self.results))

    def at(self, env_steps: int) -> EvaluationResult:
        """Return an evaluation, where there is none on the straight line between its neighbours.

        After the last one it is the last: runs with other chunks end a little later.
        """
        if env_steps in self.results:
            return self.results[env_steps]
        at = bisect_left(self.points, env_steps)
        if at == len(self.points):
            return self.results[self.points[-1]]
        low, high = self.points[max(0, at - 1)], self.points[at]
        share = 1.0 if high == low else (env_steps - low) / (high - low)
        one, other = self.results[low], self.results[high]

        def mix(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
            return (1.0 - share) * a + share * b

        return EvaluationResult(
            mix(one.returns, other.returns),
            mix(one.lengths, other.lengths),
            {name: mix(values, other.metrics[name]) for name, values in one.metrics.items()},
        )


@dataclass(frozen=True)
class Record:
    study: Study  # as it was asked for
    trials: tuple[TrialRow, ...]  # of the search, by number
    runs: Mapping[tuple[int, int], Seen]  # (trial, replicate) -> what was seen of it
    decisions: Sequence[DecisionRow] = ()  # in their order
    asks: Sequence[AskRow] = ()
    lanes: Mapping[str, int] = field(default_factory=dict)  # bucket -> lanes that it kept
    devices: int = 1  # over which they were spread
    warmup_chunks: int = 0  # at the start of every replicate
    quantum: Quantum = quantum_of  # says how long chunks are
    exhausted: bool = False  # the method had nothing new to propose
    # (trial, replicate) -> env steps of the last row of its curve
    last_rows: Mapping[tuple[int, int], int] = field(default_factory=dict)
    # bucket -> lanes that it was first made with, where that is known
    offered: Mapping[str, int] = field(default_factory=dict)
    asked_env_steps: int | None = None

    @cached_property
    def configs(self) -> tuple[dict[str, Any], ...]:
        default = plain_json(self.study.space.default())
        return tuple(
            dict(
                self.study.default() if row.params == default else self.study.complete(row.params)
            )
            for row in self.trials
        )

    @cached_property
    def by_config(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for row, config in zip(self.trials, self.configs, strict=True):
            found.setdefault(config_key(config), row.trial)
        return found

    @cached_property
    def first_point(self) -> int:
        return min((seen.points[0] for seen in self.runs.values() if seen.points), default=0)

    @cached_property
    def ended_by_rule(self) -> dict[int, int]:
        """Trial -> env steps of the rung at which its run was called over."""
        return {one.trial: one.env_steps for one in self.decisions if one.action == "finish"}

    @property
    def replicates(self) -> int:
        return self.study.seeds.first

    def seen(self, trial: int, replicate: int) -> Seen:
        return self.runs.get((trial, replicate), Seen())

    def length(self, trial: int) -> int:
        """Return the env steps of a full run of a trial, in whole chunks."""
        return schedule_of(self.study, self.quantum(self.study, self.configs[trial])).env_steps

    def is_whole(self, trial: int) -> bool:
        """Return whether every replicate of a trial was evaluated at the end of a full run."""
        end = self.length(trial)
        return all(end in self.seen(trial, rep).results for rep in range(self.replicates))


def up_to_shared_point(record: Record) -> Record:
    """Return the record of runs that end at the latest point which two trials reached.

    The record itself if a trial ran to its end, or if no two trials were evaluated at one point.
    """
    if any(record.is_whole(row.trial) for row in record.trials):
        return record
    shared = [
        set.intersection(*(set(record.runs.get((row.trial, rep), Seen()).points)
                           for rep in range(record.replicates)))
        for row in record.trials
    ]  # fmt: skip
    counts = Counter(at for points in shared for at in points)
    end = max((at for at, count in counts.items() if count > 1), default=None)
    if end is None:
        return record

    def cut(row: TrialRow) -> TrialRow:
        over = row.env_steps <= end * record.replicates * record.study.spread
        if row.state in LOST and not over:
            return replace(row, state=TrialState.RUNNING, ended_at=None)
        return row if over else replace(row, ended_at=None)

    runs = {
        key: Seen(
            {at: result for at, result in seen.results.items() if at <= end},
            None if seen.lost_at is None or seen.lost_at > end else seen.lost_at,
        )
        for key, seen in record.runs.items()
    }
    return replace(
        record,
        study=replace(record.study, env_steps=end),
        trials=tuple(map(cut, record.trials)),
        runs=runs,
        decisions=[one for one in record.decisions if one.env_steps < end],
        asked_env_steps=record.study.env_steps,
    )


def config_key(config: Mapping[str, Any]) -> str:
    return json.dumps(plain_json(dict(config)), sort_keys=True)


def read_record(folder: Path, quantum: Quantum = quantum_of) -> Record:
    with Journal(folder) as journal, journal.at_one_commit():
        text = journal.meta.study_text
        study = recorded(text)
        if not study.algorithm.is_ppo:  # its code says how long updates are
            study = loads(text, "study.resolved.yaml")
        early = study.early_terminate
        if early is not None and early.evolves:
            raise ConfigError(
                f"trials of {study.name} copy each other ({early.type}), which leaves no "
                "curve of one configuration that another rule could judge; name a study without it"
            )
        rows = tuple(row for row in journal.trials() if row.trial >= 0)
        decisions, asks = journal.decisions(), journal.asks()
        head, devices = journal.head(), journal.meta.devices
        results: dict[tuple[int, int], dict[int, EvaluationResult]] = defaultdict(dict)
        for packed in journal.packed_evaluations():
            if packed.stream == Stream.SEARCH:
                key = (packed.trial, packed.replicate)
                results[key][packed.env_steps] = result_of(packed)
    if not results:
        raise ConfigError(f"no trial of {study.name} has been evaluated yet; run it first")
    state = LoopState.from_text(head.loop_state)
    record = Record(
        study, rows, {key: Seen(found) for key, found in results.items()}, decisions, asks,
        {entry.key: entry.lanes for entry in state.buckets if entry.lanes}, devices,
        quantum=quantum, exhausted=state.exhausted,
        offered={entry.key: entry.offered for entry in state.buckets if entry.offered},
    )  # fmt: skip
    return _with_losses(record, _last_rows(folder, rows))


def _last_rows(folder: Path, rows: Sequence[TrialRow]) -> dict[tuple[int, int], int]:
    """Return (trial, replicate) -> env steps of the last row of its curve, where some were lost.

    Empty where no table of curves was published.
    """
    if not StudyFolder(folder).table("curves").is_file():
        return {}
    _, found = query(
        folder,
        "SELECT trial, replicate, max(env_steps) FROM curves "
        "WHERE stream = 'search' GROUP BY trial, replicate",
    )
    return {(trial, replicate): at for trial, replicate, at in found}


def _with_losses(record: Record, last: Mapping[tuple[int, int], int]) -> Record:
    runs, warmup = dict(record.runs), 0
    for row in record.trials:
        quantum = record.quantum(record.study, record.configs[row.trial])
        mine = [rep for trial, rep in {**runs, **last} if trial == row.trial]
        begun = len(mine) or record.replicates
        each = quantum * record.study.spread
        warmup = max(warmup, -(-row.warmup_env_steps // (each * begun)))
        if row.state in LOST and row.bucket:
            lost = _lost(record, row, quantum, last)
        elif row.state is TrialState.FINISHED:  # of which some seeds may diverge
            lost = _lost_of_finished(record, row, quantum, last, mine)
        else:
            continue
        for replicate, at in lost.items():
            seen = record.seen(row.trial, replicate)
            runs[row.trial, replicate] = Seen(seen.results, at)
    return replace(record, runs=runs, warmup_chunks=warmup, last_rows=last)


def _lost_of_finished(
    record: Record,
    row: TrialRow,
    quantum: int,
    last: Mapping[tuple[int, int], int],
    known: Sequence[int],
) -> dict[int, int]:
    """Return replicate -> env steps where it was lost, of a trial that has a value all the same.

    Lost are those that were not evaluated at its end: where a rule ended it, at that rung, which
    others may be past, and have no value although they were. Seeds that racing added are among
    them, unless the budget cut these.
    """
    runs = {rep: record.seen(row.trial, rep) for rep in known}
    points = [seen.points[-1] for seen in runs.values() if seen.points]
    end = record.ended_by_rule.get(row.trial, max(points, default=0))
    added = () if row.stop_rule == BUDGET_ENDED else known
    lost = [rep for rep in sorted({*range(record.replicates), *added})
            if end not in runs.get(rep, Seen()).results]  # fmt: skip
    lost += _without_value(record, row, {
        rep: runs[rep].results[end] for rep in sorted(runs) if end in runs[rep].results
    })  # fmt: skip
    ran = {
        rep: max(last.get((row.trial, rep), 0), *(seen.points or (0,)))
        for rep, seen in runs.items()
    }
    others = sum(at for rep, at in ran.items() if rep not in lost)
    rest = row.env_steps // record.study.spread - others
    # Rows may be rarer than chunks: of one seed the trial's env steps say where.
    alone = len(lost) == 1 and rest >= ran.get(lost[0], 0)
    return {rep: rest if alone else ran.get(rep, 0) + quantum for rep in lost}


def _without_value(
    record: Record, row: TrialRow, ended: Mapping[int, EvaluationResult]
) -> list[int]:
    """Return replicates evaluated at the end and lost since: the trial lacks their value.

    None of them if the values that it has are not those of the others, in their order.
    """
    measure, values = Objective.of(record.study).measure, list(row.seed_values)
    lost = list[int]()
    for replicate, result in ended.items():
        if values and math.isclose(measure(result), values[0], rel_tol=1e-9):
            values.pop(0)
        else:
            lost.append(replicate)
    return [] if values else lost


def _lost(
    record: Record, row: TrialRow, quantum: int, last: Mapping[tuple[int, int], int]
) -> dict[int, int]:
    """Return replicate -> env steps where it was lost, of a trial that diverged or failed.

    A chunk that diverged is counted and has no row. Without curves all replicates share alike.
    """
    count, trained = record.replicates, row.env_steps // record.study.spread
    rows = {rep: last.get((row.trial, rep), 0) for rep in range(count)}
    if not last:
        return dict.fromkeys(rows, max(quantum, trained // count))
    missing = (trained - sum(rows.values())) // quantum
    if missing <= 0:  # what an evaluation showed was not finite
        shown = {rep: record.seen(row.trial, rep).results for rep in rows}
        bare = {rep: at for rep, at in rows.items() if at not in shown[rep]}
        return bare or rows
    # Those furthest behind ran one more chunk than they have rows.
    return {rep: rows[rep] + quantum for rep in sorted(rows, key=rows.__getitem__)[:missing]}


class Guesses:
    """Extrapolated values of trials after their last evaluation.

    A trial gains what another one, drawn once for it, gained from there on. Candidates are the
    trials that were to be stopped at the same rung and ran on (`audit`), which represent all that
    were stopped there; without any, the trials that reached the end, which is optimistic.
    """

    def __init__(self, record: Record, draw: int):
        self._record, self._draw = record, draw
        self._donors: dict[int, int] = {}

    def at(self, trial: int, replicate: int, env_steps: int) -> tuple[EvaluationResult, str]:
        """Return an evaluation and how it is known: `seen`, `between` or `guessed`."""
        seen = self._record.seen(trial, replicate)
        if env_steps in seen.results:
            return seen.results[env_steps], "seen"
        if seen.points and env_steps < seen.points[-1]:
            return seen.at(env_steps), "between"
        number = self._donor(trial)
        donor = self._record.runs.get((number, replicate)) or self._record.runs[number, 0]
        there = donor.at(env_steps)
        if not seen.points:
            return there, "guessed"
        since = seen.points[-1]
        spread = self._record.study.spread
        return _moved(seen.results[since], donor.at(since), there, spread), "guessed"

    def _donor(self, trial: int) -> int:
        if trial not in self._donors:
            donors = self._possible(self._record.trials[trial].rung)
            rng = generator(self._record.study.seed, "what-if", self._draw, trial)
            self._donors[trial] = donors[int(rng.integers(len(donors)))]
        return self._donors[trial]

    def _possible(self, rung: int) -> list[int]:
        whole = [row for row in self._record.trials if self._record.is_whole(row.trial)]
        audited = [row.trial for row in whole if row.audited and row.rung == rung]
        found = audited or [row.trial for row in whole]
        if not found:
            raise ConfigError(
                f"no trial of {self._record.study.name} ran to its end, so nothing says what "
                "others would have shown there; run one with early_terminate: {audit: 0.1}"
            )
        return found


def _moved(
    own: EvaluationResult, before: EvaluationResult, after: EvaluationResult, environments: int
) -> EvaluationResult:
    """Return one evaluation moved by what another replicate's means gained on each environment."""

    def means(values: np.ndarray) -> np.ndarray:
        return np.asarray(values, np.float64).reshape(environments, -1).mean(axis=1)

    def move(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        each = np.asarray(a, np.float64).reshape(environments, -1)
        return (each + (means(c) - means(b))[:, None]).ravel()

    return EvaluationResult(
        move(own.returns, before.returns, after.returns),
        move(own.lengths, before.lengths, after.lengths),
        {name: move(v, before.metrics[name], after.metrics[name])
         for name, v in own.metrics.items()},
    )  # fmt: skip


def value_at(record: Record, guesses: Guesses, trial: int, env_steps: int) -> float | None:
    """Return a trial's value over all its recorded seeds; None if too many were lost before."""
    objective, values = Objective.of(record.study), list[float]()
    lost = 0
    for replicate in range(record.replicates):
        seen = record.seen(trial, replicate)
        if seen.lost_at is not None and seen.lost_at <= env_steps:
            lost += 1
            continue
        values.append(objective.measure(guesses.at(trial, replicate, env_steps)[0]))
    return (
        None if lost > record.study.seeds.tolerate or not values else objective.aggregate(values)
    )
