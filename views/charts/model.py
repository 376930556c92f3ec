"""Charts as plain data without pixels: scales, marks, panels, a picture.

`*_chart(s)` make pictures of a study; `svg` and `matplotlib_files` draw them, so that a page and a
PNG show the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """One side of a panel."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    label: str = ""
    log: bool = False
    cut: bool = False  # marks beyond an end are cut off there

    def share(self, value: float) -> float:
        """Return the place of a value, 0 at `low` and 1 at `high`, clipped to them.

        >>> Scale(0.0, 4.0).share(1.0), Scale(1.0, 100.0, log=True).share(10.0)
        (0.25, 0.5)
        """
        return min(max(self.place(value), 0.0), 1.0)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def place(self, value: float) -> float:
        """Return the place of a value, also below 0 and above 1.

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
    points: tuple[tuple[float, float], ...]
    style: str  # of `STYLES`
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
    shape: str = "dot"  # ring: a larger circle; cross; out: points to a value outside


@dataclass(frozen=True)
class Key:
    label: str
    style: str
    shape: str = "dot"  # line, dashed, dot, ring, cross or out


@dataclass(frozen=True)
class XY:
    """A panel with two scales; marks are drawn in order."""

    title: str
    x: Scale
    y: Scale
    marks: tuple[Line | Band | Dot, ...]
    keys: tuple[Key, ...] = ()
    wide: bool = False


@dataclass(frozen=True)
class Bar:
    label: str
    share: float  # of the longest possible
    text: str  # at its end
    around: tuple[float, float] | None = None  # shares


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
    """One trial across all rails: its place on each, 0 to 1; below 0 where it has no value."""

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
    """Panels with a title and a caption; without panels the caption says why."""

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
"""Colours of the ground, letters (ink, soft), lines of axes and grid, and washes."""

FONTS = ("Segoe UI", "Roboto", "Helvetica Neue", "Arial", "DejaVu Sans")
LETTERS = 11.5
LINE, THIN, STRAND = 1.8, 1.0, 1.2
DOT, RING = 3.2, 6.5  # radii
BAND = 0.16  # opacity
DASH = (5.0, 4.0)  # drawn, blank
