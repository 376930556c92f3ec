"""Share of configurations that the choice beats, by the cost of a search.

    hpo bench benchmarks/bench/budgets.yaml --to benchmarks/bench/budgets.json
    python benchmarks/bench/equal.py budgets docs/figures/search_budget.png
    hpo bench benchmarks/bench/held_out.yaml --to benchmarks/bench/held_out.json
    python benchmarks/bench/equal.py held_out
    hpo bench benchmarks/bench/rules.yaml --to benchmarks/bench/rules.json
    python benchmarks/bench/equal.py rules

Prints, for each plan and budget, by how many points its choice beats more configurations than
that of the old plan with 40 runs; intervals over searches and tables. Dotted in the picture: the
best trial that was started, picked by all recorded seeds but those that judge it. Rules and
methods are compared with the first of them at its budget.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow.parquet as pq
from judges import HELD_OUT, interval

mpl.use("Agg")
import matplotlib.pyplot as plt

from hpo.search.bench.compare import needed

FOLDER = Path(__file__).parent
OLD, NEW = "tpe, 3 seeds, selection", "tpe, 1 seed, late rung"
FIRST = "tpe, asha"  # of the rules
BUDGET, RESAMPLES = 40, 4000
OLD_TEST, TEST = 32.0, 2 * 12.3  # full runs of the test of winner and default (interim.json)


class Searches:
    """Columns of all searches, [tables, searches]."""

    def __init__(self, path: Path):
        self.rows = pq.read_table(path).to_pandas().sort_values("search")
        self.tables = sorted(self.rows.environment.unique())
        self.budgets = sorted(self.rows.budget.unique())

    def of(self, method: str, budget: int, column: str) -> np.ndarray:
        own = self.rows[(self.rows.method == method) & (self.rows.budget == budget)]
        return np.array([own[own.environment == name][column] for name in self.tables])

    def runs(self, method: str, budget: int) -> float:
        parts = (self.of(method, budget, name).mean() for name in ("search_runs", "confirm_runs"))
        return float(sum(parts))


def reached(found: Searches, method: str) -> tuple[float, float, float]:
    """Return the env steps at which a method beats as many configurations as OLD with its budget.

    As a ratio, with its 95 % interval: the mean share over tables and searches, made
    non-decreasing, joined over the logarithm of the mean runs. The smallest budget bounds it
    from above where it is enough, and no budget makes it infinite.
    """
    new = np.array([found.of(method, budget, "beats") for budget in found.budgets])
    old, runs = found.of(OLD, BUDGET, "beats"), [found.runs(method, one) for one in found.budgets]
    spent, rng, each = found.runs(OLD, BUDGET), np.random.default_rng(0), []
    for draw in range(RESAMPLES + 1):
        tables, searches = np.arange(len(old)), np.indices(old.shape)[1]
        if draw:  # draw 0 is the data itself
            tables = rng.integers(0, len(old), len(old))
            searches = rng.integers(0, old.shape[1], old.shape)
        shares = new[:, tables[:, None], searches].mean(axis=(1, 2))
        target = old[tables[:, None], searches].mean()
        each.append(float(needed(shares, np.array(runs), target)[0]) / spent)
    low, high = np.quantile(each[1:], [0.025, 0.975], method="nearest")
    return each[0], float(low), float(high)


def rules(found: Searches) -> None:
    """Print the gain of each rule and method over the first, on all tables and the held-out."""
    (budget,) = found.budgets
    base = found.of(FIRST, budget, "beats")
    new = [name in HELD_OUT for name in found.tables]
    for method in sorted(found.rows.method.unique()):
        gain = found.of(method, budget, "beats") - base
        words = ("{:+.1f} [{:.1f}, {:.1f}]".format(*interval(some)) for some in (gain, gain[new]))
        print(f"{method}, {found.runs(method, budget):.0f} runs: {'; held out '.join(words)}")


def main(name: str, target: Path | None) -> None:
    found = Searches(FOLDER / f"{name}.parquet")
    if len(found.budgets) == 1:
        rules(found)
        return
    before = found.of(OLD, BUDGET, "beats")
    spent = found.runs(OLD, BUDGET)
    print(f"{len(found.tables)} tables: {', '.join(found.tables)}")
    for method in dict.fromkeys(found.rows.method):
        for budget in found.budgets:
            middle, low, high = interval(found.of(method, budget, "beats") - before)
            runs = found.runs(method, budget)
            ratio = (runs + (OLD_TEST if method == OLD else TEST)) / (spent + OLD_TEST)
            print(f"{method}, {runs:.0f} runs: {middle:+.1f} points [{low:.1f}, {high:.1f}]; "
                  f"env steps {runs / spent:.2f}, with the test {ratio:.2f}")  # fmt: skip
    for method in dict.fromkeys(found.rows.method):
        ratio, low, high = reached(found, method)
        least = found.runs(method, found.budgets[0]) / spent
        print(f"{method}: {ratio:.2f} [{low:.2f}, {high:.2f}] of the env steps beat as many; its "
              f"smallest budget is {least:.2f}")  # fmt: skip
    if target:
        draw(found, target)


def draw(found: Searches, target: Path) -> None:
    figure, axis = plt.subplots(figsize=(6, 3.6))
    for at, method in enumerate((OLD, NEW)):
        runs = [found.runs(method, budget) for budget in found.budgets]
        middle = [100 * found.of(method, budget, "beats").mean() for budget in found.budgets]
        best = [100 * found.of(method, budget, "oracle_beats").mean() for budget in found.budgets]
        axis.plot(runs, middle, color=f"C{at}", marker="o", label=method)
        axis.plot(runs, best, color=f"C{at}", linestyle=":", label="the best trial it started")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("env steps of search and selection, in full runs of one seed")
    axis.set_ylabel("configurations beaten, %")
    axis.legend()
    figure.tight_layout()
    figure.savefig(target, dpi=100)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
