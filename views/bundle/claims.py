"""Claims about a study's winner, each with sentences, SQL, an estimator and numbers.

The numbers are computed by SQL from the tables, and the sentences are written from the journal;
each sentence can be quoted. Every claim is based on runs of one or more trials with specific
seeds. To verify a bundle, all claims are recomputed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import StoreError, clause
from ...files.plain_data import is_dict, is_list, parse_json
from ...search.analysis.checkpoint_values import ranking_objective
from ...search.analysis.verdict import (
    apart,
    ceiling_of,
    conclusion_of,
    constraint_samples,
    evaluated_in,
)
from ...search.lanes.contract import EvaluationResult
from ...search.state.objective import TRAINING_RETURN, Objective
from ...store.against import Against, ConstraintSamples
from ...store.codec import finite_json
from ...store.interim_analyses import Look, begins_interim, looks_of, winners_looks
from ...store.journal import JOURNAL_NAME, Journal
from ...store.leaderboard import Entry, default_of, leaderboard_of, study_places
from ...store.query import query
from ...store.rows import Stream, StudyMeta, TrialRow, TrialState, as_left
from ...store.statistics import aggregate
from ...store.tables import episode_columns
from ...store.unobserved import bounded_interval
from ...store.value_bounds import value_bounds
from ...store.verdict import Conclusion, Evidence, conclude
from ...store.verdict_text import as_json
from ...studies.load import recorded
from ...studies.spec import Study
from ...studies.study_environments import WITH_TRAINING, env_words
from ...studies.yaml_io import recorded_data
from ..formatting import SEED_KINDS, seeds_text, unit_of
from ..output import finite_or_none
from ..quotes import limit_quotes, metric_name, no_verdict, other_quotes, value_quote, versus
from ..quotes import value_words as quoted_value

_MEAN = "hpo.store.statistics: aggregate, interval (95 %)"
_VERDICT = "hpo.store.verdict: conclude (paired; 95 % over all tests together)"
_COST = (
    "SELECT (SELECT sum(steps) FROM (SELECT max(env_steps) AS steps FROM curves GROUP BY trial, "
    "stream, replicate)) AS trained, (SELECT sum(episode_length) FROM evaluations) AS evaluated"
)
_VALUES = {"report": "report_values", "choose": "choose_values", "search": "seed_values"}
_CLOSE = 1e-9  # versions of NumPy may sum in different orders


@dataclass(frozen=True)
class _Study:
    """The parts of a journal on which claims are based, as of one commit."""

    meta: StudyMeta
    rows: Sequence[TrialRow]
    entries: Sequence[Entry]
    first: Entry | None  # of the trial that the claims are about
    objective: Objective  # the objective by which the study ranks
    limited: ConstraintSamples | None  # for that trial and the default
    conclusion: Conclusion
    looks: Sequence[Look]
    columns: Mapping[str, str]
    usage: Mapping[str, Any]  # counters of the search loop

    @classmethod
    def read(cls, folder: Path, trial: int | None) -> _Study:
        """Read a study; the claims are about `trial`, by default the best."""
        with Journal(folder) as journal, journal.at_one_commit():
            rows, meta = as_left(journal.trials()), journal.meta
            entries, default = leaderboard_of(meta, rows), default_of(rows)
            first = next((one for one in entries if trial in (None, one.trial)), None)
            limited = None
            if first is not None:
                limited = constraint_samples(journal, rows, first.trial, default)
            return cls(
                meta=meta,
                rows=rows,
                entries=entries,
                first=first,
                objective=ranking_objective(journal),
                limited=limited,
                conclusion=conclusion_of(journal),
                looks=looks_of(journal.attributes()),
                columns=episode_columns(journal),
                usage=parse_json(journal.head().loop_state).get("usage", {}),
            )


def claims_of(folder: Path, trial: int | None = None) -> dict[str, Any]:
    """Return the claims about a study and a trial (by default the best) as JSON data."""
    study = _Study.read(folder, trial)
    meta, by_number, first = study.meta, {row.trial: row for row in study.rows}, study.first
    if first is None and trial is None:
        raise StoreError(f"study {meta.name!r} has no trial")
    if first is None:
        raise StoreError(f"study {meta.name!r} has no trial {trial}")
    asked = recorded(meta.study_text)
    tables = _Tables(folder, meta, study.columns, study.objective)
    claims = [
        *_value_claims(study, first, tables, asked),
        *_verdict_claims(study, by_number[first.trial], tables, metric_name(asked)),
        _cost_claim(folder, study),
    ]
    ran_with = {name: getattr(meta, name) for name in ("versions", "backend", "devices", "files")}
    about = {"study": meta.name, "trial": first.trial, "ran_with": ran_with}
    about |= {"environment": _environment_words(asked), "metric": metric_name(asked)}
    about |= _possible_values(study)
    about |= {"env_steps": first.env_steps, "train_seconds": by_number[first.trial].train_seconds}
    return finite_json({**about, "claims": claims, "conclusion": as_json(study.conclusion)})


def _possible_values(study: _Study) -> dict[str, Any]:
    """Return the range of possible values, and the best possible one, for readers without hpo."""
    meta = study.meta
    bounds = value_bounds(meta)
    resolved = recorded_data(meta.study_text)
    best = None
    if not study.objective.scales:
        best = ceiling_of(resolved, meta)
    ends = [finite_or_none(bounds.low), finite_or_none(bounds.high)]
    return {"possible": ends, "best_possible": best}


def _environment_words(asked: Study) -> str:
    if not asked.algorithm.takes_env:
        return ""
    return env_words(asked)


def _value_claims(
    study: _Study, first: Entry, tables: _Tables, asked: Study
) -> Iterator[dict[str, Any]]:
    if first.measured_value is None or (value := tables.value(first)) is None:
        return
    sql, numbers = value
    metric = metric_name(asked)
    if study.objective.metric.training_weight and first.measured_from != "report":
        metric += WITH_TRAINING
    shown = quoted_value(first.measured_value, first.ci_low, first.ci_high)
    seeds = seeds_text(first.measured_seeds, first.measured_from)
    where = _environment_words(asked)
    said = [value_quote(f"trial {first.trial}", metric, shown, where, seeds)]
    places = study_places(study.entries)
    if first is not study.entries[0] and first.trial in places:
        place = places[first.trial]
        said.append(f"Trial {first.trial} has rank {place} of {len(places)} trials.")
    rests = [(first.trial, first.measured_from)]
    yield _make_claim("value", said, rests, sql=sql, estimator=_MEAN, numbers=numbers)


def _verdict_claims(
    study: _Study, row: TrialRow, tables: _Tables, metric: str
) -> Iterator[dict[str, Any]]:
    """Yield the claims about a trial and the default, then those that involve more trials."""
    default = default_of(study.rows)
    pair = None
    others = list[str]()
    if row.trial == study.entries[0].trial:
        others = _of_others(study.conclusion, metric)
    if default is not None and default.trial != row.trial:
        pair = tables.against(row, default, study.looks, study.limited)
    if pair is not None and default is not None:
        sql, against = pair
        winner = f"trial {row.trial}"
        of_both = [*versus(winner, against, metric), *limit_quotes(winner, against)]
        seeds = [(row.trial, "report"), (default.trial, "report")]
        numbers = asdict(against)
        yield _make_claim("verdict", of_both, seeds, sql=sql, estimator=_VERDICT, numbers=numbers)
    if others:
        numbers = {"verdict": study.conclusion.verdict}
        ranks = "FROM trials ORDER BY rank"
        yield _make_claim("others", others, [], sql=ranks, estimator=_VERDICT, numbers=numbers)


def _of_others(conclusion: Conclusion, metric: str) -> list[str]:
    """Return the sentences that involve trials other than the winner and the default."""
    return [*no_verdict(conclusion), *other_quotes(conclusion, metric)]


def _cost_claim(folder: Path, study: _Study) -> dict[str, Any]:
    """Return the cost as counted by the search, because curves omit chunks with diverged seeds."""
    _, [spent] = query(folder, _COST)
    of_rows = dict(zip(("trained", "evaluated"), (int(n or 0) for n in spent), strict=True))
    used = study.usage
    parts = ("search_env_steps", "confirm_env_steps", "warmup_env_steps")
    trained, evaluated = of_rows["trained"], of_rows["evaluated"]
    if used:
        trained = sum(int(used[part]) for part in parts)
        evaluated = int(used["eval_env_steps"])
    unit = unit_of(study.meta.study_text)
    said = (
        f"Training took {trained:,} {unit}{clause(' and evaluation {:,} env steps', evaluated)}."
    )
    numbers = {"trained": trained, "evaluated": evaluated, "unit": unit, "rows": of_rows}
    how = "as counted by the search; `rows` are sums over the tables"
    return _make_claim("cost", [said], [], sql=_COST, estimator=how, numbers=numbers)


def _make_claim(
    about: str,
    said: Sequence[str],
    seeds: Sequence[tuple[int, str]],
    *,
    sql: str,
    estimator: str,
    numbers: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a claim; `seeds` lists its (trial, stream) pairs, [] if it involves more trials."""
    rests_on = [{"trial": trial, "seeds": stream} for trial, stream in seeds]
    how = {"sql": sql, "estimator": estimator, "numbers": numbers}
    return {"about": about, "sentences": [*said], "rests_on": rests_on, **how}


def values_apart(folder: Path) -> Iterator[str]:
    """Yield the trials whose values differ from their evaluations in the same journal."""
    with Journal(folder) as journal, journal.at_one_commit():
        rows, meta = journal.trials(), journal.meta
        objective, bounds = ranking_objective(journal), value_bounds(meta)
        evaluated: dict[tuple[int, str], dict[int, list[float]]] = {}
        for row in journal.evaluations():  # ordered by env steps
            own = objective
            if row.stream is Stream.REPORT:
                own = objective.of_test
            of_seed = evaluated.setdefault((row.trial, row.stream), {})
            value = own.measure(row)
            of_seed.setdefault(row.replicate, []).append(value)
            if row.stream is Stream.REPORT and not bounds.low <= value <= bounds.high:
                seed = f"test seed {row.replicate} of trial {row.trial} has {value:g}"
                yield f"{JOURNAL_NAME}: {seed}, which is impossible in the environment"
    for row in rows:
        if row.state is TrialState.FINISHED and _is_search_apart(row, meta, evaluated):
            yield _apart_words(row, "search")
        tested = [value for value in row.by_report_seed.values() if not math.isnan(value)]
        for stream, values, lost in (
            ("choose", row.choose_values, ()),
            ("report", tested, row.report_diverged),
        ):
            own = evaluated.get((row.trial, stream), {})
            if values and _are_ends_apart(values, lost, own):
                yield _apart_words(row, stream)


def _is_search_apart(
    row: TrialRow, meta: StudyMeta, evaluated: Mapping[tuple[int, str], Mapping[int, list[float]]]
) -> bool:
    """Return whether a finished trial has values that no evaluation in the search supports."""
    of_seeds = evaluated.get((row.trial, "search"), {}).values()
    shown = set(itertools.chain.from_iterable(of_seeds))
    if not row.seed_values:
        return False
    if any(not _is_among(one, shown) for one in row.seed_values):
        return True
    return not _is_equal(row.value, aggregate(row.seed_values, meta.aggregate))


def _are_ends_apart(
    values: Sequence[float], lost: Collection[int], own: Mapping[int, Sequence[float]]
) -> bool:
    """Return whether values on new seeds differ from the last evaluation of each seed."""
    seeds = sorted(own)
    known = [seed for seed in range(len(values) + len(lost)) if seed not in lost]
    if seeds[: len(known)] != known:
        return True
    return not _all_equal(values, [own[seed][-1] for seed in seeds])


def _apart_words(row: TrialRow, stream: str) -> str:
    kind = SEED_KINDS[stream]
    return f"{JOURNAL_NAME}: trial {row.trial}'s {kind} values differ from its evaluations"


def _is_among(value: float, others: Collection[float]) -> bool:
    return any(_is_equal(value, other) for other in others)


def _all_equal(values: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether values are a prefix of `others`; a later stage may have added seeds."""
    return len(values) <= len(others) and all(map(_is_equal, values, others))


@dataclass(frozen=True)
class _Tables:
    folder: Path
    meta: StudyMeta
    columns: Mapping[str, str]  # metric of the environment -> column
    objective: Objective

    def value(self, entry: Entry) -> tuple[str, dict[str, Any]] | None:
        """Return the SQL for a trial's rows, and its value with interval; None without rows."""
        sql = self._values_sql(entry.trial, entry.measured_from)
        found = [*self._values_by_seed(sql).values()]
        if not found:
            return None
        how = "mean"
        if entry.measured_from == "search":
            how = self.meta.aggregate
        numbers = {"value": aggregate(found, how), "seeds": len(found)}
        if entry.ci_low is not None:
            around = bounded_interval(found, value_bounds(self.meta), how)
            numbers |= {"low": around.low, "high": around.high}
        return sql, numbers

    def against(
        self,
        row: TrialRow,
        default: TrialRow,
        looks: Sequence[Look],
        limited: ConstraintSamples | None,
    ) -> tuple[str, Against] | None:
        """Return SQL and comparison of a trial with the default on shared test seeds, or None.

        As in the study's verdict, values from different environments are not compared.
        """
        study = recorded_data(self.meta.study_text)
        if apart(evaluated_in(study, row.params), evaluated_in(study, default.params)):
            return None
        trial_sql, default_sql = (self._values_sql(one.trial, "report") for one in (row, default))
        a, b = (
            self._values_by_seed(sql) | dict.fromkeys(one.report_diverged, math.nan)
            for sql, one in ((trial_sql, row), (default_sql, default))
        )
        if not (both := a.keys() & b.keys()) or "report" in (*row.copies, *default.copies):
            return None
        found = conclude(
            Evidence(
                a,
                b,
                goal=self.meta.goal,
                bounds=value_bounds(self.meta),
                ceiling=ceiling_of(study, self.meta),
                constraints=limited,
                earlier=winners_looks(looks, row.trial, default.trial, len(both)),
                interim=begins_interim(looks),
            )
        )
        sql = f"SELECT replicate, a.seen AS ours, b.seen AS theirs FROM ({trial_sql}) a JOIN "
        return f"{sql}({default_sql}) b USING (replicate) ORDER BY replicate", found.against

    def _values_sql(self, trial: int, stream: str) -> str:
        """Return SQL for `replicate` and `seen`: the replicate's last value, or its episodes.

        If training returns are part of the metric, they are in the column `trained`.
        """
        if self.meta.environments:  # a single score for several environments
            name = _VALUES.get(stream, "seed_values")
            lost = "[]::BIGINT[]"
            if stream == "report":
                lost = "report_diverged"
            seeds = f"range(len({name}) + len({lost}))"
            seeds = f"[s FOR s IN {seeds} IF NOT list_contains({lost}, s)]"
            shown = f"unnest({seeds}) AS replicate, unnest({name}) AS seen"
            return f"SELECT {shown} FROM trials WHERE trial = {trial}"
        here = f"FROM evaluations WHERE trial = {trial} AND stream = '{stream}'"
        last = f"(SELECT replicate, max(env_steps) {here} GROUP BY replicate)"
        key = self.meta.metric.removeprefix("eval/")
        column = f"episode_{key.rpartition('_')[0]}"
        if column not in ("episode_return", "episode_length"):
            column = self.columns.get(key, key)
        selected = f'list("{column}" ORDER BY episode) AS seen'
        if self.objective.metric.training_weight and stream != "report":
            selected += f', max("{self.columns.get(TRAINING_RETURN, TRAINING_RETURN)}") AS trained'
        return (
            f"SELECT replicate, {selected} {here} AND (replicate, "
            f"env_steps) IN {last} GROUP BY replicate ORDER BY replicate"
        )

    def _values_by_seed(self, sql: str) -> dict[int, float]:
        """Return the values by replicate."""
        found: dict[int, float] = {}
        for replicate, value, *trained in query(self.folder, sql)[1]:
            if isinstance(value, list):
                each = np.asarray(value, np.float64)
                metrics = {self.meta.metric.removeprefix("eval/"): each}
                if trained:
                    metrics[TRAINING_RETURN] = np.array(trained, np.float64)
                value = self.objective.measure(EvaluationResult(each, each, metrics))
            found[int(replicate)] = float(value)
        return found


@dataclass
class ClaimDifferences:
    wrong: list[str] = field(default_factory=list[str])  # values that differ, with both versions
    reworded: list[str] = field(default_factory=list[str])  # texts from a different version


_TEXTS = ("sentences", "details", "sql", "estimator", "why", "tells")
"""Keys of a claim whose text may differ in another version of hpo."""


def differences(claimed: Any, found: Any, ours: bool = True) -> ClaimDifferences:
    """Compare claims with recomputed ones; `ours`: whether this version of hpo wrote them."""
    compared = ClaimDifferences()
    _compare_claims(claimed, found, "", ours, compared)
    return compared


def _compare_claims(
    claimed: Any, found: Any, where: str, ours: bool, to: ClaimDifferences
) -> None:
    key = where.rpartition(".")[2]
    if key in _TEXTS and not ours:
        if claimed != found:
            to.reworded.append(f"{where}: written {claimed!r:.600}")
    elif is_dict(claimed) and is_dict(found):
        for name in {**found, **claimed}:
            inner = f"{where}.{name}".lstrip(".")
            _compare_claims(claimed.get(name), found.get(name), inner, ours, to)
    elif is_list(claimed) and is_list(found):
        if len(claimed) != len(found):
            count = f"{len(claimed)} claimed, but the rows give {len(found)}"
            to.wrong.append(f"{where}: {count}")
            return
        for place, (one, other) in enumerate(zip(claimed, found, strict=True)):
            _compare_claims(one, other, f"{where}[{place}]", ours, to)
    elif not _is_equal(claimed, found):
        to.wrong.append(f"{where}: claimed {claimed!r:.200}, but the rows give {found!r:.200}")


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=1e-12)
    return type(one) is type(other) and one == other
