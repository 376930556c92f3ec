"""`hpo bench`: compares search methods on tables of recorded runs."""

from __future__ import annotations

import json
import math
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...errors import ConfigError, counted
from ...files.atomic_files import write_text
from ...search.bench.bench import BenchResults, run_bench
from ...search.bench.compare import BenchComparison, BenchEstimate, Ratio, compare
from ...store.codec import finite_json
from ...studies.bench_file import read_bench
from ...studies.yaml_io import plain
from ...version import __version__
from ..arguments import path_or_none
from ..formatting import aligned, duration
from ..output import note, print_answer


def do_bench(args: Namespace) -> int:
    file, target = read_bench(args.file, args.set), path_or_none(args.to)
    if target is not None and target.suffix != ".json":
        raise ConfigError(f"--to {target}: use a name that ends in .json")
    shows_progress = sys.stderr.isatty() and not args.quiet

    def report(done: int, total: int) -> None:
        if shows_progress and 10 * done // total > 10 * (done - 1) // total:
            note(f"{done} of {total} searches")

    results = run_bench(file, args.jobs, report)
    found = compare(results)
    if target is not None:
        text = json.dumps(bench_json(results, found), indent=1, allow_nan=False)
        write_text(target, text + "\n")
        write_outcomes(target.with_suffix(".parquet"), results)
    print_answer(args.json, bench_json(results, found), bench_text(results, found))
    if target is not None:
        note(f"wrote {target} and {target.with_suffix('.parquet')}")
    return 0


def bench_json(results: BenchResults, found: BenchComparison) -> dict[str, Any]:
    return finite_json(
        {
            "hpo": __version__,
            "seconds": results.seconds,
            "jobs": results.jobs,
            "bench": {**asdict(results.file.spec), "environments": list(results.environments)},
            "methods": {name: plain(node) for name, node in results.file.methods.items()},
            **found.as_json(),
        }
    )


def write_outcomes(path: Path, results: BenchResults) -> None:
    import pyarrow as pa

    from ...store.parquet import replacing, write_grouped

    rows = [asdict(one) for one in results.outcomes]
    columns: dict[str, pa.Array] = {}
    for name in rows[0]:
        columns[name] = pa.array([row[name] for row in rows])
    table = pa.table(columns)
    with replacing(path, table.schema) as writer:
        write_grouped(writer, [table])


def bench_text(results: BenchResults, found: BenchComparison) -> str:
    spec, count = results.file.spec, len(results.environments)
    header = ("method", *map(str, spec.budgets), "env steps", "nearest")
    ratios = {one.method: one for one in found.ratios}
    rows = [_beats_row(results, found, ratios[method]) for method in results.methods]
    scored = [_score_row(results, found, method) for method in results.methods]
    apart = [name for name in results.environments if name in found.ceilings]
    tied: list[str] = []
    if apart:
        tied.append(f"Excluded, because too many configurations tie: {', '.join(apart)}.")
    tables = counted(count, "table")
    right = (False, *[True] * (len(spec.budgets) + 1), True)
    tests = counted(spec.test_seeds, "test seed")
    budgets = " to ".join(map(str, dict.fromkeys((spec.budgets[0], spec.budgets[-1]))))
    names, took = ", ".join(results.environments), duration(results.seconds)
    return "\n".join(
        [
            f"{len(results.outcomes):,} searches over {tables} ({names}) in {took}",
            "",
            aligned(header[: 1 + len(spec.budgets)], scored, right[: 1 + len(spec.budgets)]),
            "",
            "Score of the chosen configuration on the test seeds, mean over tables [95 %]:",
            "0 for the median configuration, 1 for the best one on all other recorded seeds.",
            *tied,
            "",
            aligned(header, rows, right),
            "",
            f"{budgets}: share of recorded configurations that are worse on {tests} than the",
            "chosen one / than the best one tried. A budget counts full runs of one seed, without",
            "confirm.",
            f"env steps: cost of search and confirm to match {found.baseline} at budget "
            f"{found.baseline_budget}, divided by the",
            f"cost of {found.baseline} ({found.baseline_runs:.0f} runs); geometric mean over "
            "tables [95 %].",
            "nearest: share of unrecorded trials, and their mean distance from the nearest row.",
        ]
    )


def _beats_row(results: BenchResults, found: BenchComparison, ratio: Ratio) -> tuple[str, ...]:
    """Return a method's table row: the share of configurations beaten per budget, and costs."""
    mine = [row for row in found.rows if row.method == ratio.method]
    cells: list[str] = []
    for budget in results.file.spec.budgets:
        here = [row for row in mine if row.budget == budget]
        own = sum(row.beats.value for row in here) / len(results.environments)
        best = sum(row.oracle_beats for row in here) / len(results.environments)
        cells.append(f"{own:.0%}/{best:.0%}".replace("%/", "/"))
    trials = sum(row.trials for row in mine)
    near = sum(row.trials * row.nearest for row in mine)
    far = sum(row.trials * row.nearest * row.distance for row in mine) / max(near, 1e-9)
    nearest = f"{near / max(trials, 1e-9):.0%} at {far:.2f}"
    return ratio.method, *cells, _ratio_cell(ratio), nearest


def _score_row(results: BenchResults, found: BenchComparison, method: str) -> tuple[str, ...]:
    scores = {one.budget: one.score for one in found.scores if one.method == method}
    return method, *(_score_cell(scores.get(budget)) for budget in results.file.spec.budgets)


def _score_cell(found: BenchEstimate | None) -> str:
    if found is None:
        return "-"
    if math.isnan(found.low):
        return f"{found.value:.2f}"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _ratio_cell(found: Ratio) -> str:
    def shown(value: float) -> str:
        if value < 1e3:
            return f"{value:.2f}"
        return "never"

    ratio = found.ratio
    sign = {(True, False): "<", (False, True): ">", (True, True): "~"}
    shown_sign = sign.get((found.at_most, found.at_least), "")
    return f"{shown_sign}{shown(ratio.value)} [{shown(ratio.low)}, {shown(ratio.high)}]"
