"""Writes `docs/figures/first_screen.png`, the README's picture: a benchmark, a study's curves.

Run from scripts/, after `hpo run studies/first.yaml`: `python -m docs_site.picture FOLDER`.
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
GREY, BLUE, ORANGE = "0.75", "#1f5f99", "#c4622d"


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
    trials = pq.read_table(study / "trials.parquet", columns=["trial", "rank"]).to_pylist()
    winner = min(trials, key=lambda row: row["rank"] or len(trials) + 1)["trial"]
    columns = ["trial", "stream", "replicate", "env_steps", "episode_return"]
    table = pq.read_table(study / "curves.parquet", columns=columns).to_pandas()
    for (trial, stream), rows in table.groupby(["trial", "stream"]):
        if stream == "choose":
            continue
        fresh = stream == "report"
        mean = rows.groupby("env_steps")["episode_return"].mean()
        colour = (BLUE if trial == winner else ORANGE) if fresh else GREY
        axes.plot(
            mean.index / 1000, mean, color=colour, lw=2.2 if fresh else 0.7, zorder=2 + fresh
        )
        if fresh:
            name = f"trial {trial}, the winner" if trial == winner else "the default"
            axes.annotate(
                name,
                (mean.index[-1] / 1000, mean.iloc[-1]),
                (-2, 4),
                color=colour,
                textcoords="offset points",
                ha="right",
                va="bottom",
            )
    searched = sum(row["trial"] >= 0 for row in trials)
    tested = table[table.stream == "report"].replicate.nunique()
    axes.set(
        title=f"{searched} trials of Pendulum; two\non {tested} test seeds",
        xlabel="thousand env steps of one seed",
        ylabel="episode return",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
