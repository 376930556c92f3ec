"""Whether finished trials predict the gain from as many trials again, on recorded runs.

    python benchmarks/bench/more_trials.py

It draws 2 x TRIALS recorded configurations. An estimate uses the first half on two search seeds,
and predicts how much better the choice from both halves will be. The gain is measured on all other
seeds. The draws from a table are split into thirds by the estimate: if the estimate is suitable
for ending a search, gains are smallest in its lowest third. It prints both in standard deviations
of the table's configurations, as means over 17 tables with 95 % intervals over tables and draws;
the same numbers are in `more_trials.json`.

- `normal`: true values are normal around their median, with the spread of the upper half minus
  the noise of seeds (the model of `store/verdict.py`); the expected highest posterior mean.
- `halves`: how much the best of all beats the best of a random half of them, on the same seeds.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from judges import HELD_OUT, TABLES, Runs, interval
from scipy import special

TRIALS, SEEDS, DRAWS = (8, 16, 32), 2, 600


def normal(values: np.ndarray) -> float:
    """Return the expected gain from as many trials again; values are [trials, seeds]."""
    trials, seeds = values.shape
    own = values - values.mean(axis=0)
    means = own.mean(axis=1)
    noise = ((own - means[:, None]) ** 2).sum() / ((trials - 1) * (seeds - 1))
    above = means - np.median(means)
    spread = max((above[above >= 0.0] ** 2).mean() - noise / seeds, 0.05 * noise)
    if spread <= 0.0:
        return 0.0
    kept = spread / (spread + noise / seeds)
    best, width = kept * above.max(), np.sqrt(kept * spread)  # of posterior means
    grid = np.linspace(best, max(best, 0.0) + 10.0 * width, 2001)
    return float(np.trapezoid(1.0 - special.ndtr(grid / width) ** trials, grid))


def halves(values: np.ndarray) -> float:
    """Return the best mean minus the expected best of a random half, exactly."""
    means = np.sort(values.mean(axis=1))[::-1]
    chance, left, total = 1.0, 0.0, len(means)
    for place, mean in enumerate(means[: total - total // 2 + 1]):
        here = chance * (total // 2) / (total - place)  # the best of the half has this rank
        left, chance = left + here * mean, chance - here
    return float(means[0] - left)


ESTIMATES = {"normal": normal, "halves": halves}


def seen(name: str, trials: int) -> dict[str, np.ndarray]:
    """Return estimate and gain for each draw, sorted into thirds: name -> [third, 2, draws]."""
    runs, draws = Runs(name), np.random.default_rng(0)
    total, recorded = runs.finals.shape
    scale, gains, said = runs.finals.mean(axis=1).std(), list[float](), list[list[float]]()
    for _ in range(DRAWS):
        rows, seeds = draws.permutation(total)[: 2 * trials], draws.permutation(recorded)
        shown = runs.mixed[np.ix_(rows, seeds[:SEEDS])]
        first, both = (rows[part.mean(axis=1).argmax()] for part in (shown[:trials], shown))
        test = runs.finals[:, seeds[SEEDS:]].mean(axis=1)
        gains.append((test[both] - test[first]) / scale)
        said.append([one(shown[:trials]) / scale for one in ESTIMATES.values()])
    found = {}
    for estimate, values in zip(ESTIMATES, np.array(said).T, strict=True):
        order = np.argsort(values, kind="stable")
        both = np.array([values, gains])[:, order]
        found[estimate] = np.stack(np.split(both, 3, axis=1))
    return found


def main() -> None:
    told = {}
    for trials in TRIALS:
        each = [seen(name, trials) for name in (*TABLES, *HELD_OUT)]
        for estimate in ESTIMATES:
            values = np.stack([one[estimate] for one in each], axis=2)  # [third, 2, table, draw]
            print(f"\n{trials} trials, {estimate}: third of the draws, expected gain, gain")
            thirds = []
            for third, (said, gain) in zip(("low", "middle", "high"), values, strict=True):
                ends = [[round(one / 100, 4) for one in interval(v)] for v in (said, gain)]
                row = dict(zip(("expected", "gain"), ends, strict=True))
                thirds.append({"third": third, **row})
                print(f"  {third:7} {row['expected']} {row['gain']}")
            told[f"{trials} trials, {estimate}"] = thirds
    path = Path(__file__).with_name("more_trials.json")
    path.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
