"""What a study says about its winner: each sentence with SQL, an estimator, and its numbers.

The numbers come from the tables by the SQL, the sentences from the journal, as in `hpo top`. To
verify a bundle, both are made again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import StoreError
from ...files.plain_data import is_dict, is_list
from ...search.analysis.checkpoint_values import ranking_objective
from ...search.analysis.verdict import ceiling_of, conclusion_of, constraint_samples
from ...search.lanes.contract import EvaluationResult
from ...search.state.objective import TRAINING_RETURN, Objective
from ...store.codec import finite_json
from ...store.interim_analyses import Look, begins_interim, looks_of, winners_looks
from ...store.journal import Journal
from ...store.leaderboard import Entry, default_of, leaderboard_of
from ...store.query import query
from ...store.rows import StudyMeta, TrialRow, as_left
from ...store.statistics import aggregate, interval
from ...store.tables import episode_columns
from ...store.value_bounds import value_bounds
from ...store.verdict import Against, ConstraintSamples, conclude
from ...store.verdict_text import as_json, details
from ...studies.load import recorded
from ...studies.spec import value_words
from ...studies.yaml_io import plain, read_text
from ..formatting import seeds_text, unit_of, with_interval
from ..leaderboard_text import named, winner_line

_MEAN = "hpo.store.statistics: aggregate, interval (95 %)"
_VERDICT = "hpo.store.verdict: conclude (paired; 95 % over all looks)"
_COST = (
    "SELECT (SELECT sum(steps) FROM (SELECT max(env_steps) AS steps FROM curves GROUP BY trial, "
    "stream, replicate)) AS trained, (SELECT sum(episode_length) FROM evaluations) AS evaluated"
)
_VALUES = {"report": "report_values", "choose": "choose_values", "search": "seed_values"}
_CLOSE = 1e-9  # versions of NumPy may sum in another order


def claims_of(folder: Path, trial: int | None = None) -> dict[str, Any]:
    """Return the claims about a trial (None: the best) and about the study, as JSON data."""
    with Journal(folder) as journal, journal.at_one_commit():
        rows, meta = as_left(journal.trials()), journal.meta
        entries, conclusion = leaderboard_of(meta, rows), conclusion_of(journal)
        objective = ranking_objective(journal)
        looks, columns = looks_of(journal.attributes()), episode_columns(journal)
        default = default_of(rows)
        limited = [
            constraint_samples(journal, rows, one.trial, default and default.trial)
            for one in entries
            if trial in (None, one.trial)
        ][:1]
    first = next((one for one in entries if trial in (None, one.trial)), None)
    if first is None:
        raise StoreError(f"study {meta.name!r} has no trial{'' if trial is None else f' {trial}'}")
    asked, by_number = recorded(meta.study_text), {row.trial: row for row in rows}
    tables = _Tables(folder, meta, columns, objective)
    metric = value_words(asked, alone=not objective.metric.training_weight)
    best = first is entries[0]
    claims, sql = list[dict[str, Any]](), "FROM trials ORDER BY rank"
    if first.measured_value is not None and (value := tables.value(first)) is not None:
        said, (sql, numbers) = winner_line(entries, metric), value
        if not best:
            shown = with_interval(first.measured_value, first.ci_low, first.ci_high)
            seeds = seeds_text(first.measured_seeds, first.measured_from)
            name = named(metric, first.measured_from)
            said = f"Trial {first.trial} has rank {first.rank}: {name} {shown} on {seeds}."
        claims.append(_claim(said, sql, _MEAN, numbers))
    sentences = [*conclusion.said, *details(conclusion)] if best else []
    numbers = {"verdict": conclusion.verdict}
    if default is not None and default.trial != first.trial:
        pair = tables.against(by_number[first.trial], default, looks, limited[0])
        if pair is not None:
            sql, against = pair
            numbers = asdict(against)
            said = f"Trial {first.trial} against the default: {against.verdict}."
            sentences = sentences or [said]
    claims += [_claim(said, sql, _VERDICT, numbers) for said in sentences]
    _, [spent] = query(folder, _COST)
    trained, evaluated = (int(count or 0) for count in spent)
    said = f"Training took {trained:,} {unit_of(meta.study_text)}"
    said += f", evaluations {evaluated:,} env steps." if evaluated else "."
    claims.append(_claim(said, _COST, "sum", {"trained": trained, "evaluated": evaluated}))
    ran_with = {name: getattr(meta, name) for name in ("versions", "backend", "devices", "files")}
    ran_with["study"] = (folder / "study.resolved.yaml").read_text() == meta.study_text
    study = {"study": meta.name, "trial": first.trial, "ran_with": ran_with}
    study |= {"env_steps": first.env_steps, "train_seconds": by_number[first.trial].train_seconds}
    return finite_json({**study, "claims": claims, "conclusion": as_json(conclusion)})


def _claim(said: str, sql: str, estimator: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {"sentence": said, "sql": sql, "estimator": estimator, "numbers": numbers}


@dataclass(frozen=True)
class _Tables:
    folder: Path
    meta: StudyMeta
    columns: Mapping[str, str]  # metric of the environment -> column
    objective: Objective

    def value(self, entry: Entry) -> tuple[str, dict[str, Any]] | None:
        """Return SQL and numbers of a trial's value; None without rows."""
        sql = self._sql(entry.trial, entry.measured_from)
        found = [*self._seeds(sql).values()]
        if not found:
            return None
        how = self.meta.aggregate if entry.measured_from == "search" else "mean"
        numbers = {"value": aggregate(found, how), "seeds": len(found)}
        if entry.ci_low is not None:
            around = value_bounds(self.meta).around(interval(found, how))
            numbers |= {"low": around.low, "high": around.high}
        return sql, numbers

    def against(
        self,
        row: TrialRow,
        default: TrialRow,
        looks: Sequence[Look],
        limited: ConstraintSamples | None,
    ) -> tuple[str, Against] | None:
        """Return SQL and result of a trial and the default on shared test seeds; None without."""
        ours, theirs = (self._sql(one.trial, "report") for one in (row, default))
        a, b = (
            self._seeds(sql) | dict.fromkeys(one.report_diverged, math.nan)
            for sql, one in ((ours, row), (theirs, default))
        )
        if not (both := a.keys() & b.keys()) or "report" in (*row.copies, *default.copies):
            return None
        study = plain(read_text(self.meta.study_text, "study.resolved.yaml"))
        found = conclude(
            a, b, goal=self.meta.goal, bounds=value_bounds(self.meta),
            ceiling=ceiling_of(study, self.meta), constraints=limited,
            earlier=winners_looks(looks, row.trial, default.trial, len(both)),
            interim=begins_interim(looks),
        )  # fmt: skip
        sql = f"SELECT replicate, a.seen AS ours, b.seen AS theirs FROM ({ours}) a JOIN "
        return f"{sql}({theirs}) b USING (replicate) ORDER BY replicate", found.against

    def _sql(self, trial: int, stream: str) -> str:
        """Return SQL for `replicate` and `seen`, its last value or the episodes behind it.

        Where training returns count, `trained` has them.
        """
        if self.meta.environments:  # one score of several environments
            name = _VALUES.get(stream, "seed_values")
            lost = "report_diverged" if stream == "report" else "[]::BIGINT[]"
            seeds = f"range(len({name}) + len({lost}))"
            seeds = f"[s FOR s IN {seeds} IF NOT list_contains({lost}, s)]"
            shown = f"unnest({seeds}) AS replicate, unnest({name}) AS seen"
            return f"SELECT {shown} FROM trials WHERE trial = {trial}"
        here = f"FROM evaluations WHERE trial = {trial} AND stream = '{stream}'"
        last = f"(SELECT replicate, max(env_steps) {here} GROUP BY replicate)"
        key = self.meta.metric.removeprefix("eval/")
        quantity = f"episode_{key.rpartition('_')[0]}"
        known = quantity in ("episode_return", "episode_length")
        column = quantity if known else self.columns.get(key, key)
        seen = f'list("{column}" ORDER BY episode) AS seen'
        if self.objective.metric.training_weight and stream != "report":
            seen += f', max("{self.columns.get(TRAINING_RETURN, TRAINING_RETURN)}") AS trained'
        return (
            f"SELECT replicate, {seen} {here} AND (replicate, "
            f"env_steps) IN {last} GROUP BY replicate ORDER BY replicate"
        )

    def _seeds(self, sql: str) -> dict[int, float]:
        """Return replicate -> value."""
        found: dict[int, float] = {}
        for replicate, seen, *trained in query(self.folder, sql)[1]:
            if isinstance(seen, list):
                each = np.asarray(seen, np.float64)
                metrics = {self.meta.metric.removeprefix("eval/"): each}
                metrics |= {TRAINING_RETURN: np.array(trained, np.float64)} if trained else {}
                seen = self.objective.measure(EvaluationResult(each, each, metrics))
            found[int(replicate)] = float(seen)
        return found


def differences(claimed: Any, found: Any, where: str = "") -> Iterator[str]:
    """Yield each place where what is claimed is not what the rows give, with both."""
    if is_dict(claimed) and is_dict(found):
        for key in {**found, **claimed}:
            yield from differences(claimed.get(key), found.get(key), f"{where}.{key}".lstrip("."))
    elif is_list(claimed) and is_list(found) and len(claimed) == len(found):
        for place, (one, other) in enumerate(zip(claimed, found, strict=True)):
            yield from differences(one, other, f"{where}[{place}]")
    elif not _equal(claimed, found):
        yield f"{where}: claimed {claimed!r:.200}, the rows give {found!r:.200}"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=1e-12)
    return type(one) is type(other) and one == other
