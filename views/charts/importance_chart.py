"""The importance of knobs: at one point of the runs, and over all points."""

from __future__ import annotations

from collections.abc import Sequence

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
