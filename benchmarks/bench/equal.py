"""The share of configurations that a search's choice beats, by the cost of the search.

    hpo bench benchmarks/bench/budgets.yaml --to benchmarks/bench/budgets.json
    hpo bench benchmarks/bench/held_out.yaml --to benchmarks/bench/held_out.json
    python benchmarks/bench/equal.py budgets held_out docs/figures/search_budget.png
    hpo bench benchmarks/bench/rules.yaml --to benchmarks/bench/rules.json
    python benchmarks/bench/equal.py rules
    hpo bench benchmarks/bench/fair.yaml --jobs 2 --to benchmarks/bench/fair.json
    python benchmarks/bench/equal.py fair

It prints, for each plan and budget, by how many points its choice beats more configurations than
that of the old plan with 40 runs; intervals are over searches and tables. Rules and methods are
compared with the first of them at its budget, and the methods of `fair.yaml` with random search
at each budget. For comparison, it also prints and draws the default
and the best of all recorded configurations, chosen by all recorded seeds except those that judge
it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow.parquet as pq
from judges import HELD_OUT, interval

mpl.use("Agg")
import matplotlib.pyplot as plt

from hpo.search.bench import read_table
from hpo.search.bench.compare import needed
from hpo.search.seeds import generator

FOLDER = Path(__file__).parent
OLD, NEW = "tpe, 3 seeds, selection", "tpe, 1 seed, late rung"
FIRST = "tpe, asha"  # the first of the rules
RANDOM = "random"  # the baseline of fair.yaml
LABELS = {OLD: "first version of hpo init", NEW: "hpo init today"}
BOUNDS = ("the default", "the best of all recorded, by its other seeds")
BUDGET, RESAMPLES = 40, 4000
OLD_TEST, TEST = 32.0, 2 * 12.3  # full runs for the test of winner and default (interim.json)


class Searches:
    """Columns of all searches, [tables, searches]."""

    def __init__(self, path: Path):
        self.path, self.rows = path, pq.read_table(path).to_pandas().sort_values("search")
        self.tables = sorted(self.rows.environment.unique())
        self.budgets = sorted(self.rows.budget.unique())

    def of(self, method: str, budget: int, column: str) -> np.ndarray:
        own = self.rows[(self.rows.method == method) & (self.rows.budget == budget)]
        return np.array([own[own.environment == name][column] for name in self.tables])

    def runs(self, method: str, budget: int) -> float:
        parts = (self.of(method, budget, name).mean() for name in ("search_runs", "confirm_runs"))
        return float(sum(parts))

    def recorded(self) -> np.ndarray:
        """Return the shares beaten by the default and the best configuration, [tables, 2].

        These are means over searches, on the test seeds of each; the best is chosen on all other
        seeds.
        """
        bench, found = json.loads(self.path.with_suffix(".json").read_text())["bench"], []
        for table in (read_table(FOLDER / bench["tables"] / name) for name in self.tables):
            finals = table.finals if table.goal == "maximize" else -table.finals
            each = list[list[float]]()
            for search in range(bench["searches"]):
                order = generator(bench["seed"], "bench", search).permutation(table.seeds).tolist()
                test, others = order[: bench["test_seeds"]], order[bench["test_seeds"] :]
                best = int(finals[:, others].mean(axis=1).argmax())
                each.append([table.share_beaten(row, test) for row in (0, best)])
            found.append(np.mean(each, axis=0))
        return 100 * np.array(found)


def reached(found: Searches, method: str) -> tuple[float, float, float]:
    """Return `cost_ratio` of a method to OLD with its budget."""
    new = np.array([found.of(method, budget, "beats") for budget in found.budgets])
    runs = np.array([found.runs(method, budget) for budget in found.budgets])
    return cost_ratio(new, runs, found.of(OLD, BUDGET, "beats"), found.runs(OLD, BUDGET))


def cost_ratio(
    new: np.ndarray, runs: np.ndarray, old: np.ndarray, spent: float
) -> tuple[float, float, float]:
    """Return the runs at which `new` beats as many configurations as `old`, over those of `old`.

    `new` are shares [budgets, tables, searches], `old` are shares [tables, searches]. The 95 %
    interval is over both tables and searches. The mean share is made non-decreasing and
    interpolated over the logarithm of the runs. If the smallest budget is enough, it is an upper
    bound; if no budget is enough, the ratio is infinite.
    """
    rng, each = np.random.default_rng(0), list[float]()
    for draw in range(RESAMPLES + 1):
        tables, searches = np.arange(len(old)), np.indices(old.shape)[1]
        if draw:  # draw 0 is the data itself
            tables = rng.integers(0, len(old), len(old))
            searches = rng.integers(0, old.shape[1], old.shape)
        means = new[:, tables[:, None], searches].mean(axis=(1, 2))
        target = old[tables[:, None], searches].mean()
        each.append(float(needed(means, runs, target)[0]) / spent)
    low, high = np.quantile(each[1:], [0.025, 0.975], method="nearest")
    return each[0], float(low), float(high)


def rules(found: Searches) -> None:
    """Print gains over the first rule or method, on all tables and on held-out ones."""
    (budget,) = found.budgets
    base = found.of(FIRST, budget, "beats")
    new = [name in HELD_OUT for name in found.tables]
    for method in sorted(found.rows.method.unique()):
        gain = found.of(method, budget, "beats") - base
        words = ("{:+.1f} [{:.1f}, {:.1f}]".format(*interval(some)) for some in (gain, gain[new]))
        print(f"{method}, {found.runs(method, budget):.0f} runs: {'; held out '.join(words)}")
    print(bounds(found, base))


def budgets(found: Searches) -> None:
    """Print the gain of each plan and budget over OLD with its budget, and its cost."""
    before, spent = found.of(OLD, BUDGET, "beats"), found.runs(OLD, BUDGET)
    print(f"{len(found.tables)} tables: {', '.join(found.tables)}")
    for method in dict.fromkeys(found.rows.method):
        for budget in found.budgets:
            middle, low, high = interval(found.of(method, budget, "beats") - before)
            runs = found.runs(method, budget)
            ratio = (runs + (OLD_TEST if method == OLD else TEST)) / (spent + OLD_TEST)
            print(
                f"{method}, {runs:.0f} runs: {middle:+.1f} points [{low:.1f}, {high:.1f}]; "
                f"env steps {runs / spent:.2f}, with the test {ratio:.2f}"
            )
    for method in dict.fromkeys(found.rows.method):
        ratio, low, high = reached(found, method)
        least = found.runs(method, found.budgets[0]) / spent
        print(
            f"{method}: {ratio:.2f} [{low:.2f}, {high:.2f}] of the env steps beat as many; its "
            f"smallest budget is {least:.2f}"
        )
    print(bounds(found, before))


def gains_over_random(found: Searches) -> dict[str, list[list[float]]]:
    """Return method -> [points over random search without early stopping, for each budget]."""
    bases = {budget: found.of(RANDOM, budget, "beats") for budget in found.budgets}
    return {
        method: [interval(found.of(method, at, "beats") - base) for at, base in bases.items()]
        for method in sorted(found.rows.method.unique())
        if method != RANDOM
    }


def baselines(found: Searches) -> None:
    """Print each method's gain over random search without early stopping, at each budget."""
    for method, gains in gains_over_random(found).items():
        for budget, (middle, low, high) in zip(found.budgets, gains, strict=True):
            runs = found.runs(method, budget)
            print(f"{method}, {runs:.0f} runs: {middle:+.1f} points [{low:.1f}, {high:.1f}]")
    for budget in found.budgets:
        print(f"random, {budget}: {bounds(found, found.of(RANDOM, budget, 'beats'))}")


def bounds(found: Searches, beats: np.ndarray) -> str:
    default, best = found.recorded().mean(axis=0)
    return f"{100 * beats.mean():.0f} % beaten, by default {default:.0f}, at best {best:.0f}"


def draw(each: list[Searches], target: Path) -> None:
    """Draw the gains over OLD with its budget, with one panel per set of tables."""
    figure, axes = plt.subplots(1, len(each), figsize=(8, 3.6), sharey=True, squeeze=False)
    for axis, found in zip(axes[0], each, strict=True):
        before = found.of(OLD, BUDGET, "beats")
        for at, (method, label) in enumerate(LABELS.items()):
            gains = [interval(found.of(method, one, "beats") - before) for one in found.budgets]
            middle, low, high = np.transpose(gains)
            runs = [found.runs(method, budget) for budget in found.budgets]
            axis.errorbar(
                runs,
                middle,
                (middle - low, high - middle),
                None,
                color=f"C{at}",
                marker="o",
                capsize=3,
                label=label,
            )
        others = found.recorded().mean(axis=0) - 100 * before.mean()
        for bound, style, label in zip(others, ("--", ":"), BOUNDS, strict=True):
            axis.axhline(bound, color="grey", linestyle=style, label=label)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlabel("env steps, in full runs of one seed")
        held = all(f"held_out/{name}" in HELD_OUT for name in found.tables)
        part = "held out" if held else "which chose the plan"
        axis.set_title(f"{len(before)} tables, {part}", fontsize=10)
    axes[0, 0].set_ylabel("points more configurations beaten\nthan by the first version, 49 runs")
    axes[0, 0].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(target, dpi=100)


def main(*args: str) -> None:
    each = [Searches(FOLDER / f"{name}.parquet") for name in args if not name.endswith(".png")]
    for found in each:
        methods = set(found.rows.method)
        if FIRST in methods:
            rules(found)
        elif OLD in methods:
            budgets(found)
        else:
            baselines(found)
    if args[-1].endswith(".png"):
        draw(each, Path(args[-1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
