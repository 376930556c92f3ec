"""From a study's file to what its lanes learn from, and to the rows that say so.

Prioritised segments beside V-trace, with a critic that has its own optimiser.
"""

import numpy as np
import pyarrow.parquet as pq
import pytest

import hpo

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

STUDY = """\
name: both
env: CartPole-v1
env_steps: 96
seeds: {per_config: 1}
budget: {trials: 2}
search: {method: random}
population: {lanes: 2}
fixed: {num_envs: 4, rollout_length: 8, num_minibatches: 2, hidden_sizes: [4],
        rho_clip: 0.5, c_clip: 0.7, gamma: 0.9, gae_lambda: 0.8,
        learning_rate: 0.03, lr_schedule: linear, separate_vf_optimiser: true,
        normalise_rewards: false}
space:
  priority_alpha: {min: 0.4, max: 2.0, default: 1.5}
evaluation: {episodes: 2}
checkpoint: {keep_best: 2, parts: [trajectories, advantages]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The study's, when it is finished."""
    path = tmp_path_factory.mktemp("study") / "both.yaml"
    path.write_text(STUDY)
    results = hpo.run(path, path.parent)
    assert [entry.state for entry in results.leaderboard] == ["finished"] * 2
    return results.folder


def test_rows_have_the_rates_of_both_optimisers_and_rolling_means(folder):
    curves = {
        name: np.array(column)
        for name, column in pq.read_table(folder / "curves.parquet").to_pydict().items()
    }
    assert len(curves["loss"]) >= 2 and np.isfinite(curves["loss"]).all()
    np.testing.assert_allclose(curves["vf_learning_rate"], curves["learning_rate"] / 3, rtol=1e-5)
    assert 0.0 < curves["learning_rate"].min() < 0.03
    counted = curves["episodes"] > 0  # CartPole: a reward of 1 a step
    assert counted.any()
    for name in ("episode_length", "episode_length_100"):
        other = name.replace("length", "return")
        np.testing.assert_allclose(curves[name][counted], curves[other][counted], rtol=1e-6)


def test_a_study_of_both_learns_from_clipped_advantages(folder):
    """A_t = 0.5 delta_t + gamma lambda 0.7 A_{t+1} within an episode: every ratio is 1."""
    for trial in (0, 1):
        parts = folder / "policies" / f"trial_{trial}" / "parts"
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
