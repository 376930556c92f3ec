"""How figures look, in one table: colours on both grounds, letters, strokes.

The page's style sheet and matplotlib both take it from here, so that a report and `hpo plot` share
one look. Lengths are in pixels of the page.
"""

from __future__ import annotations

__all__ = [
    "BAND",
    "DASH",
    "DOT",
    "FONTS",
    "GROUNDS",
    "LETTERS",
    "LINE",
    "RING",
    "STRAND",
    "STYLES",
    "THIN",
]

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
