"""Point 6: the recorded numbers of the benchmarks, against their thresholds."""

from __future__ import annotations

import json
from pathlib import Path

from .common import BENCHMARKS, Outcome

CPU_RATIO, WALL_RATIO, SWEEP_RATIO, OVERHEAD_RATIO = 1.0, 1.6, 12.0, 0.95
AGREEMENT_P = 0.01


def thresholds(small: bool, work: Path) -> Outcome:
    """Read the JSON files next to the benchmarks; a missing file fails."""
    found = [_lanes(), _sweep(), _overhead()]
    return Outcome(all(part.passed for part in found), "; ".join(part.numbers for part in found))


def _read(name: str) -> dict | None:
    path = BENCHMARKS / name
    return json.loads(path.read_text()) if path.is_file() else None


def _missing(name: str) -> Outcome:
    return Outcome(False, f"{name} has not been run")


def _lanes() -> Outcome:
    document = _read("lanes_vs_rejax.json")
    if document is None:
        return _missing("lanes_vs_rejax")
    passed, words = True, []
    for row in document["rows"]:
        wide = row["lanes"] in (16, 64)
        passed &= row["cpu_ratio"] >= CPU_RATIO
        passed &= not wide or row["wall_ratio"] >= WALL_RATIO
        words.append(f"L={row['lanes']} CPU {row['cpu_ratio']:.2f} wall {row['wall_ratio']:.2f}")
    passed &= {1, 16, 64} <= {row["lanes"] for row in document["rows"]}
    return Outcome(passed, "over rejax: " + ", ".join(words))


def _sweep() -> Outcome:
    document = _read("sweep_vs_loop.json")
    if document is None:
        return _missing("sweep_vs_loop")
    agreement = document["agreement"]
    agree = agreement and min(agreement["mean_p"], agreement["distance_p"]) >= AGREEMENT_P
    words = f"over a loop: {document['ratio']:.1f}, with ASHA {document['ratio_asha']:.1f}"
    words += ", returns " + ("agree" if agree else "do not agree or were not compared")
    return Outcome(document["ratio"] >= SWEEP_RATIO and bool(agree), words)


def _overhead() -> Outcome:
    document = _read("search_overhead.json")
    if document is None:
        return _missing("search_overhead")
    return Outcome(
        document["ratio"] >= OVERHEAD_RATIO, f"tpe over random: {document['ratio']:.3f}"
    )
