"""Search points 1 and 8: every method with every rule; 5,000 trials in one driver."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .common import ROOT, Outcome

# ---------------------------------------------------------------------- point 1

METHODS = ("random", "grid", "sobol", "tpe", "gp", "cmaes", "nsga2", "smac")
RULES = ("asha", "hyperband", "median", "plateau", None)
_SMALL = (("tpe", "hyperband"), ("nsga2", "plateau"), ("cmaes", "asha"), ("sobol", "median"))


def everything(small: bool, work: Path) -> Outcome:
    """Run a small study to its end for every method and rule, then the contracts and Sobol."""
    pairs = _SMALL if small else tuple(itertools.product(METHODS, RULES))
    wrong: list[str] = []
    for method, rule in pairs:
        fault = _run_small(method, rule, work / f"{method}-{rule}")
        wrong += [f"{method} with {rule}: {fault}"] if fault else []
    sobol = _sobol_difference()
    wrong += [f"Sobol differs from SciPy's by {sobol}"] if sobol else []
    tests = 0
    if not small:
        tests, fault = _contracts()
        wrong += [fault] if fault else []
    numbers = f"{len(pairs)} studies ran to their end within budget; {tests} contract tests hold; "
    numbers += "64 Sobol points equal SciPy's"
    return Outcome(not wrong, numbers if not wrong else "; ".join(wrong[:4]))


def _run_small(method: str, rule: str | None, folder: Path) -> str:
    """Run a study of 24 trials bounded in env steps; say what is wrong, or nothing."""
    from hpo.search.analytic import AnalyticFactory
    from hpo.search.run import Settings, run
    from hpo.studies.spec import Budget, EarlyTerminate, EnvSpec, SearchSpec, Seeds, Study

    bound = 24 * 2 * 16_000
    options: dict[str, Any] = {"population_size": 6} if method == "nsga2" else {}
    options |= {"popsize": 4} if method == "cmaes" else {}
    study = Study(
        name="small",
        env=EnvSpec("CartPole-v1"),
        env_steps=16_000,
        space=_mixed_space(),
        search=SearchSpec(method, options=options),
        early_terminate=None if rule is None else EarlyTerminate(rule, 2_000, 2.0),
        seeds=Seeds(2),
        budget=Budget(trials=24, env_steps=bound),
    )
    factory = AnalyticFactory(lanes=8, diverges_above=0.3)
    results = run(study, folder, factory, (), Settings(publish_seconds=1e9))
    usage, entries = results.usage, results.leaderboard
    if results.state != "finished":
        return f"it is {results.state}"
    if usage.env_steps > bound:
        return f"{usage.env_steps} of {bound} env steps"
    if len(entries) != 24 or any(str(entry.state) in ("waiting", "running") for entry in entries):
        return f"{len(entries)} of 24 trials ended"
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
    """Give the largest distance between the first 64 points of a study and SciPy's."""
    import warnings

    from scipy.stats import qmc

    from hpo.search.methods import make_sampler
    from hpo.search.proposer import Proposer
    from hpo.search.sampler import Past
    from hpo.studies.spec import EnvSpec, SearchSpec, Study

    space = _mixed_space()
    study = Study("sobol", EnvSpec("CartPole-v1"), 16_000, space, seed=11,
                  search=SearchSpec("sobol"))  # fmt: skip
    proposer = Proposer(study, make_sampler(study))
    seen: list[Past] = []
    for batch, size in enumerate((10, 30, 25)):  # batches, as a study draws them
        first = len(seen)
        found = proposer.propose(batch, range(first, first + size), seen).found
        seen += [Past(p.trial, p.params, p.attributes) for p in found]
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
    """Run the contract tests; give how many held, and what failed."""
    files = ["tests/search/test_sampler.py", "tests/search/test_pruner.py"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", *files]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    last = (done.stdout.strip().splitlines() or ["no output"])[-1]
    if done.returncode or "skipped" in last:
        return 0, f"contract tests: {last}"
    return int(last.split()[0]), ""


# ---------------------------------------------------------------------- point 8

_TRIALS, _MOST_MEGABYTES, _MOST_SECONDS = 5_000, 250, 0.5
_CHILD = """
import json, resource, sys
from pathlib import Path
import duckdb, optuna, pyarrow.parquet, scipy.stats
from hpo.search import optuna_tpe
from hpo.search.run import Settings, run
from acceptance_points.search_methods import large_study, resident_megabytes
study, factory = large_study(int(sys.argv[2]))
idle = resident_megabytes()
results = run(study, Path(sys.argv[1]), factory, (), Settings())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"idle": idle, "peak": peak, "trials": len(results.leaderboard),
                  "seconds": results.usage.run_seconds}))
"""


def scale(small: bool, work: Path) -> Outcome:
    """Run a study of 5,000 trials on a fake core; measure memory and the leaderboard query."""
    from hpo.store.query import query

    trials = 300 if small else _TRIALS
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
    """Give the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    import resource

    return pages * resource.getpagesize() / 2**20


def large_study(trials: int) -> tuple[Any, Any]:
    """Give a study of many short trials by TPE and ASHA, and lanes that cost nothing."""
    from hpo.search.analytic import AnalyticFactory
    from hpo.studies.spec import Budget, EarlyTerminate, EnvSpec, SearchSpec, Seeds, Study

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
