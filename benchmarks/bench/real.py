"""Plans of rungs and seeds by real studies on held-out environments.

    python benchmarks/bench/real.py                       # all, 10 searches each; resumes
    python benchmarks/bench/real.py Reacher-misc --searches 2

A study of `studies/held_out` gives environment, fixed values and space. Each plan searches it from
the same study seeds, default first, and its choice is trained on 8 test seeds.
Their mean is placed among the recorded random configurations (`results/held_out`, means over 8
seeds): the share that it beats, ties half. Prints each plan and its gain over the first;
intervals are over tables and searches. The same numbers are in `real.json`.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from judges import interval
from rungs import in_words

from hpo.search.api import run
from hpo.search.bench import read_table
from hpo.store.journal import Journal
from hpo.studies.load import load

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = (
    "Breakout-MinAtar", "FourRooms-misc", "MetaMaze-misc", "MountainCarContinuous-v0",
    "Reacher-misc", "Swimmer-misc",
)  # fmt: skip
SELECTION, TESTS = 9, 8  # full runs of one seed: three trials on three seeds, the winner's test
FIRST = ["early_terminate={type: asha, min: 10240, eta: 4}", "seeds={per_config: 3}"]
TODAY = ["early_terminate={type: asha}", "seeds={per_config: 1}", "metric={training_weight: 0.5}"]
BASE = "first version, 49 runs"
PLANS = {BASE: (FIRST, 40), "today's, 17 runs": (TODAY, 8), "today's, 49 runs": (TODAY, 40)}
COMMON = [
    "search={method: tpe}", "confirm={top_k: 3, choose: 3, report: 8, default: false}",
    "population={lanes: 12}", "log_every=null",
]  # fmt: skip


def search(name: str, plan: str, repetition: int, out: Path) -> dict[str, Any]:
    """Return the choice of one search: trial, values on test seeds, env steps of the search."""
    changes, full_runs = PLANS[plan]
    file = ROOT / "studies" / "held_out" / f"{name}.yaml"
    each = load(file).env_steps
    budget = f"budget={{trials: 10000, env_steps: {each * (full_runs + SELECTION + TESTS)}}}"
    title = f"{plan.replace(',', '').replace(chr(39), '').replace(' ', '-')}-{repetition:02d}"
    own = [f"name={title}", f"seed={repetition}", budget]
    results = run(load(file, overrides=[*COMMON, *changes, *own]), out / name)
    if results.state != "finished":
        raise KeyboardInterrupt
    with Journal(results.folder) as journal:
        tested = [row for row in journal.trials() if row.report_values]
        spent = sum(row.env_steps for row in journal.trials())
    (winner,) = tested
    return {"environment": name, "plan": plan, "search": repetition, "trial": winner.trial,
            "values": list(winner.report_values), "env_steps": spent}  # fmt: skip


def share_beaten(value: float, means: np.ndarray, goal: str) -> float:
    """Return the share of recorded configurations that are worse than a value, ties half."""
    worse = means < value if goal == "maximize" else means > value
    return float(np.mean(worse + 0.5 * (means == value)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare plans by real studies.")
    parser.add_argument("environments", nargs="*", default=ENVIRONMENTS, metavar="ENV")
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "plans")
    args = parser.parse_args()
    rows = list[dict[str, Any]]()
    for name, plan, repetition in product(args.environments, PLANS, range(args.searches)):
        table = read_table(ROOT / "results" / "held_out" / name)
        row = search(name, plan, repetition, args.out)
        mean = float(np.mean(row.pop("values")))
        beats = share_beaten(mean, table.finals[1:].mean(axis=1), table.goal)
        rows.append({**row, "mean": mean, "beats": beats})
        print(f"{name}, {plan}, {repetition}: {mean:.5g} beats {beats:.1%}", flush=True)
    told, shape = {}, (len(args.environments), args.searches)
    beats = {plan: np.array([row["beats"] for row in rows if row["plan"] == plan]).reshape(shape)
             for plan in PLANS}  # fmt: skip
    for plan, own in beats.items():
        told[plan] = {"beats": interval(own), "gain": interval(own - beats[BASE])}
        each = "  ".join(f"{100 * one:.0f}" for one in own.mean(axis=1))
        print(f"{plan:24}{told[plan]['beats'][0]:6.1f} %  {in_words(told[plan]['gain'])}  {each}")
    data = {"plans": told, "searches": rows}
    Path(__file__).with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
