"""Panels as SVG for a page: colours come from the page, and text keeps its size at any width.

A panel is drawn for a width in pixels; a page that is also read on phones contains it at two
widths.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from ...errors import clause
from .model import (
    DOT,
    RING,
    XY,
    Band,
    Bars,
    Dot,
    Line,
    Panel,
    Parallel,
    Rail,
    Scale,
    Strand,
    spread,
)

_LETTER = 7.0  # approximate width in pixels of a character in an 11.5-pixel font
_ROW, _NARROW, _MOST_LETTERS = 22, 520, 22
_GRIP = 12.0  # pixels around a rail that react to a finger
_NAME_HEIGHT = 14.0
_FAR = 20.0  # in heights of the frame: positions beyond need not be exact


def panel_svg(panel: Panel, width: int, alt: str) -> str:
    """Return a panel as SVG with a width of `width` pixels; screen readers read `alt`."""
    if isinstance(panel, Bars):
        height, body = _draw_bars(panel, width)
    elif isinstance(panel, XY):
        height, body = _draw_xy(panel, width)
    elif width >= _NARROW:
        height, body = _rails_up(panel, width)
    else:
        height, body = _rails_across(panel, width)
    role = "img"
    if isinstance(panel, Parallel):
        role = "group"  # an image's parts are not reached
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="{role}" '
        f'aria-label="{escape(alt)}">{"".join(body)}</svg>'
    )


class _Frame:
    def __init__(self, left: float, top: float, right: float, bottom: float):
        self.left, self.top, self.right, self.bottom = left, top, right, bottom

    def x(self, share: float) -> float:
        return self.left + share * (self.right - self.left)

    def y(self, share: float) -> float:
        return self.bottom - share * (self.bottom - self.top)


def _draw_xy(panel: XY, width: int) -> tuple[int, list[str]]:
    height, above, below = 200, 8.0, 22.0
    if panel.wide and width >= _NARROW:
        height = 300
    elif panel.wide:
        height = 250
    if panel.x.label:
        below = 38.0
    if panel.y.label:
        above = 24.0
    widest = max((_text_width(text) for _, text in panel.y.ticks), default=0.0)
    named = max((_text_width(label.text) for label in panel.labels), default=0.0)
    right = width - max(14.0, named + 8.0)
    frame = _Frame(widest + 12, above, right, height - below)
    body = [*_y_axis(panel.y, frame), *_x_axis(panel.x, frame, height), *_labels_svg(panel, frame)]
    if not panel.y.cut:
        return height, [*body, *(_mark_svg(mark, panel, frame) for mark in panel.marks)]
    dots = [_mark_svg(mark, panel, frame) for mark in panel.marks if isinstance(mark, Dot)]
    lines = [_mark_svg(mark, panel, frame) for mark in panel.marks if not isinstance(mark, Dot)]
    x, y = _svg_number(frame.left), _svg_number(frame.top)
    wide, high = _svg_number(frame.right - frame.left), _svg_number(frame.bottom - frame.top)
    window = (
        f'<svg class="window" x="{x}" y="{y}" width="{wide}" height="{high}" '
        f'viewBox="{x} {y} {wide} {high}">{"".join(lines)}</svg>'
    )
    return height, [*body, window, *dots]


def _labels_svg(panel: XY, frame: _Frame) -> Iterable[str]:
    """Yield the names of lines at their right ends, without overlaps."""
    at = [frame.y(panel.y.share(label.y)) for label in panel.labels]
    placed = spread(at, _NAME_HEIGHT, frame.top + 4.0, frame.bottom - 2.0)
    for y, label in zip(placed, panel.labels, strict=True):
        yield _text_svg(frame.right + 6, y + 4, label.text, f"direct {label.style}")


def _y_axis(scale: Scale, frame: _Frame) -> Iterable[str]:
    if scale.label:
        yield _text_svg(2, 12, scale.label, "label")
    for value, text in scale.ticks:
        y = frame.y(scale.share(value))
        yield _line_svg(frame.left, y, frame.right, y, "grid")
        yield _text_svg(frame.left - 6, y + 4, text, "tick end")


def _x_axis(scale: Scale, frame: _Frame, height: int) -> Iterable[str]:
    yield _line_svg(frame.left, frame.bottom, frame.right, frame.bottom, "axis")
    free = -math.inf
    for value, text in scale.ticks:
        x, half = frame.x(scale.share(value)), _text_width(text) / 2
        middle = min(max(x, half + 1), frame.right + 12 - half)
        if middle - half < free + 4:
            continue
        free = middle + half
        yield _line_svg(x, frame.bottom, x, frame.bottom + 4, "axis")
        yield _text_svg(middle, frame.bottom + 17, text, "tick mid")
    if scale.label:
        yield _text_svg((frame.left + frame.right) / 2, height - 4, scale.label, "label mid")


def _mark_svg(mark: Line | Band | Dot, panel: XY, frame: _Frame) -> str:
    if isinstance(mark, Band):
        above = [_pixel_place(x, high, panel, frame) for x, _, high in mark.points]
        below = [_pixel_place(x, low, panel, frame) for x, low, _ in reversed(mark.points)]
        return f'<path class="band {mark.style}" d="{_path_data([*above, *below])}Z"/>'
    if isinstance(mark, Line):
        places = [_pixel_place(x, y, panel, frame) for x, y in mark.points]
        if mark.step:
            places = _step_corners(places)
        kind = "line" + " thin" * mark.thin + " dashed" * mark.dashed
        shape = f'd="{_path_data(places)}"'
        return _shape_svg("path", f"{kind} {mark.style}", shape, mark.trial, mark.tip)
    x, y = frame.x(panel.x.share(mark.x)), frame.y(panel.y.share(mark.y))
    tag, kind, radius = "path", mark.shape, DOT
    if mark.shape == "out":  # a triangle at the edge beyond which the value is
        turn = 1 if mark.y <= (panel.y.low + panel.y.high) / 2 else -1
        shape = (
            f'd="M{_svg_number(x - 3.5)} {_svg_number(y - 5 * turn)}'
            f'h7L{_svg_number(x)} {_svg_number(y)}Z"'
        )
    elif mark.shape == "cross":
        shape, kind = f'd="M{_svg_number(x - 3)} {_svg_number(y - 3)}l6 6m0-6l-6 6"', "line"
    else:
        if mark.shape == "ring":
            radius = RING
        tag, shape = "circle", f'cx="{_svg_number(x)}" cy="{_svg_number(y)}" r="{radius}"'
    return _shape_svg(tag, f"{kind} {mark.style}", shape, mark.trial, mark.tip)


def _pixel_place(x: float, y: float, panel: XY, frame: _Frame) -> tuple[float, float]:
    return frame.x(panel.x.share(x)), frame.y(panel.y.share(y, _FAR * panel.y.cut))


def _step_corners(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    corners = list(places[:1])
    for (_, before), (x, y) in pairwise(places):
        corners += [(x, before), (x, y)]
    return corners


def _draw_bars(panel: Bars, width: int) -> tuple[int, list[str]]:
    names = [_short_text(bar.label) for bar in panel.bars]
    left = max(map(_text_width, names), default=0.0) + 10
    right = width - 12 - max((_text_width(bar.text) for bar in panel.bars), default=0.0)
    body: list[str] = []
    for row, (bar, name) in enumerate(zip(panel.bars, names, strict=True)):
        y, length = row * _ROW, max(1.0, bar.share * (right - left))
        body.append(_text_svg(left - 8, y + 15, name, "name end"))
        body.append(
            f'<rect class="bar c0" x="{_svg_number(left)}" y="{y + 4}" '
            f'width="{_svg_number(length)}" height="14" rx="2"/>'
        )
        if bar.around is not None:
            low, high = (left + share * (right - left) for share in bar.around)
            body.append(_line_svg(low, y + 11, high, y + 11, "whisker"))
            length = max(length, high - left)
        body.append(_text_svg(left + length + 6, y + 15, bar.text, "tick"))
    return max(_ROW, len(panel.bars) * _ROW), body


def _rails_up(panel: Parallel, width: int) -> tuple[int, list[str]]:
    count, height, top = len(panel.rails), 320, 30.0
    frame = _Frame(46.0, top, width - 46.0, height - 26.0)
    gap = (frame.right - frame.left) / max(1, count - 1)
    xs = [frame.left + index * gap for index in range(count)]
    body = ['<g class="up">']
    for strand in panel.strands:  # below the rail if it has no value
        ys = [frame.y(share) if share >= 0 else frame.bottom + 14 for share in strand.shares]
        body.append(_strand_svg(strand, [*zip(xs, ys, strict=True)]))
    most = max(4, int((gap - 8) / _LETTER))
    for index, (x, rail) in enumerate(zip(xs, panel.rails, strict=True)):
        body.append(_line_svg(x, frame.top, x, frame.bottom, "rail"))
        at = min(max(x, 2.0), width - 2.0)
        align = "mid"
        if index == 0:
            align = ""
        elif index == count - 1:
            align = "end"
        shift = {"mid": 0.0, "": -40.0, "end": 40.0}[align]
        body += _folded_name(at + shift, rail.label, most, align)
        for share, text in rail.ticks:
            body.append(_text_svg(x + 5, frame.y(share) + 4, text, "tick halo"))
        body.append(_brush_svg(index, rail, (x, frame.bottom), (x, frame.top)))
    return height, [*body, "</g>"]


def _rails_across(panel: Parallel, width: int) -> tuple[int, list[str]]:
    pitch, top = 52, 20.0
    height = int(top + pitch * (len(panel.rails) - 1) + 24)
    frame = _Frame(24.0, 0.0, width - 24.0, float(height))
    ys = [top + index * pitch for index in range(len(panel.rails))]
    body = ['<g class="across">']
    for strand in panel.strands:
        xs = [frame.x(share) if share >= 0 else 8.0 for share in strand.shares]
        body.append(_strand_svg(strand, [*zip(xs, ys, strict=True)]))
    for index, (y, rail) in enumerate(zip(ys, panel.rails, strict=True)):
        body.append(_line_svg(frame.left, y, frame.right, y, "rail"))
        body.append(_text_svg(2, y - 6, rail.label, "name halo"))
        free = -math.inf
        for share, text in rail.ticks:
            x, half = frame.x(share), _text_width(text) / 2
            middle = min(max(x, half + 1), width - half - 1)
            if middle - half >= free + 4:
                free = middle + half
                body.append(_text_svg(middle, y + 14, text, "tick mid halo"))
        body.append(_brush_svg(index, rail, (frame.left, y), (frame.right, y)))
    return height, [*body, "</g>"]


def _brush_svg(
    index: int, rail: Rail, start: tuple[float, float], end: tuple[float, float]
) -> str:
    (x1, y1), (x2, y2) = start, end
    left, top = min(x1, x2) - _GRIP * (x1 == x2), min(y1, y2) - _GRIP * (y1 == y2)
    width, height = (abs(side) or 2.0 * _GRIP for side in (x2 - x1, y2 - y1))
    return (
        f'<g class="brush" data-rail="{index}" data-name="{escape(rail.label)}" '
        f'data-line="{_svg_number(x1)} {_svg_number(y1)} {_svg_number(x2)} {_svg_number(y2)}" '
        f'data-ticks="{escape(json.dumps(rail.ticks, separators=(",", ":")))}">'
        f'<rect class="grip" x="{_svg_number(left)}" y="{_svg_number(top)}" '
        f'width="{_svg_number(width)}" height="{_svg_number(height)}"/></g>'
    )


def _strand_svg(strand: Strand, places: Sequence[tuple[float, float]]) -> str:
    crossed = " ".join(f"{share:.3g}" for share in strand.shares)
    shape = f'd="{_path_data(places)}" data-c="{crossed}"'
    return _shape_svg("path", f"line strand {strand.style}", shape, strand.trial, strand.tip)


def _folded_name(x: float, name: str, most: int, align: str) -> list[str]:
    lines = [name]
    if len(name) > most:
        breaks = [i + 1 for i, letter in enumerate(name[:-1]) if letter in "_."]
        cut = min(breaks, key=lambda at: abs(at - len(name) / 2), default=0)
        lines = [part for part in (name[:cut], name[cut:]) if part]
    first = 20 - 12 * (len(lines) - 1)
    return [
        _text_svg(x, first + 12 * row, _short_text(line), f"name {align}".strip())
        for row, line in enumerate(lines)
    ]


def _shape_svg(tag: str, kind: str, shape: str, trial: int | None, tip: str) -> str:
    start = f'<{tag} class="{kind}" {shape}'
    if trial is not None:
        start += f' data-t="{trial}"'
    if not tip:
        return f"{start}/>"
    return f"{start}><title>{escape(tip)}</title></{tag}>"


def _line_svg(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return (
        f'<path class="{kind}" d="M{_svg_number(x1)} {_svg_number(y1)}'
        f'L{_svg_number(x2)} {_svg_number(y2)}"/>'
    )


def _text_svg(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{_svg_number(x)}" y="{_svg_number(y)}">{escape(text)}</text>'


def _path_data(places: Sequence[tuple[float, float]]) -> str:
    return clause("M{}", "L".join(f"{_svg_number(x)} {_svg_number(y)}" for x, y in places))


def _svg_number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text_width(text: str) -> float:
    return _LETTER * len(text)


def _short_text(text: str) -> str:
    if len(text) <= _MOST_LETTERS:
        return text
    return text[: _MOST_LETTERS - 1] + "…"
