"""How fast something compiled runs: medians of a few rounds, by the clock and by the CPU."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable


def cpu_seconds() -> float:
    """What this process has used so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rates(run: Callable[[], None], steps: int, rounds: int) -> dict[str, float]:
    """Median rates of some rounds of that many env steps each."""
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
