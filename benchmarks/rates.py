"""The speed of a compiled function: medians over a few rounds, by wall time and CPU time."""

from __future__ import annotations

import cProfile
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType
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
    entries = sorted(profile.getstats(), key=lambda entry: entry.inlinetime, reverse=True)
    total = sum(entry.inlinetime for entry in entries)
    shown = entries[:SHOWN]
    return [[_function_name(entry.code), round(entry.inlinetime / total, 4)] for entry in shown]


def _function_name(code: CodeType | str) -> str:
    """Return the last folder, file and name of a function; builtins have a text of their own."""
    if isinstance(code, str):
        return code
    return f"{'/'.join(Path(code.co_filename).parts[-2:])}:{code.co_name}"
