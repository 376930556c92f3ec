"""Answers point 4: a study with six programs and few trials keeps its lanes busy.

It runs twice, each time with an empty cache of compiled programs: once unchanged, and once with
every program compiled only when it is needed. The second run separates compiling from training,
which gives the least share of time that compiling can take in a study on this machine.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .common import Outcome, call

BUSY, COMPILING = 0.60, 1 / 3
_TOLERANCE = 0.05
_STUDY = """
name: buckets
env: CartPole-v1
env_steps: {env_steps}
fixed: {{num_envs: 8, num_minibatches: 4}}
space:
  learning_rate: {{min: 1e-4, max: 1e-2, distribution: log_uniform}}
  ent_coef: {{min: 1e-4, max: 1e-1, distribution: log_uniform}}
  hidden_sizes: {{values: {sizes}}}
  rollout_length: {{values: [32, 64]}}
search: {{method: random}}
seeds: {{per_config: {seeds}}}
budget: {{trials: {trials}}}
"""
_CHILD = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from hpo.search.api import run
from hpo.search.engine.engine import CompileBeside
if sys.argv[3] == "apart":
    CompileBeside.begin = lambda self, population: None
results = run(Path(sys.argv[1]), Path(sys.argv[2]))
values = {entry.trial: entry.values for entry in results.leaderboard}
usage = results.usage
print(json.dumps({**asdict(usage), "occupancy": usage.occupancy, "values": values}))
"""


@dataclass(frozen=True)
class Size:
    """A study: its runs, its hidden sizes (two programs each), its seeds and trials."""

    env_steps: int
    sizes: tuple[tuple[int, ...], ...]
    seeds: int
    trials: int


_FULL = Size(65_536, ((32, 32), (64, 64), (128, 128)), 3, 24)
_SMALL = Size(4_096, ((8,),), 3, 8)


def buckets(small: bool, work: Path) -> Outcome:
    """Measure the busy lanes and the time spent waiting for compiles; values must not change."""
    size = _SMALL if small else _FULL
    beside, apart = (_run(size, work, how) for how in ("beside", "apart"))
    programs = 2 * len(size.sizes)
    share = beside["compile_seconds"] / beside["run_seconds"]
    least = least_share(apart, programs)
    bound = max(COMPILING, least + _TOLERANCE)
    same = beside["values"] == apart["values"] and len(beside["values"]) == size.trials
    numbers = (
        f"{size.trials} trials x {size.seeds} seeds in {programs} programs: "
        f"{beside['occupancy']:.0%} of lanes busy, {_told(beside)} "
        f"(each program compiled when it is needed: {_told(apart)}); compiling must take "
        f"{max(0.0, least):.0%} here; values {'equal' if same else 'DIFFER'}"
    )
    held = beside["occupancy"] >= BUSY and (small or share <= bound)
    return Outcome(same and held, numbers)


def least_share(apart: dict[str, Any], programs: int) -> float:
    """Return the least share of time spent waiting for compiles if nothing is slowed down.

    Programs are compiled one after the other: no lanes run while the first compiles, and the lanes
    of the last one run after all compiles. So, given C seconds of compiling and W seconds of
    everything else in n programs, at most (1 - 1/n) W can overlap with compiles, in at least C +
    W/n seconds.
    """
    compiling = apart["compile_seconds"]
    working = apart["run_seconds"] - compiling
    hidden = (1 - 1 / programs) * working
    return (compiling - hidden) / (compiling + working / programs)


def _run(size: Size, work: Path, how: str) -> dict[str, Any]:
    """Run the study in a process with an empty cache; return its counters and values."""
    folder = work / how
    folder.mkdir(parents=True)
    study = folder / "buckets.yaml"
    sizes = [list(widths) for widths in size.sizes]
    study.write_text(_STUDY.format(**{**vars(size), "sizes": sizes}), encoding="utf-8")
    env = {"XDG_CACHE_HOME": str(folder / "cache"), "JAX_COMPILATION_CACHE_DIR": ""}
    words = [sys.executable, "-c", _CHILD, study, folder / "results", how]
    done = call(words, folder, {**os.environ, **env})
    return json.loads(done.stdout.splitlines()[-1])


def _told(usage: dict[str, Any]) -> str:
    share = usage["compile_seconds"] / usage["run_seconds"]
    return f"{share:.0%} of {usage['run_seconds']:.0f} s waiting for compiles"
