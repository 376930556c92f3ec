"""Runs search methods over tables of recorded runs, with the real engine and without a store."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ...errors import ignore
from ...store.leaderboard import leaderboard
from ...studies.bench_file import BenchFile
from ...studies.spec import Study
from ...studies.user_code import import_user_code
from ..engine.engine import Engine, engine_in_memory
from ..engine.interrupts import Interrupts
from ..engine.loop import Loop
from ..engine.refill import RefillQueue
from ..rules.registry import make_pruner
from ..samplers.proposal_queue import AskAhead, Proposer
from ..samplers.registry import make_sampler
from ..seeds import generator
from .table_lanes import TableFactory, TableProposer, plan_seeds
from .tables import BenchTable, read_table


@dataclass(frozen=True)
class BenchOutcome:
    """One search over a table, and the value of the chosen configuration."""

    environment: str
    method: str
    budget: int  # budget of the search, in full runs of one seed
    search: int  # number, which fixes the seeds for every method
    trial: int  # the chosen trial; the default, trial 0, if no trial finished
    # value of the choice on all seeds that selected nothing, without seed effects, in the metric's
    # sign
    value: float
    beats: float  # share of recorded configurations that are worse on the test seeds
    # the same for the best trial, among all that were started, on all other recorded seeds
    oracle_value: float
    oracle_beats: float
    # on the test seeds: the choice, the median configuration, and the best one on all other seeds
    judged: float
    median: float
    best: float
    search_runs: float  # env steps of the search, in full runs of one seed
    confirm_runs: float
    trials: int  # number of trials started
    nearest: int  # number of these replaced by the configuration nearest to the proposal
    distance: float  # mean distance of these, 0 if there are none
    seconds: float


def search_table(study: Study, factory: TableFactory, move: bool = True) -> Engine:
    """Run a study, including its confirm stage, on a table of recorded runs; return the engine.

    The trials are in the engine's `search_state`. With `move`, each proposal is replaced by a
    recorded configuration; otherwise, it gets the results of the nearest one.
    """
    engine, sampler = engine_in_memory(study, factory), make_sampler(study)
    proposer = Proposer(study, sampler)
    if move:
        proposer = TableProposer(study, sampler, factory)
    with closing(AskAhead(proposer)) as ahead:
        Loop(engine, RefillQueue(engine, ahead), make_pruner(study)).run(Interrupts())
    return engine


def chosen_trial(engine: Engine) -> int:
    """Return the trial with the best value, as printed by `hpo run`; 0 if no trial has a value."""
    trials, metric = engine.search_state.trials.values(), engine.study.metric
    entries = leaderboard([trial.row() for trial in trials], metric.goal, metric.aggregate)
    if not entries or entries[0].value is None:
        return 0
    return entries[0].trial


class BenchRunner:
    """Runs single searches; each table and study is read once."""

    def __init__(self, file: BenchFile):
        self.file = file
        self.table, self.study = cache(self._read_table), cache(self._load_study)

    def _read_table(self, environment: str) -> BenchTable:
        return read_table(self.file.tables / environment)

    def _load_study(self, environment: str, method: str) -> Study:
        study = self.file.study(method, self.table(environment).study_text)
        import_user_code(study.imports, study.source)
        return study

    def run(self, environment: str, method: str, budget: int, number: int) -> BenchOutcome:
        started, table = time.perf_counter(), self.table(environment)
        spec, study = self.file.spec, self.study(environment, method)
        order = generator(spec.seed, "bench", number).permutation(table.seeds).tolist()
        plan = plan_seeds(study, order, spec.test_seeds)
        factory = TableFactory(table, plan, max(study.seeds.first, spec.lanes))
        asked = replace(self.file.budgeted(study, budget), seed=spec.seed + number)
        engine = search_table(asked, factory, spec.move)
        trials = engine.search_state.trials
        played = {n: factory.find(trial.params) for n, trial in trials.items() if trial.env_steps}
        rows = {number: row for number, (row, _) in played.items()}
        trial = chosen_trial(engine)
        others = [seed for seed in range(table.seeds) if seed not in plan.test]
        means = table.finals[:, others].mean(axis=1) * table.sign
        best = max(rows.values(), key=lambda row: means[row], default=0)
        on_tests = table.finals[:, list(plan.test)].mean(axis=1)
        own, tested = rows.get(trial, 0), list(plan.test)
        fresh = [*plan.test, *plan.left]
        spent = sum(one.env_steps for one in trials.values())
        away = [distance for _, distance in played.values() if distance > 0]
        return BenchOutcome(
            environment,
            method,
            budget,
            number,
            trial,
            value=float(table.paired[own, fresh].mean()),
            beats=table.share_beaten(own, tested),
            oracle_value=float(table.paired[best, tested].mean()),
            oracle_beats=table.share_beaten(best, tested),
            judged=float(on_tests[own]),
            median=float(np.median(on_tests)),
            best=float(on_tests[means.argmax()]),
            search_runs=spent / table.length,
            confirm_runs=(engine.search_state.state.usage.env_steps - spent) / table.length,
            trials=len(rows),
            nearest=len(away),
            distance=sum(away) / max(1, len(away)),
            seconds=time.perf_counter() - started,
        )


@dataclass(frozen=True)
class BenchResults:
    file: BenchFile
    environments: tuple[str, ...]
    outcomes: tuple[BenchOutcome, ...]  # ordered by environment, method, budget and search
    seconds: float  # wall time
    jobs: int
    goals: dict[str, str]  # environment -> goal
    ceilings: tuple[str, ...] = ()  # environments where too many configurations tie at the top

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.file.methods)


_AT_ONCE = 5  # searches per task of a worker process
_Task = tuple[str, str, int, Sequence[int]]


def run_bench(
    file: BenchFile, jobs: int = 1, report: Callable[[int, int], None] = ignore
) -> BenchResults:
    """Run every method on every environment with every budget, `searches` times each.

    Results do not depend on `jobs`, the number of processes; `report` is called with the number of
    finished searches and the total. Raises StudyError for mistakes in a method, and ConfigError if
    a table is missing or cannot be used for a method.
    """
    started, spec, runner = time.perf_counter(), file.spec, BenchRunner(file)
    environments = file.environments()
    for name in environments:  # report mistakes first
        for method in file.methods:
            study, seeds = runner.study(name, method), range(runner.table(name).seeds)
            plan_seeds(study, seeds, spec.test_seeds)
            make_sampler(study)
    tasks: list[_Task] = [
        (name, method, budget, range(first, min(first + _AT_ONCE, spec.searches)))
        for budget in sorted(spec.budgets, reverse=True)
        for name in environments
        for method in file.methods
        for first in range(0, spec.searches, _AT_ONCE)
    ]
    total = sum(len(numbers) for *_, numbers in tasks)
    found: list[BenchOutcome] = []
    batches = (_run_task(runner, task) for task in tasks)
    if jobs > 1:
        batches = _in_processes(file, tasks, jobs)
    for outcomes in batches:
        found += outcomes
        report(len(found), total)
    order = {name: at for at, name in enumerate([*environments, *file.methods])}
    found.sort(key=lambda one: (order[one.environment], order[one.method], one.budget, one.search))
    goals = {name: runner.table(name).goal for name in environments}
    ceilings = tuple(name for name in environments if runner.table(name).is_ceiling)
    took = time.perf_counter() - started
    return BenchResults(file, tuple(environments), tuple(found), took, jobs, goals, ceilings)


def _run_task(runner: BenchRunner, task: _Task) -> list[BenchOutcome]:
    environment, method, budget, numbers = task
    return [runner.run(environment, method, budget, number) for number in numbers]


def _in_processes(
    file: BenchFile, tasks: Sequence[_Task], jobs: int
) -> Iterator[list[BenchOutcome]]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _begin_worker, (file,)) as pool:
        try:
            for future in as_completed([pool.submit(_run_in_worker, task) for task in tasks]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_workers: list[BenchRunner] = []  # one in each worker process


def _begin_worker(file: BenchFile) -> None:
    _workers[:] = [BenchRunner(file)]


def _run_in_worker(task: _Task) -> list[BenchOutcome]:
    return _run_task(_workers[0], task)
