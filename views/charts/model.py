"""What a chart shows, as plain data that knows no pixels: scales, marks, panels, a picture.

Builders (`history`, `curves`, `knobs`, `importance`, `pareto`) make pictures of a study; `svg` and
`files` draw them, so that a page and a PNG show the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """One side of a panel.

    Attributes:
        low, high: its ends; they differ.
        ticks: (value, text), from low to high.
        label: what it measures.
        log: equal ratios lie equally far apart.
        cut: some values are outside; marks beyond an end are cut off there.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    label: str = ""
    log: bool = False
    cut: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies, 0 at `low` and 1 at `high`; what is outside lies on the edge.

        >>> Scale(0.0, 4.0).share(1.0), Scale(1.0, 100.0, log=True).share(10.0)
        (0.25, 0.5)
        """
        return min(max(self.place(value), 0.0), 1.0)

    def holds(self, value: float) -> bool:
        """Return whether a value lies between the ends."""
        return self.low <= value <= self.high

    def place(self, value: float) -> float:
        """Return where a value lies, also outside.

        >>> Scale(0.0, 4.0).place(-1.0)
        -0.25
        """
        low, high = self.low, self.high
        if self.log:
            low, high = math.log(low), math.log(high)
            value = math.log(value) if value > 0.0 else low
        return (value - low) / (high - low)


@dataclass(frozen=True)
class Line:
    """A line through points.

    Attributes:
        points: (x, y).
        style: of `STYLES`.
        trial: whose, or None.
        tip: what is said about it.
        step: it goes on level until the next point.
        thin: it is one of many.
        dashed: it is what trials are compared with.
    """

    points: tuple[tuple[float, float], ...]
    style: str
    trial: int | None = None
    tip: str = ""
    step: bool = False
    thin: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Band:
    """What lies between two lines: (x, low, high)."""

    points: tuple[tuple[float, float, float], ...]
    style: str


@dataclass(frozen=True)
class Dot:
    """One point; `ring` is a larger circle, `cross` a cross, `out` points to a value outside."""

    x: float
    y: float
    style: str
    trial: int | None = None
    tip: str = ""
    shape: str = "dot"


@dataclass(frozen=True)
class Key:
    """One entry of a legend: `shape` is `line`, `dashed`, `dot`, `ring`, `cross` or `out`."""

    label: str
    style: str
    shape: str = "dot"


@dataclass(frozen=True)
class XY:
    """A panel with two scales; marks are drawn in order.

    Attributes:
        title: what it shows.
        x, y: its scales.
        marks: lines, bands and dots.
        keys: its legend.
        wide: it needs the whole width.
    """

    title: str
    x: Scale
    y: Scale
    marks: tuple[Line | Band | Dot, ...]
    keys: tuple[Key, ...] = ()
    wide: bool = False


@dataclass(frozen=True)
class Bar:
    """One bar: its name, its length as a share of the longest possible, the text at its end.

    Attributes:
        around: the ends of its interval, as shares; None without one.
    """

    label: str
    share: float
    text: str
    around: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bars:
    """A panel of bars from left to right, the first on top."""

    title: str
    bars: tuple[Bar, ...]
    wide: bool = False
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Rail:
    """One axis of parallel coordinates: its name and (share, text) of its ticks."""

    label: str
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Strand:
    """One trial across all rails: where it crosses each, 0 to 1; below 0 where it has no value."""

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
    """Panels that belong together.

    Attributes:
        name: short, for files and anchors.
        title: above it.
        caption: what it shows, on which values, and what to keep in mind.
        panels: at least one, unless there is nothing to draw; then `caption` says why.
        keys: the legend of all panels together.
    """

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
"""Style of a mark -> its colour on a light and on a dark ground. `s0` to `s4` go from worst to
best; neighbours among `c0` to `c5` differ in hue; `base` is what trials are compared with."""

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
"""What marks stand on: the ground, letters (ink, soft), lines of axes and grid, washes."""

FONTS = ("Segoe UI", "Roboto", "Helvetica Neue", "Arial", "DejaVu Sans")
LETTERS = 11.5
LINE, THIN, STRAND = 1.8, 1.0, 1.2
DOT, RING = 3.2, 6.5
"""Radii."""
BAND = 0.16
"""How opaque a band is."""
DASH = (5.0, 4.0)
"""Of lines that trials are compared with: drawn, left blank."""
