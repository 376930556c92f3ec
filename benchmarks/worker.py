"""One side of a side-by-side benchmark: reads a number of updates per line, replies with times.

Both sides stay alive and take turns, so that the ratio is reliable even on a noisy machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from rates import cpu_seconds


def serve(name: str, steps_per_update: int, compile_seconds: float, run: Callable[[int], None]):
    """Reply to requests on standard input until it closes.

    Args:
        name: name of this side.
        steps_per_update: env steps of one update of all its lanes.
        compile_seconds: time to create the program.
        run: runs that many updates and returns when they are done.
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
