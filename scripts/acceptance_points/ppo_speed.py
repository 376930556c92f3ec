"""PPO, point 5: the cost of features for users who do not use them; speed of heavy networks."""

from __future__ import annotations

import json
from pathlib import Path

from .common import BENCHMARKS, Outcome

LEAST, TIMES_XLRON = 0.95, 2.0


def speed(small: bool, work: Path) -> Outcome:
    """Read the JSON files of benchmarks/features.py and networks.py; a missing file fails."""
    passed, words = True, []
    for name, judge in (("features", _features), ("networks", _networks)):
        path = BENCHMARKS / f"{name}.json"
        outcome = Outcome(False, f"benchmarks/{name}.py has not been run")
        if path.is_file():
            outcome = judge(json.loads(path.read_text()))
        passed &= outcome.passed
        words.append(outcome.numbers)
    return Outcome(passed, "; ".join(words))


def _features(found: dict) -> Outcome:
    rows = [row for row in found["rows"] if row["what"].startswith("plain over")]
    words = [
        f"{row['case']} CPU {row['cpu_ratio']:.3f} wall {row['wall_ratio']:.3f}" for row in rows
    ]
    held = bool(rows) and all(row["cpu_ratio"] >= LEAST for row in rows)
    return Outcome(held, f"without features over {found['before']}: {', '.join(words)}")


def _networks(found: dict) -> Outcome:
    if "rejax" not in found:
        return Outcome(False, "benchmarks/networks.py has not been run beside rejax")
    held, words = True, []
    for row in found["rows"]:
        held &= row["times_xlron"] >= TIMES_XLRON
        words.append(
            f"{row['what']}: {row['env_steps_per_second']:.0f} env steps/s, "
            f"{row['times_xlron']:.2f} times XLRON scaled by rejax, {row['share_of_ceiling']:.0%} "
            f"of its products, compile {row['compile_seconds']:.0f} s"
        )
    return Outcome(held and len(found["rows"]) >= 2, "; ".join(words))
