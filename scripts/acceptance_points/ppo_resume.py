"""PPO, point 6: studies of every kind are killed and resume as if undisturbed."""

from __future__ import annotations

from pathlib import Path

from .cases import run_cases
from .common import Outcome
from .crash import committing_often, kill_and_compare

KILLS = 3
_STUDY = """\
name: small
env: {env}
env_steps: {env_steps}
fixed: {{num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16, 16]{fixed}}}
space:
  learning_rate: {{min: 1e-4, max: 1e-2, distribution: log_uniform}}
  gamma: {{min: 0.95, max: 0.999, distribution: one_minus_log}}
search: {{method: tpe}}
evaluation: {{episodes: 4}}
early_terminate: {{type: asha, min: 2k, eta: 3}}
seeds: {{per_config: 2}}
confirm: {{top_k: 1, choose: 2, report: 3}}
population: {{lanes: 8{population}}}
budget: {{trials: {trials}}}
"""
CASES: dict[str, dict[str, str]] = {
    "recurrent": {
        "env": "CartPole-v1",
        "fixed": ", network: lstm, recurrent_size: 16, normalise_observations: true",
    },
    "prioritised": {
        "env": "CartPole-v1",
        "fixed": ", priority_alpha: 0.6, priority_beta0: 0.4, normalise_rewards: true",
    },
    "host environments": {"env": "gym:CartPole-v1", "population": ", workers: 2"},
}
"""What differs between the studies: `env`, and more keys of `fixed` and `population`."""


def resumes(small: bool, work: Path) -> Outcome:
    """Kill a study of every kind and resume it; its tables must equal those of an unbroken one."""
    return run_cases(dict.fromkeys(CASES, _case), "resumes.json", small, work)


def _case(name: str, small: bool, work: Path) -> Outcome:
    amount = {"env_steps": "4k", "trials": "4"} if small else {"env_steps": "16k", "trials": "16"}
    text = _STUDY.format(**{"fixed": "", "population": "", **amount, **CASES[name]})
    folder = work / name.replace(" ", "-")
    folder.mkdir()
    return kill_and_compare(text, 1 if small else KILLS, folder, committing_often, midway=True)
