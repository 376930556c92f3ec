#!/usr/bin/env python3
"""Seeds saved by an interim look, its power and error rate; shorter tests; training returns.

    benchmarks/bench/interim.py          writes benchmarks/bench/interim.json

A search has the default and 40 recorded configurations. The best by two seeds is tested against
the default on 16 seeds, drawn from the eight others: all at once, or with a look at 8 of them. For
error rates, the sign of every difference is random, so that the true difference is 0.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from hpo.search.bench.tables import read_table
from hpo.store.comparison import decided_pairs

ROOT = Path(__file__).resolve().parents[2]
SEEDS, INTERIM, TRIALS = 16, 8, 40


def verdict(
    ours: np.ndarray, theirs: np.ndarray, look: int | None, interim: bool = True
) -> tuple[str, int]:
    """Return the verdict and the number of seeds used, as in `search/engine/confirm.py`."""
    if look is not None:
        first = decided_pairs(ours[:look].tolist(), theirs[:look].tolist(), (), interim=interim)
        if first.verdict in ("better", "worse") or ours[:look].mean() <= theirs[:look].mean():
            return first.verdict, look
    before = () if look is None else (look,)
    last = decided_pairs(
        ours.tolist(), theirs.tolist(), before, interim=interim and look is not None
    )
    return last.verdict, len(ours)


def measured(folder: Path, searches: int) -> dict[str, dict[str, float]]:
    table, rng = read_table(folder), np.random.default_rng(1)
    ends = table.finals * (1.0 if table.goal == "maximize" else -1.0)
    shown = table.curves["episode_return_100"][:, :, -1]
    values = np.where(np.isfinite(shown), 0.5 * ends + 0.5 * shown, ends)
    ways = {"at once": (None, True), "with a look": (INTERIM, True), "4 % first": (INTERIM, False)}
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    for _ in range(searches):
        order = rng.permutation(table.seeds)
        tried = np.r_[0, rng.choice(np.arange(1, len(ends)), TRIALS, replace=False)]
        best = tried[values[tried][:, order[:2]].mean(1).argmax()]
        if best == 0:
            continue
        seeds = rng.choice(order[2:], SEEDS)
        ours, theirs = ends[best, seeds], ends[0, seeds]
        flips = rng.integers(0, 2, SEEDS).astype(bool)
        equal = np.where(flips, ours, theirs), np.where(flips, theirs, ours)
        for name, way in ways.items():
            found, used = verdict(ours, theirs, *way)
            wrong, _ = verdict(*equal, *way)
            rows[name].append((found == "better", used, wrong in ("better", "worse")))
    names = ("better", "seeds", "wrong")
    return {
        name: {
            key: round(float(np.mean([row[at] for row in some])), 4)
            for at, key in enumerate(names)
        }
        for name, some in rows.items()
    }


SHORTER = {"16, look at 8": (16, None), "16, look at 8, not ahead at 6": (16, 6),
           "12, look at 8": (12, None), "12, look at 8, not ahead at 6": (12, 6)}  # fmt: skip


def shorter(folder: Path, searches: int) -> dict[str, tuple[float, float]]:
    """Return how often a test gives "better", and its seeds; some end if not ahead at 6 seeds.

    It compares the best of 40 by two seeds with the default, on all recorded seeds but these two.
    """
    table, rng = read_table(folder), np.random.default_rng(3)
    ends = table.finals * (1.0 if table.goal == "maximize" else -1.0)
    rows: dict[str, list[tuple[bool, int]]] = {name: [] for name in SHORTER}
    for _ in range(searches):
        order = rng.permutation(table.seeds)
        tried = np.r_[0, rng.choice(np.arange(1, len(ends)), TRIALS, replace=False)]
        best = tried[ends[tried][:, order[:2]].mean(1).argmax()]
        if best == 0:
            continue
        seeds = rng.choice(order[2:], SEEDS)
        ours, theirs = ends[best, seeds], ends[0, seeds]
        for name, (report, early) in SHORTER.items():
            if early is not None and ours[:early].mean() <= theirs[:early].mean():
                rows[name].append((False, early))
                continue
            found, used = verdict(ours[:report], theirs[:report], INTERIM)
            rows[name].append((found == "better", used))
    return {name: tuple(np.mean(some, axis=0)) for name, some in rows.items() if some}


def choices(folder: Path, searches: int) -> dict[str, float]:
    """Return the value of the best of 40 by two seeds, with and without training returns."""
    table, rng = read_table(folder), np.random.default_rng(2)
    sign, shown = 1.0 if table.goal == "maximize" else -1.0, table.curves["episode_return_100"]
    ends, trained = sign * table.finals, shown[:, :, -1]
    by = {
        "evaluations": ends,
        "half training": np.where(np.isfinite(trained), 0.5 * ends + 0.5 * trained, ends),
    }
    found: dict[str, list[float]] = {name: [] for name in by}
    for _ in range(searches):
        order = rng.permutation(table.seeds)
        tried = rng.choice(len(ends), TRIALS, replace=False)
        for name, values in by.items():
            best = tried[values[tried][:, order[:2]].mean(1).argmax()]
            found[name].append(sign * float(ends[best, order[2:]].mean()))
    gain = np.subtract(found["half training"], found["evaluations"])
    means = {name: round(float(np.mean(some)), 4) for name, some in found.items()}
    return {
        **means,
        "gain": round(float(gain.mean()), 4),
        "error": round(float(gain.std() / len(gain) ** 0.5), 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--searches", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    tables = sorted(path.parent for path in (ROOT / "results" / "atlas").glob("*/trials.parquet"))
    found = {folder.name: measured(folder, args.searches) for folder in tables}
    held_out = sorted(
        one.parent for one in (ROOT / "results" / "held_out").glob("*/trials.parquet")
    )
    chosen = {folder.name: choices(folder, args.searches) for folder in (*tables, *held_out)}
    tests = [shorter(folder, args.searches // 4) for folder in (*tables, *held_out)]
    means = {
        name: np.mean([one[name] for one in tests if one], axis=0).round(3).tolist()
        for name in SHORTER
    }
    data = {"searches": args.searches, "tables": found, "choices": chosen, "shorter": means}
    args.out.write_text(json.dumps(data, indent=1) + "\n")
    for name, row in {**found, **{f"choices {name}": row for name, row in chosen.items()}}.items():
        print(name, row)
    print(means)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
