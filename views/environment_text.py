"""Scores over several environments as text: of a trial, of two sides, and with one left out.

The report shows the same numbers (`report/environments_section.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import counted
from ..search.analysis.across_environments import EnvironmentScores, LeaveOneOut, Side
from ..store.environment_columns import environment_names
from ..store.rows import Stream, StudyMeta
from ..store.score_tables import Beside, BySeed, Estimate, OnEach, on_each
from .formatting import aligned, between, folded, narrow, number

TOGETHER = {"mean": "mean of all", "iqm": "IQM of all", "worst": "worst"}
"""Aggregates over environments -> what tables call them."""
AGGREGATES_NOTE = (
    "Of all: over runs on all environments (IQM: without a quarter of them at either end); worst: "
    "the lowest of the environments' means. Their intervals draw seeds anew in each environment "
    "(stratified bootstrap), for a difference of IQMs with wider quantiles. A difference of means "
    "has that of a mean over seeds, one of the worst has none."
)
_STREAMS = {
    Stream.REPORT: "that chose nothing",
    Stream.CHOOSE: "that chose among the confirmed",
    Stream.SEARCH: "of the search",
}


def seeds_words(count: int, stream: Stream) -> str:
    """Return how many seeds of which kind.

    >>> seeds_words(16, Stream.REPORT)
    '16 seeds that chose nothing'
    """
    return f"{counted(count, 'seed')} {_STREAMS[stream]}"


def signed(found: Estimate) -> str:
    """Return a difference with its sign and interval; "-" without one."""
    return _told(found, "+.3g", ".3g")


def each_data(
    meta: StudyMeta, scores: EnvironmentScores, trial: int, value_from: str
) -> dict[str, Any] | None:
    """Return the scores of a trial on each environment, from the seeds behind its value.

    None where the study is over one environment, or the trial has no value.
    """
    seeds = scores.of(trial, Stream(value_from)) if value_from else {}
    if not seeds:
        return None
    found = on_each(seeds)
    rows = zip(environment_names(meta.environments), meta.environments, found.each, strict=True)
    return {
        "stream": value_from,
        "seeds": found.seeds,
        "lost": found.lost,
        "environments": [
            {"environment": name, **_plain(one), "raw": _raw(scale, one)}
            for name, scale, one in rows
        ],
        "together": {over: _plain(one) for over, one in found.together.items()},
    }


def _plain(found: Estimate) -> dict[str, float | None]:
    around = found.interval
    return {"score": found.value, "ci_low": around.low, "ci_high": around.high}


def _raw(scale: Mapping[str, Any], found: Estimate) -> float | None:
    """Return the metric as it is, from its score."""
    if found.value is None:
        return None
    low, high = float(scale["random"]), float(scale["reference"])
    return low + found.value * (high - low)


def each_text(data: Mapping[str, Any]) -> str:
    """Return what `each_data` gives as a table."""
    rows = [
        [row["environment"], number(row["score"]), between(row["ci_low"], row["ci_high"]),
         number(row["raw"])]
        for row in data["environments"]
    ]  # fmt: skip
    for over, row in data["together"].items():
        rows.append([TOGETHER[over], number(row["score"]),
                     between(row["ci_low"], row["ci_high"]), ""])  # fmt: skip
    lost = f", of which {data['lost']} diverged" if data["lost"] else ""
    head = f"on each environment, {seeds_words(data['seeds'], Stream(data['stream']))}{lost}"
    header = ("environment", "score", "95% interval", "metric")
    return f"{head}\n{aligned(header, rows, (False, True, False, True))}"


def beside_lines(
    names: Sequence[str], sides: tuple[BySeed, BySeed], found: Beside, letters: str = "AB"
) -> list[str]:
    """Return two sides on each environment as lines of a table, and what they say together."""
    a, b = (on_each(side) for side in sides)
    rows = [
        [name, number(x.value), number(y.value), signed(one.difference), _chance(one.probability)]
        for name, x, y, one in zip(names, a.each, b.each, found.each, strict=True)
    ]
    header = ("environment", *letters, "difference, 95%", "P(A > B)")
    return [
        *narrow(header, rows, (False, True, True, False, False)),
        "",
        *_together(a, b, found, letters),
        *_lost(found),
        f"over environments a run of {letters[0]} beats one of {letters[1]} with probability "
        f"{_chance(found.improvement)}",
    ]


def _together(a: OnEach, b: OnEach, found: Beside, letters: str) -> list[str]:
    rows = [
        [
            name,
            *(_with_interval(side.together[over]) for side in (a, b)),
            signed(found.differences[over]),
        ]
        for over, name in TOGETHER.items()
    ]
    return narrow(("scores", *letters, "difference, 95%"), rows, (False,) * 4)


def _lost(found: Beside) -> list[str]:
    what = counted(found.lost, "seed" if found.paired else "run")
    return [f"{what} diverged: in no difference, and beaten"] if found.lost else []


def _with_interval(found: Estimate) -> str:
    around = between(found.interval.low, found.interval.high)
    return f"{number(found.value)} {around}".rstrip()


def _chance(found: Estimate) -> str:
    return _told(found, ".2f", ".2f")


def _told(found: Estimate, value: str, ends: str) -> str:
    """Return an estimate with its interval, both as Python formats them; "-" without one."""
    if found.value is None:
        return "-"
    around = between(found.interval.low, found.interval.high, ends)
    return f"{found.value:{value}} {around}".rstrip()


def left_out_text(found: LeaveOneOut) -> str:
    """Return what choices without one environment get there."""
    seeds = counted(found.choosing_seeds, "seed")
    lines = [
        f"{found.study}: each environment left out of the choice among "
        f"{counted(found.candidates, 'finished trial')}",
        f"chosen by {seeds} of the search; by all environments: trial {found.chosen}",
        "",
        _sides("the default", [(o.environment, o.trial, o.default) for o in found.each]),
        *_over("to the default", found.over_default),
        "",
        _sides(f"trial {found.chosen}", [(o.environment, o.trial, o.whole) for o in found.each]),
        *_over(f"to trial {found.chosen}", found.over_whole),
        "",
    ]
    missing = dict.fromkeys(
        side.why for one in found.each for side in (one.default, one.whole) if _is_missing(side)
    )
    lines += [f"-: {why}." for why in missing]
    if missing:
        lines.append(f"confirm: {{top_k: {found.candidates}}} runs every finished trial on more.")
    if found.adaptive:
        left = f"Not left out: all environments decided {found.adaptive}."
        lines.append(folded(left, 80))
    lines.append("Differences are paired by seed; search, choose, report: whose seeds they are.")
    return "\n".join(lines)


def _is_missing(side: Side) -> bool:
    return side.stream is None and side.why != "the same trial"


def _sides(other: str, sides: Sequence[tuple[str, int, Side]]) -> str:
    rows: list[list[str]] = []
    for name, trial, side in sides:
        seeds = "" if side.stream is None else f"{side.seeds} {side.stream}"
        told = "the same" if side.why == "the same trial" else signed(side.difference)
        rows.append([name, str(trial), number(side.score), number(side.other), told, seeds])
    header = ("left out", "trial", "score", other, "difference, 95%", "seeds")
    return "\n".join(narrow(header, rows, (False, True, True, True, False, False)))


def _over(what: str, found: Estimate) -> list[str]:
    return [] if found.value is None else [f"mean difference {what}: {signed(found)}"]
