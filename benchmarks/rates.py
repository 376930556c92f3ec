"""The speed of a compiled function: medians over a few rounds, by wall time and CPU time."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable


def cpu_seconds() -> float:
    """Return the CPU seconds that this process has used so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rates(run: Callable[[], None], steps: int, rounds: int) -> dict[str, float]:
    """Return median rates over some rounds of `steps` env steps each."""
    wall, cpu = [], []
    for _ in range(rounds):
        walls, cpus = time.perf_counter(), cpu_seconds()
        run()
        wall.append(steps / (time.perf_counter() - walls))
        cpu.append(steps / (cpu_seconds() - cpus))
    return {
        "env_steps_per_second": statistics.median(wall),
        "env_steps_per_cpu_second": statistics.median(cpu),
    }
