"""Formats scores on several environments as text, for one trial or for two sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import clause, counted
from ..search.analysis.across_environments import EnvironmentScores
from ..store.aggregate_environments import Beside, BySeed, Estimate, on_each
from ..store.environment_columns import environment_names
from ..store.rows import Stream, StudyMeta
from ..store.unobserved import Bounds
from .formatting import aligned, around, between, folded, narrow, number, seeds_text

TOGETHER = {"mean": "mean of all", "iqm": "IQM of all", "worst": "worst"}
"""Aggregate over environments -> its name in tables."""
AGGREGATES_NOTE = (
    "Mean and IQM (interquartile mean) are over the runs on all environments. Worst is the lowest "
    "environment mean and has no interval. Intervals of IQMs are from a stratified bootstrap over "
    "each environment's seeds, with wider quantiles. Intervals of means are computed from each "
    "seed's mean over environments."
)


def signed(found: Estimate) -> str:
    return _estimate_text(found, "+.3g", ".3g")


def each_data(
    meta: StudyMeta, scores: EnvironmentScores, trial: int, value_from: str
) -> dict[str, Any] | None:
    if not value_from or not (seeds := scores.of(trial, Stream(value_from))):
        return None
    found = on_each(seeds, scores.bounds)
    rows = zip(environment_names(meta.environments), meta.environments, found.each, strict=True)
    return {
        "stream": value_from,
        "seeds": found.seeds,
        "lost": found.lost,
        "environments": [
            {"environment": name, **_score_data(one), "raw": _raw_value(scale, one.value)}
            for name, scale, one in rows
        ],
        "together": {over: _score_data(one) for over, one in found.together.items()},
    }


def _score_data(found: Estimate) -> dict[str, float | None]:
    ends = found.interval
    return {"score": found.value, "ci_low": ends.low, "ci_high": ends.high}


def _raw_value(scale: Mapping[str, Any], score: float | None) -> float | None:
    if score is None:
        return None
    low, high = float(scale["random"]), float(scale["reference"])
    return low + score * (high - low)


def each_text(data: Mapping[str, Any]) -> str:
    named = [(row["environment"], row, number(row["raw"])) for row in data["environments"]]
    named += [(TOGETHER[over], row, "") for over, row in data["together"].items()]
    rows = [
        [name, number(row["score"]), between(row["ci_low"], row["ci_high"]), raw]
        for name, row, raw in named
    ]
    lost = clause(", of which {} diverged", data["lost"])
    head = f"on each environment, {seeds_text(data['seeds'], data['stream'])}{lost}"
    header = ("environment", "score", "95% interval", "metric")
    return f"{head}\n{aligned(header, rows, (False, True, False, True))}"


def beside_lines(
    names: Sequence[str],
    sides: tuple[BySeed, BySeed],
    found: Beside,
    called: Sequence[str],
    bounds: Sequence[Bounds] = (),
) -> list[str]:
    a, b = (on_each(side, bounds) for side in sides)
    rows = [
        [
            name,
            number(x.value),
            number(y.value),
            signed(one.difference),
            _probability_text(one.probability),
        ]
        for name, x, y, one in zip(names, a.each, b.each, found.each, strict=True)
    ]
    over_all: list[list[str]] = []
    for over, name in TOGETHER.items():
        first, second = a.together[over], b.together[over]
        cells = [around(one.value, one.interval) for one in (first, second)]
        over_all.append([name, *cells, signed(found.differences[over])])
    header = ("environment", *called, "difference, 95%", "P(first better)")
    lines = [
        *narrow(header, rows, (False, True, True, False, False)),
        "",
        *narrow(("scores", *header[1:4]), over_all, (False,) * 4),
    ]
    if found.lost:
        lost = counted(found.lost, "diverged seed" if found.paired else "diverged run")
        lines.append(f"Differences exclude {lost}; P(first better) counts each as a loss.")
    likely = f"averaged over environments, the probability of improvement of {called[0]} "
    likely += f"over {called[1]} is {_probability_text(found.improvement)}"
    return [*lines, *folded(likely, 80).split("\n")]


def _probability_text(found: Estimate) -> str:
    return _estimate_text(found, ".2f", ".2f")


def _estimate_text(found: Estimate, value: str, ends: str) -> str:
    if found.value is None:
        return "-"
    shown = between(found.interval.low, found.interval.high, ends)
    return f"{found.value:{value}} {shown}".rstrip()
