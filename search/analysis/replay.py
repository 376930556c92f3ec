"""Retrains the lineage of one trial, and compares the results with the study's records.

On the same machine with the same package versions, every number matches the record bit for bit,
because a lane does not depend on other lanes. `ReplayedSeeds` selects search seeds or test seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError, StoreError
from ...machine.software import enable_compilation_cache
from ...store.journal import Journal
from ...store.query import query
from ...store.rows import EpisodeRow, EvaluationRow, Stream, TrialRow
from ...store.study_folder import StudyFolder
from ...store.tables import sql_names
from ...studies.load import loads, of_its_day
from ...studies.spec import Study
from ...studies.study_environments import only_one_environment
from ...studies.user_code import run_own_code
from ...studies.yaml_io import read_text
from ..checks import check_same_files
from ..lanes.contract import ChunkResult, LaneChange, Population, Refill, Resolved, refuse_failed
from ..lanes.factories import factory_here
from ..lanes.resolver import Resolver
from ..state.objective import with_training
from ..state.schedule import rows_of, schedule_of
from ..state.trials import Replicate, Segment, lineage_of, params_at

_KEYS = ("trial", "stream", "replicate", "env_steps")


@dataclass(frozen=True)
class ReplayedSeeds:
    """The seeds for retraining a trial."""

    stream: Stream = Stream.SEARCH
    # empty: the seeds that were evaluated last. Seeds given here may have diverged
    replicates: tuple[int, ...] = ()


_OF_THE_SEARCH = ReplayedSeeds()


@dataclass(frozen=True)
class ReplayedPoint:
    """One evaluation of one replicate: its recorded values, and those of the replay."""

    env_steps: int  # training env steps of the replicate
    replicate: int
    trial: int  # the trial whose lanes trained it up to here
    recorded: tuple[float, ...]  # the return of every episode; without returns, the study's metric
    replayed: tuple[float, ...]
    rest_same: bool = True  # lengths, and those metrics of the environment that were recorded

    @property
    def same(self) -> bool:
        return self.rest_same and _same_values(self.recorded, self.replayed)


@dataclass(frozen=True)
class Replay:
    study: str  # the name of the study
    trial: int  # the trial whose lineage was trained
    lineage: tuple[Segment, ...]
    points: tuple[ReplayedPoint, ...]  # every recorded evaluation of the trial, in order
    # rows of the training curve that could be compared; 0 if the study has not published any yet
    curve_rows: int
    curve_same: int  # number of rows in which every metric recorded then has the same bits
    # seeds without an evaluation at the end of the lineage, because they diverged or ended sooner;
    # they are not retrained
    left_out: tuple[int, ...] = ()
    replicates: tuple[int, ...] = ()  # the seeds that were trained
    diverged: tuple[int, ...] = ()  # of these, those that diverged in the study
    diverged_now: tuple[int, ...] = ()
    missing: int = 0  # number of recorded evaluations that were not reproduced
    # seeds with any difference, including rows that only one of the two curves has
    apart: tuple[int, ...] = ()

    @property
    def same(self) -> bool:
        ends = self.diverged == self.diverged_now and not self.missing
        points = all(point.same for point in self.points)
        return ends and points and self.curve_rows == self.curve_same


def replay(
    folder: StudyFolder,
    number: int,
    source: Path = Path(),
    export: Path | None = None,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    *,
    seeds: ReplayedSeeds = _OF_THE_SEARCH,
) -> Replay:
    """Retrain a trial's lineage up to its last evaluation."""
    record = _Record.read(folder, number, seeds)
    study = _load_study(folder, record, source)
    if study.algorithm.is_process:
        place = folder.path / "processes" / f"trial_{number}"
        text = f"trial {number} ran as a process, which hpo cannot replay bit for bit; its command"
        raise ConfigError(f"{text} and seed are in {place}/*/run.json")
    factory = factory_here(study, compiling)
    resolver = Resolver(study, factory)

    def resolved_at(env_steps: int) -> Resolved:
        return resolver.of(params_at(record.lineage, env_steps))

    population = factory.make_small(resolved_at(0), len(record.replicates))
    again = _Again(study, population, record, resolved_at)
    again.train()
    if export is not None:
        origin = {
            "trial": number,
            "stream": str(seeds.stream),
            "replicate": record.replicates[0],
            "env_steps": again.env_steps,
            "metric": study.metric.name,
            "value": None,
        }
        population.export_policy(0, resolved_at(again.env_steps), export, origin)
    return _compare_with_record(folder, study, record, again)


def play(
    folder: StudyFolder, policy: Path, about: Mapping[str, Any], source: Path
) -> ReplayedPoint:
    """Evaluate a saved policy on the episodes that its study used.

    `about` contains the policy's trial, stream, replicate and env steps.
    """
    seeds = ReplayedSeeds(Stream(about["stream"]), (int(about["replicate"]),))
    record = _Record.read(folder, int(about["trial"]), seeds)
    recorded = record.episodes.get((int(about["replicate"]), int(about["env_steps"])))
    if recorded is None:
        raise StoreError(f"{policy} belongs to an evaluation that is not in the study")
    study = _load_study(folder, record, source)
    factory = factory_here(study)
    resolved = Resolver(study, factory).of(params_at(record.lineage, recorded.env_steps - 1))
    population = factory.make_small(resolved, 1)
    found = population.evaluate_kept(resolved, policy, recorded.stream, recorded.replicate)
    refuse_failed([found.failed])
    return point_of(study, recorded, found)


def _compare_with_record(
    folder: StudyFolder, study: Study, record: _Record, again: _Again
) -> Replay:
    rows = again.curve
    curve = record.curve(folder, next(iter(rows.values()), {}))
    both = [key for key in rows if key in curve]
    equal = [key for key in both if _same_values(curve[key], tuple(rows[key].values()))]
    trained = {*record.replicates}
    published = {key for key in curve if key[0] in trained and key[1] <= again.env_steps}
    lost = tuple(sorted(record.replicates[lane] for lane in again.lost))
    missing = _missing_evaluations(record, again)
    apart = {replicate for replicate, _ in ((published | {*rows}) - {*equal}) | missing}
    apart |= {point.replicate for point in again.points if not point.same}
    return Replay(
        study.name,
        record.row.trial,
        record.lineage,
        tuple(again.points),
        len(both),
        len(equal),
        record.not_trained_again(study.seeds.first),
        replicates=record.replicates,
        diverged=record.diverged,
        diverged_now=lost,
        missing=len(missing),
        apart=tuple(sorted(apart | ({*lost} ^ {*record.diverged}))),
    )


def _missing_evaluations(record: _Record, again: _Again) -> set[tuple[int, int]]:
    """Return the (replicate, env_steps) of recorded evaluations that were not repeated."""
    recorded = {key for key in record.episodes if key[0] in record.replicates}
    return recorded - {(point.replicate, point.env_steps) for point in again.points}


def _load_study(folder: StudyFolder, record: _Record, source: Path) -> Study:
    """Load the recorded study; its Python files run only after a check that they are unchanged."""
    with Journal(folder.path) as journal:
        check_same_files(journal.meta, source)
    of_old = of_its_day(read_text(record.study_text, "study.resolved.yaml"))
    study = loads(record.study_text, "study.resolved.yaml", source, of_old)
    only_one_environment(study, "a replay")
    run_own_code(study)
    enable_compilation_cache()
    return study


@dataclass(frozen=True)
class _Record:
    study_text: str  # the study with all defaults filled in
    row: TrialRow
    lineage: tuple[Segment, ...]
    episodes: Mapping[tuple[int, int], EvaluationRow]  # by (replicate, env_steps)
    seeds: ReplayedSeeds = _OF_THE_SEARCH

    @classmethod
    def read(
        cls, folder: StudyFolder, number: int, seeds: ReplayedSeeds = _OF_THE_SEARCH
    ) -> _Record:
        with Journal(folder.path) as journal:
            row = journal.trial(number)
            if row is None:
                text = f"study {folder.name!r} has no trial {number}"
                raise StoreError(text, trials=folder.name)
            record = cls(journal.meta.study_text, row, lineage_of(row), {}, seeds)
            found = {
                (evaluation.replicate, evaluation.env_steps): evaluation
                for trial in record.trained_in
                for evaluation in journal.evaluations(trial)
                if record.has(evaluation)
            }
        if not found and not seeds.replicates:
            raise StoreError(
                f"trial {number} of {folder.name!r} was never evaluated in the search"
            )
        return replace(record, episodes=found)

    def has(self, evaluation: EvaluationRow) -> bool:
        """Return whether an evaluation used the requested seeds and belongs to the lineage."""
        if evaluation.stream is not self.seeds.stream:
            return False
        if self.seeds.replicates and evaluation.replicate not in self.seeds.replicates:
            return False
        return self.trained_by(evaluation.env_steps) == evaluation.trial

    @property
    def trained_in(self) -> tuple[int, ...]:
        """Return the trials that trained parts of the lineage; on new seeds, there is only one."""
        if self.seeds.stream is not Stream.SEARCH:
            return (self.row.trial,)
        return tuple(dict.fromkeys(part.trial for part in self.lineage))

    def trained_by(self, env_steps: int) -> int:
        """Return the trial whose lanes trained up to this number of env steps (above 0)."""
        if self.seeds.stream is not Stream.SEARCH:
            return self.row.trial
        return next(part.trial for part in reversed(self.lineage) if part.env_steps < env_steps)

    @property
    def env_steps(self) -> int:
        return max((env_steps for _, env_steps in self.episodes), default=0)

    @property
    def replicates(self) -> tuple[int, ...]:
        """The requested seeds or, by default, all that did not diverge."""
        if self.seeds.replicates:
            return self.seeds.replicates
        return tuple(sorted(rep for rep, at in self.episodes if at == self.env_steps))

    def not_trained_again(self, first: int) -> tuple[int, ...]:
        """Return the search seeds that were not retrained; none if seeds were requested.

        The search seeds are the first `first` ones, and any others that the record contains.
        """
        if self.seeds.replicates:
            return ()
        started = {*range(first), *(rep for rep, _ in self.episodes)}
        return tuple(sorted(started - {*self.replicates}))

    @property
    def diverged(self) -> tuple[int, ...]:
        ended = {rep for rep, at in self.episodes if at == self.env_steps}
        return tuple(sorted({*self.replicates} - ended))

    def curve(
        self, folder: StudyFolder, metrics: Mapping[str, float]
    ) -> dict[tuple[int, int], tuple[float | None, ...]]:
        """Return the published metrics by (replicate, env_steps), in the order of `metrics`."""
        if not folder.table("curves").is_file() or not metrics:
            return {}
        names = sql_names(metrics, _KEYS)
        known, _ = query(folder.path, "SELECT * FROM curves LIMIT 0")
        quoted = {name: f'"{name}"' for name in known}
        columns = ", ".join(quoted.get(names[name], "NULL") for name in metrics)
        trials = ", ".join(map(str, self.trained_in))
        _, rows = query(
            folder.path,
            f"SELECT trial, replicate, env_steps, {columns} FROM curves "
            f"WHERE stream = '{self.seeds.stream}' AND trial IN ({trials})",
        )
        return {
            (replicate, at): tuple(values)
            for trial, replicate, at, *values in rows
            if self.trained_by(at) == trial
        }


class _Again:
    """The recorded seeds, retrained in parallel."""

    def __init__(
        self,
        study: Study,
        population: Population,
        record: _Record,
        resolved_at: Callable[[int], Resolved],
    ):
        self._study, self._population, self._record = study, population, record
        self._resolved_at = resolved_at
        self._schedule = schedule_of(study, population.steps_per_chunk)
        self.env_steps = record.env_steps or self._schedule.env_steps
        replicates, stream = record.replicates, record.seeds.stream
        self._runs = {
            lane: Replicate(record.row.trial, stream, replicate)
            for lane, replicate in enumerate(replicates)
        }
        self.points: list[ReplayedPoint] = []
        self.curve: dict[tuple[int, int], dict[str, float]] = {}
        self.lost: set[int] = set()  # lanes that have diverged

    def train(self) -> None:
        warmup, quantum = self._population.warmup_chunks, self._population.steps_per_chunk
        for chunk in range(warmup + self.env_steps // quantum):
            result = self._train_chunk(chunk, max(0, chunk - warmup) * quantum)
            self.lost |= {lane for lane in self._runs if result.diverged[lane]}
            if chunk >= warmup:
                after = (chunk - warmup + 1) * quantum
                self._add_rows(after, result)
                self._evaluate_if_due(after)

    def _train_chunk(self, chunk: int, here: int) -> ChunkResult:
        resolved, stream = self._resolved_at(here), self._record.seeds.stream
        refills: list[Refill] = []
        if chunk == 0:
            runs = self._runs.items()
            refills = [Refill(lane, resolved, stream, run.replicate) for lane, run in runs]
        elif here > 0 and any(part.env_steps == here for part in self._record.lineage):
            self._population.change([LaneChange(lane, resolved) for lane in self._runs])
        result = self._population.advance(refills, list(self._runs))
        refuse_failed(result.failed.values())
        return result

    @property
    def _sound_runs(self) -> dict[int, Replicate]:
        return {lane: run for lane, run in self._runs.items() if lane not in self.lost}

    def _add_rows(self, after: int, result: ChunkResult) -> None:
        sound, schedule = self._sound_runs, self._schedule
        if not sound:
            return
        trained = [after // schedule.quantum] * len(sound)
        for rows in rows_of(self._study.log_every, schedule, sound, trained, result):
            for place, (run, at) in enumerate(zip(rows.runs, rows.env_steps, strict=True)):
                self.curve[run.replicate, at] = {
                    name: float(rows.metrics[name][place])
                    for name in result.metrics
                    if not name.endswith("_seconds")
                }

    def _evaluate_if_due(self, after: int) -> None:
        sound = self._sound_runs
        if after // self._schedule.quantum not in self._schedule.evaluations or not sound:
            return
        found = self._population.evaluate(list(sound))
        refuse_failed(evaluation.failed for evaluation in found)
        for (lane, run), evaluation in zip(sound.items(), found, strict=True):
            recorded = self._record.episodes.get((run.replicate, after))
            if recorded is not None:
                self.points.append(self._evaluation_point(run, recorded, evaluation))
            elif after == self.env_steps and not self._is_finite(evaluation):
                self.lost.add(lane)

    def _evaluation_point(
        self, run: Replicate, recorded: EvaluationRow, now: EpisodeRow
    ) -> ReplayedPoint:
        if not self._study.metric.training_weight:
            return point_of(self._study, recorded, now)
        return point_of(self._study, recorded, with_training(now, run.training_return))

    def _is_finite(self, found: EpisodeRow) -> bool:
        return bool(np.all(np.isfinite(_episode_values(found, self._study.metric.name))))


def point_of(study: Study, recorded: EvaluationRow, now: EpisodeRow) -> ReplayedPoint:
    """Compare an evaluation with the recorded one; metrics that were not recorded are skipped."""
    both = recorded.metrics.keys() & now.metrics.keys()
    pairs = [(recorded.metrics[name], now.metrics[name]) for name in both]
    pairs.append((recorded.lengths, now.lengths))
    return ReplayedPoint(
        recorded.env_steps,
        recorded.replicate,
        recorded.trial,
        _episode_values(recorded, study.metric.name),
        _episode_values(now, study.metric.name),
        all(_same_values(one.tolist(), other.tolist()) for one, other in pairs),
    )


def _episode_values(found: EpisodeRow, metric: str) -> tuple[float, ...]:
    """Return the episode returns, or the study's metric if a custom training run has none."""
    instead = found.metrics.get(metric.removeprefix("eval/"), math.nan)
    return tuple(np.where(np.isnan(found.returns), instead, found.returns).tolist())


def _same_values(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    both = [pair for pair in zip(one, other, strict=False) if None not in pair]

    def words(at: int) -> bytes:
        plain = np.asarray([pair[at] for pair in both], np.float64)
        return np.where(np.isnan(plain), math.nan, plain).tobytes()  # NaN has many bit patterns

    return len(one) == len(other) and words(0) == words(1)
