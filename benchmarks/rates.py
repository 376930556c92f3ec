"""The speed of a compiled function: medians over a few rounds, by wall time and CPU time."""

from __future__ import annotations

import cProfile
import pstats
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHOWN = 8  # functions of a profile


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


def profiled(run: Callable[[], Any]) -> list[list[Any]]:
    """Run something once; return the functions that take most time themselves, with shares."""
    profile = cProfile.Profile()
    profile.runcall(run)
    entries: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    own = sorted(((entry[2], place) for place, entry in entries.items()), reverse=True)
    total = sum(seconds for seconds, _ in own)
    return [[_function(*place), round(seconds / total, 4)] for seconds, place in own[:SHOWN]]


def _function(file: str, line: int, name: str) -> str:
    return name if line == 0 else f"{'/'.join(Path(file).parts[-2:])}:{name}"
