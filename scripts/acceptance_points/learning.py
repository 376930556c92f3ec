"""Point 7: PPO reaches the expected returns, and its numbers are correct."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .bits import run_tests
from .cases import FIGURES
from .common import ROOT, Outcome, call, hpo_command

SEEDS_NEEDED = 9
WITHOUT_EXTRAS = (
    "tests/core/envs/test_from_jaxmarl.py::test_what_is_missing_is_said_with_what_to_type",
    "tests/core/envs/test_from_physics.py::test_missing_package_is_refused_with_the_extra",
)
"""Tests of the messages about missing packages, skipped if the packages are installed."""
LEFT_OUT = tuple(f"--deselect={test}" for test in WITHOUT_EXTRAS)
BASES = {"base_cartpole": (475.0, 200_000), "base_pendulum": (-200.0, 500_000)}


def base(small: bool, work: Path) -> Outcome:
    """Train the base configurations on ten seeds and draw their curves; run the core's tests."""
    passed, words = True, []
    for name, (threshold, most_steps) in BASES.items():
        found = train(name, work, small)
        values, steps = found["values"], found["env_steps"]
        good = sum(value >= threshold for value in values)
        passed &= small or (good >= SEEDS_NEEDED and len(values) == 10 and steps <= most_steps)
        worst, mean = min(values), sum(values) / len(values)
        words.append(
            f"{name}: {good} of {len(values)} seeds reach {threshold:g} at {steps:,} env steps "
            f"(mean {mean:.1f}, worst {worst:.1f})"
        )
        draw(name, found["evaluations"], threshold, work if small else FIGURES)
    if not small:
        words.append(f"{run_tests(['tests/core', *LEFT_OUT])} tests of the core hold")
    return Outcome(passed, "; ".join(words))


def train(
    name: str, work: Path, small: bool, overrides: tuple[str, ...] = (), called: str | None = None
) -> dict[str, Any]:
    """Run a base study on the command line; return its final values and all evaluations.

    Args:
        name: name of the file in studies/.
        work: a folder for results.
        small: only a few updates.
        overrides: `key=value` settings applied to the file.
        called: name of its results; None: the file's name.
    """
    file, folder = ROOT / "studies" / f"{name}.yaml", (called or name).replace("_", "-")
    words = [*hpo_command(), "run", file, "--out", work, "--name", folder, "--json"]
    for override in overrides:
        words += ["--set", override]
    if small:
        words += ["--set", "env_steps=20480", "--set", "evaluation.every=10240"]
        words += ["--set", "evaluation.episodes=5"]
    call(words, work)
    study = work / folder
    import pyarrow.parquet as pq

    trial = pq.read_table(study / "trials.parquet").to_pylist()[0]
    rows = pq.read_table(study / "evaluations.parquet").to_pylist()
    evaluations: dict[int, dict[int, list[float]]] = {}
    for row in rows:
        at = evaluations.setdefault(row["replicate"], {})
        at.setdefault(row["env_steps"], []).append(row["episode_return"])
    return {
        "values": trial["seed_values"],
        "env_steps": max(row["env_steps"] for row in rows),
        "evaluations": evaluations,
    }


def draw(
    name: str, evaluations: dict[int, dict[int, list[float]]], threshold: float, folder: Path
) -> None:
    """Draw one curve per seed: the mean of greedy episodes over env steps."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for replicate, points in sorted(evaluations.items()):
        steps = sorted(points)
        means = [sum(points[at]) / len(points[at]) for at in steps]
        axes.plot(steps, means, marker=".", linewidth=1.2, label=f"seed {replicate}")
    axes.axhline(threshold, color="black", linestyle="--", linewidth=1, label=f"{threshold:g}")
    axes.set(
        xlabel="env steps",
        ylabel="mean return of greedy episodes",
        title=f"{name}, {len(evaluations)} seeds",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, ncols=2)
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
