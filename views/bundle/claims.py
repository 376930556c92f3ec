"""What a study says about its winner: each sentence with SQL, an estimator, and its numbers.

`claims_of` reads a study's folder, or an unpacked bundle. The numbers come from `evaluations` and
`curves` by the SQL, the sentences from the journal, as in `hpo top`; both are made again to verify.
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
from ...store.leaderboard import Entry, default_of, leaderboard_of
from ...store.query import query
from ...store.rows import StudyMeta, as_left
from ...store.statistics import aggregate, interval
from ...store.tables import episode_columns
from ...store.value_bounds import value_bounds
from ...store.verdict import conclude
from ...store.verdict_text import as_json, details
from ...studies.yaml_io import plain, read_text
from ..formatting import with_interval
from ..leaderboard_text import seeds_text, winner_line

MEAN = "hpo.store.statistics: aggregate, interval (95 %)"
VERDICT = "hpo.store.verdict: conclude (paired; 95 % over all looks)"
_COST = (
    "SELECT (SELECT sum(steps) FROM (SELECT max(env_steps) AS steps FROM curves GROUP BY trial, "
    "stream, replicate)) AS trained, (SELECT sum(episode_length) FROM evaluations) AS evaluated"
)
_VALUES = {"report": "report_values", "choose": "choose_values", "search": "seed_values"}
_QUANTITIES = ("episode_return", "episode_length")
_CLOSE = 1e-9  # versions of NumPy may sum in another order


def claims_of(folder: Path, trial: int | None = None) -> dict[str, Any]:
    """Return the claims about a trial (None: the best) and about the study, as JSON data."""
    with Journal(folder) as journal, journal.at_one_commit():
        meta, rows = journal.meta, as_left(journal.trials())
        entries, conclusion = leaderboard_of(meta, rows), conclusion_of(journal)
        looks = looks_of(journal.attributes())
        columns = episode_columns(journal)
    first = next((one for one in entries if trial in (None, one.trial)), None)
    if first is None:
        raise StoreError(f"study {meta.name!r} has no trial{'' if trial is None else f' {trial}'}")
    by_number = {row.trial: row for row in rows}
    claims: list[dict[str, Any]] = []
    value_sql = _seeds_sql(meta, first.trial, first.measured_from, columns)
    found = list(_seeds(meta, folder, value_sql).values())
    if first.measured_value is not None and found:
        how = meta.aggregate if first.measured_from == "search" else "mean"
        around = value_bounds(meta).around(interval(found, how))
        numbers = {"value": aggregate(found, how), "seeds": len(found)}
        if first.ci_low is not None:
            numbers |= {"low": around.low, "high": around.high}
        said = winner_line(entries, meta.metric) if first is entries[0] else _line(first, meta)
        claims.append(_claim(said, value_sql, MEAN, numbers))
    default = default_of(rows)
    sql, numbers = value_sql, dict[str, Any](verdict=conclusion.verdict)
    if default is not None and default.trial != first.trial and default.report_values:
        other_sql = _seeds_sql(meta, default.trial, "report", columns)
        own_sql = _seeds_sql(meta, first.trial, "report", columns)
        ours, theirs = (_seeds(meta, folder, one) for one in (own_sql, other_sql))
        lost = by_number[first.trial].report_diverged
        ours |= dict.fromkeys(lost, math.nan)
        theirs |= dict.fromkeys(default.report_diverged, math.nan)
        both = len(ours.keys() & theirs.keys())
        against = conclude(
            ours,
            theirs,
            goal=meta.goal,
            name=f"trial {first.trial}",
            bounds=value_bounds(meta),
            ceiling=ceiling_of(plain(read_text(meta.study_text, "study.resolved.yaml")), meta),
            earlier=winners_looks(looks, first.trial, default.trial, both),
        ).against
        if ours and against.seeds:
            numbers = asdict(against)
            sql = f"SELECT replicate, a.seen AS trial_{first.trial}, b.seen AS the_default FROM "
            sql += f"({own_sql}) a JOIN ({other_sql}) b USING (replicate) ORDER BY replicate"
    sentences = [*conclusion.said, *details(conclusion)] if first is entries[0] else []
    if not sentences and sql != value_sql:
        sentences = [f"Trial {first.trial} against the default: {numbers['verdict']}."]
    claims += [_claim(said, sql, VERDICT, numbers) for said in sentences]
    _, [(trained, evaluated)] = query(folder, _COST)
    spent = {"trained": int(trained or 0), "evaluated": int(evaluated or 0)}
    said = f"Training took {spent['trained']:,} env steps, evaluations {spent['evaluated']:,}."
    claims.append(_claim(said, _COST, "sum", spent))
    found = {"study": meta.name, "trial": first.trial, "claims": claims}
    return finite_json({**found, "conclusion": as_json(conclusion)})


def _claim(said: str, sql: str, estimator: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {"sentence": said, "sql": sql, "estimator": estimator, "numbers": numbers}


def _line(entry: Entry, meta: StudyMeta) -> str:
    value = with_interval(entry.measured_value, entry.ci_low, entry.ci_high)
    seeds = seeds_text(entry.measured_seeds, entry.measured_from)
    return f"Trial {entry.trial} has rank {entry.rank}: {meta.metric} {value} on {seeds}."


def _seeds_sql(meta: StudyMeta, trial: int, stream: str, columns: Mapping[str, str]) -> str:
    """Return SQL for what each seed showed last: `replicate`, `seen` (a value, or episodes)."""
    if meta.environments:  # a score of several environments
        name = _VALUES.get(stream, "seed_values")
        seeds = f"range(len({name}) + len(report_diverged))"
        seeds = f"[s FOR s IN {seeds} IF NOT list_contains(report_diverged, s)]"
        seeds = seeds if stream == "report" else f"range(len({name}))"
        return f"SELECT unnest({seeds}) AS replicate, unnest({name}) AS seen FROM trials WHERE trial = {trial}"
    here = f"FROM evaluations WHERE trial = {trial} AND stream = '{stream}'"
    last = f"(SELECT replicate, max(env_steps) {here} GROUP BY replicate)"
    key = meta.metric.removeprefix("eval/")
    quantity = f"episode_{key.rpartition('_')[0]}"
    column = quantity if quantity in _QUANTITIES else columns.get(key, key)
    return (
        f'SELECT replicate, list("{column}" ORDER BY episode) AS seen {here} AND (replicate, '
        f"env_steps) IN {last} GROUP BY replicate ORDER BY replicate"
    )


def _seeds(meta: StudyMeta, folder: Path, sql: str) -> dict[int, float]:
    """Return replicate -> value."""
    _, rows = query(folder, sql)
    if meta.environments:
        return {int(replicate): float(value) for replicate, value in rows}
    found: dict[int, float] = {}
    for replicate, episodes in rows:
        seen = np.asarray(episodes, np.float64)
        each = EvaluationResult(seen, seen, {meta.metric.removeprefix("eval/"): seen})
        found[int(replicate)] = measure(meta.metric, each)
    return found


def differences(claimed: Any, found: Any, where: str = "") -> Iterator[str]:
    """Yield each place where what is claimed is not what the rows give, with both."""
    if is_dict(claimed) and is_dict(found):
        for key in {**found, **claimed}:
            inside = f"{where}.{key}" if where else str(key)
            yield from differences(claimed.get(key), found.get(key), inside)
    elif is_list(claimed) and is_list(found) and len(claimed) == len(found):
        for place, (one, other) in enumerate(zip(claimed, found, strict=True)):
            yield from differences(one, other, f"{where}[{place}]")
    elif not _equal(claimed, found):
        yield f"{where}: claimed is {claimed!r:.200}, the rows give {found!r:.200}"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float | int) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=1e-12)
    return type(one) is type(other) and one == other
