"""Parts of PPO's points 2 and 6: Gymnasium's CartPole is learnt, and a killed study goes on."""

from __future__ import annotations

from pathlib import Path

from .common import Outcome
from .crash import kill_and_compare
from .learning import FIGURES, draw, train

NAME, THRESHOLD, MOST_STEPS, SEEDS = "gym_base_cartpole", 475.0, 200_000, 5
STUDY = """\
name: small
env: gym:CartPole-v1
env_steps: 16k
fixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16, 16]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.95, max: 0.999, distribution: one_minus_log}
search: {method: tpe}
evaluation: {episodes: 4}
early_terminate: {type: asha, min: 2k, eta: 3}
seeds: {per_config: 2}
confirm: {top_k: 1, choose: 2, report: 3}
population: {lanes: 8, workers: 2}
budget: {trials: 16}
"""
SMALL_STUDY = STUDY.replace("16k", "4k").replace("trials: 16", "trials: 4")


def learning(small: bool, work: Path) -> Outcome:
    """Train the base configuration on five seeds and draw their curves."""
    found = train(NAME, work, small)
    values, steps = found["values"], found["env_steps"]
    good = sum(value >= THRESHOLD for value in values)
    passed = small or (good == len(values) == SEEDS and steps <= MOST_STEPS)
    draw(NAME, found["evaluations"], THRESHOLD, work if small else FIGURES)
    numbers = (
        f"gym:CartPole-v1: {good} of {len(values)} seeds reach {THRESHOLD:g} at {steps:,} env "
        f"steps (mean {sum(values) / len(values):.1f}, worst {min(values):.1f})"
    )
    return Outcome(passed, numbers)


def resume(small: bool, work: Path) -> Outcome:
    """Kill a study of host environments and go on; its tables must be those of an unbroken one."""
    outcome = kill_and_compare(SMALL_STUDY if small else STUDY, 1 if small else 5, work)
    return Outcome(outcome.passed, f"host environments: {outcome.numbers}")
