"""Formats numbers, times and small tables as short text, consistently in every view."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from textwrap import wrap
from typing import Any

from ..errors import counted
from ..store.journal import Journal
from ..store.rows import counts_evaluations_alone
from ..store.statistics import Interval
from ..studies.algorithm import ENV_STEPS
from ..studies.resolved import as_recorded
from ..studies.spec import Study
from ..studies.study_environments import WITH_TRAINING

_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-=+*#@"
SEED_KINDS = {"report": "test", "choose": "selection", "search": "search"}
"""Stream -> the name of its kind of seeds."""


def seeds_text(count: int, stream: str) -> str:
    """Format a number of seeds with their kind.

    >>> seeds_text(16, "report"), seeds_text(1, "choose")
    ('16 test seeds', '1 selection seed')
    """
    return counted(count, f"{SEED_KINDS[stream]} seed")


def origin_words(about: Mapping[str, Any]) -> str:
    """Describe a kept policy's origin, with the value measured in its study; "" if unknown.

    >>> origin_words({"trial": 9, "study": "first", "stream": "report", "replicate": 0,
    ...               "metric": "eval/return_mean", "value": 500.0})
    'trial 9 of first, test seed 0, with eval/return_mean 500'
    >>> origin_words({"trial": 9, "stream": "report", "replicate": 0})
    'trial 9, test seed 0'
    """
    if "trial" not in about:
        return ""
    kind = SEED_KINDS.get(str(about.get("stream")), "")
    words = f"trial {about['trial']}"
    if about.get("study"):
        words = f"{words} of {about['study']}"
    words = f"{words}, {kind} seed {about.get('replicate')}"
    value = about.get("value")
    if not isinstance(value, int | float):
        return words
    return f"{words}, with {about.get('metric')} {number(float(value))}"


def origin_lines(about: Mapping[str, Any]) -> list[str]:
    """Return a line with the trial and seed of an evaluated policy, or no line if unknown."""
    words = origin_words(about)
    if not words:
        return []
    return [f"from    {words}"]


def method_words(study: Study) -> str:
    """Return a study's search method and its stopping rule."""
    method, rule = study.search.method, study.early_terminate
    if rule is None:
        return method
    return f"{method} + {rule.type}"


def steps(count: int) -> str:
    """Format a count of env steps: exact below 1,000, otherwise to three digits.

    >>> steps(999), steps(1_300_000), steps(160_000), steps(2_000_000_000)
    ('999', '1.3M', '160k', '2G')
    """
    amount = float(count)
    for suffix in ("", "k", "M"):
        if amount < 999.5:
            return f"{amount:.3g}{suffix}"
        amount /= 1000.0
    if amount < 999.5:
        return f"{amount:.3g}G"
    return f"{amount:,.0f}G"


def duration(seconds: float) -> str:
    """Format a time span in its two largest units.

    >>> duration(0.42), duration(12.4), duration(200), duration(7300), duration(200_000)
    ('0.4s', '12s', '3m20s', '2h01m', '2d07h')
    """
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    for large, small, per, next_ in (("m", "s", 60, 3600), ("h", "m", 3600, 86_400)):
        if whole < next_:
            return f"{whole // per}{large}{whole % per // (per // 60):02d}{small}"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def number(value: float | None) -> str:
    """Format a measured value to four digits, keeping all digits before the decimal point.

    >>> number(497.3125), number(-0.00123456), number(123456.7), number(None), number(-0.0)
    ('497.3', '-0.001235', '123457', '-', '0')
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:z.4g}"


def between(low: float | None, high: float | None, spec: str | None = None) -> str:
    """Format an interval; "" if there is none. If `spec` is None, ends are formatted by `number`.

    >>> between(494.12, 499.9), between(None, None), between(0.5, 0.75123, ".2f")
    ('[494.1, 499.9]', '', '[0.50, 0.75]')
    """
    if low is None or high is None:
        return ""
    return f"[{_number_as(low, spec)}, {_number_as(high, spec)}]"


def _number_as(value: float | None, spec: str | None) -> str:
    if value is None or spec is None:
        return number(value)
    return format(value, spec)


def with_interval(
    value: float | None, low: float | None, high: float | None, spec: str | None = None
) -> str:
    """Format a value, followed by its interval if it has one.

    >>> with_interval(497.3, 494.12, 499.9), with_interval(0.5, None, None, ".2f")
    ('497.3 [494.1, 499.9]', '0.50')
    """
    return f"{_number_as(value, spec)} {between(low, high, spec)}".rstrip()


def around(value: float | None, found: Interval, spec: str | None = None) -> str:
    return with_interval(value, found.low, found.high, spec)


def param(value: Any) -> str:
    """Format a hyperparameter's value; numbers to three digits.

    >>> param(0.0023123), param(0.99871), param([64, 64]), param(None), param(3), param(1e-5)
    ('0.00231', '0.9987', '[64, 64]', 'off', '3', '1e-05')
    """
    if value is None:
        return "off"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and 0.9 <= abs(value) < 1.0:
        return f"{value:.4g}"  # 0.9987 and 0.9991 must not both read 0.999
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(param, value))}]"
    return str(value)


def params_text(params: Mapping[str, Any]) -> str:
    """Format hyperparameters with their values.

    >>> params_text({"learning_rate": 0.0023123, "gamma": 0.99})
    'learning_rate 0.00231, gamma 0.99'
    """
    return ", ".join(f"{name} {param(value)}" for name, value in params.items())


def versions_text(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def sparkline(values: Sequence[float | None], width: int = 40, plain: bool = False) -> str:
    """Format a curve as one line of blocks, low to high; non-finite values are blank.

    >>> sparkline([0, 1, 2, 3, None, 7])
    '▁▂▃▄ █'
    """
    bars = _BARS
    if plain:
        bars = _PLAIN_BARS
    points = _thin_values(values, width)
    finite = [point for point in points if point is not None]
    if not finite:
        return " " * len(points)
    low, high = min(finite), max(finite)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(" " if p is None else bars[round((p - low) * scale)] for p in points)


def _thin_values(values: Sequence[float | None], width: int) -> list[float | None]:
    count = min(width, len(values))
    points: list[float | None] = []
    for index in range(count):
        group = values[index * len(values) // count : (index + 1) * len(values) // count]
        finite = [value for value in group if value is not None and math.isfinite(value)]
        point = None
        if finite:
            point = sum(finite) / len(finite)
        points.append(point)
    return points


def folded(text: str, width: int, indent: int = 0) -> str:
    """Wrap lines at `width`, at spaces; longer words are not broken.

    >>> print(folded("seeds  1.5 2.5 3.5", 14, 7))
    seeds  1.5 2.5
           3.5
    """
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= width:
            lines.append(line)
            continue
        before = len(line) - len(line.lstrip())
        lines += wrap(
            line,
            width,
            subsequent_indent=" " * (before + indent),
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
    return "\n".join(lines)


def broken_name(name: str, width: int, after: str = "_") -> str:
    """Break a name after `_` or other characters, into lines no wider than necessary.

    >>> print(broken_name("normalise_rewards", 9))
    normalise_
    rewards
    """
    lines: list[str] = []
    for word in re.split(f"(?<=[{re.escape(after)}])", name):
        if lines and len(lines[-1]) + len(word) <= max(width, len(word)):
            lines[-1] += word
        else:
            lines.append(word)
    return "\n".join(lines)


@dataclass(frozen=True)
class Listing:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]

    def cropped(self, width: int) -> str:
        return "\n".join(_cropped_line(line, width) for line in self.text().split("\n"))

    def text(self) -> str:
        return aligned(self.header, self.rows, self.right)


def _cropped_line(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    return f"{line[: width - 3].rstrip()}..."


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Format a table with two spaces between columns; `right` marks numeric columns."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(aligned_line(line, widths, right) for line in lines)


def narrow(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], columns: int = 80
) -> list[str]:
    """Return the lines of a table; a wide one is split, with the first column repeated."""

    def chosen(line: Sequence[Any], group: list[int]) -> list[Any]:
        return [line[column] for column in group]

    def some(group: list[int]) -> list[str]:
        cells = [chosen(row, group) for row in rows]
        return aligned(chosen(header, group), cells, chosen(right, group)).split("\n")

    groups: list[list[int]] = []
    for column in range(1, len(header)):
        wider = [0, column]
        if groups:
            wider = [*groups[-1], column]
        if groups and max(map(len, some(wider))) <= columns:
            groups[-1] = wider
        else:
            groups.append([0, column])
    return [line for group in groups for line in ("", *some(group))][1:]


def aligned_line(line: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    return "  ".join(
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(line, widths, right, strict=True)
    ).rstrip()


def unit_of(study_text: str) -> str:
    algorithm = as_recorded(study_text).get("algorithm")
    if not algorithm:
        return ENV_STEPS
    return algorithm["unit"]


def recorded_value_words(journal: Journal) -> str:
    """Return `value_words` for a recorded study, even if its text can no longer be loaded."""
    meta = journal.meta
    weight = as_recorded(meta.study_text).get("metric", {}).get("training_weight")
    if not weight or counts_evaluations_alone(journal.attributes()):
        return meta.metric
    return f"{meta.metric}{WITH_TRAINING}"


def unit_in(folder: Path) -> str:
    with Journal(folder) as journal:
        return unit_of(journal.meta.study_text)
