"""Comparison of plans of rungs and seeds, in real studies on held-out environments.

    python benchmarks/bench/real.py                       # all, 10 searches each
    python benchmarks/bench/real.py Reacher-misc --searches 2 --plan "today's, 17 runs"

A study in `studies/held_out` defines environment, fixed values and space. Each plan searches it
from the same study seeds, with the default first, and its choice is trained on 8 test seeds. The
mean over these seeds is ranked among the recorded random configurations (`results/held_out`, means
over 8 seeds): the result is the share that it beats, where ties count half. If none are recorded,
only the means are compared. It prints each plan's gain over the first plan, on all tables and on
those that were not used to choose a plan; intervals are over tables and searches. Searches that
are in `real.json` are not run again.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from judges import HELD_OUT, interval
from scipy import stats

from hpo.search.api import run
from hpo.search.bench import read_table
from hpo.store.journal import Journal
from hpo.studies.load import load

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = (
    "Breakout-MinAtar", "FourRooms-misc", "MetaMaze-misc", "MountainCarContinuous-v0",
    "Reacher-misc", "Swimmer-misc", "deeprmsa-cost239", "deeprmsa-nsfnet", "double-pendulum",
    "lunarlander",
)  # fmt: skip
# full runs of one seed: three trials on three seeds, and the winner's test
SELECTION, TESTS = 9, 8
FIRST = ["early_terminate={type: asha, min: 10240, eta: 4}", "seeds={per_config: 3}"]
TODAY = ["early_terminate={type: asha}", "seeds={per_config: 1}"]
WEIGHT = "metric.training_weight=0.5"  # for current plans if the metric is a return
BASE = "first version, 49 runs"
PLANS = {
    BASE: ("tpe", FIRST, 40), "today's, 17 runs": ("tpe", TODAY, 8),
    "today's, 49 runs": ("tpe", TODAY, 40), "first version, random": ("random", FIRST, 40),
    "first version, smac": ("smac", FIRST, 40),
}  # fmt: skip
COMMON = [
    "confirm={top_k: 3, choose: 3, report: 8, default: false}",
    "population={lanes: 12}",
    "log_every=null",
]


def search(name: str, plan: str, repetition: int, out: Path) -> dict[str, Any]:
    """Return a search's chosen trial, its mean on test seeds, and the env steps used."""
    method, changes, full_runs = PLANS[plan]
    file = ROOT / "studies" / "held_out" / f"{name}.yaml"
    plain = load(file)
    weight = [WEIGHT] if changes is TODAY and plain.metric.name == "eval/return_mean" else []
    env_steps = plain.env_steps * (full_runs + SELECTION + TESTS)
    budget = f"budget={{trials: 10000, env_steps: {env_steps}}}"
    title = f"{plan.replace(',', '').replace(chr(39), '').replace(' ', '-')}-{repetition:02d}"
    own = [f"name={title}", f"seed={repetition}", budget, f"search={{method: {method}}}"]
    results = run(load(file, overrides=[*COMMON, *changes, *weight, *own]), out / name)
    if results.state != "finished":
        raise KeyboardInterrupt
    with Journal(results.folder) as journal:
        tested = [row for row in journal.trials() if row.report_values]
        spent = sum(row.env_steps for row in journal.trials())
    (winner,) = tested
    return {
        "environment": name,
        "plan": plan,
        "search": repetition,
        "trial": winner.trial,
        "env_steps": spent,
        "mean": float(np.mean(winner.report_values)),
    }


def share_beaten(value: float, means: np.ndarray, goal: str) -> float:
    """Return the share of recorded configurations worse than a value; ties count half."""
    worse = means < value if goal == "maximize" else means > value
    return float(np.mean(worse + 0.5 * (means == value)))


def beaten(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row, with the share of recorded configurations that its choice beats."""
    folder = ROOT / "results" / "held_out" / row["environment"]
    if not folder.exists():
        return row
    table = read_table(folder)
    return row | {"beats": share_beaten(row["mean"], table.finals[1:].mean(axis=1), table.goal)}


def compared(rows: list[dict[str, Any]], plan: str, tables: set[str]) -> dict[str, Any]:
    """Return a plan's share of beaten configurations and its gain over the first plan, by pairs.

    `tables` are the environments to include.
    """
    found = {
        (row["environment"], row["plan"], row["search"]): row["beats"]
        for row in rows
        if row["environment"] in tables and "beats" in row
    }
    pairs = dict[str, list[tuple[float, float]]]()
    for (name, other, repetition), value in found.items():
        if other == plan and (name, BASE, repetition) in found:
            pairs.setdefault(name, []).append((value, found[name, BASE, repetition]))
    searches = min(map(len, pairs.values()))
    ours, base = np.moveaxis(np.array([some[:searches] for some in pairs.values()]), 2, 0)
    gains = zip(pairs, (ours - base).mean(axis=1), strict=True)
    return {
        "searches": searches,
        "beats": interval(ours),
        "gain": interval(ours - base),
        "gains": {name: round(100 * float(gain), 1) for name, gain in gains},
    }


def untabled(rows: list[dict[str, Any]], name: str, plan: str) -> dict[str, Any]:
    """Return the mean for an environment without a table, and the gain over the first plan."""
    found = {
        (row["plan"], row["search"]): row["mean"] for row in rows if row["environment"] == name
    }
    own = {search: value for (other, search), value in found.items() if other == plan}
    gains = np.array(
        [value - found[BASE, search] for search, value in own.items() if (BASE, search) in found]
    )
    half = stats.t.ppf(0.975, len(gains) - 1) * stats.sem(gains) if plan != BASE else 0.0
    gain = [float(gains.mean() + end) for end in (0.0, -half, half)]
    return {"searches": len(gains), "mean": float(np.mean([*own.values()])), "gain": gain}


def table_row(plan: str, gains: dict[str, Any]) -> str:
    """Return a plan's row for docs/reference/search-methods.md, with its gains."""
    digits = [("all", 1), ("held_out", 1), ("double-pendulum", 0), ("lunarlander", 0)]
    form = "{0:.{3}f} [{1:.{3}f}, {2:.{3}f}]"
    cells = [
        form.format(*gains[where]["gain"], digit) if where in gains else "not run"
        for where, digit in digits
    ]
    return f"| {plan} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare plans by real studies.")
    parser.add_argument("environments", nargs="*", default=ENVIRONMENTS, metavar="ENV")
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--plan", action="append", choices=list(PLANS), metavar="PLAN")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "plans")
    args = parser.parse_args()
    file = Path(__file__).with_suffix(".json")
    rows: list[dict[str, Any]] = json.loads(file.read_text())["searches"]
    there = {(row["environment"], row["plan"], row["search"]) for row in rows}
    for repetition, name, plan in product(
        range(args.searches), args.environments, args.plan or PLANS
    ):
        if (name, plan, repetition) not in there:
            rows.append(beaten(search(name, plan, repetition, args.out)))
            print(rows[-1], flush=True)
            file.write_text(json.dumps({"plans": {}, "searches": rows}, indent=1) + "\n")
    tabled = {row["environment"] for row in rows if "beats" in row}
    new = {name for name in tabled if f"held_out/{name}" in HELD_OUT}
    plans = dict[str, Any]()
    for plan in [plan for plan in PLANS if any(row["plan"] == plan for row in rows)]:
        named = {row["environment"] for row in rows if row["plan"] == plan}
        plans[plan] = {"all": compared(rows, plan, tabled), "held_out": compared(rows, plan, new)}
        plans[plan] |= {name: untabled(rows, name, plan) for name in sorted(named - tabled)}
        print(plan)
        for where, one in plans[plan].items():
            gain = f"{one['gain'][0]:+.4g} [{one['gain'][1]:.4g}, {one['gain'][2]:.4g}]"
            print(f"  {where}: {gain}, {one['searches']} searches; {one.get('gains', '')}")
    print("\n".join(table_row(plan, plans[plan]) for plan in plans if plan != BASE))
    file.write_text(json.dumps({"plans": plans, "searches": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
