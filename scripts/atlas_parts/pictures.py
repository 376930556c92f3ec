"""The pictures of the atlas, in the style of the reports: one panel per environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hpo.store.importance import Decided, KnobShare
from hpo.views.charts.matplotlib_files import draw_picture
from hpo.views.charts.model import (
    XY,
    Band,
    Dot,
    Key,
    Line,
    Picture,
    Scale,
    round_ticks,
    steps_scale,
)

from .analysis import Analysis
from .resampling import Estimate

NAMES = ("atlas_knobs", "atlas_seeds", "atlas_early")
_KNOBS = 5
_PERCENT = tuple((tick / 5, f"{tick / 5:.0%}") for tick in range(6))


def draw(found: Sequence[Analysis], figures: Path) -> list[Path]:
    """Draw all pictures to a folder and return their paths."""
    figures.mkdir(parents=True, exist_ok=True)
    made = []
    for name, (title, panel, keys) in zip(NAMES, _PANELS, strict=True):
        picture = Picture(name, title, "", [panel(one) for one in found], keys)
        path = figures / f"{name}.png"
        draw_picture(path, picture, "Atlas")
        made.append(path)
    return made


def knobs_panel(found: Analysis) -> XY:
    """Draw the shares of the most important hyperparameters over the run; dots if significant."""
    points = found.atlas.points
    most = {
        knob.name: max(_share(decided, knob.name).share for decided in found.decided)
        for knob in found.decided[-1].knobs
    }
    names = sorted(most, key=lambda name: -most[name])[:_KNOBS]
    marks: list[Line | Band | Dot] = []
    for place, name in enumerate(names):
        style, shares = f"c{place}", [_share(decided, name) for decided in found.decided]
        at = list(zip(points.tolist(), shares, strict=True))
        marks.append(Band(tuple((x, knob.low, knob.high) for x, knob in at), style))
        marks.append(Line(tuple((x, knob.share) for x, knob in at), style))
        marks += [Dot(x, knob.share, style) for x, knob in at if knob.decided]
    high = max((max(_share(one, name).high for name in names) for one in found.decided), default=1)
    ticks = tuple((tick, f"{tick:.0%}") for tick in round_ticks(0.0, max(high, 0.05)))
    return XY(
        found.atlas.name,
        steps_scale(float(points[-1])),
        Scale(0.0, 1.05 * max(high, 0.05), ticks, "share of ranks explained"),
        tuple(marks),
        tuple(Key(name, f"c{place}", "line") for place, name in enumerate(names)),
    )


def _share(decided: Decided, name: str) -> KnobShare:
    return next(knob for knob in decided.knobs if knob.name == name)


def seeds_panel(found: Analysis) -> XY:
    """Draw the results of ranking by 1, 2, ... seeds."""
    at = [float(one.seeds) for one in found.ranked]
    marks = [
        *_estimates(at, [one.pair for one in found.ranked], "c0"),
        *_estimates(at, [one.top for one in found.ranked], "c1"),
    ]
    ticks = tuple((place, f"{place:.0f}") for place in at)
    return XY(
        found.atlas.name,
        Scale(at[0] - 0.3, at[-1] + 0.3, ticks, "seeds that choose"),
        Scale(0.0, 1.05, _PERCENT, f"agreement with {found.ranked[0].judges} other seeds"),
        tuple(marks),
    )


def early_panel(found: Analysis) -> XY:
    """Draw how well every point predicts the end."""
    at = [one.fraction for one in found.early]
    marks = [
        *_estimates(at, [one.correlation for one in found.early], "c0"),
        *_estimates(at, [one.kept for one in found.early], "c2"),
        *_estimates(at, [one.lost for one in found.early], "c1"),
    ]
    low = min(-0.05, *(min(one.correlation.low, one.lost.value - 0.05) for one in found.early))
    return XY(
        found.atlas.name,
        Scale(0.0, 1.02, _PERCENT, "of the run"),
        Scale(max(-1.0, low), 1.1, _PERCENT, "", cut=True),
        tuple(marks),
    )


def _estimates(
    at: Sequence[float], values: Sequence[Estimate], style: str
) -> list[Line | Band | Dot]:
    pairs = list(zip(at, values, strict=True))
    return [
        Band(tuple((x, one.low, one.high) for x, one in pairs), style),
        Line(tuple((x, one.value) for x, one in pairs), style),
        *(Dot(x, one.value, style) for x, one in pairs),
    ]


_PANELS: tuple[tuple[str, Callable[[Analysis], XY], tuple[Key, ...]], ...] = (
    ("what each knob explains over the run", knobs_panel, ()),
    (
        "how many seeds rank configurations",
        seeds_panel,
        (Key("better of two", "c0", "line"), Key("top tenth", "c1", "line")),
    ),
    (
        "how early a curve can be judged",
        early_panel,
        (
            Key("rank correlation", "c0", "line"),
            Key("kept in the top third", "c2", "line"),
            Key("gain lost", "c1", "line"),
        ),
    ),
)
