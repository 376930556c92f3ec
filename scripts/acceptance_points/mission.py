"""Mission: features that may never be removed; fast checks are in tests/test_mission.py.

Point 1: hyperparameters as actions. A schedule is tested, and an episode repeats bit for bit.
Point 2: the founding search in one study, by Optuna on lanes and with Ray Tune as driver.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from .common import Outcome, call, hpo_command

_RUNS, _STEPS = 16, 8
_STUDY: dict[str, Any] = {
    "env": "CartPole-v1",
    "env_steps": 16384,
    "fixed": {"num_envs": 8, "rollout_length": 64},
    "space": {
        "learning_rate": {"min": 1e-5, "max": 1e-1, "distribution": "log_uniform"},
        "ent_coef": {"min": 0.0, "max": 0.05, "default": 0.0},
    },
}
_FOUNDING = """\
name: founding
env: {id: rmsa, topology: nsfnet_deeprmsa, k: 3, load: 200}
env_steps: 8192
fixed: {num_envs: 8, rollout_length: 64, action_masking: true}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  clip_eps: {min: 0.1, max: 0.3}
  gae_lambda: {min: 0.9, max: 1.0}
  ent_coef: {min: 0.0, max: 0.02}
  hidden_sizes: {values: [[32], [64, 64]]}
  env.aggregate_slots: {values: [1, 20]}
evaluation: {steps: 500, episodes: 1, every: 4096}
metric: {name: eval/service_blocking_probability, goal: minimize}
budget: {trials: %d}
search: {%s}
"""
_SEARCHED = {
    "learning_rate",
    "clip_eps",
    "gae_lambda",
    "ent_coef",
    "hidden_sizes",
    "env.aggregate_slots",
}
_TRIALS = 12


def dynamic(small: bool, work: Path) -> Outcome:
    """Try a constant and a schedule on the same seeds, the schedule twice."""
    import numpy as np

    import hpo

    runs, steps = (4, 2) if small else (_RUNS, _STEPS)
    study = {**_STUDY, "env_steps": 2048} if small else _STUDY
    env = hpo.AutoRLEnv(study, runs=runs, steps=steps)

    def play(schedule: Any) -> tuple[Any, Any]:
        env.reset(seed=0)
        observation = value = None
        for step in range(env.steps):
            observation, value, *_ = env.step({"learning_rate": schedule(step)})
        return observation, value

    _, constant = play(lambda step: 0.01)
    seen, falling = play(lambda step: 0.02 * 0.6**step)
    again, _ = play(lambda step: 0.02 * 0.6**step)
    equal = np.array_equal(seen, again)
    differs = not np.array_equal(constant, falling)
    finite = bool(np.all(np.isfinite(seen)) and np.all(np.isfinite(falling)))
    numbers = (
        f"{runs} runs of {env.steps} decisions, {len(env.features)} state features; mean return "
        f"of a constant rate {constant.mean():.0f}, of a falling one {falling.mean():.0f}; the "
        f"same episode again is equal bit for bit: {equal}"
    )
    return Outcome(equal and differs and finite, numbers)


def founding_search(small: bool, work: Path) -> Outcome:
    """Search learning rate, clipping, lambda, entropy, architecture and slots by each driver."""
    drivers = {"Optuna on lanes": "method: tpe, options: {n_startup_trials: 4}"}
    here = importlib.util.find_spec("ray") is not None
    if here:
        drivers["Ray Tune"] = "driver: ray_tune"
    trials, told, passed = 4 if small else _TRIALS, list[str](), True
    for name, search in drivers.items():
        folder = work / name.replace(" ", "_")
        folder.mkdir()
        (folder / "founding.yaml").write_text(_FOUNDING % (trials, search))
        call([*hpo_command(), "run", "founding.yaml", "--quiet"], folder)
        rows = json.loads(call([*hpo_command(), "top", "--json"], folder).stdout)["leaderboard"]
        ended = [row for row in rows if row["state"] in ("finished", "stopped", "confirmed")]
        searched = {key for row in rows for key in row["params"]}
        passed &= len(ended) == trials and searched == _SEARCHED
        best = min(row["value"] for row in ended if row["value"] is not None)
        told.append(f"{name}: {len(ended)} of {trials} trials ended, least blocking {best:.4f}")
    told += [] if here else ["Ray Tune: not installed here"]
    return Outcome(passed, "; ".join(told))
