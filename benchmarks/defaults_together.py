"""The defaults of several programs, over all environments that have a tuned record.

It combines studies over several environments in which equal trial numbers mean equal
configurations: studies/defaults_check.yaml, and returns.yaml and networks.yaml in
studies/defaults_elsewhere. Each score of each seed is stored in the file, so that the table can be
made from the file alone.

    python benchmarks/defaults_together.py results/defaults-check results/defaults-check-rest \\
        results/defaults-check-networks --out benchmarks/defaults_together.json
    python benchmarks/defaults_together.py --table benchmarks/defaults_together.json
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hpo.errors import HpoError
from hpo.search.analysis.across_environments import environment_scores
from hpo.store.aggregate_environments import (
    difference,
    overall,
    overall_interval,
    probability_of_improvement,
)
from hpo.store.journal import Journal
from hpo.store.rows import Stream
from hpo.store.statistics import Interval

TRIALS = {3: "this project", 0: "this project before 2026-11-23", 1: "CleanRL, purejaxrl",
          2: "Stable-Baselines3"}  # fmt: skip
CHOSE = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Catch-bsuite",
         "Breakout-MinAtar", "MountainCar-v0", "Asterix-MinAtar", "Freeway-MinAtar",
         "SpaceInvaders-MinAtar")  # fmt: skip
"""The environments of studies/defaults_check.yaml, used to choose the current default."""
Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""Owner of the defaults -> environment -> the score of each seed."""


def scores_of(folder: Path, known: dict[int, dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return the scores of one study, by its search seeds.

    Args:
        folder: folder of the study.
        known: trial -> its hyperparameters in earlier studies; this study's are added.

    Raises:
        ValueError: a trial is missing or has a different configuration than in an earlier study,
            or a seed has no score.
    """
    with Journal(folder) as journal, journal.at_one_commit():
        trials = list(journal.trials())
        found = environment_scores(journal, trials)
    for row in trials:
        before = known.setdefault(row.trial, {})
        if any(before.get(name, value) != value for name, value in row.params.items()):
            raise ValueError(
                f"{folder}: trial {row.trial} is another one than in the study before"
            )
        before |= row.params
    scores: dict[str, dict[str, list[float]]] = {}
    for trial, whose in TRIALS.items():
        seeds = found.of(trial, Stream.SEARCH)
        rows = [seeds[seed] for seed in sorted(seeds)]
        if not rows or not all(math.isfinite(score) for row in rows for score in row):
            raise ValueError(f"{folder}: trial {trial} has seeds without a score")
        scores[whose] = {
            name: list(column)
            for name, column in zip(found.names, zip(*rows, strict=True), strict=True)
        }
    return scores


def left_out(scores: Scores) -> list[tuple[str, str, float]]:
    """Leave out each environment in turn; return the best default by IQM and its gain there.

    The gain is the present default's IQM minus the former's; the gain left without the environment
    is given as a share.
    """

    def iqms(without: str | None) -> dict[str, float]:
        return {
            whose: overall([seeds for name, seeds in each.items() if name != without])
            for whose, each in scores.items()
        }

    def gain(found: Mapping[str, float]) -> float:
        return found[TRIALS[3]] - found[TRIALS[0]]

    whole = gain(iqms(None))
    rows: list[tuple[str, str, float]] = []
    for name in scores[TRIALS[3]]:
        found = iqms(name)
        rows.append((name, max(found, key=lambda whose: found[whose]), gain(found) / whole))
    return rows


def that_chose_nothing(scores: Scores) -> Scores:
    """Return the scores on the environments that were not used to choose the default."""
    return {
        whose: {name: seeds for name, seeds in each.items() if name not in CHOSE}
        for whose, each in scores.items()
    }


def over_environments(apart: Sequence[float]) -> tuple[float, Interval]:
    """Return the 25 % trimmed mean over environments, with Tukey and McLaughlin's interval.

    The environments are treated as a sample: each has one number, a mean over its seeds, so the
    interval contains the differences between environments, and the noise of seeds that remains in
    the means.

    Args:
        apart: for each environment, the difference between two defaults' scores; five or more.
    """
    ordered = np.sort(np.asarray(apart, float))
    count, cut = len(ordered), len(ordered) // 4
    left = count - 2 * cut
    centre = float(ordered[cut : count - cut].mean())
    pulled = np.clip(ordered, ordered[cut], ordered[count - cut - 1])
    error = math.sqrt(float(((pulled - pulled.mean()) ** 2).sum()) / (left * (left - 1)))
    reach = float(stats.t.ppf(0.975, left - 1)) * error
    return centre, Interval(centre - reach, centre + reach, "t")


def table(scores: Scores) -> str:
    """Return the rows as a Markdown table."""
    arrays = {whose: np.array(list(each.values())) for whose, each in scores.items()}
    ours = arrays[TRIALS[3]]
    lines = [
        "| defaults of | IQM | less ours, over seeds of these environments | "
        "less ours, over environments | ours ahead, behind | a run of ours is better |",
        f"|{'---|' * 6}",
    ]
    for whose, array in arrays.items():
        around = overall_interval(array, "iqm")
        cells = [whose, f"{overall(array, 'iqm'):.3f} [{around.low:.3f}, {around.high:.3f}]"]
        if whose == TRIALS[3]:
            lines.append(f"| **{cells[0]}** | **{cells[1]}** |{' |' * 4}")
            continue
        apart = array.mean(axis=1) - ours.mean(axis=1)
        for value, spread in (difference(array, ours, paired=True), over_environments(apart)):
            cells.append(f"{value:+.3f} [{spread.low:+.3f}, {spread.high:+.3f}]")
        chance, spread = probability_of_improvement(ours, array)
        cells += [
            f"{np.sum(apart < 0)}, {np.sum(apart > 0)}",
            f"{chance:.2f} [{spread.low:.2f}, {spread.high:.2f}]",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def each(scores: Scores) -> str:
    """Return the mean score on each environment as a Markdown table."""
    names = list(next(iter(scores.values())))
    lines = [f"| score | {' | '.join(scores)} |", f"|---|{'---|' * len(scores)}"]
    for name in names:
        means = [f"{np.mean(scores[whose][name]):.3f}" for whose in scores]
        lines.append(f"| {name} | {' | '.join(means)} |")
    return "\n".join(lines)


def main() -> int:
    """Print the tables; return 2 if a study cannot be read."""
    parser = argparse.ArgumentParser(description="Put the defaults together over all studies.")
    parser.add_argument("studies", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--table", type=Path, metavar="FILE", help="of an earlier run")
    args = parser.parse_args()
    if bool(args.studies) == (args.table is not None):
        parser.error("give folders of studies, or --table FILE")
    try:
        found: dict[str, dict[str, Any]] = {whose: {} for whose in TRIALS.values()}
        knobs: dict[int, dict[str, Any]] = {}
        for folder in args.studies:
            for whose, scores in scores_of(folder, knobs).items():
                twice = sorted(found[whose].keys() & scores.keys())
                if twice:
                    raise ValueError(
                        f"{folder}: {', '.join(twice)} came with an earlier study, too"
                    )
                found[whose] |= scores
    except (HpoError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if args.table is not None:
        found = json.loads(args.table.read_text())
    print(table(found), table(that_chose_nothing(found)), each(found), sep="\n\n")
    rows = left_out(found)
    least = min(rows, key=lambda row: row[2])
    print(
        f"\nhighest IQM without any one environment: {', '.join(sorted({row[1] for row in rows}))}"
    )
    print(f"without {least[0]} {least[2]:.0%} of the gain over the former default is left")
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
