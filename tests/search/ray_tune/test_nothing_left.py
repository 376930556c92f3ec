"""A study of Ray Tune whose trials have all ended goes on to what comes after them."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("ray")

STUDY = """\
name: t
env: CartPole-v1
env_steps: 2048
fixed: {num_envs: 4, rollout_length: 16, num_minibatches: 2, hidden_sizes: [8]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
search: {driver: ray_tune, scheduler: asha, searcher: random}
early_terminate: null
evaluation: {every: 1024, episodes: 2}
confirm: {top_k: 2, choose: 2, report: 5}
budget: {trials: 3}
"""


def typed(folder, *words):
    """Run a command in a process of its own, as Ray starts others from it."""
    found = subprocess.run(
        [sys.executable, "-m", "hpo", *words], cwd=folder, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_confirm_stage_is_completed_after_report_changes(tmp_path):
    for report in (5, 7):
        (tmp_path / "s.yaml").write_text(STUDY.replace("report: 5", f"report: {report}"))
        typed(tmp_path, "run", "s.yaml", "--quiet")
        best = json.loads(typed(tmp_path, "top", "--json"))["leaderboard"][0]
        assert (best["value_from"], best["seeds"]) == ("report", report)
