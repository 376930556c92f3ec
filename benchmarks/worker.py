"""One side of a side-by-side benchmark: reads a count of updates a line, answers with its times.

Keeping both sides alive and asking them in turn lets the ratio survive a noisy machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from rates import cpu_seconds


def serve(name: str, steps_per_update: int, compile_seconds: float, run: Callable[[int], None]):
    """Answer requests on standard input until it closes.

    Args:
        name: of this side.
        steps_per_update: env steps of one update of all its lanes.
        compile_seconds: what making the program took.
        run: does that many updates and returns when they are done.
    """
    print(json.dumps({"name": name, "compile_seconds": compile_seconds}), flush=True)
    for line in sys.stdin:
        updates = int(line)
        wall, cpu = time.perf_counter(), cpu_seconds()
        run(updates)
        answer = {
            "env_steps": updates * steps_per_update,
            "wall_seconds": time.perf_counter() - wall,
            "cpu_seconds": cpu_seconds() - cpu,
        }
        print(json.dumps(answer), flush=True)
