"""Learning curves: the best trials with their intervals, in front of all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ...errors import counted
from ...store.environment_columns import ENVIRONMENT, environment_names
from ...store.leaderboard import Entry
from ...store.paired import Bounds
from ...store.query import has_column, query
from ...store.rows import Stream
from ...store.statistics import interval, mean
from ...store.value_bounds import return_bounds, value_bounds
from ..formatting import number, steps
from .model import XY, Band, Dot, Key, Line, Picture, Scale
from .scales import leaders_scale, steps_scale, value_scale
from .snapshot import Snapshot, finite


def baseline_lines(snapshot: Snapshot, stream: Stream, x: Scale) -> tuple[list[Line], list[Key]]:
    """Return a dashed line per baseline, the best one thicker, and their legend."""
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
    words = "baselines, the best" if len(ordered) > 1 else "baseline"
    return lines, [Key(f"{words} {name}", "base", "dashed") for name in ordered[:1]]


_LEADERS, _OTHERS, _POINTS = 5, 60, 80
_FRESH = (str(Stream.CHOOSE), str(Stream.REPORT))
_RETURN = "episode_return"

Curve = Mapping[int, Sequence[float]]
"""Env steps -> one value per seed."""


def curves(snapshot: Snapshot) -> Picture:
    """Draw training returns, and the evaluated metric, over env steps."""
    leaders = snapshot.leaders(_LEADERS)
    others = [n for n in snapshot.searched if n not in {entry.trial for entry in leaders}]
    shown = snapshot.thinned(others, _OTHERS)
    search = (str(Stream.SEARCH),)
    own = {entry.trial: _FRESH if entry.confirmed else search for entry in leaders}
    searched = dict.fromkeys((*own, *shown), search)
    most = {**dict.fromkeys(shown, _POINTS // 2), **dict.fromkeys(own, _POINTS)}
    asked = [
        ("In training" if name is None else f"In training on {name}", "episode return",
         _training(snapshot, {**searched, **own}, most, name), return_bounds(snapshot.meta))
        for name in environment_names(snapshot.meta.environments) or (None,)
    ]  # fmt: skip
    asked.append(("In evaluations", snapshot.meta.metric, _evaluated(snapshot, searched),
                  value_bounds(snapshot.meta)))  # fmt: skip
    drawn = (_panel(snapshot, title, label, leaders, shown, found, bounds)
             for title, label, found, bounds in asked)  # fmt: skip
    panels = [panel for panel in drawn if panel is not None]
    if not panels:
        return Picture("curves", "Learning curves", "Nothing has been trained yet.")
    caption = (
        "Lines are means over seeds; bands are 95% intervals of the mean, or the range of "
        "fewer than five seeds. Training curves of confirmed trials are from selection and test "
        "seeds, everything else is from search seeds."
    )
    if shown:
        of = "" if len(shown) == len(others) else f" of {len(others):,}"
        caption += f" In grey: {counted(len(shown), 'other trial')}{of}."
    return Picture("curves", "Learning curves", caption, panels)


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
"""The points that `_evenly` would choose, so that few of millions of rows come into Python."""


def _training(
    snapshot: Snapshot, wanted: Mapping[int, Sequence[str]], most: Mapping[int, int],
    environment: str | None = None,
) -> dict[int, Curve]:  # fmt: skip
    """Return the episode returns of the published table, at most `most` points per trial."""
    folder = snapshot.folder
    listed = ", ".join(
        f"({n}, '{stream}', {most[n]})" for n, streams in wanted.items() for stream in streams
    )
    if not listed or not has_column(folder.path, "curves", _RETURN):
        return {}
    name = "" if environment is None else environment.replace("'", "''")
    only = f" AND {ENVIRONMENT} = '{name}'" if name else ""
    _, rows = query(folder.path, _DRAWN.format(wanted=listed, value=_RETURN, only=only), None)
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial, at, value in rows:
        found[trial][at].append(value)
    return dict(found)


def _evaluated(snapshot: Snapshot, wanted: Mapping[int, Sequence[str]]) -> dict[int, Curve]:
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (stream, trial, at), values in snapshot.points.seeds.items():
        if stream in wanted.get(trial, ()):
            found[trial][at] += filter(finite, values)
    return {trial: {at: v for at, v in curve.items() if v} for trial, curve in found.items()}


def _panel(
    snapshot: Snapshot, title: str, label: str, leaders: Sequence[Entry], others: Sequence[int],
    found: Mapping[int, Curve], bounds: Bounds,
) -> XY | None:  # fmt: skip
    """Return a panel whose scale shows the leaders whole, and as much of the others as fits."""
    marks: list[Line | Band | Dot] = []
    keys: list[Key] = []
    for trial in reversed(others):
        points = [(at, mean(values)) for at, values in _evenly(found.get(trial, {}), _POINTS // 2)]
        if points:
            tip = f"trial {trial}: {number(points[-1][1])} at {steps(points[-1][0])}"
            marks.append(_mark(points, "faint", trial, tip))
    behind = len(marks)
    for place, entry in reversed(list(enumerate(leaders))):
        points = _evenly(found.get(entry.trial, {}), _POINTS)
        if not points:
            continue
        style = f"c{place}"
        seeds = max(len(values) for _, values in points)
        if seeds > 1:
            marks.append(Band(tuple((at, *_ends(v, bounds)) for at, v in points), style))
        middle = tuple((at, mean(values)) for at, values in points)
        tip = f"trial {entry.trial}: {number(middle[-1][1])} at {steps(points[-1][0])}"
        marks.append(_mark(middle, style, entry.trial, f"{tip}, {counted(seeds, 'seed')}"))
        keys.insert(0, Key(f"trial {entry.trial} ({counted(seeds, 'seed')})", style, "line"))
    if not marks:
        return None
    x = steps_scale(max(x for mark in marks for x, _ in _corners(mark)))
    lines: list[Line] = []
    if label == snapshot.meta.metric:
        lines, line_keys = baseline_lines(snapshot, Stream.SEARCH, x)
        keys += line_keys
    kept = [y for mark in (*marks[behind:], *lines) for _, y in _corners(mark)]
    every = [y for mark in marks for _, y in _corners(mark)]
    y = leaders_scale(every, label, snapshot.sign, kept) if kept else value_scale(every, label)
    outside = sum(
        not all(y.holds(value) for _, value in _corners(mark)) for mark in marks[:behind]
    )
    keys += [Key(f"leaves the scale ({outside})", "faint", "out")] if outside else []
    return XY(title, x, y, (*lines, *marks), tuple(keys), wide=True)


def _mark(points: Sequence[tuple[float, float]], style: str, trial: int, tip: str) -> Line | Dot:
    if len(points) == 1:
        return Dot(*points[0], style, trial, tip)
    return Line(tuple(points), style, trial, tip, thin=style == "faint")


def _evenly(curve: Curve, most: int) -> list[tuple[int, Sequence[float]]]:
    """Return at most `most` points, evenly chosen, always with the last one."""
    points = sorted(curve.items())
    every = -(-len(points) // most) if points else 1
    return points[::-1][::every][::-1]


def _ends(values: Sequence[float], bounds: Bounds) -> tuple[float, float]:
    around = bounds.around(interval(values))
    if around.low is None or around.high is None:
        return min(values), max(values)
    return around.low, around.high


def _corners(mark: Line | Band | Dot) -> Iterable[tuple[float, float]]:
    if isinstance(mark, Dot):
        yield mark.x, mark.y
        return
    for point in mark.points:
        yield from ((point[0], y) for y in point[1:])
