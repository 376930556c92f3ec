"""Search points 1 and 8: every method with every rule; 5,000 trials with one driver."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpo.studies.search_methods import METHODS
from hpo.studies.stopping_rules import RULES

from .common import ROOT, Outcome

# ---------------------------------------------------------------------- point 1

_RULES = (*(rule.name for rule in RULES.values() if not rule.evolves), None)
_TRIALS, _SEEDS, _STEPS = 24, 2, 16_000
_BOUND = 600_000  # env steps; without this limit the trials would take 768,000
_SMALL = (("tpe", "hyperband", 1), ("nsga2", "plateau", 2), ("cmaes", "asha", 1),
          ("sobol", "median", 2))  # fmt: skip


def everything(small: bool, work: Path) -> Outcome:
    """Run a small study for every method and rule, then the contract tests and Sobol."""
    whole = [
        (method, rule, objectives)
        for method, rule, objectives in itertools.product(METHODS, _RULES, (1, 2))
        if objectives == 1 or METHODS[method].objectives != "one"
    ]
    wrong: list[str] = []
    spent, stopped = 0, Counter[str]()
    for method, rule, objectives in _SMALL if small else whole:
        seen = _run_small(method, rule, objectives, work / f"{method}-{rule}-{objectives}")
        words = f"{method} with {rule}, {objectives} objectives: {seen.fault}"
        wrong += [words] if seen.fault else []
        spent += seen.used_up
        stopped[rule or ""] += seen.stopped
    if not small:
        wrong += [f"{rule} stopped nobody" for rule in _RULES if rule and not stopped[rule]]
    sobol = _sobol_difference()
    wrong += [f"Sobol differs from SciPy's by {sobol}"] if sobol else []
    tests = 0
    if not small:
        tests, fault = _contracts()
        wrong += [fault] if fault else []
    numbers = (
        f"{len(_SMALL if small else whole)} studies ran to their end ({spent} used up their env "
        f"steps, none exceeded them; stopped early: "
        + ", ".join(f"{count} by {rule}" for rule, count in stopped.items() if rule)
        + f"); {tests} contract tests hold; 64 Sobol points equal SciPy's"
    )
    return Outcome(not wrong, numbers if not wrong else "; ".join(wrong[:4]))


@dataclasses.dataclass(frozen=True)
class _Seen:
    """Faults of a study, if any; whether its env steps ended it; the trials that it stopped."""

    fault: str
    used_up: bool
    stopped: int


def _run_small(method: str, rule: str | None, objectives: int, folder: Path) -> _Seen:
    """Run a study limited in trials and in env steps, whichever it reaches first."""
    from helpers.analytic_lanes import AnalyticFactory
    from hpo.search.run import RunOptions, run
    from hpo.store.journal import Journal
    from hpo.studies.env_spec import EnvSpec
    from hpo.studies.execution_spec import Budget
    from hpo.studies.search_spec import EarlyTerminate, Metric, SearchSpec, Seeds
    from hpo.studies.spec import Study

    options: dict[str, Any] = {"population_size": 6} if method == "nsga2" else {}
    options |= {"popsize": 4} if method == "cmaes" else {}
    study = Study(
        name="small",
        env=EnvSpec("CartPole-v1"),
        env_steps=_STEPS,
        space=_mixed_space(),
        search=SearchSpec(method, options=options),
        objectives=(Metric(), Metric("eval/thrift")) if objectives > 1 else (),
        early_terminate=None
        if rule is None
        else EarlyTerminate(rule, 2_000, 2.0, patience=1, tolerance=0.5),
        seeds=Seeds(_SEEDS),
        budget=Budget(trials=_TRIALS, env_steps=_BOUND),
    )
    factory = AnalyticFactory(lanes=8, diverges_above=0.3)
    results = run(study, folder, factory, (), RunOptions(publish_seconds=1e9))
    used_up = results.usage.env_steps > _BOUND - _SEEDS * _STEPS
    with Journal(folder) as journal:
        decisions = journal.decisions()
    faults = (
        _budget_fault(results, used_up),
        _stopping_fault(decisions, rule, objectives),
        _front_fault(results) if objectives > 1 else "",
    )
    stopped = sum(entry.action in ("stop", "finish") for entry in decisions)
    return _Seen("; ".join(filter(None, faults)), used_up, stopped)


def _budget_fault(results: Any, used_up: bool) -> str:
    """Return what is wrong with how a study ended and what it spent."""
    usage, entries = results.usage, results.leaderboard
    states = [str(entry.state) for entry in entries]
    if results.state != "finished" or {"waiting", "running"} & set(states):
        return f"it is {results.state}, its trials are {sorted(set(states))}"
    if usage.env_steps > _BOUND or sum(entry.env_steps for entry in entries) != usage.env_steps:
        return f"{usage.env_steps} env steps of {_BOUND}"
    if not used_up and (len(entries) != _TRIALS or "unfinished" in states):
        return f"{len(entries)} trials, {states.count('unfinished')} cut, and env steps left"
    most = _SEEDS * _STEPS
    if any(str(e.state) == "finished" and e.env_steps > most for e in entries):
        return f"a trial took more than {most} env steps"
    return ""


def _stopping_fault(decisions: Sequence[Any], rule: str | None, objectives: int) -> str:
    """Return what is wrong with a study's decisions, compared with the rule's description."""
    if rule is None:
        return "there are decisions" if decisions else ""
    if rule == "asha":
        for entry in decisions:
            best = entry.judged < 2 or entry.rank <= math.ceil(entry.judged / 2)
            if best is not (entry.action == "continue"):
                return f"trial {entry.trial}, {entry.rank} of {entry.judged}: {entry.action}"
    elif rule != "plateau" and objectives == 1:
        for entry in decisions:
            below = entry.cutoff is not None and entry.value < entry.cutoff
            if below is not (entry.action == "stop"):
                return f"trial {entry.trial} at {entry.value}: {entry.action}"
    return "" if all(entry.rule.startswith(rule) for entry in decisions) else "rules are mixed"


def _front_fault(results: Any) -> str:
    """Return what is wrong with the front of a study with two maximised objectives."""
    rows = {e.trial: e.objectives for e in results.leaderboard if str(e.state) == "finished"}
    best = {
        trial
        for trial, (a, b) in rows.items()
        if not any(c >= a and d >= b and (c, d) != (a, b) for c, d in rows.values())
    }
    front = {e.trial for e in results.leaderboard if e.front == 1}
    if not best or front != best:
        return f"the front is {sorted(front)}, but nothing dominates {sorted(best)}"
    return ""


def _mixed_space() -> Any:
    from hpo.spaces import Parameter, Space, make_distribution

    def parameter(name: str, default: Any, **fields: Any) -> Any:
        return Parameter(name, make_distribution(fields), default)

    return Space(
        (
            parameter("learning_rate", 3e-4, min=1e-5, max=1.0, distribution="log_uniform"),
            parameter("gamma", 0.99, min=0.8, max=0.9999, distribution="one_minus_log"),
            parameter("update_epochs", 4, min=1, max=8, distribution="int_uniform"),
            parameter("hidden_sizes", [16], values=[[16], [32]]),
        )
    )


def _sobol_difference() -> float:
    """Return the largest distance between the first 64 points of a study and SciPy's."""
    import warnings

    from scipy.stats import qmc

    from hpo.search.samplers.proposal_queue import Proposer
    from hpo.search.samplers.registry import PriorTrial, make_sampler
    from hpo.studies.env_spec import EnvSpec
    from hpo.studies.search_spec import SearchSpec
    from hpo.studies.spec import Study

    space = _mixed_space()
    study = Study(
        name="sobol",
        env=EnvSpec("CartPole-v1"),
        env_steps=16_000,
        space=space,
        seed=11,
        search=SearchSpec("sobol"),
    )
    proposer = Proposer(study, make_sampler(study))
    seen: list[PriorTrial] = []
    for batch, size in enumerate((10, 30, 25)):  # batches, drawn as by a study
        first = len(seen)
        found = proposer.propose(batch, range(first, first + size), seen).found
        seen += [PriorTrial(p.trial, p.params, p.attributes) for p in found]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        points = qmc.Sobol(len(space.keyed), rng=11).random(64)
    worst = 0.0
    from hpo.store.codec import plain_json

    for point, past in zip(points, seen[1:], strict=True):  # trial 0 is the default
        for share, (_, parameter) in zip(point, space.keyed, strict=True):
            axis, value = parameter.distribution.axis, past.params[parameter.name]
            wanted = plain_json(parameter.distribution.outward(axis.at(float(share))))
            if axis.kind == "real":
                worst = max(worst, abs(value - wanted))
            elif value != wanted:
                worst = max(worst, 1.0)
    return worst


def _contracts() -> tuple[int, str]:
    """Run the contract tests; return how many passed, and what failed."""
    files = ["tests/search/samplers/test_sampler.py", "tests/search/rules/test_pruner.py"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", *files]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    last = (done.stdout.strip().splitlines() or ["no output"])[-1]
    if done.returncode or "skipped" in last:
        return 0, f"contract tests: {last}"
    return int(last.split()[0]), ""


# ---------------------------------------------------------------------- point 8

_MANY, _MOST_MEGABYTES, _MOST_SECONDS = 5_000, 250, 0.5
_CHILD = """
import json, resource, sys
from pathlib import Path
import duckdb, optuna, pyarrow.parquet, scipy.stats
from hpo.search.samplers import via_optuna as optuna_tpe
from hpo.search.run import RunOptions, run
from acceptance_points.search_methods import large_study, resident_megabytes
study, factory = large_study(int(sys.argv[2]))
idle = resident_megabytes()
results = run(study, Path(sys.argv[1]), factory, (), RunOptions())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"idle": idle, "peak": peak, "trials": len(results.leaderboard),
                  "seconds": results.usage.run_seconds}))
"""


def scale(small: bool, work: Path) -> Outcome:
    """Run a study with 5,000 trials on a fake core; measure memory and the leaderboard query."""
    from hpo.store.query import query

    trials = 300 if small else _MANY
    folder = work / "large"
    words = [sys.executable, "-c", _CHILD, str(folder), str(trials)]
    done = subprocess.run(words, cwd=ROOT / "scripts", capture_output=True, text=True, check=False)
    if done.returncode:
        return Outcome(False, done.stderr.strip().splitlines()[-1])
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    sql = "SELECT trial, value, ci_low, ci_high, param.learning_rate FROM trials ORDER BY rank"
    query(folder, "SELECT 1")  # imports DuckDB
    times = []
    found = 0
    for _ in range(5):
        started = time.perf_counter()
        found = len(query(folder, f"{sql} LIMIT 20")[1])
        times.append(time.perf_counter() - started)
    grown, slowest = seen["peak"] - seen["idle"], max(times)
    held = grown <= _MOST_MEGABYTES and slowest < _MOST_SECONDS and seen["trials"] == trials
    held = held and found == 20
    numbers = (
        f"{seen['trials']} trials in {seen['seconds']:.0f} s; driver {seen['idle']:.0f} MB idle, "
        f"{seen['peak']:.0f} MB at most (+{grown:.0f}); leaderboard query {slowest:.3f} s"
    )
    return Outcome(held, numbers)


def resident_megabytes() -> float:
    """Return the current memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    import resource

    return pages * resource.getpagesize() / 2**20


def large_study(trials: int) -> tuple[Any, Any]:
    """Return a study with many short trials by TPE and ASHA, on lanes that cost nothing."""
    from helpers.analytic_lanes import AnalyticFactory
    from hpo.studies.env_spec import EnvSpec
    from hpo.studies.execution_spec import Budget
    from hpo.studies.search_spec import EarlyTerminate, SearchSpec, Seeds
    from hpo.studies.spec import Study

    space = _mixed_space()
    study = Study(
        name="large",
        env=EnvSpec("CartPole-v1"),
        env_steps=16_000,
        space=dataclasses.replace(space, parameters=space.parameters[:3]),
        search=SearchSpec("tpe"),
        early_terminate=EarlyTerminate("asha", 2_000, 4.0),
        seeds=Seeds(2),
        budget=Budget(trials=trials),
    )
    return study, AnalyticFactory(lanes=128, diverges_above=10.0)
