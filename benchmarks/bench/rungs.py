"""Rungs, number of seeds and selection, compared by successive halving over recorded runs.

    python benchmarks/bench/rungs.py

Every plan spends the same on random configurations: all start on the search seeds, the best 1/eta
continue at each rung, and the best 3 of those that finish may run on 3 more seeds. Test seeds show
the share of all configurations that the choice beats. For every table, it uses the plan that is
best on the *other* tables, as for a default tuned elsewhere, with the cost of choosing as well as
the first plan with 49 runs. It prints the plans and writes `rungs.json`; intervals are over tables
and draws.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from equal import cost_ratio
from judges import TABLES, TESTS, Runs, interval

RUNGS = {  # shares of the run, and eta
    "none": ((), 1), "30 %": ((0.3,), 4), "5, 20, 80 %": ((0.05, 0.2, 0.8), 4),
    "10, 40 %": ((0.1, 0.4), 4), "10, 30, 90 %": ((0.1, 0.3, 0.9), 3),
    "10, 20, 40, 80 %": ((0.1, 0.2, 0.4, 0.8), 2),
    "20, 60 %": ((0.2, 0.6), 3), "20, 80 %": ((0.2, 0.8), 4), "30, 90 %": ((0.3, 0.9), 3),
    "20, 40, 80 %": ((0.2, 0.4, 0.8), 2), "30, 60 %": ((0.3, 0.6), 2),
    "50 %": ((0.5,), 2), "50 %, eta 3": ((0.5,), 3),
}  # fmt: skip
SEEDS, BUDGETS, DRAWS = (1, 2, 3), (20, 32, 49), 300
FINER = (14, 16, 18, 20, 24, 28, 32, 40, 49)  # budgets for the cost of an equally good choice
CHOSEN, SELECTION = 3, 3  # trials and seeds in the selection stage
OLD = ("5, 20, 80 %", 3, True)  # the first plan written by `hpo init`
BEFORE = ("5, 20, 80 %", 2, False)  # the plan until 2026-11-27


def points_of(runs: Runs, shares: tuple[float, ...]) -> list[int]:
    """Return the recorded points, from 1: with ten points, 5 % of a run is the first, at 10 %."""
    return sorted({max(1, round(share * runs.shown.shape[2])) for share in shares})


def cost_of(trials: int, points: list[int], length: int, eta: int) -> float:
    """Return the cost in full runs of one seed, per search seed."""
    cost, alive, before = 0, trials, 0
    for point in points:
        cost, before = cost + alive * (point - before), point
        alive = -(-alive // eta)
    return (cost + alive * (length - before)) / length


def chosen(runs: Runs, rows: np.ndarray, seeds: np.ndarray, plan: tuple[str, int, bool]) -> int:
    """Return the row that a plan chooses."""
    (shares, eta), own = RUNGS[plan[0]], seeds[: plan[1]]
    for point in points_of(runs, shares):
        values = runs.shown[rows][:, own, point - 1].mean(axis=1)
        rows = rows[np.argsort(-values)[: -(-len(rows) // eta)]]
    best = rows[np.argsort(-runs.mixed[np.ix_(rows, own)].mean(axis=1))]
    if not plan[2]:
        return int(best[0])
    best, fresh = best[:CHOSEN], seeds[plan[1] : plan[1] + SELECTION]
    return int(best[runs.mixed[np.ix_(best, fresh)].mean(axis=1).argmax()])


def shares(
    runs: Runs, plan: tuple[str, int, bool], budgets: tuple[int, ...] = BUDGETS
) -> np.ndarray:
    """Return the share of configurations that the choice beats, [budgets, draws]."""
    draws, (total, recorded) = np.random.default_rng(0), runs.finals.shape
    points, eta = points_of(runs, RUNGS[plan[0]][0]), RUNGS[plan[0]][1]
    length = runs.shown.shape[2]
    found = np.zeros((len(budgets), DRAWS))
    for place, draw in itertools.product(range(len(budgets)), range(DRAWS)):
        left = (budgets[place] - CHOSEN * SELECTION * plan[2]) / plan[1]
        fits = [n for n in range(2, total) if cost_of(n, points, length, eta) <= left]
        count = max(fits, default=2)
        rows = np.r_[0, draws.choice(np.arange(1, total), count - 1, replace=False)]
        seeds = draws.permutation(recorded)
        row = chosen(runs, rows, seeds[TESTS:], plan)
        found[place, draw] = runs.table.share_beaten(row, seeds[:TESTS])
    return found


def in_words(gain: Sequence[float]) -> str:
    return f"{gain[0]:+.1f} [{gain[1]:.1f}, {gain[2]:.1f}]"


def main() -> None:
    plans = list(itertools.product(RUNGS, SEEDS, (False, True)))
    tables = [Runs(name) for name in TABLES]
    found = np.array([[shares(runs, plan) for runs in tables] for plan in plans])
    means = found.mean(axis=(2, 3))  # [plans, tables]
    told = []
    old = found[plans.index(OLD)]
    for plan, own in sorted(zip(plans, found, strict=True), key=lambda one: -one[1].mean()):
        gain = interval((own - old).reshape(len(tables), -1))
        each = [round(100 * float(one), 1) for one in own.mean(axis=(0, 2))]
        beats = round(100 * float(own.mean()), 1)
        row = dict(zip(("rungs", "seeds", "selection"), plan, strict=True))
        told.append({**row, "beats": beats, "budgets": each, "gain": gain})
        stage = "3 x 3" if plan[2] else ""
        print(f"{plan[0]:18} {plan[1]} seeds {stage:6} {beats}  {each}  {in_words(gain)}")
    taken = [np.delete(means, at, axis=1).mean(axis=1).argmax() for at in range(len(tables))]
    left_out = np.array([found[plan, at] for at, plan in enumerate(taken)])
    result = {"plans": told, "left_out": {}}
    for name, base in (("old", OLD), ("before", BEFORE)):
        gain = interval((left_out - found[plans.index(base)]).reshape(len(tables), -1))
        result["left_out"][name] = gain
        print(f"\nbest on the other tables, over {base}: {in_words(gain)}")
    finer = np.array(
        [shares(runs, plans[plan], FINER) for runs, plan in zip(tables, taken, strict=True)]
    )
    first = np.array([shares(runs, OLD, FINER[-1:])[0] for runs in tables])
    ratio = cost_ratio(np.moveaxis(finer, 1, 0), np.array(FINER, float), first, FINER[-1])
    result["left_out"]["ratio"] = [round(one, 2) for one in ratio]
    print(
        f"it beats as many with {ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}] of the env steps"
    )
    for at, plan in enumerate(taken):
        result["left_out"][TABLES[at]] = list(plans[plan])
        print(f"{TABLES[at]}: {plans[plan]}, {100 * left_out[at].mean():.1f}")
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
