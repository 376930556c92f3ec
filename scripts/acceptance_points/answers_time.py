"""Point 3: times from `hpo check` for ten shortened shipped studies, against actual times."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from .common import ROOT, Outcome, hpo_command

FACTOR = 1.5
_CONFIRM = "confirm={top_k: 1, choose: 2, report: 4}"
STUDIES: dict[str, tuple[str, ...]] = {
    "cartpole": ("budget.trials=24", "confirm={top_k: 2, choose: 4, report: 8}"),
    "pendulum": ("budget.trials=6", "env_steps=128k", "early_terminate.min=32k", _CONFIRM),
    "pendulum_pbt": ("budget.trials=8", "env_steps=160k", "early_terminate.every=40k", _CONFIRM),
    "architecture": ("budget.trials=4", "env_steps=100k", "early_terminate.min=25k", _CONFIRM),
    "breakout_cnn": ("env_steps=65536", "evaluation.every=32768", "seeds.per_config=2"),
    "memory_chain": (),
    "base_cartpole": (),
    "base_navigators": ("env_steps=30720", "evaluation.every=10240"),
    "gym_cartpole": ("budget.trials=8", "env_steps=50k", _CONFIRM),
    "deeprmsa": ("budget.trials=4", "env_steps=400k", "early_terminate.min=100k", "confirm=null"),
}
_FEW = ("base_cartpole", "memory_chain")


def minutes(small: bool, work: Path) -> Outcome:
    """Compare each study's expected time with the wall time of the `hpo run` that follows.

    Caches are empty before each check, as for a new user.
    """
    ratios: dict[str, float] = {}
    for name in _FEW if small else STUDIES:
        expected, took = _expected_and_taken(name, work / name)
        ratios[name] = took / expected
        print(f"  {name}: expected {expected:.0f} s, took {took:.0f} s, {ratios[name]:.2f}")
    within = sum(1 / FACTOR <= ratio <= FACTOR for ratio in ratios.values())
    numbers = f"{within} of {len(ratios)} within a factor of {FACTOR:g}; taken over expected: "
    numbers += ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return Outcome(within == len(ratios), numbers)


def _expected_and_taken(name: str, work: Path) -> tuple[float, float]:
    work.mkdir()
    environment = {**os.environ, "XDG_CACHE_HOME": str(work / "cache")}
    for variable in ("HPO_NO_TIME", "JAX_COMPILATION_CACHE_DIR"):
        environment.pop(variable, None)
    sets = [word for change in STUDIES[name] for word in ("--set", change)]
    file = str(ROOT / "studies" / f"{name}.yaml")

    def call(verb: str, *more: str) -> str:
        return subprocess.run(
            [*hpo_command(), verb, file, *sets, *more],
            cwd=work,
            env=environment,
            text=True,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ).stdout

    found = json.loads(call("check", "--json"))
    if found["time"] is None:
        raise RuntimeError(f"{name}: {found['time_note']}")
    started = time.monotonic()
    call("run", "--out", "results", "--quiet")
    return float(found["time"]["seconds"]), time.monotonic() - started
