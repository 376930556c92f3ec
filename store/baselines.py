"""Baselines in the store: study attributes in the journal, `baselines.parquet` for everybody else.

A baseline is measured on the episodes that policies are evaluated on, so its differences from a
trial are paired, seed by seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .journal import Journal
from .leaderboard import Entry
from .paired import paired_interval
from .rows import AttributeRow, BaselineRow, Stream
from .statistics import Interval, interval, mean

BASELINES = "baselines"
"""The table; there only for studies that have some."""
_PREFIX = "baseline/"


@dataclass(frozen=True)
class BaselineEntry:
    """A baseline beside the best trial.

    Attributes:
        baseline: its name.
        value: mean over the seeds that the best trial's value is from, or over all those of the
            search while no trial has a value.
        around: the 95 % interval of `value`.
        values: one a seed.
        stream: which seeds.
        difference: mean of the best trial's value less the baseline's, seed by seed; None without
            a trial that has a value on these seeds.
        difference_around: its 95 % interval.
    """

    baseline: str
    value: float
    around: Interval
    values: tuple[float, ...]
    stream: str
    difference: float | None
    difference_around: Interval | None

    def as_json(self) -> dict[str, Any]:
        """Plain data for a JSON document."""
        apart = self.difference_around
        return {
            "baseline": self.baseline,
            "value": self.value,
            "ci_low": self.around.low,
            "ci_high": self.around.high,
            "values": list(self.values),
            "stream": self.stream,
            "best_less_baseline": self.difference,
            "difference_ci_low": None if apart is None else apart.low,
            "difference_ci_high": None if apart is None else apart.high,
        }


def attribute_of(row: BaselineRow) -> AttributeRow:
    """Return the study attribute that keeps a baseline."""
    data = {
        "values": {stream: list(values) for stream, values in row.values.items()},
        "metrics": {
            stream: {name: list(values) for name, values in metrics.items()}
            for stream, metrics in row.metrics.items()
        },
    }
    return AttributeRow(None, f"{_PREFIX}{row.baseline}", data)


def baselines_of(journal: Journal) -> list[BaselineRow]:
    """Return the baselines of a study, by name."""
    rows: list[BaselineRow] = []
    for attribute in journal.attributes():
        if attribute.trial is None and attribute.name.startswith(_PREFIX):
            data = attribute.value
            rows.append(
                BaselineRow(
                    attribute.name.removeprefix(_PREFIX),
                    {stream: tuple(values) for stream, values in data["values"].items()},
                    {
                        stream: {name: tuple(values) for name, values in metrics.items()}
                        for stream, metrics in data["metrics"].items()
                    },
                )
            )
    return rows


def baseline_entries(
    rows: Sequence[BaselineRow], entries: Sequence[Entry], goal: str
) -> list[BaselineEntry]:
    """Return baselines on the seeds of the best trial's value, the best baseline first.

    Args:
        rows: the baselines.
        entries: the leaderboard.
        goal: `maximize` or `minimize`.
    """
    best = entries[0] if entries and entries[0].value is not None else None
    stream = best.value_from if best is not None else Stream.SEARCH
    found = [_entry(row, str(stream), best) for row in rows if row.values.get(str(stream))]
    sign = -1.0 if goal == "maximize" else 1.0
    return sorted(found, key=lambda entry: (sign * entry.value, entry.baseline))


def _entry(row: BaselineRow, stream: str, best: Entry | None) -> BaselineEntry:
    values = row.values[stream]
    apart: tuple[float, ...] = ()
    if best is not None and len(best.values) == len(values):
        apart = tuple(ours - theirs for ours, theirs in zip(best.values, values, strict=True))
    return BaselineEntry(
        baseline=row.baseline,
        value=mean(values),
        around=interval(values),
        values=values,
        stream=stream,
        difference=mean(apart) if apart else None,
        difference_around=paired_interval(best.values, values) if best and apart else None,
    )
