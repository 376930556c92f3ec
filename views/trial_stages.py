"""Tables of the points at which a trial's seeds were measured or compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..store.rows import COMPLETE, DecisionRow
from .formatting import aligned, number, steps
from .trial_page import Evaluated, TrialPage

_STAGES = {"search": "search", "choose": "select", "report": "test"}
_DONE = {"continue": "continued", "stop": "stopped", "finish": "finished", "pause": "paused",
         "promote": "paused, then continued", "audit": "continued for the audit"}  # fmt: skip
Point = tuple[str, int]
"""(stream, env steps)."""


@dataclass(frozen=True)
class Stages:
    """The values of a trial's seeds at each point, and the decisions made there."""

    values: Mapping[Point, Sequence[float | None]]
    decided: Mapping[int, DecisionRow]  # env steps of the search -> the decision there
    has_training: bool = False  # whether training returns are part of some values

    @classmethod
    def of(cls, page: TrialPage) -> Stages:
        decided = {row.env_steps: row for row in page.decisions}
        if page.environments != [None]:  # values of several environments have separate tables
            return cls({}, decided)
        metric = page.metric.split(",")[0].split(" ")[0].removeprefix("eval/")
        mixed = _points_with_training(page)
        has_training = False
        values: dict[Point, list[float | None]] = {}
        for row in page.evaluations:
            point, value = (row.stream, row.env_steps), row.measured(metric)
            if point in mixed and value is not None:
                training = row.metrics["training_return"] or 0.0
                value = (1.0 - page.training_weight) * value + page.training_weight * training
                has_training = True
            values.setdefault(point, []).append(value)
        return cls(values, decided, has_training)

    def points(self, verbose: bool) -> list[Point]:
        """Return the points to print: all, or only decisions and the ends of each kind of run."""
        shown = {("search", at) for at in self.decided}
        shown |= {point for point in self.values if verbose or self.is_end(point)}
        return sorted(shown, key=_by_stage)

    def is_end(self, point: Point) -> bool:
        return point[1] == max(
            (at for stream, at in self.values if stream == point[0]), default=None
        )

    def decision(self, point: Point) -> DecisionRow | None:
        if point[0] != "search":
            return None
        return self.decided.get(point[1])


def _points_with_training(page: TrialPage) -> set[Point]:
    """Return the points whose values include training returns."""
    if not page.training_weight:
        return set()
    chosen = [row for row in page.evaluations if row.stream != "report"]
    found = {(row.stream, row.env_steps) for row in chosen}
    return found - {
        (row.stream, row.env_steps)
        for row in chosen
        if row.metrics.get("training_return") is None  # no training episode had ended
    }


def stages_table(page: TrialPage, verbose: bool) -> str:
    """Return a row per point: its seeds, their values and the decision; "" if there is none."""
    stages = Stages.of(page)
    rows = [_stage_row(page, stages, point, verbose) for point in stages.points(verbose)]
    if not rows:
        return ""
    header = ("stage", page.unit, "seeds", "mean", "worst", "best", "decision")
    table = aligned(header, rows, (False, True, True, True, True, True, False))
    if not stages.has_training:
        return table
    return f"{table}\nTraining returns have weight {page.training_weight:g} in search and select."


def _stage_row(page: TrialPage, stages: Stages, point: Point, verbose: bool) -> list[str]:
    values = [value for value in stages.values.get(point, ()) if value is not None]
    values.sort(reverse=page.goal != "maximize")
    judged = stages.decision(point)
    mean, worst, best = None, None, None
    if judged is None:
        done = _outcome_text(page, stages, point)
    else:
        done, mean = _decision_text(judged, verbose), judged.value
    if values:
        mean, worst, best = fmean(values), values[0], values[-1]
    seeds = str(len(values) or "")
    numbers = map(number, (mean, worst, best))
    return [_STAGES[point[0]], steps(point[1]), seeds, *numbers, done]


def _by_stage(point: Point) -> tuple[int, int]:
    return list(_STAGES).index(point[0]), point[1]


def _decision_text(judged: DecisionRow, verbose: bool) -> str:
    done = f"copied trial {judged.source}"
    if judged.source is None:
        done = _DONE[judged.action]
    text = f"{done}, {_ordinal(judged.rank)} of {judged.judged}"
    if not verbose or judged.cutoff is None:
        return text
    return f"{text}, cut-off {number(judged.cutoff)}"


def _outcome_text(page: TrialPage, stages: Stages, point: Point) -> str:
    """Return the trial's outcome at a point without a decision, or ""."""
    if point[0] == "choose" and page.view.is_winner:
        return "chosen"
    ended = page.view.state in COMPLETE
    if point[0] == "search" and stages.is_end(point) and ended:
        return "finished"
    return ""


def _ordinal(count: int) -> str:
    endings = {} if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}
    return f"{count}{endings.get(count % 10, 'th')}"


def evaluations_table(evaluations: Sequence[Evaluated], unit: str) -> str:
    """Return a row per point, with its episodes, returns and lengths."""
    groups: dict[Point, list[Evaluated]] = {}
    for row in evaluations:
        groups.setdefault((row.stream, row.env_steps), []).append(row)
    rows = [
        [_STAGES[point[0]], steps(point[1]), *_group_cells(groups[point])]
        for point in sorted(groups, key=_by_stage)
    ]
    header = ("evaluated", unit, "seeds", "episodes", "return", "min", "max", "length")
    return aligned(header, rows, (False, *[True] * 7))


def _group_cells(group: Sequence[Evaluated]) -> list[str]:
    return [
        str(len(group)),
        str(sum(row.episodes for row in group)),
        _statistic_cell([row.return_mean for row in group], fmean),
        _statistic_cell([row.return_min for row in group], min),
        _statistic_cell([row.return_max for row in group], max),
        _statistic_cell([row.length_mean for row in group], fmean),
    ]


def _statistic_cell(values: Sequence[float | None], how: Callable[[list[float]], float]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return number(None)
    return number(how(known))
