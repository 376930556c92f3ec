"""How values depend on knobs: parallel coordinates, and a slice along each knob.

All values are from one point of the runs, the latest that nine in ten trials reached: values at
the ends of runs of different lengths cannot be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from ...search.after.looking_back import importance_at
from ...spaces.space import Parameter, Space
from ..formatting import counted, number, param, steps
from .model import XY, Dot, Key, Parallel, Picture, Rail, Scale, Strand
from .scales import knob_share, knob_ticks, value_scale
from .snapshot import Snapshot, finite

__all__ = ["parallel", "slices"]

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
