"""Point 10: the time until help is printed, and until a study's first metrics."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from .common import ROOT, Outcome, call, hpo_command

HELP_SECONDS, COLD_SECONDS, WARM_SECONDS = 0.3, 20.0, 8.0
_STATUS = "| lanes "  # appears in the line printed at the first chunk


def first_words(small: bool, work: Path) -> Outcome:
    """Time `hpo --help`, and `hpo run` until its first status line, with cold and warm cache."""
    call([*hpo_command(), "--help"], work)
    helps = []
    for _ in range(5):
        started = time.perf_counter()
        call([*hpo_command(), "--help"], work)
        helps.append(time.perf_counter() - started)
    cold = seconds_to_first_metrics(work, "cold")
    warm = seconds_to_first_metrics(work, "warm")
    passed = min(helps) < HELP_SECONDS and cold < COLD_SECONDS and warm < WARM_SECONDS
    numbers = f"--help {min(helps):.2f} s (at most {max(helps):.2f}); "
    numbers += f"first metrics of studies/cartpole.yaml: {cold:.1f} s cold, {warm:.1f} s warm"
    return Outcome(passed, numbers)


def seconds_to_first_metrics(work: Path, out: str) -> float:
    """Start `hpo run`, wait for the first status line, and kill it."""
    words = [*hpo_command(), "run", str(ROOT / "studies" / "cartpole.yaml"), "--out", out]
    environment = {**os.environ, "XDG_CACHE_HOME": str(work / "cache")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    started = time.perf_counter()
    process = subprocess.Popen(
        words,
        cwd=work,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line.strip())
        if _STATUS in line:
            seconds = time.perf_counter() - started
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return seconds
    raise RuntimeError(f"`hpo run` ended without a status line: {' / '.join(seen[-3:])}")
