"""What a study says about its winner: each sentence with SQL, an estimator, and its numbers.

The numbers come from the tables by the SQL, the sentences from the journal, as in `hpo top`. To
verify a bundle, both are made again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import StoreError
from ...files.plain_data import is_dict, is_list
from ...search.analysis.verdict import ceiling_of, conclusion_of
from ...search.lanes.contract import EvaluationResult
from ...search.state.objective import measure
from ...store.codec import finite_json
from ...store.interim_analyses import looks_of, winners_looks
from ...store.journal import Journal
from ...store.leaderboard import default_of, leaderboard_of
from ...store.query import query
from ...store.rows import StudyMeta, as_left
from ...store.statistics import aggregate, interval
from ...store.tables import episode_columns
from ...store.value_bounds import value_bounds
from ...store.verdict import Against, conclude
from ...store.verdict_text import as_json, details
from ...studies.yaml_io import plain, read_text
from ..formatting import seeds_text, with_interval
from ..leaderboard_text import winner_line

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
        meta, rows = journal.meta, as_left(journal.trials())
        entries, conclusion = leaderboard_of(meta, rows), conclusion_of(journal)
        looks, columns = looks_of(journal.attributes()), episode_columns(journal)
    first = next((one for one in entries if trial in (None, one.trial)), None)
    if first is None:
        raise StoreError(f"study {meta.name!r} has no trial{'' if trial is None else f' {trial}'}")
    claims: list[dict[str, Any]] = []

    def claim(said: str, sql: str, estimator: str, numbers: Mapping[str, Any]) -> None:
        parts = {"sentence": said, "sql": sql, "estimator": estimator}
        claims.append({**parts, "numbers": numbers})

    sql = _seeds_sql(meta, first.trial, first.measured_from, columns)
    if first.measured_value is not None and (found := [*_seeds(meta, folder, sql).values()]):
        how = meta.aggregate if first.measured_from == "search" else "mean"
        numbers = {"value": aggregate(found, how), "seeds": len(found)}
        if first.ci_low is not None:
            around = value_bounds(meta).around(interval(found, how))
            numbers |= {"low": around.low, "high": around.high}
        said = winner_line(entries, meta.metric)
        if first is not entries[0]:
            value = with_interval(first.measured_value, first.ci_low, first.ci_high)
            seeds = seeds_text(first.measured_seeds, first.measured_from)
            said = f"Trial {first.trial} has rank {first.rank}: {meta.metric} {value} on {seeds}."
        claim(said, sql, _MEAN, numbers)
    default, numbers = default_of(rows), {"verdict": conclusion.verdict}
    said = [*conclusion.said, *details(conclusion)] if first is entries[0] else []
    if default is not None and default.trial != first.trial:
        ours, theirs = (
            _seeds_sql(meta, one, "report", columns) for one in (first.trial, default.trial)
        )
        samples = (_seeds(meta, folder, ours), _seeds(meta, folder, theirs))
        for row in rows:
            if row.trial in (first.trial, default.trial):
                lost = dict.fromkeys(row.report_diverged, math.nan)
                samples[row.trial == default.trial].update(lost)
        both = len(samples[0].keys() & samples[1].keys())
        earlier = winners_looks(looks, first.trial, default.trial, both)
        if both and all(samples):
            against = _against(meta, *samples, earlier)
            numbers = asdict(against)
            sql = f"SELECT replicate, a.seen AS ours, b.seen AS theirs FROM ({ours}) a JOIN "
            sql += f"({theirs}) b USING (replicate) ORDER BY replicate"
            said = said or [f"Against the default trial {first.trial} is {against.verdict}."]
    for one in said:
        claim(one, sql, _VERDICT, numbers)
    _, [spent] = query(folder, _COST)
    trained, evaluated = (int(count or 0) for count in spent)
    said = f"Training took {trained:,} env steps, evaluations {evaluated:,}."
    claim(said, _COST, "sum", {"trained": trained, "evaluated": evaluated})
    ran_with = {name: getattr(meta, name) for name in ("versions", "backend", "devices", "files")}
    ran_with["study"] = (folder / "study.resolved.yaml").read_text() == meta.study_text
    seconds = next(row.train_seconds for row in rows if row.trial == first.trial)
    study = {"study": meta.name, "trial": first.trial, "ran_with": ran_with}
    study |= {"env_steps": first.env_steps, "train_seconds": seconds}
    return finite_json({**study, "claims": claims, "conclusion": as_json(conclusion)})


def _against(
    meta: StudyMeta, ours: Mapping[int, float], theirs: Mapping[int, float], earlier: Any
) -> Against:
    top = ceiling_of(plain(read_text(meta.study_text, "study.resolved.yaml")), meta)
    how = {"goal": meta.goal, "bounds": value_bounds(meta), "ceiling": top, "earlier": earlier}
    return conclude(ours, theirs, **how).against


def _seeds_sql(meta: StudyMeta, trial: int, stream: str, columns: Mapping[str, str]) -> str:
    """Return SQL for what each seed showed last: `replicate`, `seen` (a value, or episodes)."""
    if meta.environments:  # one score of several environments
        name = _VALUES.get(stream, "seed_values")
        lost = "report_diverged" if stream == "report" else "[]::BIGINT[]"
        seeds = f"range(len({name}) + len({lost}))"
        seeds = f"[s FOR s IN {seeds} IF NOT list_contains({lost}, s)]"
        shown = f"unnest({seeds}) AS replicate, unnest({name}) AS seen"
        return f"SELECT {shown} FROM trials WHERE trial = {trial}"
    here = f"FROM evaluations WHERE trial = {trial} AND stream = '{stream}'"
    last = f"(SELECT replicate, max(env_steps) {here} GROUP BY replicate)"
    key = meta.metric.removeprefix("eval/")
    quantity = f"episode_{key.rpartition('_')[0]}"
    column = quantity if quantity[8:] in ("return", "length") else columns.get(key, key)
    return (
        f'SELECT replicate, list("{column}" ORDER BY episode) AS seen {here} AND (replicate, '
        f"env_steps) IN {last} GROUP BY replicate ORDER BY replicate"
    )


def _seeds(meta: StudyMeta, folder: Path, sql: str) -> dict[int, float]:
    """Return replicate -> value."""
    found: dict[int, float] = {}
    for replicate, seen in query(folder, sql)[1]:
        if isinstance(seen, list):
            each = np.asarray(seen, np.float64)
            key = meta.metric.removeprefix("eval/")
            seen = measure(meta.metric, EvaluationResult(each, each, {key: each}))
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
