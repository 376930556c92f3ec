"""PPO, point 2, networks: studies that search only `network`, compared at equal env steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .cases import FIGURES
from .common import ROOT, Outcome, call, hpo_command

__all__ = ["NETWORK_CASES"]

Curves = dict[str, dict[int, dict[int, float]]]
"""Network -> replicate -> env steps -> mean of the evaluation."""
Final = dict[str, list[float]]
Rivals = dict[str, float]
"""Heuristic -> its mean on the requests used to evaluate the policies."""


def _memory_holds(first: Final, final: Final, rivals: Rivals) -> bool:
    return all(min(final[name]) >= 0.9 for name in ("lstm", "gru")) and max(final["mlp"]) <= 0.4


def _breakout_holds(first: Final, final: Final, rivals: Rivals) -> bool:
    return min(final["cnn"]) >= 5.0


def _links_hold(first: Final, final: Final, rivals: Rivals) -> bool:
    """Judge networks over links, which may learn all they can before their first evaluation."""
    if set(final) != {"mlp", "gnn", "transformer"} or "ff_ksp" not in rivals:
        return False
    better = sum(end < begin for begin, end in zip(first["mlp"], final["mlp"], strict=True))
    worst = max(max(final[name]) for name in ("gnn", "transformer"))
    mean = {name: sum(values) / len(values) for name, values in final.items()}
    as_good = max(mean["gnn"], mean["transformer"]) <= mean["mlp"]
    return better >= 4 and worst < rivals["ff_ksp"] and as_good


def compares(
    name: str,
    small: bool,
    work: Path,
    *,
    holds: Callable[[Final, Final, Rivals], bool],
    promise: str,
    small_steps: int = 4096,
    column: str = "episode_return",
) -> Outcome:
    """Train studies/<name>.yaml on its seeds, draw its curves, judge the final values.

    Args:
        name: name of the study.
        small: cut the run to `small_steps`; passes if it runs.
        work: a folder to work in.
        holds: decides from the values of all seeds, by network, at the first evaluation and at the
            end, and those of heuristics.
        promise: the same as text.
        small_steps: env steps of the short form.
        column: column of the table of evaluations.
    """
    curves = train(name, work, small, small_steps, column)
    first, final = at(curves, min), at(curves, max)
    rivals = read_rivals(work / name.replace("_", "-"))
    draw(name, curves, column.replace("_", " "), work if small else FIGURES)
    words = f"{told(final)} at the end, {told(first)} at the first evaluation"
    words += "".join(f", {rival} {value:.4g}" for rival, value in rivals.items())
    return Outcome(small or holds(first, final, rivals), f"{words} ({promise})")


NETWORK_CASES = {
    "memory_chain": partial(
        compares, holds=_memory_holds, promise="lstm and gru at least 0.9, mlp at most 0.4"
    ),
    "breakout_cnn": partial(
        compares, holds=_breakout_holds, promise="every seed of the cnn at least 5"
    ),
    "nsfnet_networks": partial(
        compares,
        holds=_links_hold,
        promise="every seed of gnn and transformer blocks less than ff_ksp, their means at most "
        "the mlp's, which blocks less at its end than at first on 4 of 5 seeds",
        small_steps=2048,
        column="service_blocking_probability",
    ),
}


def train(name: str, work: Path, small: bool, small_steps: int, column: str) -> Curves:
    """Run a study that searches `network` on the command line; return its evaluations.

    Args:
        name: name of studies/<name>.yaml.
        work: folder for the results.
        small: cut the run to `small_steps` env steps, with one evaluation at the end.
        small_steps: env steps of the short form.
        column: column of the table of evaluations.
    """
    words: list[str | Path] = [
        *hpo_command(),
        "run",
        ROOT / "studies" / f"{name}.yaml",
        "--out",
        work,
        "--json",
    ]
    if small:
        words += ["--set", f"env_steps={small_steps}", "--set", f"evaluation.every={small_steps}"]
        words += ["--set", "evaluation.episodes=4", "--set", "seeds.per_config=2"]
    call(words, work)
    return read_curves(work / name.replace("_", "-"), column)


def read_curves(study: Path, column: str) -> Curves:
    """Return the evaluations in a study's folder."""
    import pyarrow.parquet as pq

    trials = pq.read_table(study / "trials.parquet").to_pylist()
    values = {row["trial"]: row["param.network"] for row in trials}
    sums: dict[str, dict[int, dict[int, list[float]]]] = {}
    for row in pq.read_table(study / "evaluations.parquet").to_pylist():
        curve = sums.setdefault(values[row["trial"]], {}).setdefault(row["replicate"], {})
        curve.setdefault(row["env_steps"], []).append(row[column])
    return {
        value: {
            replicate: {at: sum(seen) / len(seen) for at, seen in sorted(points.items())}
            for replicate, points in sorted(curves.items())
        }
        for value, curves in sums.items()
    }


def read_rivals(study: Path) -> Rivals:
    """Return the heuristics' means on a study's search stream; only on optical networks."""
    import pyarrow.parquet as pq

    path = study / "baselines.parquet"
    found: dict[str, list[float]] = {}
    for row in pq.read_table(path).to_pylist() if path.exists() else []:
        if row["stream"] == "search":
            found.setdefault(row["baseline"], []).append(row["value"])
    return {name: sum(values) / len(values) for name, values in found.items()}


def at(curves: Curves, when: Callable[[Iterable[int]], int]) -> Final:
    """Return the value of every seed at its first (`min`) or last (`max`) evaluation."""
    return {
        name: [points[when(points)] for points in seeds.values()] for name, seeds in curves.items()
    }


def told(final: Mapping[str, list[float]]) -> str:
    """Return mean and range of each, as text."""
    return ", ".join(
        f"{name} {sum(values) / len(values):.4g} [{min(values):.4g}, {max(values):.4g}]"
        for name, values in final.items()
    )


def draw(name: str, curves: Curves, what: str, folder: Path) -> None:
    """Draw a thin curve per seed and a thick curve of their mean, in one colour per network."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    colours: dict[str, Any] = dict(zip(curves, plt.rcParams["axes.prop_cycle"], strict=False))
    for value, seeds in curves.items():
        colour = colours[value]["color"]
        for points in seeds.values():
            axes.plot(list(points), list(points.values()), color=colour, alpha=0.3, linewidth=1)
        steps = sorted(set.intersection(*(set(points) for points in seeds.values())))
        mean = [sum(points[at] for points in seeds.values()) / len(seeds) for at in steps]
        axes.plot(steps, mean, color=colour, linewidth=2.2, label=f"{value} ({len(seeds)} seeds)")
    axes.set(xlabel="env steps", ylabel=what, title=f"studies/{name}.yaml")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
