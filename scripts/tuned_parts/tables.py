"""The records in a folder as three Parquet tables, for `hpo query --study results/tuned`.

`trials` is the leaderboard: one row per configuration or heuristic, the best of each environment
first. `evaluations` has one row per seed, `curves` one per point. All are generated from the YAML
files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpo.store.parquet import replacing, write_grouped
from hpo.store.statistics import Interval
from hpo.studies.tuned.record import TUNED, Contender, TunedRecord
from hpo.studies.tuned.summary import (
    BesideHeuristic,
    TestSummary,
    beside_heuristics,
    compare,
    summary_in,
)

if TYPE_CHECKING:
    import pyarrow as pa

_FLOATS = ("greedy", "training", "area")


def write_tables(records: Sequence[TunedRecord], folder: Path) -> None:
    """Write the tables of records to their folder; equal records give equal bytes."""
    for name, table in tables_of(records).items():
        with replacing(folder / f"{name}.parquet", table.schema) as writer:
            write_grouped(writer, [table])


def tables_of(records: Sequence[TunedRecord]) -> dict[str, pa.Table]:
    import pyarrow as pa

    ordered = sorted(records, key=lambda record: record.name.lower())
    makers = {"trials": _trials, "evaluations": _evaluations, "curves": _curves}
    return {
        name: pa.Table.from_pylist(
            [row for record in ordered for row in make(record)], schema=pa.schema(_columns(name))
        )
        for name, make in makers.items()
    }


def _columns(table: str) -> list[tuple[str, pa.DataType]]:
    import pyarrow as pa

    text, whole, real = pa.string(), pa.int64(), pa.float64()
    key = [("env", text), ("who", text)]
    if table == "evaluations":
        named = [(name, real) for name in _FLOATS]
        return [*key, ("seed", whole), *named, ("env_steps_to_threshold", whole)]
    if table == "curves":
        return [*key, ("env_steps", whole), *((n, real) for n in _CURVE)]
    return [
        *key,
        ("rank", whole),
        ("verdict", text),
        ("metric", text),
        ("goal", text),
        ("estimator", text),
        *((f"{name}{end}", real) for name in _FLOATS for end in _ENDS),
        *((f"{name}_improvement{end}", real) for name in _FLOATS for end in _ENDS),
        ("threshold", real),
        ("env_steps_to_threshold", real),
        ("reached", whole),
        ("seeds", whole),
        ("diverged", whole),
        ("env_steps", whole),
        ("trained_env_steps", whole),
        ("searched_env_steps", whole),
        ("cpu_seconds", real),
        ("commit", text),
        ("made_on", text),
        ("published_by", text),
        ("published_commit", text),
    ]


_ENDS = ("", "_low", "_high")
_CURVE = ("greedy", "low", "high", "training")


def _trials(record: TunedRecord) -> list[dict[str, Any]]:
    sign = -1.0 if record.goal == "maximize" else 1.0
    found = {one.who: summary_in(record, one) for one in record.contenders}
    rows = [_trial(record, one, found[one.who]) for one in record.contenders]
    rows += [_heuristic(record, one) for one in beside_heuristics(record)]
    rows.sort(key=lambda row: sign * row["greedy"])
    return [{**row, "rank": place} for place, row in enumerate(rows, 1)]


def _of_all(record: TunedRecord, who: str, verdict: str) -> dict[str, Any]:
    return {
        "env": record.name,
        "who": who,
        "verdict": verdict,
        "metric": record.metric,
        "goal": record.goal,
        "estimator": record.estimator,
        "env_steps": record.env_steps,
        "commit": record.made.commit,
        "made_on": record.made.on,
    }


def _ends(name: str, value: float, around: Interval) -> dict[str, Any]:
    value_ = value if math.isfinite(value) else None  # tables with NaN are never equal
    return {name: value_, f"{name}_low": around.low, f"{name}_high": around.high}


def _heuristic(record: TunedRecord, one: BesideHeuristic) -> dict[str, Any]:
    return {
        **_of_all(record, one.who, one.verdict),
        **_ends("greedy", *one.greedy),
        "seeds": len(record.tuned.greedy),
        "trained_env_steps": 0,
    }


def _trial(record: TunedRecord, one: Contender, seen: TestSummary) -> dict[str, Any]:
    row = {
        **_of_all(record, one.who, ""),
        "searched_env_steps": record.origin.env_steps if one.who == TUNED else None,
        "threshold": record.threshold,
        "env_steps_to_threshold": seen.to_threshold,
        "reached": seen.reached,
        "seeds": len(one.greedy),
        "diverged": seen.diverged,
        "trained_env_steps": one.cost.env_steps,
        "cpu_seconds": one.cost.cpu_seconds,
        "published_by": one.source.get("repository"),
        "published_commit": one.source.get("commit"),
    }
    for name in _FLOATS:
        row |= _ends(name, *getattr(seen, name))
    if one.who != TUNED:
        beside = compare(record.tuned, one, record.goal)
        row["verdict"] = beside.verdict
        for name in _FLOATS:
            row |= _ends(f"{name}_improvement", *getattr(beside, name))
    return row


def _evaluations(record: TunedRecord) -> list[dict[str, Any]]:
    trained = [
        {
            "env": record.name,
            "who": one.who,
            "seed": seed,
            **{name: getattr(one, name)[seed] for name in _FLOATS},
            "env_steps_to_threshold": one.to_threshold[seed],
        }
        for one in record.contenders
        for seed in range(len(one.greedy))
    ]
    return trained + [
        {"env": record.name, "who": who, "seed": seed, "greedy": value}
        for who, values in record.heuristics.items()
        for seed, value in enumerate(values)
    ]


def _curves(record: TunedRecord) -> list[dict[str, Any]]:
    return [
        {
            "env": record.name,
            "who": one.who,
            "env_steps": at,
            **{name: getattr(one.curve, name)[place] for name in _CURVE},
        }
        for one in record.contenders
        for place, at in enumerate(one.curve.env_steps)
    ]
