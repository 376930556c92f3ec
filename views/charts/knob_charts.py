"""How values depend on knobs: parallel coordinates, and a slice along each knob.

All values are from one point of the runs, the latest that nine in ten trials reached: values at
the ends of runs of different lengths cannot be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ConfigError, counted
from ...search.analysis.checkpoint_values import (
    Importance,
    Method,
    importance_at,
    importance_over_progress,
)
from ...search.analysis.knob_significance import answer_at
from ...spaces.base import Distribution
from ...spaces.space import Parameter, Space
from ...store.importance import EffectPoint
from ...store.value_bounds import value_bounds
from ..formatting import between, number, param, steps
from .model import (
    XY,
    Band,
    Bar,
    Bars,
    Dot,
    Key,
    Line,
    Panel,
    Parallel,
    Picture,
    Rail,
    Scale,
    Strand,
)
from .scales import knob_share, knob_ticks, round_ticks, steps_scale, value_scale
from .snapshot import Snapshot, finite

_STRANDS = 300
_DOTS = 600
_RAILS = 10
_SLICES = 24
_FIFTHS = 5
_NOWHERE = -0.1


@dataclass(frozen=True)
class _Compared:
    """Values of trials at one point of their runs, and where each lies on the axes of knobs."""

    at: int
    values: Mapping[int, float]
    shares: Mapping[int, Mapping[str, float]]


def _compared(snapshot: Snapshot, most: int) -> _Compared | None:
    """Return the comparison of at most `most` trials; None if no point has two values."""
    points = snapshot.points
    at = points.latest_shared(list(snapshot.rows))
    values = {n: v for n, v in points.values.get(at or 0, {}).items() if finite(v)}
    if at is None or len(values) < 2:
        return None
    kept = {trial: values[trial] for trial in snapshot.thinned(values, most)}
    space = snapshot.study.space
    return _Compared(at, kept, {n: _shares(space, points.params(n, at)) for n in kept})


def _shares(space: Space, params: Mapping[str, Any]) -> dict[str, float]:
    """Return where a configuration lies on the axis of every active parameter, by its key."""
    found: dict[str, float] = {}

    def choose(key: str, parameter: Parameter) -> Any:
        value = params[parameter.name]
        found[key] = knob_share(parameter.distribution, value)
        return value

    space.resolve(choose)
    return found


def _nothing(name: str, title: str) -> Picture:
    return Picture(
        name, title, "Needs at least two trials with a value at the same point of their runs."
    )


def _where(snapshot: Snapshot, compared: _Compared, most: int) -> str:
    every = "all trials" if len(compared.values) >= len(snapshot.searched) else "trials"
    return (
        f"{snapshot.meta.metric} of {every} at {steps(compared.at)} env steps, the latest point "
        f"that nine in ten reached{snapshot.kept_words(most)}"
    )


# ---------------------------------------------------------------------- parallel coordinates


def parallel(snapshot: Snapshot) -> Picture:
    """Draw every trial as a line across the axes of the knobs, coloured by its value."""
    title = "Parallel coordinates"
    compared = _compared(snapshot, _STRANDS)
    if compared is None or not snapshot.study.space.parameters:
        return _nothing("parallel", title)
    keys = _important_first(snapshot, [key for key, _ in snapshot.study.space.keyed])[:_RAILS]
    named = dict(snapshot.study.space.keyed)
    values = value_scale(compared.values.values(), snapshot.meta.metric)
    rails = [Rail(_named(key, named[key]), knob_ticks(named[key].distribution)) for key in keys]
    rails.append(_value_rail(values, snapshot.meta.metric))
    ordered = sorted(compared.values, key=lambda n: snapshot.sign * compared.values[n])
    strands: list[Strand] = []
    for place, trial in enumerate(ordered):
        own, height = compared.shares[trial], compared.values[trial]
        crossed = [own.get(key, _NOWHERE) for key in keys] + [values.share(height)]
        said = ", ".join(
            f"{k} {param(v)}" for k, v in snapshot.points.params(trial, compared.at).items()
        )
        strands.append(
            Strand(
                shares=tuple(crossed),
                style=f"s{place * _FIFTHS // len(ordered)}",
                trial=trial,
                tip=f"trial {trial}: {number(height)}; {said}",
            )
        )
    left_out = len(snapshot.study.space.keyed) - len(keys)
    caption = (
        f"{_where(snapshot, compared, _STRANDS)}. Equally likely values lie equally far apart; "
        "a line below an axis belongs to a trial without that hyperparameter."
    )
    if left_out > 0:
        caption += f" Left out: {counted(left_out, 'less important hyperparameter')}."
    legend = (Key("best fifth", "s4", "line"), Key("middle fifth", "s2", "line"),
              Key("worst fifth", "s0", "line"))  # fmt: skip
    panel = Parallel("Hyperparameters and value", tuple(rails), tuple(strands), legend)
    return Picture("parallel", title, caption, (panel,))


def _named(key: str, parameter: Parameter) -> str:
    """Return a knob's name, with the condition of this distribution if it has several."""
    if "#" not in key:
        return key
    when = ", ".join(
        f"{condition.name} {'/'.join(map(param, condition.values))}"
        for condition in parameter.when
    )
    return f"{parameter.name} ({when})"


def _value_rail(scale: Scale, metric: str) -> Rail:
    ticks = [(scale.share(value), text) for value, text in scale.ticks]
    return Rail(metric.removeprefix("eval/"), tuple(ticks))


def _important_first(snapshot: Snapshot, keys: Sequence[str]) -> list[str]:
    """Return knobs by importance; in the study's order if there are too few trials."""
    if len(keys) <= _RAILS:
        return list(keys)
    try:
        shares = importance_at(snapshot.points, everybody=True).shares
    except ConfigError:  # too few trials
        return list(keys)
    return sorted(keys, key=lambda key: -shares.get(key.partition("#")[0], 0.0))


# ---------------------------------------------------------------------- slices


def slices(snapshot: Snapshot) -> Picture:
    """Draw the values of trials along every knob."""
    title = "Slices"
    compared = _compared(snapshot, _DOTS)
    if compared is None or not snapshot.study.space.parameters:
        return _nothing("slices", title)
    y = value_scale(compared.values.values(), snapshot.meta.metric.removeprefix("eval/"))
    first = snapshot.winner.trial if snapshot.winner is not None else None
    keys = _important_first(snapshot, [key for key, _ in snapshot.study.space.keyed])
    named = dict(snapshot.study.space.keyed)
    panels = [_slice(snapshot, compared, key, named[key], y, first) for key in keys[:_SLICES]]
    legend = [Key("finished", "c0"), Key("not finished", "muted")]
    if first in compared.values:
        legend.append(Key("first on the leaderboard", "c1", "ring"))
    caption = f"{_where(snapshot, compared, _DOTS)}, along one hyperparameter each."
    return Picture("slices", title, caption, panels, legend)


def _slice(
    snapshot: Snapshot,
    compared: _Compared,
    key: str,
    parameter: Parameter,
    y: Scale,
    first: int | None,
) -> XY:
    dots: list[Dot] = []
    for trial in sorted(compared.values, key=lambda n: (snapshot.rows[n].value is not None, n)):
        if key not in compared.shares[trial]:
            continue
        value = compared.values[trial]
        x = compared.shares[trial][key] + _jitter(parameter, trial)
        said = f"trial {trial}: {number(value)}; {parameter.name} "
        said += param(snapshot.points.params(trial, compared.at)[parameter.name])
        ended = snapshot.rows[trial].value is not None
        dots.append(Dot(x, value, "c0" if ended else "muted", trial, said))
        if trial == first:
            dots.append(Dot(x, value, "c1", shape="ring"))
    scale = Scale(-0.03, 1.03, knob_ticks(parameter.distribution))
    return XY(_named(key, parameter), scale, y, tuple(dots))


def _jitter(parameter: Parameter, trial: int) -> float:
    """Return how far to move a point on a discrete axis, so that equal values stay visible."""
    axis = parameter.distribution.axis
    if axis.kind == "real":
        return 0.0
    width = 0.5 / (axis.high - axis.low + 1)
    return width * ((trial * 0.618034) % 1.0 - 0.5)


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


_LINES = 6
_BARS = 20


def importance(
    snapshot: Snapshot,
    everybody: bool = False,
    method: Method | None = None,
    at: int | None = None,
) -> Picture:
    """Draw how much of the ranking every hyperparameter explains, with its interval.

    Args:
        snapshot: the study.
        everybody: for `method`: include trials that a model proposed.
        method: draw the shares by this estimator instead, also over all points with enough trials.
        at: env steps of the point; None takes the latest that nine in ten of the trials reached.
    """
    title = "Importance of hyperparameters"
    if not snapshot.study.space.parameters:
        return Picture("importance", title, "Nothing was searched.")
    if everybody:
        method = method or "ped-anova"
    try:
        if method is not None:
            found = importance_at(snapshot.points, at, everybody, method)
            return _by(
                method, title, found,
                importance_over_progress(snapshot.points, everybody, method),
            )  # fmt: skip
        answer = snapshot.answer
        if at is not None or answer is None:
            answer = answer_at(snapshot.points, importance_at(snapshot.points, at))
    except ConfigError as error:
        return Picture("importance", title, f"Not computed: {error}.")
    knobs = [knob for knob in answer.decided.knobs if knob.floor < 1.0]
    most = max((knob.high for knob in knobs), default=0.0) or 1.0
    bars = tuple(
        Bar(
            knob.name, knob.share / most,
            f"{knob.share:.0%} [{knob.low:.0%}, {knob.high:.0%}]",
            (knob.low / most, knob.high / most),
        )
        for knob in knobs[:_BARS]
    )  # fmt: skip
    caption = " ".join([_sentence(text) for text in answer.sentences])
    panel = Bars(f"Share of the ranking explained at {steps(answer.at)} env steps", bars)
    return Picture("importance", title, f"{caption} Lines are 95% intervals.", [panel])


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _by(method: Method, title: str, found: Importance, along: Sequence[Importance]) -> Picture:
    trials = counted(found.trials, "trial")
    caption = f"{_METHODS[method]}, on {trials} at {steps(found.at)} env steps"
    caption += ", none proposed by a model." if not found.modelled else f". {_BIASED}"
    caption += f" ({found.caution.capitalize()}.)" if found.caution else ""
    most = max(found.shares.values(), default=0.0)
    bars = tuple(
        Bar(name, share / most if most > 0 else 0.0, f"{share:.0%}")
        for name, share in list(found.shares.items())[:_BARS]
    )
    panels: list[Panel] = [Bars(f"At {steps(found.at)} env steps", bars)]
    along = [item for item in along if any(item.shares.values())]  # else all were alike there
    if len(along) > 1:
        panels.append(_over_progress(along))
    return Picture("importance", title, caption, panels)


_BIASED = "It includes trials that a model proposed, which biases it to where that searched."
_METHODS: dict[Method, str] = {
    "ped-anova": "PED-ANOVA: how much the best tenth of the trials differ from all",
    "fanova": "fANOVA: the share of the variance that each explains on its own",
}


def _over_progress(along: Sequence[Importance]) -> XY:
    """Draw the knobs of the highest importance anywhere, over the points of the runs."""
    most = {name: max(item.shares[name] for item in along) for name in along[0].shares}
    names = sorted(most, key=lambda name: -most[name])[:_LINES]
    marks: list[Line | Dot] = []
    keys: list[Key] = []
    for place, name in enumerate(names):
        style = f"c{place}"
        points = tuple((float(item.at), item.shares.get(name, 0.0)) for item in along)
        said = ", ".join(f"{share:.0%} at {steps(round(at))}" for at, share in points)
        marks.append(Line(points, style, tip=f"{name}: {said}"))
        marks += [Dot(at, share, style, tip=f"{name}: {share:.0%} at {steps(round(at))}")
                  for at, share in points]  # fmt: skip
        keys.append(Key(name, style, "line"))
    high = max(share for item in along for share in item.shares.values()) or 1.0
    ticks = tuple((at, f"{at:.0%}") for at in round_ticks(0.0, high))
    x = steps_scale(float(max(item.at for item in along)))
    return XY("Over training progress", x, Scale(0.0, 1.05 * high, ticks, "importance"),
              tuple(marks), tuple(keys))  # fmt: skip
