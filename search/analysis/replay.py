"""A trial's lineage trained again, alone, and held against what the study recorded of it.

On the machine and versions of the study every number comes out the same to the last bit; a lane
does not depend on the other lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import StoreError
from ...machine.software import enable_compilation_cache
from ...store.journal import Journal
from ...store.query import query
from ...store.rows import Episodes, Stream, TrialRow
from ...store.study_folder import StudyFolder
from ...store.tables import sql_names
from ...studies.load import loads, of_its_day
from ...studies.spec import Study, only_one_environment
from ...studies.user_code import run_own_code
from ...studies.yaml_io import read_text
from ..checks import check_same_files
from ..lanes.contract import (
    Change,
    Population,
    Refill,
    Resolved,
    Resolver,
    factory_here,
    refuse_failed,
)  # fmt: skip
from ..state.schedule import rows_of, schedule_of
from ..state.trials import Run, Segment, lineage_of, params_at

_KEYS = ("trial", "stream", "replicate", "env_steps")


@dataclass(frozen=True)
class Point:
    """One evaluation of one replicate, as recorded and as it came out now."""

    env_steps: int  # training env steps of the replicate
    replicate: int
    trial: int  # the trial whose lanes trained it up to here
    recorded: tuple[float, ...]  # of every episode the return; without one, the study's metric
    replayed: tuple[float, ...]

    @property
    def same(self) -> bool:
        return _same(self.recorded, self.replayed)


@dataclass(frozen=True)
class Replay:
    study: str  # the name of the study
    trial: int  # whose lineage was trained
    lineage: tuple[Segment, ...]
    points: tuple[Point, ...]  # every evaluation that was recorded of it, in order
    # rows of the training curve that could be compared; 0 before the study has published any
    curve_rows: int
    curve_same: int  # of those, how many have the same bits in every metric that was written then
    # seeds that have no evaluation at the end of the lineage: they diverged, or ended sooner. They
    # are not trained again
    left_out: tuple[int, ...] = ()

    @property
    def same(self) -> bool:
        return all(point.same for point in self.points) and self.curve_rows == self.curve_same


def replay(
    folder: StudyFolder,
    number: int,
    source: Path = Path(),
    export: Path | None = None,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Replay:
    """Train a trial's lineage again, up to its last evaluation."""
    record = _Record.read(folder, number)
    with Journal(folder.path) as journal:
        check_same_files(journal.meta, source)
    of_old = of_its_day(read_text(record.study_text, "study.resolved.yaml"))
    study = loads(record.study_text, "study.resolved.yaml", source, of_old)
    only_one_environment(study, "a replay")
    run_own_code(study)
    enable_compilation_cache()
    factory = factory_here(study, compiling)
    resolver = Resolver(study, factory)

    def resolved_at(env_steps: int) -> Resolved:
        return resolver.of(params_at(record.lineage, env_steps))

    population = factory.make_small(resolved_at(0), len(record.replicates))
    points, rows = _train(study, population, record, resolved_at)
    if export is not None:
        origin = {
            "trial": number, "stream": str(Stream.SEARCH), "replicate": record.replicates[0],
            "env_steps": record.env_steps, "metric": study.metric.name, "value": None,
        }  # fmt: skip
        population.export_policy(0, resolved_at(record.env_steps), export, origin)
    curve = record.curve(folder, next(iter(rows.values()), {}))
    both = [(curve[key], rows[key]) for key in rows if key in curve]
    started = {*range(study.seeds.first), *(rep for rep, _ in record.returns)}
    return Replay(
        study.name,
        number,
        record.lineage,
        tuple(points),
        len(both),
        sum(_same(was, tuple(now.values())) for was, now in both),
        tuple(sorted(started - {*record.replicates})),
    )


@dataclass(frozen=True)
class _Record:
    study_text: str  # the study, resolved
    row: TrialRow
    lineage: tuple[Segment, ...]
    # (replicate, env_steps) -> of every episode the return; without one, the study's metric
    returns: Mapping[tuple[int, int], tuple[float, ...]]

    @classmethod
    def read(cls, folder: StudyFolder, number: int) -> _Record:
        with Journal(folder.path) as journal:
            row = journal.trial(number)
            if row is None:
                text = f"study {folder.name!r} has no trial {number}"
                raise StoreError(text, trials=folder.name)
            lineage = lineage_of(row)
            found: dict[tuple[int, int], tuple[float, ...]] = {}
            metric = journal.meta.metric
            for trial in dict.fromkeys(part.trial for part in lineage):
                for seen in journal.evaluations(trial):
                    mine = _trained_by(lineage, seen.env_steps) == trial
                    if mine and seen.stream is Stream.SEARCH:
                        found[seen.replicate, seen.env_steps] = _shown(seen, metric)
            text = journal.meta.study_text
        if not found:
            raise StoreError(
                f"trial {number} of {folder.name!r} was never evaluated in the search"
            )
        return cls(text, row, lineage, found)

    @property
    def env_steps(self) -> int:
        return max(env_steps for _, env_steps in self.returns)

    @property
    def replicates(self) -> tuple[int, ...]:
        """Those that were evaluated last; another one diverged."""
        return tuple(sorted(rep for rep, at in self.returns if at == self.env_steps))

    def curve(
        self, folder: StudyFolder, metrics: Mapping[str, float]
    ) -> dict[tuple[int, int], tuple[float | None, ...]]:
        """Return (replicate, env_steps) -> metrics in the order of `metrics`, as published."""
        if not folder.table("curves").is_file() or not metrics:
            return {}
        names = sql_names(metrics, _KEYS)
        known, _ = query(folder.path, "SELECT * FROM curves LIMIT 0")
        wanted = (f'"{names[name]}"' if names[name] in known else "NULL" for name in metrics)
        columns = ", ".join(wanted)
        trials = ", ".join(str(part.trial) for part in self.lineage)
        _, rows = query(
            folder.path,
            f"SELECT trial, replicate, env_steps, {columns} FROM curves "
            f"WHERE stream = 'search' AND trial IN ({trials})",
        )
        return {
            (replicate, at): tuple(values)
            for trial, replicate, at, *values in rows
            if _trained_by(self.lineage, at) == trial
        }


def _train(
    study: Study, population: Population, record: _Record, resolved_at: Callable[[int], Resolved]
) -> tuple[list[Point], dict[tuple[int, int], dict[str, float]]]:
    quantum, warmup = population.steps_per_chunk, population.warmup_chunks
    schedule, lanes = schedule_of(study, quantum), range(len(record.replicates))
    points: list[Point] = []
    curve: dict[tuple[int, int], dict[str, float]] = {}
    runs = {lane: Run(record.row.trial, Stream.SEARCH, record.replicates[lane]) for lane in lanes}
    for chunk in range(warmup + record.env_steps // quantum):
        here = max(0, chunk - warmup) * quantum
        resolved = resolved_at(here)
        refills: list[Refill] = []
        if chunk == 0:
            refills = [
                Refill(lane, resolved, Stream.SEARCH, record.replicates[lane]) for lane in lanes
            ]
        elif here > 0 and any(part.env_steps == here for part in record.lineage):
            population.change([Change(lane, resolved) for lane in lanes])
        result = population.advance(refills, list(lanes))
        refuse_failed(result.failed.values())
        if chunk < warmup:
            continue
        after = here + quantum
        trained = [after // quantum] * len(runs)
        for rows in rows_of(study.log_every, schedule, runs, trained, result):
            for place, (run, at) in enumerate(zip(rows.runs, rows.env_steps, strict=True)):
                curve[run.replicate, at] = {
                    name: float(rows.metrics[name][place])
                    for name in result.metrics
                    if not name.endswith("_seconds")
                }
        if after // quantum in schedule.evaluations:
            found = population.evaluate(list(lanes))
            refuse_failed(evaluation.failed for evaluation in found)
            for replicate, evaluation in zip(record.replicates, found, strict=True):
                if (replicate, after) in record.returns:
                    now = _shown(evaluation, study.metric.name)
                    trial = _trained_by(record.lineage, after)
                    was = record.returns[replicate, after]
                    points.append(Point(after, replicate, trial, was, now))
    return points, curve


def _trained_by(lineage: Sequence[Segment], env_steps: int) -> int:
    """Return the trial whose lanes trained a lineage up to some env steps (above 0)."""
    return next(part.trial for part in reversed(lineage) if part.env_steps < env_steps)


def _shown(found: Episodes, metric: str) -> tuple[float, ...]:
    """Return the episodes' returns, or the study's metric where a training gives no return."""
    instead = found.metrics.get(metric.removeprefix("eval/"), math.nan)
    return tuple(np.where(np.isnan(found.returns), instead, found.returns).tolist())


def _same(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    both = [pair for pair in zip(one, other, strict=False) if None not in pair]

    def words(at: int) -> bytes:
        plain = np.asarray([pair[at] for pair in both], np.float64)
        return np.where(np.isnan(plain), math.nan, plain).tobytes()  # NaN has many forms

    return len(one) == len(other) and words(0) == words(1)
