"""Search point 10: methods compared on recorded runs, by one command, within half an hour."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from .common import BENCHMARKS, ROOT, Outcome, call, hpo_command

_FOLDER = BENCHMARKS / "bench"
_MINUTES, _METHODS, _TABLES, _SEARCHES, _JOBS = 30, 6, 3, 60, 2


def bench(small: bool, work: Path) -> Outcome:
    """Compare six methods in 60 searches each on three environments; one is a custom sampler."""
    to = work / "methods.json"
    words = [
        *hpo_command(),
        "bench",
        _FOLDER / "methods.yaml",
        "--jobs",
        str(_JOBS),
        "--to",
        to,
        "--quiet",
    ]
    if small:
        words += [
            "--set",
            "bench.searches=2",
            "--set",
            "bench.budgets=[8]",
            "--set",
            "bench.baseline_budget=8",
        ]
    call(words, ROOT)
    found: dict[str, Any] = json.loads(to.read_text())
    methods, rows, minutes = found["methods"], found["rows"], found["seconds"] / 60
    searches, tables = found["bench"]["searches"], len(found["bench"]["environments"])
    custom = sum("imports" in method for method in methods.values())
    whole = len(rows) == len(methods) * tables * len(found["bench"]["budgets"])
    passed = whole and len(methods) >= _METHODS and tables == _TABLES and custom > 0
    numbers = (
        f"{len(methods)} methods ({custom} with a custom sampler) x {tables} tables x {searches} "
        f"searches x {len(found['bench']['budgets'])} budgets in {minutes:.1f} minutes on "
        f"{_JOBS} processes; env steps to reach what {found['baseline']} reaches: "
    )
    numbers += ", ".join(f"{one['method']} {_ratio(one['ratio'])}" for one in found["ratios"])
    if small:
        return Outcome(passed, numbers)
    for name in (to, to.with_suffix(".parquet")):
        shutil.copy(name, _FOLDER)
    return Outcome(passed and searches >= _SEARCHES and minutes <= _MINUTES, numbers)


def _ratio(ratio: dict[str, float | str]) -> str:
    ends = [f"{float(ratio[name]):.2f}" for name in ("value", "low", "high")]
    return f"{ends[0]} [{ends[1]}, {ends[2]}]"
