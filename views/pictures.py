"""Pictures as PNG, the one door to matplotlib: blocking over load, training curves."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..disk import output
from ..errors import MissingExtraError
from .network_results import Compared

__all__ = [
    "draw_curves",
    "draw_training",
    "new_figure",
    "require_matplotlib",
    "save_figure",
]

_DPI = 120


def require_matplotlib(purpose: str) -> None:
    """Refuse at once what needs a picture that cannot be drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot", purpose)


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure without a window; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: Path, kind: str = "png") -> None:
    """Write a figure, whole or not at all."""
    with output(path, "wb") as file:
        figure.savefig(file, dpi=_DPI, format=kind)


def draw_curves(path: Path, results: Sequence[Compared], title: str) -> None:
    """Draw service blocking over load, one line a rule, with its 95% interval."""
    figure = new_figure(8.0, 5.0)
    axes = figure.subplots()
    for item in results:
        seen = item.evaluation
        summaries = [seen.service_summary(at) for at in range(len(seen.loads))]
        means = np.array([s.mean if s.mean > 0.0 else np.nan for s in summaries])
        label = Path(item.rule).name or item.rule  # a policy's rule is the path of its folder
        [line] = axes.plot(seen.loads, means, marker=".", label=label)
        low = np.array([s.low for s in summaries])
        high = np.array([s.high for s in summaries])
        axes.fill_between(seen.loads, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    if any(np.any(item.evaluation.blocked > 0) for item in results):
        axes.set_yscale("log")
    axes.set_xlabel("load, Erlang")
    axes.set_ylabel("service blocking probability")
    axes.set_title(title, fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save_figure(figure, path)


Curve = Sequence[tuple[int, float]]
"""(env steps, return), in order."""


def draw_training(
    path: Path, seeds: Sequence[Curve], evaluations: Sequence[Curve], title: str
) -> None:
    """Draw the training return of every seed, their mean, and the evaluations.

    Args:
        path: of the PNG.
        seeds: one curve each.
        evaluations: one a seed; at each point the mean over seeds is drawn, with its range.
        title: above the picture.
    """
    figure = new_figure(8.0, 5.0)
    axes = figure.subplots()
    for curve in seeds:
        if curve:
            axes.plot(*zip(*curve, strict=True), color="#1f5f99", alpha=0.25, linewidth=0.8)
    mean = _over_seeds(seeds)
    if mean:
        at, values = zip(*((at, np.mean(found)) for at, found in mean), strict=True)
        axes.plot(at, values, color="#1f5f99", label=f"training, mean of {len(seeds)} seeds")
    points = _over_seeds(evaluations)
    if points:
        at = np.array([place for place, _ in points])
        middle = np.array([np.mean(found) for _, found in points])
        low = middle - np.array([min(found) for _, found in points])
        high = np.array([max(found) for _, found in points]) - middle
        axes.errorbar(
            at, middle, yerr=np.stack([low, high]), fmt="o", color="#c2571a", markersize=4,
            capsize=2, label="evaluation, mean and range over seeds",
        )  # fmt: skip
    axes.set_xlabel("env steps of each seed")
    axes.set_ylabel("episode return")
    axes.set_title(title, fontsize="medium")
    axes.grid(alpha=0.3)
    if mean or points:
        axes.legend(fontsize="small")
    save_figure(figure, path)


def _over_seeds(curves: Sequence[Curve]) -> list[tuple[int, list[float]]]:
    """Return (env steps, values) for each number of env steps."""
    found: dict[int, list[float]] = {}
    for curve in curves:
        for at, value in curve:
            found.setdefault(at, []).append(value)
    return sorted(found.items())
