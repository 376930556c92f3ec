"""Runs of one configuration on the seeds of a proof: a study of its own, which resumes.

All contenders run on the same root seed, which no study uses, for the same env steps.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ... import disk
from ...errors import ConfigError, SearchError
from ...knobs import complete
from ...spaces.space import Space
from ...store.journal import Journal
from ...store.query import has_column, query
from ...store.rows import TrialState
from ...store.statistics import interval, iqm, mean
from ...store.tables import sql_names
from ...studies.single import single
from ...studies.spec import Budget, Checkpoint, Seeds, Study
from ...studies.tuned.record import Contender, Cost, Curve
from ...studies.tuned.study_text import least
from ...studies.tuned.summary import area, time_to
from ..api import run
from ..run import Results

__all__ = [
    "MEANS",
    "POINTS",
    "Runner",
    "Runs",
    "contender_of",
    "curve_of",
    "proof_study",
    "run_proof",
]

Runner = Callable[[Study, Path], Results]
"""Runs a study in a folder of results, or goes on with it."""
POINTS = 20
"""Evaluations of a run, and points of its curve."""
MEANS = {"eval/return_mean": "episode_return", "eval/length_mean": "episode_length"}
"""Metrics that are the mean over episodes of a column; so are those of an environment's own."""
_TRAINING = "episode_return_100"
_KEYS = ("trial", "stream", "replicate", "env_steps", "episode")


@dataclass(frozen=True)
class Runs:
    """What the seeds of one configuration did.

    Attributes:
        env_steps: of the evaluations, ascending.
        values: seed -> the metric at each of them; a seed that diverged is not there.
        training: seed -> the return of the last 100 training episodes there; NaN before the first.
        seeds: how many there were.
        cost: of all of them.
    """

    env_steps: tuple[int, ...]
    values: Mapping[int, tuple[float, ...]]
    training: Mapping[int, tuple[float, ...]]
    seeds: int
    cost: Cost


def proof_study(
    study: Study,
    name: str,
    config: Mapping[str, Any],
    seeds: int,
    seed: int,
    baselines: Sequence[str] = (),
) -> Study:
    """Return the study that trains one configuration on the seeds of a proof, each to its end.

    What bounds or aggregates a search has no part in it: a record holds every seed's own value.

    Args:
        study: whose environment, length, metric and evaluation.
        name: of the new one.
        config: whole, every knob.
        seeds: how many.
        seed: their root.
        baselines: rules to measure on the requests of their last evaluations.

    Raises:
        ConfigError: the configuration is not legal.
    """
    every = max(1, study.env_steps // POINTS)
    alone = replace(
        study,
        name=name,
        seed=seed,
        fixed=least(config),
        space=Space(),
        seeds=Seeds(seeds, tolerate=seeds - 1),
        metric=replace(study.metric, aggregate="mean"),
        budget=Budget(trials=1),
        evaluation=replace(study.evaluation, every=every),
        log_every=every,
        loggers=(),
        baselines=tuple(baselines),
        constraints=(),
        objectives=(),
    )
    return replace(single(alone), checkpoint=Checkpoint(keep_best=0))


def run_proof(study: Study, out: Path, commit: str = "", runner: Runner = run) -> Runs | None:
    """Run what `proof_study` made, or go on with it; None when it was interrupted.

    Args:
        study: made by `proof_study`.
        out: the folder of results.
        commit: of the code that runs it.
        runner: runs a study in a folder of results.

    Raises:
        HpoError: as `search.api.run` does.
        ConfigError: another commit began it.
        SearchError: every seed diverged or failed.
    """
    with _counted(out, study.name, commit) as spent:
        results = runner(study, out)
    if results.state == "interrupted":
        return None
    return _read(results.folder, study, spent())


@contextmanager
def _counted(out: Path, name: str, commit: str) -> Generator[Callable[[], float | None]]:
    """Count the processor seconds of this process in a file, over all lives of a run.

    A run that was there before the file, or that a kill cut, has no known cost: None.
    """
    path = out / f"{name}.made.json"
    there = path.is_file()
    known = {"seconds": 0.0, "running": (out / name).exists(), "commit": commit}
    if there:
        known = json.loads(path.read_text(encoding="utf-8"))
    if known["commit"] != commit:
        raise ConfigError(
            f"{out / name} was begun by commit {known['commit'] or 'unknown'}, and this is "
            f"{commit or 'unknown'}; remove {out / name} and {path}, or check that commit out"
        )
    lost, before, begun = bool(known["running"]), float(known["seconds"]), time.process_time()
    total = before
    path.parent.mkdir(parents=True, exist_ok=True)
    disk.write_text(path, json.dumps({"seconds": before, "running": True, "commit": commit}))
    try:
        yield lambda: None if lost else total
    finally:
        total = before + time.process_time() - begun
        disk.write_text(path, json.dumps({"seconds": total, "running": lost, "commit": commit}))


def _read(folder: Path, study: Study, cpu_seconds: float | None) -> Runs:
    with Journal(folder) as journal:
        row = journal.trial(0)
    assert row is not None  # a study that ended has its trial
    if row.state is not TrialState.FINISHED:  # what some seeds showed on the way is no end
        why = "every one diverged" if row.state is TrialState.DIVERGED else f"it is {row.state}"
        raise SearchError(f"no seed of {study.name} got to its end: {row.error or why}")
    values = _series(folder, "evaluations", _column(study.metric.name))
    last = max(max(points) for points in values.values())
    whole = {seed: points for seed, points in values.items() if max(points) == last}
    at = tuple(sorted(next(iter(whole.values()))))
    told = has_column(folder, "curves", _TRAINING)
    curves = _series(folder, "curves", _TRAINING) if told else {}
    return Runs(
        env_steps=at,
        values={seed: tuple(points[step] for step in at) for seed, points in whole.items()},
        training={seed: _at(curves.get(seed, {}), at) for seed in whole},
        seeds=study.seeds.per_config,
        cost=Cost(row.env_steps, row.eval_env_steps, cpu_seconds),
    )


def _column(metric: str) -> str:
    """Return the column of the evaluations whose mean over episodes a metric is."""
    name = metric.removeprefix("eval/")
    return MEANS.get(metric) or sql_names([name], _KEYS)[name]


def _series(folder: Path, table: str, column: str) -> dict[int, dict[int, float]]:
    """Return seed -> env steps -> mean over the rows of a table there."""
    order = "episode" if table == "evaluations" else "env_steps"
    _, rows = query(
        folder,
        f'SELECT replicate, env_steps, list("{column}" ORDER BY {order}) FROM {table} '
        "WHERE trial = 0 AND stream = 'search' GROUP BY replicate, env_steps",
    )
    found: dict[int, dict[int, float]] = {}
    for seed, at, cells in rows:
        given = [math.nan if cell is None else float(cell) for cell in cells]
        found.setdefault(int(seed), {})[int(at)] = mean(given)
    return found


def _at(points: Mapping[int, float], wanted: Sequence[int]) -> tuple[float, ...]:
    """Return the last value at or before each of some env steps."""
    order, found, place, value = sorted(points), list[float](), 0, math.nan
    for step in wanted:
        while place < len(order) and order[place] <= step:
            value = points[order[place]]
            place += 1
        found.append(value)
    return tuple(found)


def curve_of(runs: Runs) -> Curve:
    """Return the curve over all seeds that got to the end."""
    greedy, low, high, training = list[float](), list[Any](), list[Any](), list[Any]()
    for place in range(len(runs.env_steps)):
        there = [values[place] for values in runs.values.values()]
        kind = "iqm" if len(there) >= 8 else "mean"
        around = interval(there, kind)
        greedy.append(_short(iqm(there) if kind == "iqm" else mean(there)))
        low.append(_short(around.low))
        high.append(_short(around.high))
        trained = [values[place] for values in runs.training.values()]
        finite = [value for value in trained if math.isfinite(value)]
        training.append(_short(mean(finite)) if finite else None)
    return Curve(runs.env_steps, tuple(greedy), tuple(low), tuple(high), tuple(training))


def _short(value: Any) -> Any:
    return None if value is None else float(f"{value:.6g}")


def contender_of(
    who: str,
    config: Mapping[str, Any],
    runs: Runs,
    threshold: float,
    goal: str,
    source: Mapping[str, Any] | None = None,
) -> Contender:
    """Return what goes into a record of one configuration's runs."""

    def of_each(value: Callable[[int], Any]) -> tuple[Any, ...]:
        return tuple(value(seed) if seed in runs.values else None for seed in range(runs.seeds))

    def trained(seed: int) -> float | None:
        last = runs.training[seed][-1]
        return last if math.isfinite(last) else None

    at, values = runs.env_steps, runs.values
    return Contender(
        who=who,
        config=complete(config),
        greedy=of_each(lambda seed: values[seed][-1]),
        training=of_each(trained),
        area=of_each(lambda seed: area(at, values[seed])),
        to_threshold=of_each(lambda seed: time_to(at, values[seed], threshold, goal)),
        curve=curve_of(runs),
        cost=runs.cost,
        source=source or {},
    )
