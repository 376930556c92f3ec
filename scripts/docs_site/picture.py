"""`docs/figures/first_screen.png`, the picture of the README: the benchmark, and a study's curves.

From scripts/, after `hpo run studies/pendulum.yaml`: `python -m docs_site.picture FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pyarrow.parquet as pq
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[2]
BENCHMARK = ROOT / "benchmarks" / "sweep_vs_loop.json"
FIGURE = ROOT / "docs" / "figures" / "first_screen.png"
GREY, BLUE = "0.72", "#1f5f99"


def main(study: Path) -> None:
    """Draw both halves."""
    matplotlib.use("agg")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 2.9), dpi=110, layout="constrained")
    _bars(left)
    _curves(right, study)
    figure.savefig(FIGURE)


def _bars(axes: Axes) -> None:
    seen = json.loads(BENCHMARK.read_text())
    rows = [
        ("Optuna +\nStable-Baselines3", seen["loop_seconds"], GREY),
        ("hpo", seen["loop_seconds"] / seen["ratio"], BLUE),
        ("hpo, stopping\nearly (ASHA)", seen["loop_seconds"] / seen["ratio_asha"], BLUE),
    ]
    for place, (_, seconds, colour) in enumerate(rows):
        axes.barh(place, seconds, color=colour)
        axes.text(seconds + 15, place, f"{seconds:,.0f} s", va="center")
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.invert_yaxis()
    axes.set(
        title="64 configurations of CartPole, two CPU cores",
        xlabel="seconds, compiling included",
        xlim=(0, 1.18 * rows[0][1]),
    )


def _curves(axes: Axes, study: Path) -> None:
    trials = pq.read_table(study / "trials.parquet", columns=["rank", "trial"]).to_pylist()
    best = min(trials, key=lambda row: row["rank"])["trial"]
    columns = ["trial", "stream", "replicate", "env_steps", "episode_return"]
    table = pq.read_table(study / "curves.parquet", columns=columns).to_pandas()
    table = table[table["stream"] == "search"]
    for trial, rows in table.groupby("trial"):
        mean = rows.groupby("env_steps")["episode_return"].mean()
        colour, width = (BLUE, 2.0) if trial == best else (GREY, 0.8)
        axes.plot(mean.index / 1000, mean, color=colour, lw=width, zorder=2 + (trial == best))
    axes.set(
        title=f"{len(trials)} trials of Pendulum, the winner in blue",
        xlabel="thousand env steps of one seed",
        ylabel="episode return",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
