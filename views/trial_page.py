"""All data about one trial: its row, rank, values, decisions, evaluations and curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import StoreError
from ..search.analysis.verdict import conclusion_of
from ..store.audits import Audit, audit_of
from ..store.codec import finite_json
from ..store.environment_columns import ENVIRONMENT, environment_names
from ..store.journal import Journal
from ..store.leaderboard import Entry, default_of, leaderboard_of, study_places
from ..store.query import has_column, query
from ..store.rows import (
    LOST,
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
from ..studies.yaml_io import recorded_data
from .formatting import unit_of
from .output import finite_or_none
from .time_spent import usage_at
from .trial_view import TrialView

_CURVE = "episode_return"
_OF_ROW = (
    "proposed_by", "batch", "bucket", "seed_values", "choose_values", "report_values", "audited",
    "eval_env_steps", "warmup_env_steps", "error", "started_at", "ended_at", "bits", "schedule",
)  # fmt: skip


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
class ReturnPoint:
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
    """The audit of a study's stopping rule, and this trial's outcome if it was audited."""

    ended: str | None  # better than, worse than or tied with the median of trials never stopped
    audit: Audit

    def as_json(self) -> dict[str, Any]:
        return {"ended": self.ended, **asdict(self.audit)}


@dataclass(frozen=True)
class TrialConclusion:
    """The study's conclusion about one trial."""

    sentences: Sequence[str]
    details: Sequence[str]
    data: Mapping[str, Any]  # the whole conclusion as JSON

    @classmethod
    def of(cls, conclusion: Conclusion) -> TrialConclusion:
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
    place: int | None  # among them, 1 is best; None for the reference, which is not one of them
    study_seconds: Mapping[str, float]  # part -> seconds
    tested: Interval  # interval of the mean over test seeds
    start_up: str | None  # why its sampler had no model
    decisions: Sequence[DecisionRow]
    audit: TrialAudit | None
    scores: Mapping[str, Any] | None  # on each of several environments
    evaluations: Sequence[Evaluated]
    curve: Sequence[ReturnPoint]
    verdict: TrialConclusion | None

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
            "rank": self.place,
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
        return self.view.state in LOST

    @property
    def stopped_by(self) -> str:
        """The rule that stopped the trial; "" if the trial continued, to audit the rule."""
        if self.row.audited:
            return ""
        return self.view.stop

    @property
    def environments(self) -> list[str | None]:
        """The environments in row order; None if there is only one."""
        return list(dict.fromkeys(row.environment for row in (*self.evaluations, *self.curve)))


def trial_page(folder: StudyFolder, number: int) -> TrialPage:
    """Collect all data about a trial as of one commit."""
    with Journal(folder.path) as journal, journal.at_one_commit():
        meta = journal.meta
        rows = trials_seen(journal)
        entries = leaderboard_of(meta, rows)
        entry, row = _entry_and_row(folder, number, entries, rows)
        places = study_places(entries)
        names = environment_names(meta.environments)
        evaluations = [
            one for row in journal.evaluations(number) for one in _by_environment(row, names)
        ]
        decisions = journal.decisions(number)
        conclusion = conclusion_of(journal, rows, entries)
        study = recorded_data(meta.study_text)
        weight = _training_weight(study)
        scores = None
        verdict = None
        if counts_evaluations_alone(journal.attributes()):
            weight = 0.0
        if names:
            scores = _environment_scores(journal, rows, entry)
        if _is_in_conclusion(conclusion, row, rows):
            verdict = TrialConclusion.of(conclusion)
        return TrialPage(
            view=TrialView.of(entry),
            entry=entry,
            row=row,
            study=folder.name,
            metric=meta.metric,
            goal=meta.goal,
            training_weight=weight,
            unit=unit_of(meta.study_text),
            trials=len(places),
            place=places.get(number),
            study_seconds=usage_at(journal.head()).seconds_by_part,
            tested=bounded_interval(row.report_values, value_bounds(meta)),
            start_up=start_up_words(study["search"], journal.asks(), rows).get(number),
            decisions=decisions,
            audit=_audit_of(journal, row, rows, decisions),
            scores=scores,
            evaluations=evaluations,
            curve=_training_curve(folder, number, bool(names)),
            verdict=verdict,
        )


def _entry_and_row(
    folder: StudyFolder, number: int, entries: Sequence[Entry], rows: Sequence[TrialRow]
) -> tuple[Entry, TrialRow]:
    """Return the leaderboard entry and the row of a trial."""
    by_number = {entry.trial: entry for entry in entries}
    if number not in by_number:
        known = "it has none yet"
        if by_number:
            known = f"its trials are 0 to {max(by_number)}"
        raise StoreError(f"study {folder.name!r} has no trial {number}; {known}")
    return by_number[number], next(row for row in rows if row.trial == number)


def _training_weight(study: Mapping[str, Any]) -> float:
    return (study.get("metric") or {}).get("training_weight", 0.0)


def start_up_words(
    search: Mapping[str, Any], asks: Sequence[AskRow], rows: Sequence[TrialRow]
) -> dict[int, str]:
    """Return why trials were proposed without the sampler's model, by trial number."""
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
    if row is None or not row.learns_from_results:
        return ""
    options: Mapping[str, object] = {field.key: field.default for field in row.options}
    fewest = {**options, **(search.get("options") or {})}.get("n_startup_trials")
    if isinstance(fewest, int) and known < fewest:
        return f"random draw: the model needs {fewest} results and had {known}"
    if known:
        return ""
    return "before any result was known"


def _environment_scores(
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
    """Return a study's audit, if a rule stopped this trial or would have stopped it."""
    stopped = any(decision.action in ("stop", "audit") for decision in decisions)
    if not stopped or not any(row.audited for row in rows):
        return None
    audit = audit_of(journal.meta, rows, journal.decisions(), finishing_rules())
    if audit is None:
        return None
    return TrialAudit(_audit_outcome(audit, row, journal.meta), audit)


def _audit_outcome(audit: Audit, row: TrialRow, meta: StudyMeta) -> str | None:
    """Describe an audited trial's result relative to the median; None for other trials."""
    if not row.audited or row.value is None:
        return None
    ahead = (row.value - audit.bar) * sign_of(meta.goal)
    if ahead > 0.0:
        return "better than"
    if ahead == 0.0:
        return "tied with"
    return "worse than"


def _is_in_conclusion(conclusion: Conclusion, row: TrialRow, rows: Sequence[TrialRow]) -> bool:
    """Return whether the study's conclusion compares a trial, as its winner or as the default."""
    default = default_of(rows)
    is_default = default is not None and default.trial == row.trial
    if conclusion.front is not None:
        return is_default or conclusion.front.trial == row.trial
    known = conclusion.winner is not None
    return known and (is_default or conclusion.winner == f"trial {row.trial}")


def _by_environment(row: EvaluationRow, environments: Sequence[str]) -> list[Evaluated]:
    """Return an evaluation, split by environment if there are several."""
    if not environments:
        return [_make_evaluated(row, slice(None), None)]
    each = len(row.returns) // len(environments)
    return [
        _make_evaluated(row, slice(at * each, (at + 1) * each), name)
        for at, name in enumerate(environments)
    ]


def _make_evaluated(row: EvaluationRow, own: slice, environment: str | None) -> Evaluated:
    returns = row.returns[own].tolist()
    return Evaluated(
        stream=str(row.stream),
        replicate=row.replicate,
        env_steps=row.env_steps,
        episodes=len(returns),
        return_mean=_mean_or_none(returns),
        return_min=finite_or_none(min(returns)),
        return_max=finite_or_none(max(returns)),
        length_mean=_mean_or_none(row.lengths[own].tolist()),
        metrics={
            name: _mean_or_none(values[own].tolist()) for name, values in row.metrics.items()
        },
        environment=environment,
    )


def _training_curve(folder: StudyFolder, trial: int, several: bool) -> list[ReturnPoint]:
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
        return [ReturnPoint(at, finite_or_none(value), name) for name, at, value in rows]
    return [ReturnPoint(at, finite_or_none(value)) for at, value in rows]


def _mean_or_none(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return finite_or_none(math.fsum(values) / len(values))
