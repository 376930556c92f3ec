"""The record of a study's search: its trials, their configurations and recorded evaluations.

At each point, the value of a replicate is its latest evaluation so far.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...store.codec import plain_json
from ...store.journal import Journal
from ...store.rows import (
    AskRow,
    DecisionRow,
    Stream,
    TrialRow,
    TrialState,
    counts_evaluations_alone,
)
from ...store.study_folder import StudyFolder
from ...studies.chunk_sizes import chunk_sizes_of
from ...studies.load import loads, recorded
from ...studies.spec import Study
from ...studies.user_code import run_own_code
from ..checks import check_same_files, source_of
from ..lanes.contract import EvaluationResult
from ..state.loop_state import LoopState
from ..state.objective import Objective
from ..state.schedule import schedule_of

Quantum = Callable[[Study, Mapping[str, Any]], int]
"""Study and complete configuration -> env steps of one chunk in one lane."""


def quantum_of(study: Study, config: Mapping[str, Any]) -> int:
    return chunk_sizes_of(study, study.steps_per_update(config)).steps_per_chunk


@dataclass(frozen=True)
class RecordedSearch:
    study: Study
    text: str  # text of its file
    trials: tuple[TrialRow, ...]  # search trials, by number
    configs: tuple[Mapping[str, Any], ...]  # complete configuration of each
    # (trial, replicate) -> env steps, ascending -> its evaluation there
    results: Mapping[tuple[int, int], Mapping[int, EvaluationResult]]
    decisions: Sequence[DecisionRow]
    asks: Sequence[AskRow]
    state: LoopState
    devices: int  # number of devices over which its lanes were distributed
    quantum: Quantum
    folder: Path
    source: Path | None = None  # folder of the study's files, if given
    shortened: int | None = None  # requested env steps of a run, if `study` has fewer
    evaluations_alone: bool = False  # whether training returns did not count in the end

    @property
    def seeds(self) -> int:
        return self.study.seeds.first

    @cached_property
    def of_trial(self) -> Mapping[int, Mapping[int, Mapping[int, EvaluationResult]]]:
        """Results by trial and replicate; a loop over all of them per trial would take hours."""
        found: dict[int, dict[int, Mapping[int, EvaluationResult]]] = defaultdict(dict)
        for (trial, replicate), points in self.results.items():
            found[trial][replicate] = points
        return dict(found)

    @cached_property
    def first_point(self) -> int:
        return min(min(points) for points in self.results.values())

    def at(self, trial: int, replicate: int, env_steps: int) -> tuple[EvaluationResult, str]:
        """Return an evaluation, and whether it is `seen`, `between` two others, or `unseen`.

        For a seed without evaluations, use another seed of the same trial, or of any trial.
        """
        results = self.results.get((trial, replicate))
        if results is None:
            known = self.of_trial.get(trial) or self.results
            results = next(iter(known.values()))
            return next(iter(results.values())), "unseen"
        points = [*results]
        known = points[max(0, bisect_right(points, env_steps) - 1)]
        if known == env_steps:
            return results[known], "seen"
        if env_steps > points[-1]:
            return results[known], "unseen"
        return results[known], "between"

    def length(self, trial: int) -> int:
        """Return the env steps of a trial's full run, in whole chunks."""
        return schedule_of(self.study, self.quantum(self.study, self.configs[trial])).env_steps

    def value(self, trial: int, env_steps: int) -> float | None:
        """Return a trial's value over its seeds; None if a seed was not evaluated then."""
        objective = Objective.of(self.study)
        if self.evaluations_alone:
            objective = objective.of_test
        replicates = self.of_trial.get(trial, {})
        shown = [self.at(trial, one, env_steps) for one in replicates if one < self.seeds]
        waits = self.trials[trial].ended_at is None and len(shown) < self.seeds
        if waits or not shown or any(how != "seen" for _, how in shown):
            return None
        return objective.aggregate([objective.measure(result) for result, _ in shown])

    def is_staggered(self, row: TrialRow) -> bool:
        """Return whether the seeds of a diverged trial had trained to different points."""
        last = {max(points) for points in self.of_trial.get(row.trial, {}).values()}
        chunk = self.quantum(self.study, self.configs[row.trial])
        return len(last) > 1 or row.env_steps % (chunk * self.seeds * self.study.spread) > 0


def read_record(
    folder: Path, quantum: Quantum = quantum_of, source: Path | None = None
) -> RecordedSearch:
    with Journal(folder) as journal, journal.at_one_commit():
        text = journal.meta.study_text
        study = recorded(text)
        if not study.algorithm.is_ppo:  # the length of an update is in its code
            study = loads(text, "study.resolved.yaml", checked_source(folder, source))
            run_own_code(study)
        early = study.early_terminate
        if early is not None and early.evolves:
            raise ConfigError(
                f"trials of {study.name} copy each other ({early.type}), so no curve "
                "belongs to a single configuration; choose a study without copies"
            )
        results: dict[tuple[int, int], dict[int, EvaluationResult]] = defaultdict(dict)
        for row in sorted(journal.evaluations(), key=lambda row: row.env_steps):
            if row.stream is Stream.SEARCH:
                shown = EvaluationResult(row.returns, row.lengths, row.metrics)
                results[row.trial, row.replicate][row.env_steps] = shown
        rows = tuple(row for row in journal.trials() if row.trial >= 0)
        default = plain_json(study.space.default())
        record = RecordedSearch(
            study,
            text,
            rows,
            tuple(
                study.default() if row.params == default else study.complete(row.params)
                for row in rows
            ),
            dict(results),
            journal.decisions(),
            journal.asks(),
            LoopState.from_text(journal.head().loop_state),
            journal.meta.devices,
            quantum,
            folder,
            source,
            evaluations_alone=counts_evaluations_alone(journal.attributes()),
        )
    if not results:
        raise ConfigError(f"no trial of {study.name} has been evaluated yet; run it first")
    return _up_to_shared_point(record)


def checked_source(folder: Path, given: Path | None) -> Path:
    """Return the folder of the study's files, which must be unchanged since it ran."""
    with Journal(folder) as journal:
        source = source_of(journal.meta, StudyFolder(folder).kept_text(), given)
        check_same_files(journal.meta, source)
    return source


def _up_to_shared_point(record: RecordedSearch) -> RecordedSearch:
    """If no trial finished, end all runs at the latest point that two trials reached."""
    reached = Counter[int]()
    for row in record.trials:
        each = [{*record.results.get((row.trial, seed), ())} for seed in range(record.seeds)]
        reached.update(set.intersection(*each))
    shared = max((at for at, count in reached.items() if count > 1), default=0)
    finished = any(row.state is TrialState.FINISHED for row in record.trials)
    if finished or not shared or shared == record.study.env_steps:
        return record
    before = [one for one in record.decisions if one.env_steps < shared]
    study = replace(record.study, env_steps=shared)
    return replace(record, study=study, decisions=before, shortened=record.study.env_steps)
