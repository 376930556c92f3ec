"""Charts drawn to files by matplotlib, as PNG, SVG or PDF according to the file's suffix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..pictures import new_figure, save_figure
from .model import (
    BAND,
    DASH,
    DOT,
    FONTS,
    GROUNDS,
    LETTERS,
    LINE,
    RING,
    STRAND,
    STYLES,
    THIN,
    XY,
    Band,
    Bars,
    Dot,
    Key,
    Line,
    Panel,
    Parallel,
    Picture,
    spread,
)

SUFFIXES = (".png", ".svg", ".pdf")
_COLUMNS = 3
_WIDE = 9.0
_BAR = 0.3
_LINE = 0.2  # height of one name below a panel
_LABEL_HEIGHT = 0.08
_BELOW = 30.0  # points below a panel for its axis labels
# characters per row, characters for a mark next to its name; points
_ROW, _KEY, _RAISED = 125, 8, 22.0
_POINT = 0.75  # of a pixel
_COLOURS = {style: light for style, (light, _) in STYLES.items()}
_USED = ("ink", "soft", "rule", "grid", "ground")
_INK, _SOFT, _RULE, _GRID, _GROUND = (GROUNDS[name][0] for name in _USED)


def draw_picture(path: Path, picture: Picture, study: str | None, width: float = _WIDE) -> None:
    """Draw a picture to a file, with the study's name as title, or without a title for a paper."""
    figure = new_figure(*figure_size(picture, width))
    fill_figure(figure, picture, study)
    save_figure(figure, path, path.suffix.removeprefix("."))


def figure_size(picture: Picture, width: float = _WIDE) -> tuple[float, float]:
    rows = _panel_rows(picture.panels)
    wide = [row[0].wide for row in rows]
    scale = [width / _WIDE if is_wide and width < _WIDE else 1.0 for is_wide in wide]
    heights = zip(_row_heights(rows), scale, strict=True)
    return width, sum(height * share for height, share in heights) + 0.6 * (width == _WIDE)


def fill_figure(figure: Any, picture: Picture, study: str | None) -> list[Any]:
    from matplotlib import font_manager, rc_context

    known = {font.name for font in font_manager.fontManager.ttflist}
    family = next((name for name in FONTS if name in known), "sans-serif")
    with rc_context({"font.family": family, "font.size": LETTERS * _POINT}):
        return _draw_panels(figure, picture, study)


def _draw_panels(figure: Any, picture: Picture, study: str | None) -> list[Any]:
    rows = _panel_rows(picture.panels)
    if study is not None:
        title = f"{study}: {picture.title}"
        figure.suptitle(title, fontsize="x-large", fontweight="bold", color=_INK)
    parts = figure.subfigures(len(rows), 1, height_ratios=_row_heights(rows), squeeze=False)[:, 0]
    columns, drawn = max(map(len, rows)), []
    for part, row in zip(parts, rows, strict=True):
        count = columns
        if len(row) == 1 and row[0].wide:
            count = 1
        axes = part.subplots(1, count, squeeze=False)[0]
        for place, panel in zip(axes, row, strict=False):
            draw_panel(place, panel)
            drawn.append(place)
        for place in axes[len(row) :]:
            place.set_axis_off()
    if picture.keys:
        handles = [_legend_handle(key) for key in picture.keys]
        figure.legend(
            handles=handles,
            ncols=len(handles),
            loc="outside lower center",
            frameon=False,
            labelcolor=_SOFT,
        )
    return drawn


def _row_heights(rows: list[list[Panel]]) -> list[float]:
    return [max(map(_panel_height, row)) for row in rows]


def _panel_rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    rows: list[list[Panel]] = []
    for panel in panels:
        if rows and not panel.wide and not rows[-1][-1].wide and len(rows[-1]) < _COLUMNS:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


def _panel_height(panel: Panel) -> float:
    if isinstance(panel, Bars):
        return max(1.6, _BAR * len(panel.bars) + 0.6)
    if panel.wide:
        return 4.0
    return 2.7 + _LINE * len(panel.keys)


def draw_panel(axes: Any, panel: Panel) -> None:
    letters = sum(len(key.label) + _KEY for key in panel.keys)
    lines = max(1, math.ceil(letters / _ROW))
    raised: dict[str, float] = {}
    if panel.wide and len(panel.title) + letters > _ROW:
        raised["pad"] = _RAISED * lines
    axes.set_title(
        panel.title, fontsize="large", fontweight="bold", loc="left", color=_INK, **raised
    )
    axes.tick_params(length=0, labelcolor=_SOFT)
    for name, side in axes.spines.items():
        side.set_visible(name == "bottom")
        side.set_color(_RULE)
    if isinstance(panel, XY):
        _draw_xy(axes, panel)
    elif isinstance(panel, Bars):
        _draw_bars(axes, panel)
    else:
        _draw_parallel(axes, panel)
    if panel.keys:
        from matplotlib.transforms import ScaledTranslation

        # Next to the title of a wide panel, but below other panels, so that it hides no mark.
        down = ScaledTranslation(0.0, -_BELOW / 72.0, axes.figure.dpi_scale_trans)
        place = {
            "loc": "upper left",
            "bbox_to_anchor": (0.0, 0.0),
            "borderaxespad": 0.0,
            "bbox_transform": axes.transAxes + down,
        }
        if panel.wide:
            columns = math.ceil(len(panel.keys) / lines)
            place = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": columns,
                     "borderaxespad": 0.1}  # fmt: skip
        handles = [_legend_handle(key) for key in panel.keys]
        axes.legend(handles=handles, labelcolor=_SOFT, frameon=False, **place)


def _legend_handle(key: Key) -> Any:
    from matplotlib.lines import Line2D

    colour = _COLOURS[key.style]
    look: dict[str, Any]
    if key.shape in ("line", "dashed"):
        look = {"linewidth": LINE * _POINT, "linestyle": _line_style(key.shape == "dashed")}
    else:
        marker = {"dot": "o", "ring": "o", "cross": "x", "out": "v"}[key.shape]
        face = colour
        if key.shape == "ring":
            face = "none"
        look = {"marker": marker, "markerfacecolor": face, "linestyle": ""}
    return Line2D([], [], color=colour, label=key.label, **look)


def _draw_xy(axes: Any, panel: XY) -> None:
    for side, scale in (("x", panel.x), ("y", panel.y)):
        if scale.log:
            getattr(axes, f"set_{side}scale")("log")
        getattr(axes, f"set_{side}lim")(scale.low, scale.high)
        values, texts = [v for v, _ in scale.ticks], [t for _, t in scale.ticks]
        getattr(axes, f"set_{side}ticks")(values, texts)
        getattr(axes, f"set_{side}ticks")([], minor=True)
        getattr(axes, f"set_{side}label")(scale.label, color=_SOFT)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_GRID, linewidth=_POINT)
    for mark in panel.marks:
        _draw_mark(axes, mark, panel)
    _draw_labels(axes, panel)


def _draw_labels(axes: Any, panel: XY) -> None:
    """Write the names of lines to the right of the panel, without overlaps."""
    if not panel.labels:
        return
    height = _LABEL_HEIGHT  # shares of the panel's
    if not panel.wide:
        height *= 1.5
    at = [panel.y.share(label.y) for label in panel.labels]
    for place, label in zip(spread(at, height, 0.02, 0.98), panel.labels, strict=True):
        axes.annotate(
            label.text,
            (1.0, place),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontweight="bold",
            color=_COLOURS[label.style],
        )


def _line_style(dashed: bool) -> Any:
    if not dashed:
        return "-"
    return 0, tuple(length * _POINT for length in DASH)


def _draw_mark(axes: Any, mark: Line | Band | Dot, panel: XY) -> None:
    colour = _COLOURS[mark.style]
    if isinstance(mark, Band):
        at, low, high = zip(*mark.points, strict=True)
        axes.fill_between(at, low, high, color=colour, alpha=BAND, linewidth=0)
    elif isinstance(mark, Line):
        at, values = zip(*mark.points, strict=True)
        width, steps = LINE, "default"
        if mark.thin:
            width = THIN
        if mark.step:
            steps = "steps-post"
        axes.plot(
            at,
            values,
            color=colour,
            linewidth=width * _POINT,
            drawstyle=steps,
            linestyle=_line_style(mark.dashed),
        )
    elif mark.shape == "cross":
        axes.plot([mark.x], [mark.y], "x", color=colour, markersize=5)
    elif mark.shape == "out":
        triangle = "^"
        if mark.y <= (panel.y.low + panel.y.high) / 2:
            triangle = "v"
        axes.plot([mark.x], [mark.y], triangle, color=colour, markersize=5)
    else:
        fill, radius = "full", DOT
        if mark.shape == "ring":
            fill, radius = "none", RING
        axes.plot(
            [mark.x],
            [mark.y],
            "o",
            color=colour,
            fillstyle=fill,
            markersize=2 * radius * _POINT,
        )


def _draw_bars(axes: Any, panel: Bars) -> None:
    places = range(len(panel.bars))
    axes.barh(places, [bar.share for bar in panel.bars], color=_COLOURS["c0"])
    ends = [bar.share if bar.around is None else bar.around[1] for bar in panel.bars]
    for place, bar, end in zip(places, panel.bars, ends, strict=True):
        if bar.around is not None:
            axes.plot(bar.around, [place, place], color=_INK, linewidth=1.5 * _POINT)
        axes.annotate(f" {bar.text}", (max(bar.share, end), place), va="center", color=_SOFT)
    axes.set_yticks(places, [bar.label for bar in panel.bars], color=_INK)
    axes.set_xlim(0.0, 1.15 * max(ends, default=1.0))
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _draw_parallel(axes: Any, panel: Parallel) -> None:
    for strand in panel.strands:
        axes.plot(strand.shares, color=_COLOURS[strand.style], linewidth=STRAND * _POINT)
    for place, rail in enumerate(panel.rails):
        axes.axvline(place, color=_SOFT, linewidth=_POINT, ymin=0.1, ymax=0.97)
        for share, text in rail.ticks:
            axes.annotate(
                text,
                (place, share),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
                color=_SOFT,
                bbox={"boxstyle": "round,pad=0.1", "fc": _GROUND, "ec": "none", "alpha": 0.75},
            )
    names = [rail.label.replace("_", "_\n", 1) for rail in panel.rails]
    axes.set_xticks(range(len(names)), names, color=_INK)
    axes.set_ylim(-0.12, 1.04)
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
