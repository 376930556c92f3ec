"""Custom trainings, point 1: rejax's SAC killed at random times ends with the same tables."""

from __future__ import annotations

import shutil
from pathlib import Path

from .common import ROOT, Outcome
from .crash import kill_and_compare

KILLS = 5
_SAC = """\
name: small
algorithm: rejax:SAC
env: Pendulum-v1
env_steps: 4096
fixed: {buffer_size: 10000, batch_size: 64, fill_buffer: 500}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.9, max: 0.999, distribution: one_minus_log}
  polyak: {min: 0.9, max: 0.999}
evaluation: {episodes: 10}
early_terminate: {type: asha, min: 1024, eta: 2}
seeds: {per_config: 3}
budget: {trials: 32}
confirm: {top_k: 2, choose: 3, report: 4}
"""
_DIGITS = """\
name: small
algorithm: digits.py:Digits
length: 12 epochs
space: {learning_rate: {min: 1e-4, max: 1e-1, distribution: log_uniform}}
metric: {name: eval/accuracy}
evaluation: {episodes: 1}
early_terminate: {type: asha, min: 5600, eta: 2}
budget: {trials: 8}
"""


def kills(small: bool, work: Path) -> Outcome:
    """Kill a study of a custom training at random times: rejax's SAC, or a small classifier."""
    if small:
        shutil.copy(ROOT / "examples" / "digits.py", work)
    return kill_and_compare(_DIGITS if small else _SAC, 1 if small else KILLS, work)
