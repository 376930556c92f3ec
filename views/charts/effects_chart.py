"""The main effect of the knobs that decided: the mean value along each axis, with its band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...spaces.distributions import Distribution
from ...store.main_effects import EffectPoint
from ...store.value_bounds import value_bounds
from ..formatting import between, counted, number, steps
from .model import XY, Band, Dot, Line, Picture, Scale
from .scales import knob_ticks, value_scale
from .snapshot import Snapshot

__all__ = ["effects"]

_PANELS = 6
_WIDTH = 0.015


def effects(snapshot: Snapshot) -> Picture:
    """Draw the main effect of every knob that decided, where there are trials enough."""
    title = "Main effects"
    answer = snapshot.answer
    if answer is None or not answer.decided.names:
        return Picture("effects", title, "No hyperparameter is shown to matter.")
    bounds = value_bounds(snapshot.meta)
    drawn = {
        name: [replace(point, interval=bounds.around(point.interval)) for point in points]
        for name, points in answer.effects.items()
        if points
    }
    named = dict(snapshot.study.space.keyed)
    ends = [value for points in drawn.values() for point in points for value in _ends(point)]
    y = value_scale(ends, snapshot.meta.metric.removeprefix("eval/"), may_be_log=False)
    panels = [
        _panel(name, drawn[name], named[name].distribution, y)
        for name in answer.decided.names
        if name in drawn
    ][:_PANELS]
    caption = (
        f"{snapshot.meta.metric} at {steps(answer.at)} env steps: means of groups of neighbouring "
        "trials, with 95% intervals; the other hyperparameters vary."
    )
    if not panels:
        caption = "Too few trials to draw an effect."
    return Picture("effects", title, caption, panels)


def _ends(point: EffectPoint) -> tuple[float, float]:
    around = point.interval
    if around.low is None or around.high is None:
        return point.mean, point.mean
    return around.low, around.high


def _panel(name: str, points: Sequence[EffectPoint], distribution: Distribution, y: Scale) -> XY:
    axis = distribution.axis
    choices = axis.kind == "choice"

    def x(point: EffectPoint) -> float:
        count = axis.high - axis.low + 1.0
        share = (point.place - axis.low + 0.5) / count if choices else point.place
        return 1.0 - share if distribution.kind == "one_minus_log" else share

    ordered = sorted(points, key=x)
    tips = {id(point): _said(point) for point in ordered}
    marks: list[Line | Band | Dot] = []
    if choices:
        for point in ordered:
            low, high = _ends(point)
            corners = ((x(point) - _WIDTH, low, high), (x(point) + _WIDTH, low, high))
            marks.append(Band(corners, "c0"))
    else:
        marks.append(Band(tuple((x(point), *_ends(point)) for point in ordered), "c0"))
        marks.append(Line(tuple((x(point), point.mean) for point in ordered), "c0"))
    marks += [Dot(x(point), point.mean, "c0", tip=tips[id(point)]) for point in ordered]
    return XY(name, Scale(-0.03, 1.03, knob_ticks(distribution)), y, tuple(marks))


def _said(point: EffectPoint) -> str:
    around = between(point.interval.low, point.interval.high)
    return f"{number(point.mean)} {around}, mean of {counted(point.trials, 'trial')}"
