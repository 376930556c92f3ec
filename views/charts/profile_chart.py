"""The performance profile over several environments: of all runs, those with a higher score."""

from __future__ import annotations

from ...store.rows import Stream
from ...store.score_tables import profiles
from ..formatting import counted, number
from .model import XY, Band, Key, Line, Picture, Scale
from .scales import round_ticks
from .snapshot import Snapshot

__all__ = ["profile", "profiled"]

_MOST = 4
_TITLE = "Performance profile"
_SHARES = Scale(0.0, 1.0, tuple((at / 4, f"{at / 4:.0%}") for at in range(5)), "share of runs")


def profiled(snapshot: Snapshot) -> tuple[list[int], Stream | None]:
    """Return the trials that are set beside each other, and the one kind of seeds they share.

    The winner and the default where both ran on seeds that chose nothing; else the leaders with
    a value from the winner's kind of seeds, and the default if it has one.
    """
    first = snapshot.winner
    if first is None or not first.value_from or not snapshot.scores.names:
        return [], None
    stream = Stream(first.value_from)
    ordered = [entry.trial for entry in snapshot.entries if entry.value is not None]
    default = [entry.trial for entry in snapshot.entries if entry.is_default]
    there = [trial for trial in ordered if snapshot.scores.of(trial, stream)]
    shown = there[:_MOST]
    shown += [n for n in default if n not in shown and snapshot.scores.of(n, stream)]
    return shown, stream


def profile(snapshot: Snapshot) -> Picture:
    """Draw the share of runs above each score, with its band, for the winner and the default."""
    trials, stream = profiled(snapshot)
    if stream is None:
        why = "No trial has a value yet."
        if not snapshot.scores.names:
            why = "A performance profile is over several environments; this study has one."
        return Picture("profile", _TITLE, why)
    sides = [snapshot.scores.of(trial, stream) for trial in trials]
    found = profiles(sides)
    low, high = found[0].thresholds[0], found[0].thresholds[-1]
    ticks = tuple((at, number(at)) for at in round_ticks(low, high))
    default = {entry.trial for entry in snapshot.entries if entry.is_default}
    marks: list[Line | Band] = []
    keys: list[Key] = []
    for place, (trial, side, one) in enumerate(zip(trials, sides, found, strict=True)):
        style = "base" if trial in default else f"c{place}"
        name = f"trial {trial}{', the default' * (trial in default)}"
        points = tuple(zip(one.thresholds, one.shares, strict=True))
        if one.band is not None:
            ends = zip(one.thresholds, one.band, strict=True)
            marks.append(Band(tuple((at, low, high) for at, (low, high) in ends), style))
        tip = f"{name}, {counted(len(side), 'seed')}"
        marks.append(Line(points, style, trial, tip, dashed=trial in default))
        keys.append(Key(tip, style, "dashed" if trial in default else "line"))
    panel = XY("Runs above a score", Scale(low, high, ticks, "score"), _SHARES,
               (*[m for m in marks if isinstance(m, Band)],
                *[m for m in marks if isinstance(m, Line)]), tuple(keys), wide=True)  # fmt: skip
    flattered = "" if stream is Stream.REPORT else " These seeds chose among trials, too."
    caption = (
        f"Of all runs ({counted(len(snapshot.scores.names), 'environment')} x seeds), the share "
        "with a score above; a higher line is better. Bands: 95%, point by point, seeds drawn "
        f"anew in each environment (stratified bootstrap), from 5 seeds on.{flattered}"
    )
    return Picture("profile", _TITLE, caption, (panel,))
