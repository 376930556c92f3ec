"""The importance of knobs: at one point of the runs, and over all points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import ConfigError
from ...search.after.decided import answer_at
from ...search.after.looking_back import (
    Importance,
    Method,
    importance_at,
    importance_over_progress,
)
from ..formatting import counted, steps
from .model import XY, Bar, Bars, Dot, Key, Line, Panel, Picture, Scale
from .scales import round_ticks, steps_scale
from .snapshot import Snapshot

__all__ = ["importance"]

_LINES = 6
_BARS = 20


def importance(
    snapshot: Snapshot,
    everybody: bool = False,
    method: Method = "ped-anova",
    at: int | None = None,
) -> Picture:
    """Draw the importance of every knob at one point, and over all points with enough trials.

    Args:
        snapshot: the study.
        everybody: include trials that a model proposed.
        method: the estimator.
        at: env steps of the point; None takes the latest that nine in ten of the trials reached.
    """
    title = "Importance of knobs"
    if not snapshot.study.space.parameters:
        return Picture("importance", title, "Nothing was searched.")
    try:
        found = importance_at(snapshot.points, at, everybody, method)
        along = importance_over_progress(snapshot.points, everybody, method)
    except ConfigError as error:
        return Picture("importance", title, f"Not computed: {error}.")
    picture = _picture(title, found, along)
    plain = (everybody, method, at) == (False, "ped-anova", None)
    answer = snapshot.answer if plain else answer_at(snapshot.points, found)
    said = " ".join(answer.sentences) if answer is not None else ""
    return replace(picture, caption=f"{said} {picture.caption}")


def _picture(title: str, found: Importance, along: Sequence[Importance]) -> Picture:
    trials = counted(found.trials, "trial")
    caption = f"{_METHODS[found.method]}, on {trials} at {steps(found.at)} env steps"
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
        caption += " A knob that matters early often matters little at the end."
    return Picture("importance", title, caption, panels)


_BIASED = "A model's proposals are included, which is biased towards where it searched."
_METHODS: dict[Method, str] = {
    "ped-anova": "PED-ANOVA: the knobs in which the best tenth of the trials differ from all",
    "fanova": "fANOVA: the share of the variance that each knob explains on its own",
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
