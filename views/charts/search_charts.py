"""Charts of the search: learning curves, values by trial number, the Pareto front, schedules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise
from typing import Any

from ...errors import counted
from ...spaces.space import Parameter
from ...store.environment_columns import ENVIRONMENT, environment_names
from ...store.leaderboard import Entry
from ...store.query import has_column, query
from ...store.rows import LOST, DecisionRow, Stream, TrialRow
from ...store.statistics import mean
from ...store.unobserved import Bounds, bounded_interval
from ...store.value_bounds import return_bounds, value_bounds
from ..formatting import number, param, steps
from ..leaderboard_text import front_line
from .model import (
    XY,
    Band,
    Dot,
    Key,
    Label,
    Line,
    Picture,
    Scale,
    knob_share,
    knob_ticks,
    leaders_scale,
    steps_scale,
    value_scale,
)
from .snapshot import Snapshot, finite

_OTHERS, _POINTS = 60, 80
_WINNER, _DEFAULT = "c0", "c1"
_FRESH = (str(Stream.CHOOSE), str(Stream.REPORT))
_RETURN = "episode_return"
Curve = Mapping[int, Sequence[float]]  # env steps -> one value per seed
_DRAWN = """
WITH wanted(trial, stream, most) AS (VALUES {wanted}),
known AS MATERIALIZED (
    SELECT trial, env_steps, stream, replicate, most, {value}
    FROM curves JOIN wanted USING (trial, stream) WHERE isfinite({value}){only}
),
placed AS (
    SELECT *, dense_rank() OVER (PARTITION BY trial ORDER BY env_steps DESC) - 1 AS place
    FROM known
),
counted AS (SELECT *, max(place) OVER (PARTITION BY trial) + 1 AS points FROM placed)
SELECT trial, env_steps, {value} FROM counted
WHERE place % ((points + most - 1) // most) = 0
ORDER BY trial, env_steps, stream, replicate
"""
"""SQL for the points that `_evenly` would select, so that Python reads only a few of the rows."""
_MOST_ROWS = 1_500
_MOST_PANELS = 6
_DOTS = 1_000
_MEMBERS, _KNOBS = 40, 12
Way = Sequence[tuple[int, Mapping[str, Any]]]
"""(env steps, hyperparameters from there on), from 0 to the end of the run."""


def baseline_lines(snapshot: Snapshot, stream: Stream, x: Scale) -> tuple[list[Line], list[Key]]:
    if snapshot.meta.objectives:
        return [], []
    found = {row.baseline: row.values.get(str(stream), ()) for row in snapshot.baseline_rows}
    values = {name: mean(given) for name, given in found.items() if given and finite(mean(given))}
    ordered = sorted(values, key=lambda name: -snapshot.sign * values[name])
    lines: list[Line] = []
    for place, name in enumerate(ordered):
        tip = f"baseline {name}: {number(values[name])} ({counted(len(found[name]), 'seed')})"
        ends = ((x.low, values[name]), (x.high, values[name]))
        lines.append(Line(ends, "base", tip=tip, thin=place > 0, dashed=True))
    words = "baseline"
    if len(ordered) > 1:
        words = "baselines, the best"
    return lines, [Key(f"{words} {name}", "base", "dashed") for name in ordered[:1]]


@dataclass(frozen=True)
class _Measured:
    """The contents of one panel of learning curves."""

    title: str
    label: str
    found: Mapping[int, Curve]
    bounds: Bounds
    streams: Mapping[int, Sequence[str]]  # trial -> kinds of seeds in its curve


def curves(snapshot: Snapshot) -> Picture:
    leaders = _winner_and_default(snapshot)
    numbers = {entry.trial for entry in leaders}
    others = [n for n in snapshot.searched if n not in numbers]
    shown = snapshot.thinned(others, _OTHERS)
    own = {entry.trial: _streams_of(snapshot, entry) for entry in leaders}
    asked = [*_in_training(snapshot, own, shown), _in_evaluations(snapshot, own, shown)]
    drawn = [_curves_panel(snapshot, leaders, shown, measured) for measured in asked]
    panels = [panel for panel in drawn if panel is not None]
    if not panels:
        return Picture("curves", "Learning curves", "No curve has been recorded yet.")
    caption = "Lines are means over seeds; bands are 95% intervals, or ranges if there are "
    caption += "fewer than five seeds."
    if _FRESH in own.values() and any(drawn[:-1]):
        caption += (
            " In the training panels, coloured lines are from selection and test seeds, and grey "
        )
        caption += (
            "lines from search seeds. Evaluations before the end exist only for search seeds."
        )
    caption += _words_of_grey_lines(asked, shown, len(others))
    return Picture("curves", "Learning curves", caption, panels)


def _words_of_grey_lines(asked: Sequence[_Measured], shown: Sequence[int], others: int) -> str:
    """Return how many trials other than the leaders have a curve in a panel."""
    drawn = set[int]()
    for measured in asked:
        drawn.update(trial for trial in shown if measured.found.get(trial))
    if not drawn:
        return ""
    of = ""
    if len(drawn) < others:
        of = f" of {others:,}"
    return f" In grey: {counted(len(drawn), 'other trial')}{of}."


_SEARCH = (str(Stream.SEARCH),)


def _streams_of(snapshot: Snapshot, entry: Entry) -> Sequence[str]:
    if _on_fresh_seeds(snapshot, entry):
        return _FRESH
    return _SEARCH


def _in_training(
    snapshot: Snapshot, own: Mapping[int, Sequence[str]], shown: Sequence[int]
) -> list[_Measured]:
    """Return the training curves of the trials in `own` and `shown`, by environment."""
    streams = {**dict.fromkeys((*own, *shown), _SEARCH), **own}
    most = {**dict.fromkeys(shown, _POINTS // 2), **dict.fromkeys(own, _POINTS)}
    return [
        _Measured(
            "In training" if name is None else f"In training on {name}",
            "episode return",
            _training_curves(snapshot, streams, most, name),
            return_bounds(snapshot.meta),
            streams,
        )
        for name in environment_names(snapshot.meta.environments) or (None,)
    ]


def _in_evaluations(
    snapshot: Snapshot, own: Mapping[int, Sequence[str]], shown: Sequence[int]
) -> _Measured:
    streams = dict.fromkeys((*own, *shown), _SEARCH)
    title = "At evaluations"
    if snapshot.metric == snapshot.meta.metric:
        title = "In evaluations"
    if snapshot.study.space.parameters:
        title += " of the search"
    found = _evaluation_curves(snapshot, streams)
    return _Measured(title, snapshot.metric, found, value_bounds(snapshot.meta), streams)


def _winner_and_default(snapshot: Snapshot) -> list[Entry]:
    """Return the first trial and the default, or a single entry if they are the same."""
    found = snapshot.leaders(1)
    default = snapshot.default_entry
    if default is not None and default.trial not in {entry.trial for entry in found}:
        found.append(default)
    return found


def _on_fresh_seeds(snapshot: Snapshot, entry: Entry) -> bool:
    row = snapshot.rows[entry.trial]
    return entry.confirmed or bool(row.choose_values or row.report_values)


def _named_curve(snapshot: Snapshot, entry: Entry, streams: Sequence[str], seeds: int) -> str:
    """Return the legend text of a curve: the trial and the kind of seeds."""
    name = f"trial {entry.trial}"
    if entry.trial < 0:
        name = "the default"
    elif entry.is_default and snapshot.study.space.parameters:
        name += ", default"
    row = snapshot.rows[entry.trial]
    fresh = {"selection": len(row.choose_values), "test": len(row.report_values)}
    kinds = [f"{count} {kind}" for kind, count in fresh.items() if count]
    if tuple(streams) == _FRESH and kinds:
        return f"{name} ({' and '.join(kinds)} seed{'s' * (sum(fresh.values()) != 1)})"
    if snapshot.study.space.parameters:
        return f"{name} ({counted(seeds, 'search seed')})"
    return f"{name} ({counted(seeds, 'seed')})"


def _training_curves(
    snapshot: Snapshot,
    wanted: Mapping[int, Sequence[str]],
    most: Mapping[int, int],
    environment: str | None = None,
) -> dict[int, Curve]:
    folder = snapshot.folder
    pairs = [(trial, stream) for trial, streams in wanted.items() for stream in streams]
    listed = ", ".join(f"({trial}, '{stream}', {most[trial]})" for trial, stream in pairs)
    if not listed or not has_column(folder.path, "curves", _RETURN):
        return {}
    only = ""
    if environment:
        name = environment.replace("'", "''")
        only = f" AND {ENVIRONMENT} = '{name}'"
    _, rows = query(folder.path, _DRAWN.format(wanted=listed, value=_RETURN, only=only), None)
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial, at, value in rows:
        found[trial][at].append(value)
    return dict(found)


def _evaluation_curves(
    snapshot: Snapshot, wanted: Mapping[int, Sequence[str]]
) -> dict[int, Curve]:
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (stream, trial, at), values in snapshot.points.seeds.items():
        if stream in wanted.get(trial, ()):
            found[trial][at] += filter(finite, values)
    return {trial: _measured_points(curve) for trial, curve in found.items()}


def _measured_points(curve: Curve) -> Curve:
    return {at: values for at, values in curve.items() if values}


def _curves_panel(
    snapshot: Snapshot, leaders: Sequence[Entry], others: Sequence[int], measured: _Measured
) -> XY | None:
    grey = _grey_lines(others, measured)
    drawn = [_leader_marks(snapshot, leaders, entry, measured) for entry in leaders]
    shown = [one for one in drawn if one is not None]
    bands_and_lines = [one.marks for one in reversed(shown)]  # the winner on top
    own = [*chain.from_iterable(bands_and_lines)]
    marks: list[Line | Band | Dot] = [*grey, *own]
    if not marks:
        return None
    longest = max(x for x, _ in _all_corners(marks))
    x = steps_scale(longest, f"{snapshot.unit} of one seed")
    lines: list[Line] = []
    line_keys: list[Key] = []
    if measured.label == snapshot.metric:
        lines, line_keys = baseline_lines(snapshot, Stream.SEARCH, x)
    y = _value_scale(snapshot, measured, marks, [*own, *lines])
    keys = [one.key for one in shown]
    if grey:
        keys.append(Key(f"{counted(len(grey), 'other trial')}, search seeds", "faint", "line"))
    keys += line_keys
    if outside := sum(not _is_inside(mark, y) for mark in grey):
        keys.append(Key(f"leaves the scale ({outside})", "faint", "out"))
    labels = tuple(one.label for one in shown)
    return XY(measured.title, x, y, (*lines, *marks), tuple(keys), wide=True, labels=labels)


def _value_scale(
    snapshot: Snapshot,
    measured: _Measured,
    marks: Sequence[Line | Band | Dot],
    kept: Sequence[Line | Band | Dot],
) -> Scale:
    """Return a scale for marks that includes all of `kept`, or all marks if `kept` is empty."""
    every = [y for _, y in _all_corners(marks)]
    if not kept:
        return value_scale(every, measured.label)
    inside = [y for _, y in _all_corners(kept)]
    return leaders_scale(every, measured.label, snapshot.sign, inside)


def _all_corners(marks: Iterable[Line | Band | Dot]) -> list[tuple[float, float]]:
    return [*chain.from_iterable(map(_mark_corners, marks))]


def _grey_lines(others: Sequence[int], measured: _Measured) -> list[Line | Dot]:
    lines: list[Line | Dot] = []
    for trial in reversed(others):
        found = _thin_evenly(measured.found.get(trial, {}), _POINTS // 2)
        points = [(at, mean(values)) for at, values in found]
        if points:
            tip = f"trial {trial}: {number(points[-1][1])} at {steps(points[-1][0])}"
            lines.append(_line_or_dot(points, "faint", trial, tip))
    return lines


@dataclass(frozen=True)
class _Leader:
    """The curve of the winner or of the default, with its legend entry and its label."""

    marks: list[Line | Band | Dot]
    key: Key
    label: Label


def _leader_marks(
    snapshot: Snapshot, leaders: Sequence[Entry], entry: Entry, measured: _Measured
) -> _Leader | None:
    points = _thin_evenly(measured.found.get(entry.trial, {}), _POINTS)
    if not points:
        return None
    style = _DEFAULT
    if entry is leaders[0]:
        style = _WINNER
    seeds = max(len(values) for _, values in points)
    marks: list[Line | Band | Dot] = []
    if seeds > 1:
        marks.append(
            Band(tuple((at, *_interval_ends(v, measured.bounds)) for at, v in points), style)
        )
    middle = tuple((at, mean(values)) for at, values in points)
    tip = f"trial {entry.trial}: {number(middle[-1][1])} at {steps(points[-1][0])}"
    marks.append(_line_or_dot(middle, style, entry.trial, f"{tip}, {counted(seeds, 'seed')}"))
    streams = measured.streams.get(entry.trial, ())
    return _Leader(
        marks,
        Key(_named_curve(snapshot, entry, streams, seeds), style, "line"),
        Label(middle[-1][1], _short_name(snapshot, entry), style),
    )


def _is_inside(mark: Line | Dot, y: Scale) -> bool:
    return all(y.holds(value) for _, value in _mark_corners(mark))


def _short_name(snapshot: Snapshot, entry: Entry) -> str:
    """Return the name at the end of a line."""
    if entry.is_default and snapshot.study.space.parameters:
        return "default"
    if snapshot.winner is not None and entry.trial == snapshot.winner.trial:
        return snapshot.winner_word
    return f"trial {entry.trial}"


def _line_or_dot(
    points: Sequence[tuple[float, float]], style: str, trial: int, tip: str
) -> Line | Dot:
    if len(points) == 1:
        return Dot(*points[0], style, trial, tip)
    return Line(tuple(points), style, trial, tip, thin=style == "faint")


def _thin_evenly(curve: Curve, most: int) -> list[tuple[int, Sequence[float]]]:
    points = sorted(curve.items(), reverse=True)
    return points[:: -(-len(points) // most) or 1][::-1]


def _interval_ends(values: Sequence[float], bounds: Bounds) -> tuple[float, float]:
    return bounded_interval(values, bounds).ends(min(values), max(values))


def _mark_corners(mark: Line | Band | Dot) -> Iterable[tuple[float, float]]:
    if isinstance(mark, Dot):
        yield mark.x, mark.y
        return
    for point in mark.points:
        yield from ((point[0], y) for y in point[1:])


def history(snapshot: Snapshot) -> Picture:
    numbers = sorted(snapshot.thinned(snapshot.searched, _MOST_ROWS))
    rows = [snapshot.rows[trial] for trial in numbers]
    ended, stopped = _values_of(rows)
    if not ended and not stopped:
        return Picture("history", "History", "No trial has a value yet.")
    lost = [row.trial for row in rows if row.state in LOST]
    x = snapshot.numbers_scale()
    lines, lines_keys = baseline_lines(snapshot, Stream.SEARCH, x)
    every = [*ended.values(), *stopped.values()]
    kept = [*_kept_in_sight(snapshot, rows), *(line.points[0][1] for line in lines)]
    y = leaders_scale(every, snapshot.metric, snapshot.sign, kept)
    best, winner = _best_so_far(snapshot, x), _winner_ring(snapshot)
    cut = [trial for trial in stopped if trial not in lost]
    marks: list[Line | Dot] = [
        *lines,
        *(_cut_dot(snapshot, y, trial, stopped[trial]) for trial in cut),
        *best,
        *(
            _clipped_dot(y, n, value, "c0", f"trial {n}: {number(value)}")
            for n, value in ended.items()
        ),
        *(_lost_cross(snapshot, y, trial) for trial in lost),
        *winner,
    ]
    outside = sum(not y.holds(value) for value in every)
    named = {
        Key("finished", "c0"): bool(best),
        Key("best so far", "c1", "line"): bool(best),
        Key(snapshot.winner_word, "c1", "ring"): bool(winner),
        Key("not finished: value at the last rung", "muted"): bool(cut),
        Key(f"outside the scale ({outside})", "muted", "out"): outside > 0,
        Key("diverged or failed", "bad", "cross"): bool(lost),
    }
    keys = [key for key, shown in named.items() if shown]
    caption = f"All trials by number{snapshot.kept_words(_MOST_ROWS)}, with their search values."
    all_keys = (*keys, *lines_keys)
    panel = XY("Search values", x, y, tuple(marks), all_keys, wide=True)
    return Picture("history", "History", caption, (panel,))


def _values_of(rows: Sequence[TrialRow]) -> tuple[dict[int, float], dict[int, float]]:
    """Return the values of full runs by trial, and other trials' values at their last rungs."""
    ended = _finite_values({row.trial: row.value for row in rows})
    others = [row for row in rows if row.trial not in ended]
    return ended, _finite_values({row.trial: row.rung_value for row in others})


def _kept_in_sight(snapshot: Snapshot, rows: Sequence[TrialRow]) -> list[float]:
    """Return the values of the default and the winner, which must be visible on the scale."""
    leaders = [0]
    if snapshot.winner is not None:
        leaders.append(snapshot.winner.trial)
    values = [row.value for row in rows if row.trial in leaders]
    return [value for value in values if value is not None and finite(value)]


def _cut_dot(snapshot: Snapshot, y: Scale, trial: int, value: float) -> Dot:
    at = f"trial {trial}: {number(value)} at rung {snapshot.rows[trial].rung}"
    return _clipped_dot(y, trial, value, "muted", f"{at}, {snapshot.state(trial)}")


def _best_so_far(snapshot: Snapshot, x: Scale) -> list[Line]:
    in_order = [(trial, row.value) for trial, row in sorted(snapshot.rows.items())]
    best = improvements(snapshot.sign, in_order)
    if not best:
        return []
    return [Line((*best, (x.high, best[-1][1])), "c1", step=True)]


def _lost_cross(snapshot: Snapshot, y: Scale, trial: int) -> Dot:
    tip = f"trial {trial}: {snapshot.rows[trial].state}"
    return Dot(trial, y.low, "bad", trial, tip, "cross")


def _winner_ring(snapshot: Snapshot) -> list[Dot]:
    first = snapshot.winner
    if first is None or first.search_value is None or not finite(first.search_value):
        return []
    return [Dot(first.trial, first.search_value, "c1", shape="ring")]


def _finite_values(values: Mapping[int, float | None]) -> dict[int, float]:
    return {trial: value for trial, value in values.items() if value is not None and finite(value)}


def _clipped_dot(y: Scale, trial: int, value: float, style: str, tip: str) -> Dot:
    shape = "out"
    if y.holds(value):
        shape = "dot"
    return Dot(trial, min(max(value, y.low), y.high), style, trial, tip, shape)


def improvements(
    sign: float, values: Iterable[tuple[float, float | None]]
) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for x, value in values:
        if value is None or not finite(value):
            continue
        if not found or sign * value > sign * found[-1][1]:
            found.append((x, value))
    return found


def pareto(snapshot: Snapshot) -> Picture:
    title = "Pareto front"
    objectives = snapshot.meta.objectives
    if len(objectives) < 2:
        return Picture("pareto", title, "The study has one objective.")
    placed = [one for one in snapshot.entries if _has_all(one, len(objectives))]
    if not placed:
        return Picture("pareto", title, "No trial has finished its run yet.")
    kept = set(snapshot.thinned([entry.trial for entry in placed], _DOTS))
    shown = [entry for entry in placed if entry.trial in kept]
    confirmed = any(entry.confirmed and entry.front is not None for entry in shown)
    front = [entry for entry in shown if entry.front == 1 and entry.confirmed == confirmed]
    pairs = list(combinations(range(len(objectives)), 2))[:_MOST_PANELS]
    panels = [_pareto_panel(snapshot, shown, front, pair, alone=len(pairs) == 1) for pair in pairs]
    caption = f"{front_line(snapshot.entries, snapshot.volume)} A trial is on the front if no "
    caption += "other is better in one objective and no worse in the others."
    if confirmed:
        caption += " Values of confirmed trials are from selection seeds, others from the search."
    return Picture("pareto", title, caption, panels)


def _has_all(entry: Entry, objectives: int) -> bool:
    return len(entry.objectives) == objectives and all(map(finite, entry.objectives))


def _pareto_panel(
    snapshot: Snapshot,
    shown: Sequence[Entry],
    front: Sequence[Entry],
    pair: tuple[int, int],
    *,
    alone: bool,
) -> XY:
    names = [str(snapshot.meta.objectives[index]["name"]) for index in pair]
    goals = [str(snapshot.meta.objectives[index]["goal"]) for index in pair]
    labels = [f"{name}, {goal}" for name, goal in zip(names, goals, strict=True)]
    x = value_scale([entry.objectives[pair[0]] for entry in shown], labels[0])
    y = value_scale([entry.objectives[pair[1]] for entry in shown], labels[1])
    best = {entry.trial for entry in front}
    marks: list[Line | Dot] = []
    if alone and len(front) > 1:
        marks.append(Line(_front_corners(front, pair, goals), "c1"))
    below = sorted(shown, key=lambda entry: entry.trial in best)
    marks += [_front_dot(entry, pair, names, entry.trial in best) for entry in below]
    keys = [Key("on the front", "c1", "dot"), Key("dominated", "muted", "dot")]
    if any(entry.feasible is False for entry in shown):
        keys.append(Key("violates a constraint", "bad", "cross"))
    title = " and ".join(name.removeprefix("eval/") for name in names)
    return XY(title, x, y, tuple(marks), tuple(keys), wide=alone)


def _front_dot(entry: Entry, pair: tuple[int, int], names: Sequence[str], is_best: bool) -> Dot:
    at, height = (entry.objectives[index] for index in pair)
    tip = f"trial {entry.trial}: {names[0]} {number(at)}, {names[1]} {number(height)}"
    if entry.feasible is False:
        tip = f"{tip}; violates a constraint"
        return Dot(at, height, "bad", entry.trial, tip, "cross")
    style = "muted"
    if is_best:
        style = "c1"
    return Dot(at, height, style, entry.trial, tip, "dot")


def _front_corners(
    front: Sequence[Entry], pair: tuple[int, int], goals: Sequence[str]
) -> tuple[tuple[float, float], ...]:
    """Return the corners of the line around the area that the front dominates."""
    worse = [min if goal == "maximize" else max for goal in goals]
    points = sorted((entry.objectives[pair[0]], entry.objectives[pair[1]]) for entry in front)
    corners = points[:1]
    for before, now in pairwise(points):
        x, y = (choose(one, other) for choose, one, other in zip(worse, before, now, strict=True))
        corners += [(x, y), now]
    return tuple(corners)


def schedule(snapshot: Snapshot) -> Picture:
    title = "Schedules"
    copies = [row for row in snapshot.decisions if row.source is not None]
    if not copies:
        return Picture("schedule", title, "No trial has copied another one.")
    drawn = snapshot.thinned(snapshot.searched, _MEMBERS)
    members = sorted(drawn, key=lambda trial: -snapshot.places[trial])
    ways = {trial: _schedule_of(snapshot, trial) for trial in members}
    last = max((way[-1][0] for way in ways.values()), default=0)
    named = dict(snapshot.study.space.keyed)
    moved = [key for key in named if _is_changed(named[key], ways)]
    panels = [
        _schedule_panel(
            snapshot, key, named[key], ways, members=members, copies=copies, last=float(last)
        )
        for key in moved[:_KNOBS]
    ]
    caption = f"Each line is a population member{snapshot.kept_words(_MEMBERS)}. "
    caption += f"Each copy ({len(copies):,} in all) is drawn as a vertical line from the copied "
    caption += "member's value to a dot at the new value."
    if len(moved) > _KNOBS:
        caption += f" Left out: {counted(len(moved) - _KNOBS, 'hyperparameter')}."
    keys = (
        Key(snapshot.winner_word, "c1", "line"),
        Key("best fifth", "s4", "line"),
        Key("worst fifth", "s0", "line"),
        Key("copy", "muted"),
    )
    return Picture("schedule", title, caption, panels, keys)


def _schedule_of(snapshot: Snapshot, trial: int) -> Way:
    changes = snapshot.points.changes.get(trial, ())
    starts = [0, *(at for at, _ in changes)]
    knobs = [*(old for _, old in changes), snapshot.rows[trial].params]
    reached = [at for at, found in snapshot.points.values.items() if trial in found]
    end = max([*reached, starts[-1]])
    return [*zip(starts, knobs, strict=True), (end, knobs[-1])]


def _is_changed(parameter: Parameter, ways: Mapping[int, Way]) -> bool:
    name = parameter.name
    for way in ways.values():
        values = {repr(knobs.get(name)) for _, knobs in way}
        if len(values) > 1:
            return True
    return False


def _knob_height(parameter: Parameter, knobs: Mapping[str, Any]) -> float | None:
    if parameter.name not in knobs or not parameter.active(knobs):
        return None
    value = knobs[parameter.name]
    if parameter.distribution.why_not(value) is not None:
        return None
    return knob_share(parameter.distribution, value)


def _schedule_panel(
    snapshot: Snapshot,
    key: str,
    parameter: Parameter,
    ways: Mapping[int, Way],
    *,
    members: Sequence[int],
    copies: Sequence[DecisionRow],
    last: float,
) -> XY:
    marks: list[Line | Dot] = []
    ends: list[Dot] = []
    for row in copies:
        joined = _copy_line(parameter, row, ways)
        if joined is not None:
            said = f"trial {row.trial} copied trial {row.source} at {steps(row.env_steps)}"
            marks.append(Line(joined, "muted", row.trial, said, thin=True))
            ends.append(Dot(*joined[1], "muted", row.trial, said))
    for at, trial in enumerate(members):
        heights = [(float(x), _knob_height(parameter, knobs)) for x, knobs in ways[trial]]
        points = tuple((x, y) for x, y in heights if y is not None)
        if len(points) < 2:
            continue
        first = snapshot.winner is not None and trial == snapshot.winner.trial
        style = f"s{at * 5 // len(members)}"
        if first:
            style = "c1"
        parts = [
            f"{param(knobs.get(parameter.name))} from {steps(x)}" for x, knobs in ways[trial][:-1]
        ]
        said = f"trial {trial}: {parameter.name} {', '.join(parts)}"
        marks.append(Line(points, style, trial, said, step=True, thin=not first))
    y = Scale(-0.03, 1.03, knob_ticks(parameter.distribution))
    return XY(key, steps_scale(last, ""), y, (*marks, *ends))


def _copy_line(
    parameter: Parameter, row: DecisionRow, ways: Mapping[int, Way]
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    if row.source is None or row.params is None or not {row.source, row.trial} <= ways.keys():
        return None
    source = next(knobs for x, knobs in reversed(ways[row.source]) if x < row.env_steps or x == 0)
    before, after = _knob_height(parameter, source), _knob_height(parameter, row.params)
    if before is None or after is None:
        return None
    return (float(row.env_steps), before), (float(row.env_steps), after)
