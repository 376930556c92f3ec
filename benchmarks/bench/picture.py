"""Draw what a search finds over what it costs, from tables of `hpo bench`.

python benchmarks/bench/picture.py benchmarks/bench/budgets.json docs/figures/search_budget.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

COLUMNS = 3


def draw(source: Path, target: Path) -> None:
    """One panel a table: mean value of the choice, 95 % intervals, and the best trial started."""
    rows = json.loads(source.read_text())["rows"]
    tables = list(dict.fromkeys(row["environment"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = -(-len(tables) // COLUMNS)
    figure, axes = plt.subplots(lines, COLUMNS, figsize=(10, 3 * lines), squeeze=False)
    for axis, table in zip(axes.flat, tables, strict=False):
        for at, method in enumerate(methods):
            own = [row for row in rows if (row["environment"], row["method"]) == (table, method)]
            runs = [row["search_runs"] + row["confirm_runs"] for row in own]
            values = [row["value"] for row in own]
            spread = [[one["value"] - one["low"] for one in values],
                      [one["high"] - one["value"] for one in values]]  # fmt: skip
            axis.errorbar(runs, [one["value"] for one in values], spread, color=f"C{at}",
                          marker="o", markersize=3, capsize=2, label=method)  # fmt: skip
            axis.plot(runs, [row["oracle_value"] for row in own], color=f"C{at}", linestyle=":")
        axis.set_title(table)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlabel("full runs of one seed")
    for axis in axes.flat[len(tables) :]:
        axis.axis("off")
    axes.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(target, dpi=100)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
