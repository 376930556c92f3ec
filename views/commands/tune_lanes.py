"""`hpo tune-lanes`: time a study's program with several numbers of lanes."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict

from ...search.tune import Measured, best_lanes, measure_lanes
from ...studies.load import load
from ..documents import print_json
from ..formatting import aligned, counted, duration, steps
from ..visible import echo

__all__ = ["do_tune_lanes"]


def do_tune_lanes(args: Namespace) -> int:
    """Measure, and print what to write into the study file.

    Raises:
        StudyError: the file is wrong.
        ConfigError: lanes do not divide into the devices, or the study cannot run here.
    """
    study = load(args.file, args.set)

    def told(lanes: int) -> None:
        echo(f"timing {counted(lanes, 'lane')}", file=sys.stderr)

    found = list(measure_lanes(study, args.lanes, args.seconds, told))
    best = best_lanes(found)
    if args.json:
        print_json({"lanes": best.lanes, "measured": [asdict(entry) for entry in found]})
        return 0
    echo(_table(found))
    echo("\nrollouts, updates: of one chunk; refill: added when every lane starts anew")
    echo(f"population: {{lanes: {best.lanes}}}   # the fewest within 5% of the fastest")
    return 0


def _table(found: list[Measured]) -> str:
    rows = [
        [
            str(entry.lanes), str(entry.tile), steps(round(entry.env_steps_per_second)),
            f"{entry.rollout_seconds:.3f}s", f"{entry.update_seconds:.3f}s",
            duration(entry.refill_seconds), duration(entry.compile_seconds),
            f"{entry.memory_bytes / 2**20:,.0f} MiB",
        ]
        for entry in found
    ]  # fmt: skip
    header = (
        "lanes", "tile", "env steps/s", "rollouts", "updates", "refill", "compile", "memory",
    )  # fmt: skip
    return aligned(header, rows, (True,) * len(header))
