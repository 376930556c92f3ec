"""Which rule chooses best among finished trials: means, posteriors or more seeds; recorded runs.

    python benchmarks/bench/judges.py

It draws 24 recorded configurations, the default first, all trained to their end on the same search
seeds. Each rule chooses one; test seeds, which no rule saw, show the share of all configurations
that the choice beats. It prints the mean over the nine tables that were also used to choose the
plan of `hpo init`, and the difference from `mean` there and on eight other tables, with 95 %
intervals over draws and tables; the same numbers are in `judges.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hpo.search.bench import read_table

ROOT = Path(__file__).resolve().parents[2] / "results"
TABLES = (
    "atlas/Acrobot-v1", "atlas/Pendulum-v1", "atlas/rsa-5node", "held_out/CartPole-v1",
    "held_out/MountainCar-v0", "held_out/MountainCarContinuous-v0", "held_out/PointRobot-misc",
    "held_out/Reacher-misc", "held_out/deeprmsa-nsfnet",
)  # fmt: skip
HELD_OUT = (  # not used to choose a plan
    "held_out/Breakout-MinAtar", "held_out/Catch-bsuite", "held_out/DiscountingChain-bsuite",
    "held_out/FourRooms-misc", "held_out/MetaMaze-misc", "held_out/Swimmer-misc",
    "held_out/UmbrellaChain-bsuite", "held_out/deeprmsa-cost239",
)  # fmt: skip
TRIALS, TESTS, DRAWS, RESAMPLES = 24, 2, 600, 2000
BASELINE = "mean"


class Runs:
    """Values for each configuration and seed, [c, s]; larger is better."""

    def __init__(self, name: str):
        self.table = table = read_table(ROOT / name)
        sign = 1.0 if table.goal == "maximize" else -1.0
        self.finals = sign * table.finals
        values = np.where(np.isfinite(table.values), table.values, table.finals[:, :, None])
        self.shown = values = sign * values  # at all points, [c, s, p]
        self.late = values[:, :, -max(2, values.shape[2] // 5) :].mean(axis=2)
        if "return" in table.metric:  # training measures the same quantity: use half of each
            trained = table.curves["episode_return_100"]
            trained = np.where(np.isfinite(trained), trained, np.nanmin(trained))
            self.shown = 0.5 * (values + trained)
        self.mixed = self.shown[:, :, -1]
        self.from_default = table.distances(table.params[0])


def smoothed(runs: Runs, rows: np.ndarray, values: np.ndarray, width: float) -> np.ndarray:
    """Return the posterior mean of a Gaussian process over the hyperparameters."""
    away = np.array([runs.table.distances(runs.table.params[row])[rows] for row in rows])
    middle, spread = np.median(values), values.std() + 1e-12
    known = np.clip((values - middle) / spread, -3.0, 3.0)
    kernel = np.exp(-0.5 * (away / width) ** 2)
    return kernel @ np.linalg.solve(kernel + 0.3 * np.eye(len(rows)), known)


def choices(runs: Runs, rows: np.ndarray, seeds: np.ndarray, count: int) -> dict[str, int]:
    """Return the row that each rule chooses; the search has the first `count` seeds."""
    own, more = seeds[:count], seeds[count : count + 3]
    mixed = runs.mixed[np.ix_(rows, own)]
    mean, best = mixed.mean(axis=1), np.argsort(-mixed.mean(axis=1))[:3]
    pooled = runs.mixed[np.ix_(rows[best], seeds[: count + 3])].mean(axis=1)
    prior = 0.3 * mean.std() * runs.from_default / runs.from_default.std()
    scores = {
        BASELINE: mean,
        "evaluation alone": runs.finals[np.ix_(rows, own)].mean(axis=1),
        "last fifth of the curve": 0.5 * mean + 0.5 * runs.late[np.ix_(rows, own)].mean(axis=1),
        "smoothed over hyperparameters": smoothed(runs, rows, mean, 0.2),
        "smoothed, wider": smoothed(runs, rows, mean, 0.35),
        "nearer to the default": mean - prior[rows],
        "all other seeds": runs.mixed[np.ix_(rows, seeds)].mean(axis=1),
    }
    if count > 1:
        scores["mean less half a deviation"] = mean - 0.5 * mixed.std(axis=1, ddof=1)
    found = {name: int(rows[score.argmax()]) for name, score in scores.items()}
    found["best 3 on 3 more seeds"] = int(
        rows[best[runs.mixed[np.ix_(rows[best], more)].mean(1).argmax()]]
    )
    found["the same, all seeds pooled"] = int(rows[best[pooled.argmax()]])
    return found


def shares(name: str, count: int) -> dict[str, np.ndarray]:
    """Return the share of configurations that each rule's choice beats, for every draw."""
    runs, draws = Runs(name), np.random.default_rng(0)
    total, recorded = runs.finals.shape
    found: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        rows = np.r_[0, draws.choice(np.arange(1, total), TRIALS - 1, replace=False)]
        seeds = draws.permutation(recorded)
        for judge, row in choices(runs, rows, seeds[TESTS:], count).items():
            found.setdefault(judge, []).append(runs.table.share_beaten(row, seeds[:TESTS]))
    return {judge: np.array(values) for judge, values in found.items()}


def interval(values: np.ndarray) -> list[float]:
    """Return the mean over tables and its 95 % interval, in points; values are [tables, draws]."""
    draws, means = np.random.default_rng(1), list[float]()
    for _ in range(RESAMPLES):
        rows = values[draws.integers(0, len(values), len(values))]
        again = np.take_along_axis(rows, draws.integers(0, rows.shape[1], rows.shape), 1)
        means.append(float(again.mean()))
    low, high = np.quantile(means, [0.025, 0.975])
    return [round(100 * float(one), 2) for one in (values.mean(), low, high)]


def main() -> None:
    told = {}
    for count in (1, 2):
        each = [shares(name, count) for name in (*TABLES, *HELD_OUT)]
        print(f"\n{TRIALS} trials, search seeds: {count}")
        for judge in each[0]:
            values = np.array([one[judge] for one in each])
            gains = values - np.array([one[BASELINE] for one in each])
            beats, nine = interval(values[: len(TABLES)]), interval(gains[: len(TABLES)])
            others, both = interval(gains[len(TABLES) :]), interval(gains)
            told[f"{judge}, {count}"] = {"beats": beats, "gain": nine, "held_out": others,
                                         "all": both}  # fmt: skip
            gains = (f"{x:+.1f} [{low:.1f}, {high:.1f}]" for x, low, high in (nine, others, both))
            words = "   ".join(gains)
            print(f"{judge:32}{beats[0]:6.1f} %   {words}")
    data = {"trials": TRIALS, "draws": DRAWS, "tables": [*TABLES, *HELD_OUT], "judges": told}
    Path(__file__).with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
