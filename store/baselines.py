"""Heuristic baselines in the store: study attributes in the journal, and `baselines.parquet`.

They run on the same episodes as policies, so their differences from a trial are paired by seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..files.plain_data import as_lists
from .journal import Journal
from .leaderboard import Entry
from .mean_difference import paired_interval
from .rows import AttributeRow, BaselineRow, Stream
from .statistics import Interval, mean, sign_of
from .unobserved import UNBOUNDED, Bounds, bounded_interval

BASELINES = "baselines"  # name of the table in studies with baselines
_PREFIX = "baseline/"


@dataclass(frozen=True)
class BaselineEntry:
    baseline: str
    # mean over the seeds behind the best trial's value, or over search seeds without one
    value: float
    around: Interval  # 95 % interval of `value`
    values: tuple[float, ...]  # per seed
    stream: str
    difference: float | None  # mean of the best trial's values minus the baseline's, paired
    difference_around: Interval | None  # its 95 % interval

    def as_json(self) -> dict[str, Any]:
        spread = self.difference_around
        return {
            "baseline": self.baseline,
            "value": self.value,
            "ci_low": self.around.low,
            "ci_high": self.around.high,
            "values": list(self.values),
            "stream": self.stream,
            "best_less_baseline": self.difference,
            "difference_ci_low": spread and spread.low,
            "difference_ci_high": spread and spread.high,
        }


def attribute_of(row: BaselineRow) -> AttributeRow:
    return AttributeRow(
        None, f"{_PREFIX}{row.baseline}", as_lists({"values": row.values, "metrics": row.metrics})
    )


def baselines_of(journal: Journal) -> list[BaselineRow]:
    found: list[BaselineRow] = []
    for row in journal.attributes():
        if row.trial is None and row.name.startswith(_PREFIX):
            name, values = row.name.removeprefix(_PREFIX), _as_tuples(row.value["values"])
            metrics = {stream: _as_tuples(own) for stream, own in row.value["metrics"].items()}
            found.append(BaselineRow(name, values, metrics))
    return found


def _as_tuples(lists: dict[str, list[float]]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(values) for name, values in lists.items()}


def baseline_entries(
    rows: Sequence[BaselineRow],
    entries: Sequence[Entry],
    goal: str,
    bounds: Bounds = UNBOUNDED,
) -> list[BaselineEntry]:
    """Return the baselines, best first, each compared with the best trial.

    `bounds` is the range of possible values. Intervals for differences are not adjusted for
    multiple comparisons, whereas verdicts are (`verdict.conclude`). Differences on search and
    selection seeds have no interval, because these seeds favour the best trial.
    """
    best, stream = None, str(Stream.SEARCH)
    if entries and entries[0].value is not None:
        best = entries[0]
        stream = str(best.value_from)
    found: list[BaselineEntry] = []
    for row in rows:
        if values := row.values.get(stream):
            difference, around = None, None
            if best is not None and len(best.values) == len(values):
                difference = mean([a - b for a, b in zip(best.values, values, strict=True)])
                chose = stream != Stream.REPORT and len(entries) > 1
                if not chose and stream not in best.copies:
                    around = paired_interval(best.values, values, bounds=bounds)
            beside = (stream, difference, around)
            found.append(
                BaselineEntry(
                    row.baseline,
                    mean(values),
                    bounded_interval(values, bounds),
                    values,
                    *beside,
                )
            )
    sign = -sign_of(goal)
    return sorted(found, key=lambda entry: (sign * entry.value, entry.baseline))
