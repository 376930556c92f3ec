"""The short study of `hpo init` against random search with selection, by real studies.

    python benchmarks/bench/short_real.py                          # all, 10 searches each
    python benchmarks/bench/short_real.py DeepSea-bsuite --searches 2

The environments are those of `studies/portfolio`, on which no portfolio was learnt. The short
study runs the default and three learnt configurations, then the best one and the default on four
test seeds. It chooses the best one if that leads by one standard error, otherwise the default.
Random search trains 3, 24 or 48 configurations on one seed, then the best three on three selection
seeds.

Each choice is measured on seeds that nothing else used: 8 of its own study, or 40 for the default
and the learnt ones, which all short studies share. A score is 0 at the median of the recorded
configurations and 1 at the best one, which five seeds choose and the other three measure.
Intervals are over environments, by Student's t. Searches that are in `short_real.json` do not run
again.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hpo.search.api import run
from hpo.store.journal import Journal
from hpo.store.statistics import t_quantile
from hpo.studies.load import load

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from portfolio_parts.plans import AHEAD, is_ceiling  # noqa: E402
from portfolio_parts.sources import Source, read_sources  # noqa: E402

TABLES = ROOT / "results" / "portfolio"
FILE = Path(__file__).with_suffix(".json")
SHORT = "short, 12 runs"
RANDOM = {"random, 12 runs": 3, "random, 33 runs": 24, "random, 57 runs": 48}
PLANS = (SHORT, *RANDOM)
PLACES, TESTS, JUDGES = 3, 4, 3
SHARED_SEEDS = 40  # of the default and the learnt configurations
SPLITS = 400


def rows_of(name: str, title: str, seed: int, out: Path, changes: list[str]) -> list[Any]:
    """Run a study of the environment to its end, and return its trials."""
    file = ROOT / "studies" / "portfolio" / f"{name}.yaml"
    plain = load(file)
    weight = ["metric.training_weight=0.5"] if plain.metric.name == "eval/return_mean" else []
    own = [f"name={title}", f"seed={seed}", "log_every=null", "population={lanes: 12}"]
    results = run(load(file, overrides=[*own, *weight, *changes]), out / name)
    if results.state != "finished":
        raise KeyboardInterrupt
    with Journal(results.folder) as journal:
        return journal.trials()


def shared(name: str, out: Path) -> list[float]:
    """Return the means of the default and of the learnt configurations on the shared seeds."""
    changes = [
        f"search={{method: random, portfolio: {PLACES}}}",
        f"seeds={{per_config: {SHARED_SEEDS}}}",
        f"budget={{trials: {1 + PLACES}}}",
        "metric.training_weight=0",
    ]
    return [row.value for row in rows_of(name, "shared", 1000, out, changes)]


def short(name: str, repetition: int, out: Path) -> dict[str, Any]:
    """Return the trial that a short study chooses."""
    changes = [
        f"search={{method: random, portfolio: {PLACES}}}",
        "seeds={per_config: 1}",
        f"budget={{trials: {1 + PLACES}}}",
        f"confirm={{top_k: 1, choose: 0, report: {TESTS}}}",
    ]
    trials = rows_of(name, f"short-{repetition:02d}", repetition, out, changes)
    sign = 1.0 if load(ROOT / f"studies/portfolio/{name}.yaml").metric.goal == "maximize" else -1.0
    tested = [row for row in trials if row.report_values and row.trial > 0]
    if not tested:
        return {"trial": 0}
    (best,) = tested
    lead = sign * (np.array(best.report_values) - np.array(trials[0].report_values))
    leads = lead.mean() > AHEAD * lead.std(ddof=1) / np.sqrt(len(lead))
    return {"trial": best.trial if leads else 0}


def random_search(name: str, plan: str, repetition: int, out: Path) -> dict[str, Any]:
    """Return the trial that random search with selection chooses, and its mean on 8 test seeds."""
    changes = [
        "search={method: random}",
        "seeds={per_config: 1}",
        f"budget={{trials: {RANDOM[plan]}}}",
        "confirm={top_k: 3, choose: 3, report: 8, default: false}",
    ]
    title = f"random-{RANDOM[plan]}-{repetition:02d}"
    (winner,) = [
        row for row in rows_of(name, title, repetition, out, changes) if row.report_values
    ]
    return {"trial": winner.trial, "mean": float(np.mean(winner.report_values))}


def median_and_best(source: Source) -> tuple[float, float]:
    """Return the median configuration's value and the best one's, as larger is better."""
    draw = np.random.Generator(np.random.PCG64(5))
    medians, bests = list[float](), list[float]()
    for _ in range(SPLITS):
        order = draw.permutation(source.values.shape[1])
        means = source.values[:, order[:JUDGES]].mean(axis=1)
        chosen = source.values[:, order[JUDGES:]].mean(axis=1).argmax()
        medians.append(float(np.median(means)))
        bests.append(float(means[chosen]))
    return float(np.mean(medians)), float(np.mean(bests))


def interval(values: list[float]) -> list[float]:
    """Return the mean with Student's 95 % interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return [mean]
    reach = t_quantile(0.975, len(values) - 1) * float(
        np.std(values, ddof=1) / np.sqrt(len(values))
    )
    return [mean, mean - reach, mean + reach]


def compared(searches: list[dict[str, Any]], means: dict[str, list[float]]) -> dict[str, Any]:
    """Return each plan's scores: per environment over searches, and over environments."""
    sources = {source.name: source for source in read_sources(TABLES)}
    scores: dict[str, dict[str, float]] = {plan: {} for plan in ("the default", *PLANS)}
    for name, shared_means in means.items():
        if name not in sources or is_ceiling(sources[name]):
            continue
        goal = load(ROOT / f"studies/portfolio/{name}.yaml").metric.goal
        sign = 1.0 if goal == "maximize" else -1.0
        median, best = median_and_best(sources[name])
        values = {"the default": [sign * shared_means[0]]}
        for row in searches:
            if row["environment"] == name:
                mean = row["mean"] if "mean" in row else shared_means[row["trial"]]
                values.setdefault(row["plan"], []).append(sign * mean)
        for plan, some in values.items():
            scores[plan][name] = (float(np.mean(some)) - median) / (best - median)
    return {
        plan: {"score": interval(list(by_name.values())), "environments": by_name}
        for plan, by_name in scores.items()
        if by_name
    }


def differences(plans: dict[str, Any]) -> dict[str, list[float]]:
    """Return by how much the short study's score exceeds that of each plan, over environments."""
    own = plans[SHORT]["environments"]
    return {
        plan: interval([own[name] - score for name, score in one["environments"].items()])
        for plan, one in plans.items()
        if plan != SHORT
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare short studies with random search.")
    names = sorted(path.parent.name for path in TABLES.glob("*/trials.parquet"))
    parser.add_argument("environments", nargs="*", default=names, metavar="ENV")
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "short")
    args = parser.parse_args()
    kept = json.loads(FILE.read_text()) if FILE.exists() else {"shared": {}, "searches": []}
    means, searches = kept["shared"], kept["searches"]
    there = {(row["environment"], row["plan"], row["search"]) for row in searches}
    for name in args.environments:
        if name not in means:
            means[name] = shared(name, args.out)
    for repetition, name, plan in product(range(args.searches), args.environments, PLANS):
        if (name, plan, repetition) in there:
            continue
        if plan == SHORT:
            choice = short(name, repetition, args.out)
        else:
            choice = random_search(name, plan, repetition, args.out)
        row = {"environment": name, "plan": plan, "search": repetition, **choice}
        searches.append(row)
        print(row, flush=True)
        done = {"shared": means, "searches": searches}
        FILE.write_text(json.dumps(done, indent=1) + "\n")
    counted = [row for row in searches if row["search"] < args.searches]
    plans = compared(counted, means)
    for plan, one in plans.items():
        scores = {name: round(score, 2) for name, score in one["environments"].items()}
        print(plan, [round(value, 2) for value in one["score"]], scores)
    leads = differences(plans)
    for plan, lead in leads.items():
        print(f"{SHORT} minus {plan}", [round(value, 2) for value in lead])
    done = {"plans": plans, "leads": leads, "shared": means, "searches": searches}
    FILE.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
