"""Several studies in one figure, after Agarwal et al. 2021: IQM, improvement, profiles.

The compared sides are methods with test values on one or more environments. There are three cases:

- All studies on one environment: the winner of each study, and the default.
- Each study on a different environment: the winners, and the defaults, over all environments.
- Every search method on every environment: the winners of each method, and the defaults.

Over several environments scores are normalised: 0 is random actions, 1 is the reference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...environments.registry import Reference, normalised, reference_of
from ...errors import ConfigError, counted, enumerated
from ...store.aggregate_environments import BySeed, Estimate, Profile, beside, on_each, profiles
from ...store.rows import Stream
from ..formatting import around, method_words, number
from ..quotes import metric_name
from .environment_names import environment_names
from .model import (
    QUARTERS,
    SHARES,
    XY,
    Band,
    Dot,
    Label,
    Line,
    Picture,
    Scale,
    bands_first,
    labelled_ticks,
    profile_marks,
    round_ticks,
    value_scale,
)
from .snapshot import Snapshot

_TITLE = "Several studies"
_MOST = 6  # number of colours
_DEFAULT = "default"


@dataclass(frozen=True)
class MethodValues:
    """The test values of one method, and the studies that the values come from."""

    name: str
    scores: BySeed
    studies: tuple[str, ...]

    @property
    def is_default(self) -> bool:
        return self.name.startswith(_DEFAULT)


@dataclass(frozen=True)
class Sides:
    sides: tuple[MethodValues, ...]
    environments: tuple[str, ...]
    label: str  # name of the scores
    note: str = ""  # which values were left out

    @property
    def rival(self) -> MethodValues:
        """The side that the others are compared with: the default, or else the last side."""
        return next((side for side in self.sides if side.is_default), self.sides[-1])


@dataclass(frozen=True)
class SideAggregates:
    """One side's aggregates; `improvement` compares the side with the default or the last side."""

    side: MethodValues
    iqm: Estimate
    improvement: Estimate | None


def sides_of(snapshots: Sequence[Snapshot]) -> Sides:
    """Compare several studies; raise `ConfigError` with the reason if that is impossible."""
    for snapshot in snapshots:
        _require_test_values(snapshot)
    if len(snapshots) > _MOST:
        raise ConfigError(f"a figure shows at most {_MOST} studies; {len(snapshots)} were given")
    names = environment_names(snapshots)
    if len(set(names)) == 1:
        return _on_one(snapshots, names[0])
    return _on_several(snapshots, names)


def _require_test_values(snapshot: Snapshot) -> None:
    name = snapshot.meta.name
    if snapshot.meta.objectives:
        raise ConfigError(f"study {name!r} has several objectives; leave it out")
    first = snapshot.winner
    if first is None or first.measured_from != Stream.REPORT:
        raise ConfigError(f"the winner of study {name!r} has no test seeds; leave it out")
    if snapshot.meta.goal == "minimize" and _reference_scores(snapshot) is None:
        text = f"study {name!r} minimises {snapshot.meta.metric}, which has no reference scores"
        raise ConfigError(f"{text}; leave this study out")


def _reference_scores(snapshot: Snapshot) -> Reference | None:
    if snapshot.study.more_envs:
        return None
    return reference_of(snapshot.study.env.id, snapshot.meta.metric)


def _test_values(snapshot: Snapshot, trial: int, scaled: bool) -> BySeed:
    """Return a trial's values on test seeds, one score per environment."""
    if snapshot.study.more_envs:
        return snapshot.scores.of(trial, Stream.REPORT)
    scale = None
    values = snapshot.rows[trial].by_report_seed
    if scaled:
        scale = _reference_scores(snapshot)
    if scale is None:
        return {seed: (value,) for seed, value in values.items()}
    return {seed: (normalised(value, scale),) for seed, value in values.items()}


def _on_one(snapshots: Sequence[Snapshot], environment: str) -> Sides:
    """Return the winners of studies on the same environments, and a single default."""
    metrics = {metric_name(snapshot.study): snapshot for snapshot in snapshots}
    if len(metrics) > 1:
        raise ConfigError(
            f"the studies measure {' and '.join(metrics)}; compare studies with the same metric"
        )
    scaled = any(snapshot.meta.goal == "minimize" for snapshot in snapshots)
    found: list[MethodValues] = []
    for snapshot in snapshots:
        if snapshot.winner is not None:
            values = _test_values(snapshot, snapshot.winner.trial, scaled)
            found.append(MethodValues(snapshot.meta.name, values, (snapshot.meta.name,)))
    known = {side.name for side in found}
    if len(known) < len(found):
        raise ConfigError("two studies have the same name; give studies with different names")
    found += _default_sides(snapshots, scaled)
    label = metric_name(snapshots[0].study)
    if scaled:
        label = "normalised score"
    return Sides(tuple(found), (environment,), label)


def _default_sides(snapshots: Sequence[Snapshot], scaled: bool) -> list[MethodValues]:
    """Return each study's default, or a single one if all have the same configuration."""
    having = [one for one in snapshots if _default_values(one, scaled)]
    configurations = {repr(sorted(one.study.default().items())) for one in having}
    if len(configurations) <= 1:
        having = having[:1]
    alone = len(having) == 1
    return [
        MethodValues(
            _DEFAULT if alone else f"{_DEFAULT} of {one.meta.name}",
            _default_values(one, scaled),
            (one.meta.name,),
        )
        for one in having
    ]


def _default_values(snapshot: Snapshot, scaled: bool) -> BySeed:
    first, default = snapshot.winner, snapshot.default
    if first is None or default is None or first.trial == default:
        return {}
    return _test_values(snapshot, default, scaled)


def _grid_of(
    snapshots: Sequence[Snapshot], names: Sequence[str]
) -> dict[str, dict[str, Snapshot]]:
    """Return the studies by method and environment; require one study for each pair."""
    grid: dict[str, dict[str, Snapshot]] = {}
    for snapshot, environment in zip(snapshots, names, strict=True):
        cell = grid.setdefault(method_words(snapshot.study), {})
        if environment in cell:
            other = cell[environment].meta.name
            text = f"{other!r} and {snapshot.meta.name!r} have the same method and environment"
            raise ConfigError(f"{text}; remove one of them")
        cell[environment] = snapshot
    for name, cell in grid.items():
        missing = [env for env in names if env not in cell]
        if missing and len(grid) > 1:
            text = f"no study of {name} on {missing[0]} was given"
            raise ConfigError(f"{text}; every method needs a study on every environment")
    return grid


def _on_several(snapshots: Sequence[Snapshot], names: Sequence[str]) -> Sides:
    for snapshot, environment in zip(snapshots, names, strict=True):
        if snapshot.study.more_envs:
            text = f"study {snapshot.meta.name!r} already covers several environments"
            raise ConfigError(f"{text}; compare it with studies on the same environments")
        if _reference_scores(snapshot) is None:
            text = f"{environment} has no reference score for {snapshot.meta.metric}"
            raise ConfigError(f"{text}; give studies on one environment, or remove its study")
    environments, grid = list(dict.fromkeys(names)), _grid_of(snapshots, names)
    sides: list[MethodValues] = []
    for name, cell in grid.items():
        label = "winner" if len(grid) == 1 else name
        sides.append(_side_over_studies(label, [cell[env] for env in environments], default=False))
    of_one = [next(iter(grid.values()))[env] for env in environments]
    if all(_default_values(one, scaled=True) for one in of_one):
        sides.append(_side_over_studies(_DEFAULT, of_one, default=True))
    return Sides(tuple(sides), tuple(environments), "normalised score", _cut_words(sides, of_one))


def _side_over_studies(name: str, snapshots: Sequence[Snapshot], default: bool) -> MethodValues:
    """Return a method's scores on the environments of several studies, with equal seed counts."""
    columns: list[list[float]] = []
    for snapshot in snapshots:
        if default:
            values = _default_values(snapshot, True)
        elif snapshot.winner is not None:
            values = _test_values(snapshot, snapshot.winner.trial, True)
        else:
            values = _test_values(snapshot, 0, True)
        columns.append([values[seed][0] for seed in sorted(values)])
    rows = zip(*columns, strict=False)  # as many seeds as the study with the fewest
    return MethodValues(name, dict(enumerate(rows)), tuple(one.meta.name for one in snapshots))


def _cut_words(sides: Sequence[MethodValues], snapshots: Sequence[Snapshot]) -> str:
    most = max(len(one.rows[one.winner.trial].by_report_seed) for one in snapshots if one.winner)
    fewest = min(len(side.scores) for side in sides)
    if fewest == most:
        return ""
    return f"Only the first {fewest} test seeds of each study are used; some studies have no more."


def compared(found: Sides) -> list[SideAggregates]:
    """Return IQM and probability of improvement for each side, with 95 % intervals."""
    rival = found.rival
    answers: list[SideAggregates] = []
    for side in found.sides:
        iqm = on_each(side.scores).together["iqm"]
        improvement = None
        if side is not rival:
            improvement = _improvement_probability(side, rival, found)
        answers.append(SideAggregates(side, iqm, improvement))
    return answers


def _improvement_probability(side: MethodValues, rival: MethodValues, found: Sides) -> Estimate:
    """Return the probability of improvement; paired if both sides come from the same studies."""
    paired = side.studies == rival.studies
    between = beside(side.scores, rival.scores, paired)
    if len(found.environments) == 1 and len(between.each) == 1:
        return between.each[0].probability  # the same as in the verdict
    return between.improvement


def several_studies(snapshots: Sequence[Snapshot]) -> Picture:
    found = sides_of(snapshots)
    answers = compared(found)
    rival = found.rival
    panels, improvement = [_iqm_panel(answers, found.label)], ""
    if len(answers) > 1:
        panels.append(_improvement_panel(answers, rival.name))
        improvement = f", probability of improvement over {rival.name},"
    panels.append(_profile_panel(found))
    seeds = {len(side.scores) for side in found.sides}
    count = str(min(seeds))
    if len(seeds) > 1:
        count += f" to {max(seeds)}"
    where = enumerated(found.environments)
    caption = f"Winners of {counted(len(snapshots), 'study').replace('studys', 'studies')} on "
    caption += f"{where}, {count} test seeds each, with 95 % intervals: interquartile mean "
    caption += f"(IQM){improvement} and performance profile (share of runs above a score)."
    lost = sum(_diverged_seeds(side) for side in found.sides)
    if lost:
        caption += f" The IQM excludes {counted(lost, 'seed')} with a diverged run; the profile "
        caption += "ranks diverged runs lowest."
    return Picture("several", _TITLE, f"{caption} {found.note}".strip(), panels)


def _diverged_seeds(side: MethodValues) -> int:
    return sum(not all(map(math.isfinite, scores)) for scores in side.scores.values())


def _side_style(place: int, side: MethodValues) -> str:
    if side.is_default:
        return "base"
    return f"c{place % _MOST}"


def _iqm_panel(answers: Sequence[SideAggregates], label: str) -> XY:
    estimates = [(one.side, one.iqm) for one in answers]
    return _interval_panel("Interquartile mean", label, estimates, answers)


def _improvement_panel(answers: Sequence[SideAggregates], rival: str) -> XY:
    estimates = [(one.side, one.improvement) for one in answers if one.improvement is not None]
    found = _interval_panel("Improvement", f"P(better than {rival})", estimates, answers)
    ticks = labelled_ticks(QUARTERS, number)
    even = Line(((0.5, found.y.low), (0.5, found.y.high)), "muted", thin=True, dashed=True)
    x = Scale(-0.02, 1.02, ticks, found.x.label)
    return replace(found, x=x, marks=(even, *found.marks))


def _interval_panel(
    title: str,
    label: str,
    estimates: Sequence[tuple[MethodValues, Estimate]],
    answers: Sequence[SideAggregates],
) -> XY:
    """Draw each estimate as a dot on its interval's line, with the first side on top."""
    places = {one.side.name: at for at, one in enumerate(answers)}
    known = [(side, one) for side, one in estimates if one.value is not None]
    ends = [end for _, one in known for end in (one.interval.low, one.interval.high, one.value)]
    x = value_scale([end for end in ends if end is not None], label, may_be_log=False)
    marks: list[Line | Dot | Band] = []
    names: list[tuple[float, str]] = []
    for row, (side, one) in enumerate(reversed(known)):
        style = _side_style(places[side.name], side)
        names.append((float(row), side.name))
        tip = f"{side.name}: {around(one.value, one.interval)}"
        if one.interval.low is not None and one.interval.high is not None:
            line = ((one.interval.low, float(row)), (one.interval.high, float(row)))
            marks.append(Line(line, style, tip=tip))
        marks.append(Dot(one.value or 0.0, float(row), style, tip=tip))
    y = Scale(-0.5, len(known) - 0.5, tuple(names))
    return XY(title, x, y, tuple(marks))


def _profile_panel(found: Sides) -> XY:
    curves = profiles([side.scores for side in found.sides])
    scores = [score for side in found.sides for row in side.scores.values() for score in row]
    low, high = curves[0].thresholds[0], curves[0].thresholds[-1]
    finite = [score for score in scores if math.isfinite(score)]
    if found.label != "normalised score":
        low = max(low, min([*finite, high]))
    marks: list[Line | Band] = []
    labels: list[Label] = []
    for place, (side, one) in enumerate(zip(found.sides, curves, strict=True)):
        style = _side_style(place, side)
        marks += profile_marks(one, Line((), style, tip=side.name, dashed=side.is_default))
        labels.append(Label(_profile_height(one, low, high), side.name, style))
    ticks = labelled_ticks(round_ticks(low, high, 4), number)
    x = Scale(low, high, ticks, found.label, cut=True)
    return XY("Performance profile", x, SHARES, bands_first(marks), labels=tuple(labels))


def _profile_height(found: Profile, low: float, high: float) -> float:
    """Return a profile's height near its right end, before it drops to 0."""
    at = low + 0.9 * (high - low)
    for before, x in zip(found.shares, found.thresholds[1:], strict=False):
        if x > at:
            return before
    return found.shares[-1]
