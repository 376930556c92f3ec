"""Point 5 on optical networks: PPO matches or beats ksp_ff within an hour."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import Any

from .cases import FIGURES, run_cases
from .common import ROOT, Outcome, call, hpo_command

STUDIES = ("deeprmsa", "nsfnet_rmsa")
SEEDS, REQUESTS = 40, 20_000
SMALL = ("env_steps=8192", "budget.trials=2", "evaluation.steps=100", "evaluation.episodes=1",
         "fixed.num_envs=8", "fixed.rollout_length=32", "early_terminate=off", "confirm=off",
         "env.warmup_requests=50", "eval_env.warmup_requests=50")  # fmt: skip


def learns(small: bool, work: Path) -> Outcome:
    """Run both studies, then compare each winner with ksp_ff on requests that no study used."""
    names = STUDIES[:1] if small else STUDIES
    return run_cases(dict.fromkeys(names, one), "optical_learning.json", small, work)


def one(name: str, small: bool, work: Path) -> Outcome:
    """Run one study on the command line and judge its winner."""
    file, hpo = ROOT / "studies" / f"{name}.yaml", hpo_command()
    changes = [word for change in SMALL for word in ("--set", change)] if small else []
    started, cpu_before = time.monotonic(), _cpu_of_children()
    call([*hpo, "run", file, "--out", work, "--json", *changes], work)
    minutes = (time.monotonic() - started) / 60.0
    cpu = (_cpu_of_children() - cpu_before) / 60.0
    study = work / name.replace("_", "-")
    policy = work / f"{name}-policy"
    words = ["best", "--study", study, "--export", policy, "--json"]
    winner = json.loads(call([*hpo, *words], work).stdout)
    size = (
        ["--seeds", "5", "--steps", "200"]
        if small
        else ["--seeds", str(SEEDS), "--steps", str(REQUESTS)]
    )
    words = ["eval", policy, "--heuristic", "ksp_ff,ff_ksp", "--seed", "1", "--json", *size]
    seen = json.loads(call([*hpo, *words], work).stdout)
    means = {row["rule"]: row["service_blocking_probability"]["mean"] for row in seen["results"]}
    apart = next(row for row in seen["differences"] if row["heuristic"] == "ksp_ff")
    draw(name, study, winner["trial"], work if small else FIGURES)
    return Outcome(
        small or apart["mean"] <= 0.0,
        f"winner {means[str(policy)]:.4f}, ksp_ff {means['ksp_ff']:.4f}, ff_ksp "
        f"{means['ff_ksp']:.4f}; less ksp_ff {apart['mean']:+.4f} [{apart['ci_low']:+.4f}, "
        f"{apart['ci_high']:+.4f}], {seen['seeds']} seeds x {seen['requests_per_seed']} requests; "
        f"{minutes:.0f} minutes, {cpu:.0f} CPU-minutes, trial {winner['trial']} "
        f"{shown(winner['params'])}",
    )


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shown(params: dict[str, Any]) -> str:
    """Return the winner's hyperparameters as a short text."""
    cells = (
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in params.items()
    )
    return "(" + ", ".join(cells) + ")"


def draw(name: str, study: Path, winner: int, folder: Path) -> None:
    """Draw the evaluations of all trials over env steps, with the baselines."""
    import matplotlib
    import pyarrow.parquet as pq

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = pq.read_table(study / "evaluations.parquet").to_pylist()
    curves: dict[int, dict[int, list[float]]] = {}
    for row in rows:
        if row["stream"] == "search":
            at = curves.setdefault(row["trial"], {})
            at.setdefault(row["env_steps"], []).append(row["service_blocking_probability"])
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for trial, points in sorted(curves.items()):
        first = trial == winner
        steps = sorted(points)
        axes.plot(
            steps,
            [sum(points[at]) / len(points[at]) for at in steps],
            marker=".",
            color="tab:blue" if first else "0.7",
            linewidth=2.0 if first else 0.8,
            zorder=3 if first else 2,
            label=f"trial {trial}, the winner" if first else None,
        )
    baselines = pq.read_table(study / "baselines.parquet").to_pylist()
    for color, baseline in zip(
        ("black", "tab:red"), dict.fromkeys(row["baseline"] for row in baselines), strict=False
    ):
        values = [
            row["value"]
            for row in baselines
            if (row["baseline"], row["stream"]) == (baseline, "search")
        ]
        axes.axhline(
            sum(values) / len(values), color=color, linestyle="--", linewidth=1, label=baseline
        )
    axes.set(
        xlabel="env steps",
        ylabel="service blocking of the greedy policy",
        title=f"studies/{name}.yaml, {len(curves)} trials, search streams",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
