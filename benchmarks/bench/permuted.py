"""How often a study with twelve runs gives a verdict although all configurations are equal.

    python benchmarks/bench/permuted.py

Each replay shuffles the configurations of a recorded table within every seed, so that all
configurations have the same distribution of values, and effects of seeds are kept. The study is
the one that `hpo init` writes: the default and three others run on one seed, then the best one and
the default on four test seeds, and on three more if these do not decide. Every *better* or *worse*
is an error, including conditional ones. It prints the rates and writes `permuted.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import yaml

from hpo.search.bench import read_table
from hpo.search.bench.tables import BenchTable
from hpo.store.against import Against
from hpo.store.unobserved import Bounds
from hpo.store.value_bounds import metric_range
from hpo.store.verdict import Evidence, conclude

ROOT = Path(__file__).resolve().parents[2] / "results"
FOLDERS = ("atlas", "held_out", "portfolio")
OTHERS, FIRST, MORE = 3, 4, 3
REPLAYS = 1000
KINDS = ("first look", "both looks", "with a condition")


def main() -> None:
    rates: dict[str, dict[str, float]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*/trials.parquet")):
            rates[path.parent.name] = rates_of(read_table(path.parent))
    print(f"{'table':<28}", *(f"{kind:>17}" for kind in KINDS))
    for name, rate in rates.items():
        print(f"{name:<28}", *(f"{rate[kind]:>17.1%}" for kind in KINDS))
    means = {kind: float(np.mean([rate[kind] for rate in rates.values()])) for kind in KINDS}
    print(f"{'mean':<28}", *(f"{means[kind]:>17.1%}" for kind in KINDS))
    found = {"replays": REPLAYS, "means": means, "tables": rates}
    Path(__file__).with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")


def rates_of(table: BenchTable) -> dict[str, float]:
    """Return the share of replays with a wrong verdict, for each of KINDS."""
    rng, bounds = np.random.default_rng(0), bounds_of(table)
    wrong = dict.fromkeys(KINDS, 0)
    for _ in range(REPLAYS):
        # [c, s]: values of the default (row 0) and of three others
        values = rng.permuted(table.finals, axis=0)[: 1 + OTHERS, rng.permutation(table.seeds)]
        searched = values[:, 0] if table.goal == "maximize" else -values[:, 0]
        winner = int(searched.argmax())
        if winner == 0:
            continue
        first = verdict(table.goal, values[winner, 1:], values[0, 1:], bounds, looks=1)
        second = verdict(table.goal, values[winner, 1:], values[0, 1:], bounds, looks=2)
        wrong["first look"] += is_said(first)
        wrong["both looks"] += is_said(first) or is_said(second)
        wrong["with a condition"] += any(one.unless is not None for one in (first, second))
    return {kind: count / REPLAYS for kind, count in wrong.items()}


def bounds_of(table: BenchTable) -> Bounds:
    """Return the range of the metric that `hpo run` uses."""
    study = yaml.safe_load(table.study_text)
    return metric_range(table.metric, study["env"], study["space"])


def verdict(
    goal: str, winner: np.ndarray, default: np.ndarray, bounds: Bounds, looks: int
) -> Against:
    """Return the verdict after one or two looks at test seeds."""
    seen = FIRST if looks == 1 else FIRST + MORE
    sides = [dict(enumerate(side[:seen].tolist())) for side in (winner, default)]
    earlier = [FIRST] if looks == 2 else []
    return conclude(Evidence(*sides, goal=goal, bounds=bounds, earlier=earlier)).against


def is_said(against: Against) -> bool:
    return against.verdict in ("better", "worse")


if __name__ == "__main__":
    main()
