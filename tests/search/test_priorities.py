"""Prioritised segments beside V-trace, from a study's file to what its lanes learn from."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import hpo

pytestmark = pytest.mark.usefixtures("quickly_compiled")

STUDY = """\
name: both
env: CartPole-v1
env_steps: 96
seeds: {per_config: 1}
budget: {trials: 2}
search: {method: random}
population: {lanes: 2}
fixed: {num_envs: 4, rollout_length: 8, num_minibatches: 2, hidden_sizes: [4],
        rho_clip: 0.5, c_clip: 0.7, gamma: 0.9, gae_lambda: 0.8}
space:
  priority_alpha: {min: 0.4, max: 2.0, default: 1.5}
evaluation: {episodes: 2}
checkpoint: {keep_best: 2, parts: [trajectories, advantages]}
"""


def test_a_study_of_both_learns_from_clipped_advantages(tmp_path):
    """A_t = 0.5 delta_t + gamma lambda 0.7 A_{t+1} within an episode: every ratio is 1."""
    (tmp_path / "both.yaml").write_text(STUDY)
    results = hpo.run(tmp_path / "both.yaml", tmp_path)
    assert [entry.state for entry in results.leaderboard] == ["finished"] * 2
    curves = pq.read_table(tmp_path / "both" / "curves.parquet").to_pydict()
    assert len(curves["loss"]) >= 2 and np.isfinite(curves["loss"]).all()
    for trial in (0, 1):
        parts = tmp_path / "both" / "policies" / f"trial_{trial}" / "parts"
        seen, found = (np.load(parts / f"{name}.npz") for name in ("trajectories", "advantages"))
        value, advantage = seen["value"], found["advantage"]
        going_on, cut = 1.0 - seen["terminated"], 1.0 - seen["truncated"]
        delta = seen["reward"][:-1] + 0.9 * going_on[:-1] * value[1:] - value[:-1]
        decay = 0.9 * 0.8 * 0.7 * going_on[:-1] * cut[:-1]
        assert not seen["truncated"].any() and advantage.shape == (8, 4)
        np.testing.assert_allclose(
            advantage[:-1], 0.5 * delta + decay * advantage[1:], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(found["target"], advantage + value, rtol=1e-4, atol=1e-5)
