"""Charts of values by hyperparameter: parallel coordinates, slices, effects, importance.

All values are taken at the latest point that 90 % of trials reached, because final values of runs
with different lengths are not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, counted
from ...search.analysis.checkpoint_values import point_at
from ...search.analysis.knob_significance import answer_at
from ...spaces.distributions import Distribution
from ...spaces.space import Parameter, Space
from ...store.importance import EffectPoint
from ..formatting import around, number, param, params_text, steps, with_interval
from .model import (
    XY,
    Band,
    Bar,
    Bars,
    Dot,
    Key,
    Line,
    Parallel,
    Picture,
    Rail,
    Scale,
    Strand,
    knob_share,
    knob_ticks,
    value_scale,
)
from .snapshot import Snapshot, finite

_STRANDS, _DOTS, _RAILS, _SLICES = 300, 600, 10, 24
_NOWHERE = -0.1
_ENDS = (-0.03, 1.03)
_TOO_FEW = "This chart needs at least two trials with a value at the same point of their runs."
_PANELS = 6
_WIDTH = 0.015
_BARS = 20


@dataclass(frozen=True)
class _Values:
    at: int
    values: Mapping[int, float]
    shares: Mapping[int, Mapping[str, float]]
    knobs: Mapping[str, Parameter]  # most important first


def _comparable_values(snapshot: Snapshot, most: int) -> _Values | None:
    points = snapshot.points
    at = points.latest_shared(list(snapshot.rows))
    values = {n: v for n, v in points.values.get(at or 0, {}).items() if finite(v)}
    space = snapshot.study.space
    if at is None or len(values) < 2 or not space.parameters:
        return None
    kept = {trial: values[trial] for trial in snapshot.thinned(values, most)}
    shares = {trial: _knob_shares(space, points.params(trial, at)) for trial in kept}
    return _Values(at, kept, shares, _important_first(snapshot))


def _knob_shares(space: Space, params: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}

    def choose(key: str, parameter: Parameter) -> Any:
        value = params[parameter.name]
        found[key] = knob_share(parameter.distribution, value)
        return value

    space.resolve(choose)
    return found


def _caption_start(snapshot: Snapshot, compared: _Values, most: int) -> str:
    every = "trials"
    if len(compared.values) >= len(snapshot.searched):
        every = "all trials"
    what = f"{snapshot.metric} of {every} at {steps(compared.at)} {snapshot.unit}"
    return f"{what}, the latest point that 90% of trials reached{snapshot.kept_words(most)}"


def parallel(snapshot: Snapshot) -> Picture:
    title = "Parallel coordinates"
    compared = _comparable_values(snapshot, _STRANDS)
    if compared is None:
        return Picture("parallel", title, _TOO_FEW)
    keys = [*compared.knobs][:_RAILS]
    values = value_scale(compared.values.values(), snapshot.metric)
    shown = {key: compared.knobs[key] for key in keys}
    rails = [
        Rail(_parameter_label(key, one), knob_ticks(one.distribution))
        for key, one in shown.items()
    ]
    heights = tuple((values.share(value), text) for value, text in values.ticks)
    rails.append(Rail(snapshot.metric.removeprefix("eval/"), heights))
    ordered = sorted(compared.values, key=lambda n: snapshot.sign * compared.values[n])
    strands: list[Strand] = []
    for place, trial in enumerate(ordered):
        own, height = compared.shares[trial], compared.values[trial]
        crossed = [own.get(key, _NOWHERE) for key in keys] + [values.share(height)]
        params = snapshot.points.params(trial, compared.at)
        said = params_text(params)
        style, tip = f"s{place * 5 // len(ordered)}", f"trial {trial}: {number(height)}; {said}"
        strands.append(Strand(tuple(crossed), style, trial, tip))
    left_out = len(compared.knobs) - len(keys)
    caption = (
        f"{_caption_start(snapshot, compared, _STRANDS)}. Axes use the sampler's scales; a line "
    )
    caption += "below an axis belongs to a trial without that hyperparameter."
    if left_out > 0:
        caption += f" Left out: {counted(left_out, 'less important hyperparameter')}."
    fifths = {"best fifth": "s4", "middle fifth": "s2", "worst fifth": "s0"}
    legend = tuple(Key(name, style, "line") for name, style in fifths.items())
    panel = Parallel("Hyperparameters and value", tuple(rails), tuple(strands), legend)
    return Picture("parallel", title, caption, (panel,))


def _parameter_label(key: str, parameter: Parameter) -> str:
    if "#" not in key:
        return key
    when = ", ".join(f"{one.name} {'/'.join(map(param, one.values))}" for one in parameter.when)
    return f"{parameter.name} ({when})"


def _important_first(snapshot: Snapshot) -> dict[str, Parameter]:
    knobs = dict(snapshot.study.space.keyed)
    if len(knobs) <= _RAILS:
        return knobs
    shares: dict[str, float] = {}
    if snapshot.answer is not None:
        shares = {knob.name: knob.share for knob in snapshot.answer.decided.knobs}
    return dict(sorted(knobs.items(), key=lambda it: -shares.get(it[0], 0.0)))


def slices(snapshot: Snapshot) -> Picture:
    title = "Slices"
    compared = _comparable_values(snapshot, _DOTS)
    if compared is None:
        return Picture("slices", title, _TOO_FEW)
    y = value_scale(compared.values.values(), snapshot.metric.removeprefix("eval/"))
    first = None
    if snapshot.winner is not None:
        first = snapshot.winner.trial
    panels = [
        _slice_panel(snapshot, compared, key, y, first) for key in [*compared.knobs][:_SLICES]
    ]
    legend = [Key("finished", "c0"), Key("not finished", "muted")]
    if first in compared.values:
        legend.append(Key(snapshot.winner_word, "c1", "ring"))
    caption = f"{_caption_start(snapshot, compared, _DOTS)}, with one panel per hyperparameter."
    return Picture("slices", title, caption, panels, legend)


def _slice_panel(
    snapshot: Snapshot, compared: _Values, key: str, y: Scale, first: int | None
) -> XY:
    parameter, dots = compared.knobs[key], list[Dot]()
    ended = {trial: snapshot.rows[trial].value is not None for trial in compared.values}
    for trial in sorted(ended, key=lambda n: (ended[n], n)):
        if key not in compared.shares[trial]:
            continue
        value = compared.values[trial]
        x = compared.shares[trial][key] + _jitter(parameter, trial)
        said = f"trial {trial}: {number(value)}; {parameter.name} "
        said += param(snapshot.points.params(trial, compared.at)[parameter.name])
        style = "muted"
        if ended[trial]:
            style = "c0"
        dots.append(Dot(x, value, style, trial, said))
        if trial == first:
            dots.append(Dot(x, value, "c1", shape="ring"))
    scale = Scale(*_ENDS, knob_ticks(parameter.distribution))
    return XY(_parameter_label(key, parameter), scale, y, tuple(dots))


def _jitter(parameter: Parameter, trial: int) -> float:
    axis = parameter.distribution.axis
    if axis.kind == "real":
        return 0.0
    width = 0.5 / (axis.high - axis.low + 1)
    return width * ((trial * 0.618034) % 1.0 - 0.5)


def effects(snapshot: Snapshot) -> Picture:
    title = "Main effects"
    answer = snapshot.answer
    if answer is None or not answer.decided.names:
        return Picture("effects", title, "No hyperparameter was found to matter.")
    drawn = answer.effects
    named = dict(snapshot.study.space.keyed)
    ends = [
        value for points in drawn.values() for point in points for value in _interval_ends(point)
    ]
    y = value_scale(ends, snapshot.metric.removeprefix("eval/"), may_be_log=False)
    shown = [name for name in answer.decided.names if drawn.get(name)][:_PANELS]
    panels = [_effect_panel(name, drawn[name], named[name].distribution, y) for name in shown]
    if not panels:
        return Picture("effects", title, "Too few trials to draw an effect.")
    caption = f"{snapshot.metric} at {steps(answer.at)} {snapshot.unit}: means over groups "
    caption += "of trials with similar values, with 95% intervals. The other hyperparameters vary."
    return Picture("effects", title, caption, panels)


def _interval_ends(point: EffectPoint) -> tuple[float, float]:
    return point.interval.ends(point.mean, point.mean)


def _effect_panel(
    name: str, points: Sequence[EffectPoint], distribution: Distribution, y: Scale
) -> XY:
    axis = distribution.axis
    choices = axis.kind == "choice"

    def x(point: EffectPoint) -> float:
        share = point.place
        if choices:
            share = (point.place - axis.low + 0.5) / (axis.high - axis.low + 1.0)
        if distribution.kind == "one_minus_log":
            return 1.0 - share
        return share

    ordered = sorted(points, key=x)
    marks: list[Line | Band | Dot] = []
    if choices:
        for point in ordered:
            ends = _interval_ends(point)
            marks.append(Band(((x(point) - _WIDTH, *ends), (x(point) + _WIDTH, *ends)), "c0"))
    else:
        marks.append(Band(tuple((x(point), *_interval_ends(point)) for point in ordered), "c0"))
        marks.append(Line(tuple((x(point), point.mean) for point in ordered), "c0"))
    for point in ordered:
        value = around(point.mean, point.interval)
        tip = f"{value}, mean of {counted(point.trials, 'trial')}"
        marks.append(Dot(x(point), point.mean, "c0", tip=tip))
    return XY(name, Scale(*_ENDS, knob_ticks(distribution)), y, tuple(marks))


def importance(snapshot: Snapshot, at: int | None = None) -> Picture:
    title = "Importance of hyperparameters"
    if not snapshot.study.space.parameters:
        return Picture("importance", title, "Nothing was searched.")
    try:
        answer = snapshot.answer
        if at is not None or answer is None:
            answer = answer_at(snapshot.points, point_at(snapshot.points, at))
    except ConfigError as error:
        return Picture("importance", title, f"Not computed: {error}.")
    knobs = [knob for knob in answer.decided.knobs if knob.floor < 1.0]
    most = max((knob.high for knob in knobs), default=0.0) or 1.0
    bars = tuple(
        Bar(
            k.name,
            k.share / most,
            with_interval(k.share, k.low, k.high, ".0%"),
            (k.low / most, k.high / most),
        )
        for k in knobs[:_BARS]
    )
    caption = " ".join(text.removesuffix(".") + "." for text in answer.sentences)
    panel = Bars(f"Share of the ranking explained at {steps(answer.at)} {snapshot.unit}", bars)
    return Picture("importance", title, f"{caption} Lines are 95% intervals.", [panel])
