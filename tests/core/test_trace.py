"""A trace is the evaluation, step by step."""

import numpy as np
import pytest

from helpers.loading import run_file
from hpo.core import evaluation as tracing

pytestmark = pytest.mark.usefixtures("quickly_compiled")

saved_policies = run_file("tests/core/test_saved_policy.py")


@pytest.fixture(scope="module")
def traces():
    """Traces of both policies, in blocks so short that episodes cross them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "_BLOCK", 7)
        made = {
            "cartpole": saved_policies.made("CartPole-v1", {}, max_steps_in_episode=40),
            "pendulum": saved_policies.made("Pendulum-v1", {"m": 1.2}, max_steps_in_episode=20),
        }
        return {name: (saved, saved.trace(3, seed=5)) for name, saved in made.items()}


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_its_sums_are_those_of_the_evaluation(traces, name):
    saved, columns = traces[name]
    found = saved.evaluate(3, seed=5)
    for episode in range(3):
        rows = columns["episode"] == episode
        assert np.sum(rows) == found.lengths[0, episode]
        np.testing.assert_array_equal(columns["step"][rows], np.arange(np.sum(rows)))
        np.testing.assert_allclose(
            columns["return"][rows][-1], found.returns[0, episode], rtol=1e-5
        )
        np.testing.assert_allclose(
            np.cumsum(columns["reward"][rows]), columns["return"][rows], rtol=1e-6
        )
        ends = columns["terminated"][rows] | columns["truncated"][rows]
        assert ends[-1] and not ends[:-1].any()


def test_trace_actions_match_the_policy(traces):
    for name, action in (("cartpole", "action"), ("pendulum", "action_0")):
        saved, columns = traces[name]
        width = 4 if name == "cartpole" else 3
        seen = np.stack([columns[f"observation_{index}"] for index in range(width)], axis=-1)
        expected = np.asarray(saved.predict(seen)[0]).reshape(len(seen), -1)[:, 0]
        np.testing.assert_allclose(columns[action], expected, atol=1e-5)


def test_trace_of_a_continuing_env_has_the_requested_steps():
    saved = saved_policies.made("Pendulum-v1", {}, max_steps_in_episode=20)
    columns = saved.trace(2, seed=1, steps=30)
    assert np.bincount(columns["episode"]).tolist() == [30, 30]
    np.testing.assert_allclose(
        [columns["return"][29], columns["return"][59]],
        saved.evaluate(2, seed=1, steps=30).returns[0],
        rtol=1e-5,
    )
