"""Runs of one configuration on a tuned record's test seeds, as a study that can be resumed.

All compared configurations run for the same number of env steps and with the same root seed, which
no study uses.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import SearchError
from ..knobs import complete
from ..machine.software import versions
from ..spaces.space import Space
from ..store.journal import Journal
from ..store.permutation_tests import Agreement, agreement
from ..store.query import has_column, query
from ..store.rows import TrialState
from ..store.statistics import iqm, mean
from ..store.tables import sql_names
from ..store.unobserved import UNBOUNDED, Bounds, bounded_interval
from ..studies.execution_spec import Budget, Checkpoint
from ..studies.load import loads
from ..studies.search_spec import Seeds
from ..studies.spec import Study
from ..studies.train_study import single
from ..studies.tuned.record import TUNED, Contender, Curve, TestCost, TunedRecord, file_name
from ..studies.tuned.study_text import knobs_of, least, train_text
from ..studies.tuned.summary import area, time_to
from ..version import __version__
from .api import run
from .run import RunResults
from .seeds import study_seed
from .state.progress import bounds_of

Runner = Callable[[Study, Path], RunResults]  # runs or resumes a study in a results folder
POINTS = 20  # evaluations per run, and points on its curve
MEANS = {"eval/return_mean": "episode_return", "eval/length_mean": "episode_length"}
"""Metric -> column of which it is the mean over episodes, as are an environment's metrics."""
_TRAINING = "episode_return_100"
_KEYS = ("trial", "stream", "replicate", "env_steps", "episode")


@dataclass(frozen=True)
class Runs:
    env_steps: tuple[int, ...]  # of the evaluations, ascending
    # seed -> the metric at each evaluation; diverged seeds are missing
    values: Mapping[int, tuple[float, ...]]
    # seed -> the return over the last 100 training episodes there; NaN before the first
    training: Mapping[int, tuple[float, ...]]
    seeds: int  # number of seeds
    cost: TestCost
    bounds: Bounds = UNBOUNDED  # of the metric


def proof_study(
    study: Study,
    name: str,
    config: Mapping[str, Any],
    seeds: int,
    seed: int,
    *,
    baselines: Sequence[str] = (),
) -> Study:
    """Return the study that trains one configuration to completion on each seed of a record."""
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


def run_proof(study: Study, out: Path, runner: Runner = run) -> Runs | None:
    """Run or resume a study from `proof_study`; None if it was interrupted."""
    results = runner(study, out)
    if results.state == "interrupted":
        return None
    return _read_runs(results.folder, study)


def _read_runs(folder: Path, study: Study) -> Runs:
    with Journal(folder) as journal:
        row = journal.trial(0)
    assert row is not None  # a study that has ended has its trial
    if row.state is not TrialState.FINISHED:  # results of some seeds before their end do not count
        why = f"it is {row.state}"
        if row.state is TrialState.DIVERGED:
            why = "every one diverged"
        raise SearchError(f"no seed of {study.name} finished: {row.error or why}")
    values = _mean_series(folder, "evaluations", _column_name(study.metric.name))
    last = max(max(points) for points in values.values())
    whole = {seed: points for seed, points in values.items() if max(points) == last}
    at = tuple(sorted(next(iter(whole.values()))))
    curves: dict[int, dict[int, float]] = {}
    if has_column(folder, "curves", _TRAINING):
        curves = _mean_series(folder, "curves", _TRAINING)
    return Runs(
        env_steps=at,
        values={seed: tuple(map(points.__getitem__, at)) for seed, points in whole.items()},
        training={seed: _latest_values(curves.get(seed, {}), at) for seed in whole},
        seeds=study.seeds.per_config,
        cost=TestCost(row.env_steps, row.eval_env_steps),
        bounds=bounds_of(study),
    )


def _column_name(metric: str) -> str:
    name = metric.removeprefix("eval/")
    return MEANS.get(metric) or sql_names([name], _KEYS)[name]


def _mean_series(folder: Path, table: str, column: str) -> dict[int, dict[int, float]]:
    order = {"evaluations": "episode", "curves": "env_steps"}[table]
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


def _latest_values(points: Mapping[int, float], wanted: Sequence[int]) -> tuple[float, ...]:
    order = sorted(points)
    places = [bisect_right(order, step) for step in wanted]
    return tuple(points[order[place - 1]] if place else math.nan for place in places)


_MIDDLES = {"mean": mean, "iqm": iqm}


def curve_of(runs: Runs) -> Curve:
    greedy, low, high, training = list[float](), list[Any](), list[Any](), list[Any]()
    for place in range(len(runs.env_steps)):
        there = [values[place] for values in runs.values.values()]
        kind = "mean"
        if len(there) >= 8:
            kind = "iqm"
        around = bounded_interval(there, runs.bounds, kind)
        greedy.append(_round_to_six_digits(_MIDDLES[kind](there)))
        low.append(_round_to_six_digits(around.low))
        high.append(_round_to_six_digits(around.high))
        trained = [values[place] for values in runs.training.values()]
        finite = [value for value in trained if math.isfinite(value)]
        training.append(_round_to_six_digits(mean(finite)) if finite else None)
    return Curve(runs.env_steps, tuple(greedy), tuple(low), tuple(high), tuple(training))


def _round_to_six_digits(value: Any) -> Any:
    if value is None:
        return None
    return float(f"{value:.6g}")


def contender_of(
    who: str,
    config: Mapping[str, Any],
    runs: Runs,
    threshold: float,
    goal: str,
    *,
    source: Mapping[str, Any] | None = None,
) -> Contender:

    def of_each(value: Callable[[int], Any]) -> tuple[Any, ...]:
        return tuple(value(seed) if seed in runs.values else None for seed in range(runs.seeds))

    def trained(seed: int) -> float | None:
        last = runs.training[seed][-1]
        if not math.isfinite(last):
            return None
        return last

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


RECORDED, FRESH = 8, 32
ReproductionVerdict = Literal["bit-equal", "within the interval", "not"]


@dataclass(frozen=True)
class Verification:
    name: str  # name of the record
    # `not`: the new seeds are outside the interval; `bit-equal`: every number of the recorded
    # seeds was reproduced
    verdict: ReproductionVerdict
    recorded: int  # number of the record's seeds that were retrained
    equal: int  # number of these that are equal in every bit
    seeds: int  # number of new seeds
    means: tuple[float, float]  # over the recorded and over the new seeds
    agreement: Agreement
    # changed packages: name -> (then, now)
    versions: dict[str, tuple[str, str]]


def verify(
    record: TunedRecord,
    out: Path,
    recorded: int = RECORDED,
    seeds: int = FRESH,
    seed: int = 0,
    *,
    runner: Runner = run,
) -> Verification | None:
    """Retrain a tuned configuration and compare it with its record; None if interrupted."""
    study = loads(train_text(record), f"tuned:{record.name}")
    config = complete(knobs_of(record))
    stem = file_name(record.name).removesuffix(".yaml")
    root = study_seed(record.seed, "tuned verify", seed)
    parts = {
        "recorded": (min(recorded, len(record.tuned.greedy)), record.seed),
        "fresh": (seeds, root),
    }
    found: dict[str, Contender] = {}
    for part, (count, root_seed) in parts.items():
        name = f"{stem}.verify.{part}-{count}"
        if part == "fresh":
            name += f"-{seed}"
        own = proof_study(study, name, config, count, root_seed)
        runs = run_proof(own, out, runner)
        if runs is None:
            return None
        found[part] = contender_of(TUNED, config, runs, record.threshold, record.goal)
    return judged(record, found["recorded"], found["fresh"])


def _worst_value(values: Sequence[float], goal: str) -> float:
    if goal == "maximize":
        return min(values)
    return max(values)


def _is_same_seed(one: Contender, other: Contender, seed: int) -> bool:
    """Return whether a seed has the same results in two runs of one configuration."""
    numbers = ("greedy", "training", "area", "to_threshold")
    return all(getattr(one, name)[seed] == getattr(other, name)[seed] for name in numbers)


def judged(record: TunedRecord, again: Contender, fresh: Contender) -> Verification:
    """Return the verdict on runs with the recorded seeds and with new ones."""
    now, then = {**versions([record.env]), "hpo-lanes": __version__}, record.made.versions
    greedy = [*record.tuned.greedy, *fresh.greedy]
    worst = _worst_value([value for value in greedy if value is not None], record.goal)
    filled = [worst if value is None else value for value in greedy]
    recorded_values = filled[: len(record.tuned.greedy)]
    fresh_values = filled[len(record.tuned.greedy) :]
    found = agreement(recorded_values, fresh_values)
    equal = sum(_is_same_seed(record.tuned, again, seed) for seed in range(len(again.greedy)))
    verdict: ReproductionVerdict = "within the interval"
    if not found.within:
        verdict = "not"
    elif equal == len(again.greedy):
        verdict = "bit-equal"
    return Verification(
        name=record.name,
        verdict=verdict,
        recorded=len(again.greedy),
        equal=equal,
        seeds=len(fresh.greedy),
        means=(
            math.fsum(recorded_values) / len(recorded_values),
            math.fsum(fresh_values) / len(fresh_values),
        ),
        agreement=found,
        versions={
            name: (then.get(name, "none"), now.get(name, "none"))
            for name in sorted({*then, *now})
            if then.get(name) != now.get(name)
        },
    )
