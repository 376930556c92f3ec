"""All data about one trial: `trial_page` collects it, `trial_text` formats it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from textwrap import wrap
from typing import Any

from ..errors import StoreError, clause, counted
from ..search.analysis.verdict import conclusion_of
from ..store.audits import Audit, audit_of
from ..store.codec import finite_json
from ..store.environment_columns import ENVIRONMENT, environment_names
from ..store.journal import Journal
from ..store.leaderboard import Entry, default_of, leaderboard_of
from ..store.query import has_column, query
from ..store.rows import (
    AskRow,
    DecisionRow,
    EvaluationRow,
    StudyMeta,
    TrialRow,
    TrialState,
    counts_evaluations_alone,
)
from ..store.statistics import Interval, sign_of
from ..store.study_folder import StudyFolder, trials_seen
from ..store.unobserved import bounded_interval
from ..store.value_bounds import value_bounds
from ..store.verdict import Conclusion
from ..store.verdict_text import as_json
from ..studies.search_methods import METHODS
from ..studies.stopping_rules import finishing_rules
from ..studies.yaml_io import plain, read_text
from .formatting import (
    aligned,
    duration,
    folded,
    moment,
    number,
    param,
    seeds_text,
    sparkline,
    steps,
    unit_of,
    with_interval,
)
from .output import finite_or_none
from .time_spent import time_text, usage_at
from .trial_view import TrialView

_CURVE = "episode_return"
_WIDTH, _LABEL = 80, 11
_OF_ROW = (
    "proposed_by", "batch", "bucket", "seed_values", "choose_values", "report_values", "audited",
    "eval_env_steps", "warmup_env_steps", "error", "started_at", "ended_at", "bits", "schedule",
)  # fmt: skip
_STAGE = {"search": "search", "choose": "select", "report": "test"}
_DONE = {"continue": "continued", "stop": "stopped", "finish": "finished", "pause": "paused",
         "promote": "paused, then continued", "audit": "continued for the audit"}  # fmt: skip


def start_up_words(
    search: Mapping[str, Any], asks: Sequence[AskRow], rows: Sequence[TrialRow]
) -> dict[int, str]:
    if search.get("warm_start") is not None:
        return {}  # trials of the earlier study are not in these batches
    by_number = {row.trial: row for row in rows}
    found: dict[int, str] = {}
    known: set[int] = set()  # a paused trial is reported again when it ends
    for ask in asks:
        rows_of = [by_number[trial] for trial in ask.told if trial in by_number]
        known |= {row.trial for row in rows_of if row.state is not TrialState.FAILED}
        if words := _start_up_text(search, ask.method, len(known)):
            proposed = [by_number[trial] for trial in ask.trials if trial in by_number]
            found |= {row.trial: words for row in proposed if row.proposed_by == ask.method}
    return found


def _start_up_text(search: Mapping[str, Any], method: str, known: int) -> str:
    row = METHODS.get(method)
    if row is None or not row.learns:
        return ""
    options: Mapping[str, object] = {field.key: field.default for field in row.options}
    fewest = {**options, **(search.get("options") or {})}.get("n_startup_trials")
    if isinstance(fewest, int) and known < fewest:
        return f"random draw: the model needs {fewest} results and had {known}"
    if known:
        return ""
    return "before any result was known"


def lineage_text(schedule: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per segment: its first env step, its trial, and the changes.

    >>> parts = [{"env_steps": 0, "trial": 3, "params": {"gamma": 0.9, "ent_coef": 0.01}},
    ...          {"env_steps": 8000, "trial": 5, "params": {"gamma": 0.95, "ent_coef": 0.01}}]
    >>> print(lineage_text(parts))
    lineage
      from     0  in trial 3  gamma 0.9, ent_coef 0.01
      from    8k  in trial 5  gamma 0.95
    """
    lines: list[str] = []
    before: Mapping[str, Any] = {}
    for part in schedule:
        now = part["params"]
        words = [
            f"{name} {param(value)}"
            for name, value in now.items()
            if name not in before or before[name] != value
        ]
        changes = ", ".join([*words, *(f"without {name}" for name in before if name not in now)])
        start = f"  from {steps(part['env_steps']):>5}  in trial {part['trial']}"
        lines += wrap(f"{start}  {changes}", 80, subsequent_indent=" " * 14)
        before = now
    return "\n".join(["lineage", *lines])


@dataclass(frozen=True)
class Evaluated:
    """One evaluation of one seed, on one environment, over its episodes."""

    stream: str
    replicate: int
    env_steps: int
    episodes: int
    return_mean: float | None
    return_min: float | None
    return_max: float | None
    length_mean: float | None
    metrics: Mapping[str, float | None]
    environment: str | None = None  # if there are several

    def as_json(self) -> dict[str, Any]:
        return _without_environment(vars(self))

    def measured(self, metric: str) -> float | None:
        """Return the field or metric with this name, or the mean return if there is none."""
        own = vars(self)
        if metric in own:
            return own[metric]
        return self.metrics.get(metric, self.return_mean)


@dataclass(frozen=True)
class CurvePoint:
    """The mean training return over the search seeds."""

    env_steps: int
    value: float | None
    environment: str | None = None  # if there are several

    def as_json(self) -> dict[str, Any]:
        found = {ENVIRONMENT: self.environment, "env_steps": self.env_steps, _CURVE: self.value}
        return _without_environment(found)


def _without_environment(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON data, starting with the environment if there are several."""
    others = {name: value for name, value in found.items() if name != ENVIRONMENT}
    own = found[ENVIRONMENT]
    if own is None:
        return others
    return {ENVIRONMENT: own, **others}


@dataclass(frozen=True)
class TrialAudit:
    """The audit of a study's stops, and this trial's outcome if it was audited."""

    ended: str | None  # better than, worse than or tied with the median of trials never stopped
    audit: Audit

    def as_json(self) -> dict[str, Any]:
        return {"ended": self.ended, **asdict(self.audit)}


@dataclass(frozen=True)
class Verdict:
    """The study's conclusion about a trial."""

    sentences: Sequence[str]
    details: Sequence[str]
    data: Mapping[str, Any]  # the whole conclusion as JSON

    @classmethod
    def of(cls, conclusion: Conclusion) -> Verdict:
        data = as_json(conclusion)
        return cls(data["sentences"], data["details"], data)


@dataclass(frozen=True)
class TrialPage:
    """All data about one trial: the page that `hpo show` prints, and its JSON."""

    view: TrialView
    entry: Entry
    row: TrialRow
    study: str
    metric: str
    goal: str
    training_weight: float  # weight of training returns in values used for selection
    unit: str  # unit of a run's length
    trials: int  # number of trials in the study
    study_seconds: Mapping[str, float]  # part -> seconds
    tested: Interval  # interval of the mean over test seeds
    start_up: str | None  # why its sampler had no model
    decisions: Sequence[DecisionRow]
    audit: TrialAudit | None
    scores: Mapping[str, Any] | None  # on each of several environments
    evaluations: Sequence[Evaluated]
    curve: Sequence[CurvePoint]
    verdict: Verdict | None

    def as_json(self) -> dict[str, Any]:
        audit, conclusion = None, None
        scores: dict[str, Any] = {}
        if self.audit is not None:
            audit = finite_json(self.audit.as_json())
        if self.scores is not None:
            scores["over_environments"] = finite_json(self.scores)
        if self.verdict is not None:
            conclusion = self.verdict.data
        return {
            "study": self.study,
            "metric": self.metric,
            "training_weight": self.training_weight,
            "goal": self.goal,
            "trials": self.trials,
            "study_seconds_by_part": self.study_seconds,
            **self.entry.as_json(),
            **{name: finite_json(getattr(self.row, name)) for name in _OF_ROW},
            "report_ci_low": self.tested.low,
            "report_ci_high": self.tested.high,
            "start_up": self.start_up,
            "decisions": finite_json([asdict(decision) for decision in self.decisions]),
            "audit": audit,
            **scores,
            "evaluations": [one.as_json() for one in self.evaluations],
            "curve": [point.as_json() for point in self.curve],
            "conclusion": conclusion,
        }

    @property
    def is_lost(self) -> bool:
        return self.view.state in (TrialState.DIVERGED, TrialState.FAILED)

    @property
    def stopped_by(self) -> str:
        """The rule that stopped the trial; "" if the trial continued as an audit of the rule."""
        if self.row.audited:
            return ""
        return self.view.stop

    @property
    def environments(self) -> list[str | None]:
        """The environments in the order of their rows; None for a single one."""
        return list(dict.fromkeys(row.environment for row in (*self.evaluations, *self.curve)))


def trial_page(folder: StudyFolder, number_: int) -> TrialPage:
    with Journal(folder.path) as journal, journal.at_one_commit():
        meta = journal.meta
        rows = trials_seen(journal)
        entries = leaderboard_of(meta, rows)
        entry, row = _found(folder, number_, entries, rows)
        names = environment_names(meta.environments)
        evaluations = [one for row in journal.evaluations(number_) for one in _parts(row, names)]
        decisions = journal.decisions(number_)
        conclusion = conclusion_of(journal, rows, entries)
        study = plain(read_text(meta.study_text, "study.resolved.yaml"))
        weight = _training_weight(study)
        scores = None
        verdict = None
        if counts_evaluations_alone(journal.attributes()):
            weight = 0.0
        if names:
            scores = _scores_of(journal, rows, entry)
        if _is_of(conclusion, row, rows):
            verdict = Verdict.of(conclusion)
        return TrialPage(
            view=TrialView.of(entry),
            entry=entry,
            row=row,
            study=folder.name,
            metric=meta.metric,
            goal=meta.goal,
            training_weight=weight,
            unit=unit_of(meta.study_text),
            trials=len(entries),
            study_seconds=usage_at(journal.head()).seconds_by_part,
            tested=bounded_interval(row.report_values, value_bounds(meta)),
            start_up=start_up_words(study["search"], journal.asks(), rows).get(number_),
            decisions=decisions,
            audit=_audit_of(journal, row, rows, decisions),
            scores=scores,
            evaluations=evaluations,
            curve=_curve(folder, number_, bool(names)),
            verdict=verdict,
        )


def _found(
    folder: StudyFolder, number_: int, entries: Sequence[Entry], rows: Sequence[TrialRow]
) -> tuple[Entry, TrialRow]:
    """Return the leaderboard entry and the row of a trial."""
    by_number = {entry.trial: entry for entry in entries}
    if number_ not in by_number:
        known = "it has none yet"
        if by_number:
            known = f"its trials are 0 to {max(by_number)}"
        raise StoreError(f"study {folder.name!r} has no trial {number_}; {known}")
    return by_number[number_], next(row for row in rows if row.trial == number_)


def _scores_of(
    journal: Journal, rows: Sequence[TrialRow], entry: Entry
) -> Mapping[str, Any] | None:
    # Imported on use, because it imports numpy, which no other view of a table needs.
    from ..search.analysis.across_environments import environment_scores
    from .environment_text import each_data

    scores = environment_scores(journal, rows)
    return each_data(journal.meta, scores, entry.trial, entry.value_from)


def _audit_of(
    journal: Journal,
    row: TrialRow,
    rows: Sequence[TrialRow],
    decisions: Sequence[DecisionRow],
) -> TrialAudit | None:
    """Return a study's audit, if a rule would have stopped this trial."""
    stopped = any(decision.action in ("stop", "audit") for decision in decisions)
    if not stopped or not any(row.audited for row in rows):
        return None
    audit = audit_of(journal.meta, rows, journal.decisions(), finishing_rules())
    if audit is None:
        return None
    return TrialAudit(_ended(audit, row, journal.meta), audit)


def _ended(audit: Audit, row: TrialRow, meta: StudyMeta) -> str | None:
    """Return an audited trial's outcome, to be followed by the median; None for other trials."""
    if not row.audited or row.value is None:
        return None
    ahead = (row.value - audit.bar) * sign_of(meta.goal)
    if ahead > 0.0:
        return "better than"
    if ahead == 0.0:
        return "tied with"
    return "worse than"


def _is_of(conclusion: Conclusion, row: TrialRow, rows: Sequence[TrialRow]) -> bool:
    default = default_of(rows)
    is_default = default is not None and default.trial == row.trial
    if conclusion.front is not None:
        return is_default or conclusion.front.trial == row.trial
    known = conclusion.winner is not None
    return known and (is_default or conclusion.winner == f"trial {row.trial}")


def _parts(row: EvaluationRow, environments: Sequence[str]) -> list[Evaluated]:
    """Return an evaluation, or its parts on each of several environments."""
    if not environments:
        return [_evaluated(row, slice(None), None)]
    each = len(row.returns) // len(environments)
    return [
        _evaluated(row, slice(at * each, (at + 1) * each), name)
        for at, name in enumerate(environments)
    ]


def _evaluated(row: EvaluationRow, own: slice, environment: str | None) -> Evaluated:
    returns = row.returns[own].tolist()
    return Evaluated(
        stream=str(row.stream),
        replicate=row.replicate,
        env_steps=row.env_steps,
        episodes=len(returns),
        return_mean=_mean(returns),
        return_min=finite_or_none(min(returns)),
        return_max=finite_or_none(max(returns)),
        length_mean=_mean(row.lengths[own].tolist()),
        metrics={name: _mean(values[own].tolist()) for name, values in row.metrics.items()},
        environment=environment,
    )


def _curve(folder: StudyFolder, trial: int, several: bool) -> list[CurvePoint]:
    if not has_column(folder.path, "curves", _CURVE):
        return []
    keys = "env_steps"
    if several:
        keys = f"{ENVIRONMENT}, env_steps"
    _, rows = query(
        folder.path,
        f"SELECT {keys}, avg({_CURVE}) FILTER (isfinite({_CURVE})) FROM curves "
        f"WHERE trial = {int(trial)} AND stream = 'search' GROUP BY {keys} ORDER BY {keys}",
    )
    if several:
        return [CurvePoint(at, finite_or_none(value), name) for name, at, value in rows]
    return [CurvePoint(at, finite_or_none(value)) for at, value in rows]


def _mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return finite_or_none(math.fsum(values) / len(values))


def trial_text(page: TrialPage, blocks: bool = True, verbose: bool = False) -> str:
    """Return the page as text with 80 columns, the answer first."""
    parts = ["\n".join(_head_lines(page, verbose)), _params(page.view.params)]
    if page.scores is not None:
        from .environment_text import each_text

        parts.append(each_text(page.scores))
    if page.row.schedule:
        parts.append(lineage_text(page.row.schedule))
    parts.append(_stages(page, verbose))
    parts += [_measurements(page, name, blocks, verbose) for name in page.environments]
    if verbose:
        lines = (folded(line, _WIDTH, _LABEL * (line[0] != " ")) for line in _detail_lines(page))
        parts.append("\n".join(lines))
    return "\n\n".join(part for part in parts if part)


def _measurements(page: TrialPage, environment: str | None, blocks: bool, verbose: bool) -> str:
    """Return the evaluations and the curve on one environment."""
    several = environment is not None
    found, gap = list[str](), "\n\n"
    if several:
        found, gap = [f"on {environment}"], "\n"
    evaluations = [row for row in page.evaluations if row.environment == environment]
    if evaluations and (verbose or several):
        found.append(_evaluations(evaluations, page.unit))
    curve = [point for point in page.curve if point.environment == environment]
    if line := curve_line(curve, 40, blocks):
        found.append(f"  training return  {line}")
    return gap.join(found)


def curve_line(curve: Sequence[CurvePoint], width: int, blocks: bool) -> str:
    points = [point.value for point in curve]
    finite = [point for point in points if point is not None]
    if not finite:
        return ""
    return f"{number(finite[0])} {sparkline(points, width, not blocks)} {number(finite[-1])}"


def _head_lines(page: TrialPage, verbose: bool) -> list[str]:
    view, row = page.view, page.row
    said = f"Trial {view.trial} {_became(page)}{_value_of(page)}"
    rank = f" (rank {view.place} of {page.trials})"
    if view.is_default and page.is_lost:
        rank = ""
    lines = [f"{said}{rank}."]
    if len(lines[0]) > _WIDTH:
        lines = [folded(f"{said}.", _WIDTH)]
    if view.stop and row.audited:
        lines.append(f"{view.stop} would have stopped it; it ran on to check the rule.")
    elif view.stop and (view.is_default or view.is_confirmed):
        lines.append(f"In the search it was stopped by {view.stop}{_last_rung(page)}.")
    if page.verdict is not None:
        shown = page.verdict.sentences
        if not verbose:
            shown = shown[:1]
        lines += [folded(text, _WIDTH) for text in shown]
    if page.audit is not None:
        lines.append(folded(_audit_text(page.audit), _WIDTH))
    if row.error:
        lines.append(folded(f"error      {row.error}", _WIDTH, _LABEL))
    return lines


def _became(page: TrialPage) -> str:
    """Return the outcome of a trial, to follow its number."""
    view = page.view
    if view.is_default:
        said = "is the default"
        if view.is_winner:
            said += " and the winner"
        if page.is_lost:
            said += f", which {view.state} in the search"
        return said
    if view.is_confirmed and view.is_winner:
        return "is the winner"
    if view.is_confirmed:
        return "was confirmed"
    if view.state is TrialState.FINISHED or page.is_lost:
        return str(view.state)
    if view.state not in (TrialState.STOPPED, TrialState.PAUSED):
        return f"is {view.state}"
    verb = {TrialState.STOPPED: "was", TrialState.PAUSED: "is"}[view.state]
    return f"{verb} {view.state}{clause(' by {}', page.stopped_by)}{_last_rung(page)}"


def _last_rung(page: TrialPage) -> str:
    """Return the rung at which a trial was last compared, or ""."""
    if not page.decisions:
        return ""
    return f" at {steps(page.decisions[-1].env_steps)} {page.unit}"


def _value_of(page: TrialPage) -> str:
    """Return a trial's value (or that at its last rung) and its seeds, or ""."""
    entry, row = page.entry, page.row
    value, tested, at_rung = map(
        finite_or_none, (entry.value, entry.report_value, entry.rung_value)
    )
    is_tested = value is None or entry.value_from == "report"
    if tested is not None and is_tested:
        shown = with_interval(tested, page.tested.low, page.tested.high)
        return f": {shown} on {seeds_text(len(row.report_values), 'report')}"
    if value is not None:
        low, high = finite_or_none(entry.ci_low), finite_or_none(entry.ci_high)
        shown = with_interval(value, low, high)
        return f": {shown} on {seeds_text(entry.seeds, entry.value_from)}"
    if at_rung is None or page.is_lost:
        return ""
    return f": {number(at_rung)} on {counted(entry.search_seeds, 'search seed')}"


def _detail_lines(page: TrialPage) -> list[str]:
    row = page.row
    lines: list[str] = []
    kinds = {"search": row.seed_values, "select": row.choose_values, "test": row.report_values}
    for label, values in kinds.items():
        if values:
            seeds = counted(len(values), "seed")
            lines.append(f"{label:<10} {seeds}: {' '.join(map(number, values))}")
    if page.verdict is not None:
        labels = ("verdict", *[""] * len(page.verdict.details))
        said = zip(labels, page.verdict.details, strict=False)
        lines += [f"{label:<10} {text}" for label, text in said]
    lines.append(f"proposed   by {row.proposed_by} in batch {row.batch}; bucket {row.bucket}")
    if page.start_up:
        lines.append(f"           {page.start_up}")
    lines.append(
        f"{page.unit:<10} {steps(row.env_steps)} in the search over all seeds{_more(row)}"
    )
    if row.started_at is not None and row.ended_at is not None:
        began = moment(row.started_at)
        lines.append(f"time       {began}, {duration(row.ended_at - row.started_at)}")
    if page.study_seconds:
        lines.append(f"study time {time_text(page.study_seconds).removeprefix('time: ')}")
    return lines


def _more(row: TrialRow) -> str:
    """Return the env steps without training, to follow those with training."""
    more = {"evaluation": row.eval_env_steps, "warm-up": row.warmup_env_steps}
    return "".join(f", {steps(count)} of {kind}" for kind, count in more.items() if count)


def _audit_text(found: TrialAudit) -> str:
    whole = found.audit.whole
    bar = f"the median of trials never stopped ({number(found.audit.bar)})"
    if found.ended is not None:
        return f"Audit: it finished {found.ended} {bar}."
    audited = counted(whole.audited, "audited trial")
    return f"Audit: {whole.wrong} of {audited} finished better than {bar}."


def _params(params: Mapping[str, Any]) -> str:
    if not params:
        return "  nothing was searched: all values are in study.resolved.yaml"
    lines = [""]
    for name, value in params.items():
        pair = f"{name} {param(value)}"
        if lines[-1] and len(lines[-1]) + len(pair) + 4 > _WIDTH:
            lines.append("")
        lines[-1] += ("    " if lines[-1] else "  ") + pair
    return "\n".join(lines)


def _training_weight(study: Mapping[str, Any]) -> float:
    return (study.get("metric") or {}).get("training_weight", 0.0)


Point = tuple[str, int]
"""(stream, env steps)."""


@dataclass(frozen=True)
class Stages:
    """The values of a trial's seeds at the points where they were measured or compared."""

    values: Mapping[Point, Sequence[float | None]]
    decided: Mapping[int, DecisionRow]  # env steps of the search -> the decision there
    has_training: bool = False  # whether training returns are part of some values

    @classmethod
    def of(cls, page: TrialPage) -> Stages:
        decided = {row.env_steps: row for row in page.decisions}
        if page.scores is not None:  # scores have a separate table
            return cls({}, decided)
        metric = page.metric.split(",")[0].split(" ")[0].removeprefix("eval/")
        mixed = _with_training(page)
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
        """Return the points to print: each decision and the end of each kind of seeds, or all."""
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


def _with_training(page: TrialPage) -> set[Point]:
    """Return the points that have training returns."""
    if not page.training_weight:
        return set()
    chosen = [row for row in page.evaluations if row.stream != "report"]
    found = {(row.stream, row.env_steps) for row in chosen}
    return found - {
        (row.stream, row.env_steps)
        for row in chosen
        if row.metrics.get("training_return") is None  # no training episode had ended
    }


def _stages(page: TrialPage, verbose: bool) -> str:
    stages = Stages.of(page)
    rows = [_stage_row(page, stages, point, verbose) for point in stages.points(verbose)]
    if not rows:
        return ""
    header = ("stage", page.unit, "seeds", "mean", "worst", "best", "decision")
    table = aligned(header, rows, (False, True, True, True, True, True, False))
    if not stages.has_training:
        return table
    return f"{table}\nTraining returns count {page.training_weight:g} in search and select."


def _stage_row(page: TrialPage, stages: Stages, point: Point, verbose: bool) -> list[str]:
    values = [value for value in stages.values.get(point, ()) if value is not None]
    values.sort(reverse=page.goal != "maximize")
    judged = stages.decision(point)
    mean, worst, best = None, None, None
    if judged is None:
        done = _outcome(page, stages, point)
    else:
        done, mean = _decision(judged, verbose), judged.value
    if values:
        mean, worst, best = fmean(values), values[0], values[-1]
    seeds = str(len(values) or "")
    numbers = map(number, (mean, worst, best))
    return [_STAGE[point[0]], steps(point[1]), seeds, *numbers, done]


def _by_stage(point: Point) -> tuple[int, int]:
    return list(_STAGE).index(point[0]), point[1]


def _decision(judged: DecisionRow, verbose: bool) -> str:
    done = f"copied trial {judged.source}"
    if judged.source is None:
        done = _DONE[judged.action]
    text = f"{done}, {_ordinal(judged.rank)} of {judged.judged}"
    if not verbose or judged.cutoff is None:
        return text
    return f"{text}, cut-off {number(judged.cutoff)}"


def _outcome(page: TrialPage, stages: Stages, point: Point) -> str:
    """Return the outcome at a point without a decision, or ""."""
    if point[0] == "choose" and page.view.is_winner:
        return "chosen"
    ended = page.view.state in (TrialState.FINISHED, TrialState.CONFIRMED)
    if point[0] == "search" and stages.is_end(point) and ended:
        return "finished"
    return ""


def _ordinal(count: int) -> str:
    endings = {} if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}
    return f"{count}{endings.get(count % 10, 'th')}"


def _evaluations(evaluations: Sequence[Evaluated], unit: str) -> str:
    groups: dict[Point, list[Evaluated]] = {}
    for row in evaluations:
        groups.setdefault((row.stream, row.env_steps), []).append(row)
    rows = [
        [_STAGE[point[0]], steps(point[1]), *_group_cells(groups[point])]
        for point in sorted(groups, key=_by_stage)
    ]
    header = ("evaluated", unit, "seeds", "episodes", "return", "min", "max", "length")
    return aligned(header, rows, (False, *[True] * 7))


def _group_cells(group: Sequence[Evaluated]) -> list[str]:
    return [
        str(len(group)),
        str(sum(row.episodes for row in group)),
        _over([row.return_mean for row in group], fmean),
        _over([row.return_min for row in group], min),
        _over([row.return_max for row in group], max),
        _over([row.length_mean for row in group], fmean),
    ]


def _over(values: Sequence[float | None], how: Callable[[list[float]], float]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return number(None)
    return number(how(known))
