"""Charts as plain data without pixels, so that pages (`svg`) and PNG files look the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...spaces.distributions import Distribution
from ...store.aggregate_environments import Profile
from ..formatting import number, param, steps


@dataclass(frozen=True)
class Scale:
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    label: str = ""
    log: bool = False
    cut: bool = False  # whether marks beyond an end are cut off

    def share(self, value: float, beyond: float = 0.0) -> float:
        """Return a value's position: 0 at `low`, 1 at `high`, and at most `beyond` outside.

        >>> Scale(0.0, 4.0).share(1.0), Scale(1.0, 100.0, log=True).share(10.0)
        (0.25, 0.5)
        >>> Scale(0.0, 4.0).share(-1.0), Scale(0.0, 4.0).share(-1.0, beyond=2.0)
        (0.0, -0.25)
        """
        low, high = self.low, self.high
        if self.log:
            low, high = math.log(low), math.log(high)
            value = math.log(value) if value > 0.0 else low
        return min(max((value - low) / (high - low), 0.0 - beyond), 1.0 + beyond)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Line:
    points: tuple[tuple[float, float], ...]
    style: str  # one of `STYLES`
    trial: int | None = None
    tip: str = ""
    step: bool = False
    thin: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Band:
    points: tuple[tuple[float, float, float], ...]  # (x, low, high)
    style: str


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    style: str
    trial: int | None = None
    tip: str = ""
    shape: str = "dot"  # ring: a larger circle; cross; out: points at a value outside


@dataclass(frozen=True)
class Label:
    """A name at the right end of a line, in the line's colour."""

    y: float
    text: str
    style: str


@dataclass(frozen=True)
class Key:
    label: str
    style: str
    shape: str = "dot"  # line, dashed, dot, ring, cross or out


@dataclass(frozen=True)
class XY:
    title: str
    x: Scale
    y: Scale
    marks: tuple[Line | Band | Dot, ...]
    keys: tuple[Key, ...] = ()
    wide: bool = False
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True)
class Bar:
    label: str
    share: float  # of the longest possible bar
    text: str  # at the end of the bar
    around: tuple[float, float] | None = None  # its interval, as shares


@dataclass(frozen=True)
class Bars:
    title: str
    bars: tuple[Bar, ...]
    wide: bool = False
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Rail:
    """One axis of parallel coordinates: its name, and its ticks as (share, text) pairs."""

    label: str
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Strand:
    """One trial's position on each rail, from 0 to 1; below 0 if the trial has no value there."""

    shares: tuple[float, ...]
    style: str
    trial: int
    tip: str = ""


@dataclass(frozen=True)
class Parallel:
    """A panel of parallel coordinates; strands are drawn in order."""

    title: str
    rails: tuple[Rail, ...]
    strands: tuple[Strand, ...]
    keys: tuple[Key, ...] = ()
    wide: bool = True


Panel = XY | Bars | Parallel


@dataclass(frozen=True)
class Picture:
    name: str
    title: str
    caption: str
    panels: Sequence[Panel] = ()
    keys: Sequence[Key] = ()


STYLES: dict[str, tuple[str, str]] = {
    "c0": ("#1f5f99", "#6cb2f0"),
    "c1": ("#b45309", "#f0a35c"),
    "c2": ("#1a7f4b", "#5fcf94"),
    "c3": ("#7e3fa3", "#c79bea"),
    "c4": ("#b0305c", "#f28bab"),
    "c5": ("#0f7a80", "#58c7cc"),
    "base": ("#3d4650", "#b9c2cc"),
    "muted": ("#858d97", "#7f8994"),
    "faint": ("#ccd1d7", "#454c55"),
    "bad": ("#b42318", "#ff8a7a"),
    "s0": ("#d3d8de", "#3a414a"),
    "s1": ("#aebfd2", "#4c627b"),
    "s2": ("#7ba3cc", "#5788b8"),
    "s3": ("#3f7fb8", "#7dbcf5"),
    "s4": ("#0b4a8a", "#d3eaff"),
}
"""Style of a mark -> its colour on a light and on a dark background. `s0` to `s4` go from worst
to best; neighbours among `c0` to `c5` differ in hue; `base` is what trials are compared with."""

GROUNDS: dict[str, tuple[str, str]] = {
    "ground": ("#ffffff", "#15181c"),
    "ink": ("#1b1f24", "#e4e8ec"),
    "soft": ("#57606a", "#9ba5b0"),
    "rule": ("#d9dee4", "#343b43"),
    "grid": ("#eceff2", "#252b32"),
    "wash": ("#f5f7f9", "#1c2026"),
    "lit": ("#fff4d6", "#40391f"),
    "link": ("#1f5f99", "#6cb2f0"),
}
"""Colours of the background, text (ink, soft), axis and grid lines, and light fills."""

FONTS = ("Segoe UI", "Roboto", "Helvetica Neue", "Arial", "DejaVu Sans")
LETTERS = 11.5
LINE, THIN, STRAND = 1.8, 1.0, 1.2
DOT, RING = 3.2, 6.5  # radii
BAND = 0.16  # opacity
DASH = (5.0, 4.0)  # lengths of dash and gap


_MANY_DECADES, _MARGIN = 100.0, 0.05
_APART, _FEW = 0.19, 6


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, at least two if these differ.

    >>> round_ticks(0.0, 1.0), round_ticks(3.0, 480.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [100.0, 200.0, 300.0, 400.0])
    """
    if not high > low:
        return [low]
    least = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(least))
    for step in (factor * power * ten for ten in (1.0, 10.0, 100.0) for factor in (1.0, 2.0, 5.0)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if step >= least * (1 - 1e-9) and last - first + 1 <= most:
            return [float(f"{index * step:.12g}") for index in range(first, last + 1)]
    return [low, high]


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten between two positive numbers, with smaller steps if there are few.

    >>> decades(1e-4, 1e-2), decades(0.2, 5.0)
    ([0.0001, 0.001, 0.01], [0.3, 1.0, 3.0])
    """
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    inside = 1e-9 + 1.0
    for factors in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        found = [float(f"{f}e{e}") for e in exponents for f in factors]
        found = [value for value in found if low / inside <= value <= high * inside]
        if len(found) >= 3:
            break
    return found


def value_scale(values: Iterable[float], label: str, may_be_log: bool = True) -> Scale:
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if may_be_log and low > 0.0 and high / low > _MANY_DECADES:
        low, high = low / 1.2, high * 1.2
        return Scale(low, high, labelled_ticks(decades(low, high), number), label, log=True)
    if not high > low:
        reach = abs(low) * 0.1 or 1.0
        low, high = low - reach, high + reach
    margin = _MARGIN * (high - low)
    low, high = low - margin, high + margin
    return Scale(low, high, labelled_ticks(round_ticks(low, high), number), label)


def leaders_scale(
    values: Iterable[float], label: str, sign: float, kept: Iterable[float] = ()
) -> Scale:
    """Return a scale on which the better half of `values` takes at least half of the height."""
    finite = sorted((value for value in values if math.isfinite(value)), key=lambda v: -sign * v)
    if not finite:
        return value_scale(kept, label)
    best, whole = finite[0], len(finite)
    apart = (abs(best - finite[min(whole - 1, whole * k // 20)]) for k in (10, 15, 18))
    reach = next((distance for distance in apart if distance > 0.0), math.inf)
    inside = [value for value in finite if abs(best - value) <= 2.0 * reach]
    scale = value_scale([*inside, *(v for v in kept if math.isfinite(v))], label)
    return replace(scale, cut=not all(map(scale.holds, finite)))


def steps_scale(high: float, label: str = "env steps of one seed") -> Scale:
    high = max(1.0, high)
    return Scale(
        0.0, high, labelled_ticks(round_ticks(0.0, high), lambda at: steps(round(at))), label
    )


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions moved as little as possible, at least `gap` apart and within bounds.

    >>> spread([10.0, 12.0], 8.0, 0.0, 100.0), spread([99.0, 98.0], 8.0, 0.0, 100.0)
    ([7.0, 15.0], [100.0, 92.0])
    """
    order = sorted(range(len(places)), key=lambda at: places[at])
    blocks: list[tuple[float, int]] = []  # (sum, number) of neighbours that move together
    for place, at in enumerate(order):
        total, count = places[at] - place * gap, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before, others = blocks.pop()
            total, count = total + before, count + others
        blocks.append((total, count))
    even = [total / count for total, count in blocks for _ in range(count)]
    found = [value + place * gap for place, value in enumerate(even)]
    if found:
        shift = max(low - found[0], 0.0) - max(found[-1] - high, 0.0)
        found = [place + shift for place in found]
    placed = dict(zip(order, found, strict=True))
    return [placed[at] for at in range(len(places))]


def labelled_ticks(
    values: Sequence[float], say: Callable[[float], str]
) -> tuple[tuple[float, str], ...]:
    return tuple((value, say(value)) for value in values)


QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
SHARES = Scale(0.0, 1.0, labelled_ticks(QUARTERS, "{:.0%}".format), "share of runs")


def profile_marks(found: Profile, line: Line) -> list[Line | Band]:
    """Return a performance profile as a line in the style of `line`, over its band if any."""
    marks: list[Line | Band] = []
    if found.band is not None:
        ends = zip(found.thresholds, found.band, strict=True)
        marks.append(Band(tuple((at, *end) for at, end in ends), line.style))
    points = tuple(zip(found.thresholds, found.shares, strict=True))
    return [*marks, replace(line, points=points)]


def bands_first(marks: Iterable[Line | Band]) -> tuple[Line | Band, ...]:
    """Return marks in the order in which they are drawn: bands below lines."""
    return tuple(sorted(marks, key=_is_line))


def _is_line(mark: Line | Band) -> bool:
    return isinstance(mark, Line)


def knob_share(distribution: Distribution, value: Any) -> float:
    """Return a value's position, 0 to 1, on the samplers' axis, with small values first."""
    share = distribution.share(value)
    if distribution.kind == "one_minus_log":
        return 1.0 - share
    return share


def knob_ticks(distribution: Distribution, apart: float = _APART) -> tuple[tuple[float, str], ...]:
    axis = distribution.axis
    few = axis.kind != "real" and axis.high - axis.low + 1 <= _FEW
    if few or axis.kind == "choice":
        values = list(distribution.grid(int(axis.high - axis.low) + 1))
        every = 1
        if not few:
            every = math.ceil(len(values) / _FEW)
        return tuple((knob_share(distribution, value), param(value)) for value in values[::every])
    chosen: list[tuple[float, str]] = []
    ends = distribution.ends()
    for value in (*ends, *_inner_ticks(distribution, ends)):
        share = knob_share(distribution, value)
        if all(abs(share - other) >= apart for other, _ in chosen):
            chosen.append((share, param(value)))
    return tuple(sorted(chosen))


def _inner_ticks(distribution: Distribution, ends: Sequence[float]) -> list[float]:
    low, high = min(ends), max(ends)
    positive = [value for value in ends if value > 0]
    if "log" in distribution.kind and positive:
        if distribution.kind == "one_minus_log":
            found = [1.0 - value for value in decades(1.0 - high, 1.0 - low)]
        else:
            found = decades(min(positive), high)
    else:
        found = round_ticks(low, high)
    whole = all(isinstance(value, int) for value in ends)
    rounded = [int(value) if whole else float(f"{value:.9g}") for value in found]
    return [value for value in rounded if distribution.why_not(value) is None]
