"""What a chart shows, as plain data that knows no pixels: scales, marks, panels, a picture.

Builders (`history`, `curves`, `knobs`, `importance`, `pareto`) make pictures of a study; `svg` and
`files` draw them, so that a page and a PNG show the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "XY",
    "Band",
    "Bar",
    "Bars",
    "Dot",
    "Key",
    "Line",
    "Panel",
    "Parallel",
    "Picture",
    "Rail",
    "Scale",
    "Strand",
]


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
