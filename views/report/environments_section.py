"""The section of a report about several environments: scores on each, over all, the profile."""

from __future__ import annotations

from html import escape

from ...errors import counted
from ...store.rows import Stream
from ...store.score_tables import Beside, Estimate, OnEach, beside, on_each, profiles
from ..charts.model import XY, Band, Key, Line, Picture, Scale
from ..charts.scales import round_ticks
from ..charts.snapshot import Snapshot
from ..environment_text import AGGREGATES_NOTE, TOGETHER, signed
from ..formatting import around, number, seeds_text
from .page import Cell, figure, table

_MOST = 4
_TITLE = "Performance profile"
_SHARES = Scale(0.0, 1.0, tuple((at / 4, f"{at / 4:.0%}") for at in range(5)), "share of runs")


def profiled(snapshot: Snapshot) -> tuple[list[int], Stream | None]:
    """Return the trials to compare, and the one kind of seeds they share.

    The best with a value on the kind of seeds that the winner has, and the default if it has one.
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
    marks.sort(key=lambda mark: isinstance(mark, Line))  # bands below lines
    scale = Scale(low, high, ticks, "score")
    panel = XY("Runs above a score", scale, _SHARES, tuple(marks), tuple(keys), wide=True)
    flattered = "" if stream is Stream.REPORT else " These seeds also selected trials."
    caption = (
        f"Of all runs ({counted(len(snapshot.scores.names), 'environment')} x seeds), the share "
        "with a score above; a higher line is better. Bands: pointwise 95% from a stratified "
        f"bootstrap over the seeds of each environment, from 5 seeds on.{flattered}"
    )
    return Picture("profile", _TITLE, caption, (panel,))


def environments_section(snapshot: Snapshot) -> str:
    if not snapshot.scores.names:
        return ""
    trials, stream = profiled(snapshot)
    if stream is None:
        return '<p class="nothing">No trial has a value yet.</p>'
    scores = snapshot.scores
    found = {trial: on_each(scores.of(trial, stream)) for trial in trials}
    default = next((e.trial for e in snapshot.entries if e.is_default), None)
    against = None
    if stream is Stream.REPORT and default in trials[1:]:
        against = beside(scores.of(trials[0], stream), scores.of(default, stream), paired=True)
    seeds = {one.seeds for one in found.values()}
    many = seeds_text(max(seeds), stream)
    lost = sum(one.lost for one in found.values())
    told = f"Mean scores over {many}, with 95% intervals; 0 as random actions, 1 as the reference."
    if lost:
        told += f" {counted(lost, 'run')} diverged: in no mean, below everything in the profile."
    return (
        f'<p class="note">{escape(told)}</p>{_scores(snapshot, found, default, against)}'
        f"{_improvement(trials[0], default, against, stream)}{_together(found, default, against)}"
        f'<p class="note">{escape(AGGREGATES_NOTE)}</p>{figure(profile(snapshot))}'
    )


def _name(trial: int, default: int | None) -> str:
    return "the default" if trial == default else f"trial {trial}"


def _cell(found: Estimate) -> Cell:
    return Cell(around(found.value, found.interval), found.value)


def _scores(
    snapshot: Snapshot, found: dict[int, OnEach], default: int | None, against: Beside | None
) -> str:
    header = ["environment", *(_name(trial, default) for trial in found)]
    if against is not None:
        header += ["difference", "probability of improvement"]
    right = [False] * len(header) + [True, True]
    header += ["random", "reference"]
    rows: list[list[Cell]] = []
    for at, scale in enumerate(snapshot.meta.environments):
        row = [Cell(str(scale["name"]))]
        row += [_cell(one.each[at]) for one in found.values()]
        if against is not None:
            here = against.each[at]
            row.append(Cell(signed(here.difference), here.difference.value))
            row.append(_cell(here.probability))
        ends = (float(scale["random"]), float(scale["reference"]))
        row += [Cell(number(end), end) for end in ends]
        rows.append(row)
    return table("Scores on each environment", header, rows, right=right)


def _together(found: dict[int, OnEach], default: int | None, against: Beside | None) -> str:
    header = ["scores", *(_name(trial, default) for trial in found)]
    header += [] if against is None else ["difference"]
    rows: list[list[Cell]] = []
    for over, words in TOGETHER.items():
        row = [Cell(words), *(_cell(one.together[over]) for one in found.values())]
        if against is not None:
            row.append(Cell(signed(against.differences[over]), against.differences[over].value))
        rows.append(row)
    return table("Scores over all environments", header, rows)


def _improvement(first: int, default: int | None, against: Beside | None, stream: Stream) -> str:
    if against is None:
        if stream is Stream.REPORT:
            return ""
        why = "These seeds also chose the first trial, so its scores are a little high."
        return f'<p class="note">{escape(why)}</p>'
    chance = against.improvement
    likely = around(chance.value, chance.interval)
    text = (
        f"Averaged over environments a run of trial {first} beats one of the default with "
        f"probability {likely}; differences are paired over "
        f"{counted(against.seeds - against.lost, 'seed')}."
    )
    return f"<p>{escape(text)}</p>"
