"""What a user does with an exported policy; the policies are those of test_saved_policy."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import hpo.core
from helpers.loading import run_file
from hpo.core import evaluate, load_policy, predict, saved_policy
from hpo.core.envs import registry
from hpo.core.envs.contract import same_observations
from hpo.core.lane_state import RunningStatistics
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.saved_policy import SavedPolicy, save_policy
from hpo.errors import ConfigError, HpoError
from hpo.knobs import complete

pytestmark = pytest.mark.usefixtures("quickly_compiled")

saved_policies = run_file("tests/core/test_saved_policy.py")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "outputs.md"


@pytest.fixture(scope="module")
def cartpole():
    return saved_policies.made("CartPole-v1", {"gravity": 12.0}, max_steps_in_episode=40)


@pytest.fixture(scope="module")
def folder(cartpole, tmp_path_factory):
    directory = tmp_path_factory.mktemp("use") / "policy"
    save_policy(directory, cartpole)
    return directory


def test_predict_accepts_lists_and_arrays(cartpole):
    seen = saved_policies.observations(cartpole)
    actions, carry = predict(cartpole, seen)
    assert carry is None and actions.shape == (6,) and actions.dtype == np.int32
    for row, action in zip(seen, actions, strict=True):
        assert predict(cartpole, row.tolist())[0] == action
    assert predict(cartpole, [0, 0, 0, 0])[0].shape == ()  # whole numbers, too


def test_sampled_predict_requires_a_key(cartpole):
    seen = np.zeros((400, 4), np.float32)
    drawn, _ = predict(cartpole, seen, key=jax.random.key(0), deterministic=False)
    assert 0 < np.mean(drawn) < 1
    with pytest.raises(ValueError, match="needs a key"):
        predict(cartpole, seen, deterministic=False)


def test_predict_refuses_a_wrong_observation_shape(cartpole):
    message = r"but observations of CartPole-v1 have \(4,\); leading batch axes are allowed"
    with pytest.raises(ConfigError, match=message):
        predict(cartpole, [0.0, 0.0, 0.0])


@pytest.mark.parametrize("given", ["a", None, [1.0, "b", 0.0, 0.0], [[1.0], [2.0, 3.0]]])
def test_predict_refuses_non_numeric_observations(cartpole, given):
    with pytest.raises(ConfigError, match=r"observation is .*; allowed: numbers of shape \(4,\)"):
        predict(cartpole, given)


def test_second_predict_call_does_not_recompile(cartpole):
    seen = saved_policies.observations(cartpole)
    predict(cartpole, seen)
    before = cartpole._compiled_act._cache_size()
    predict(cartpole, seen + 1.0)
    assert cartpole._compiled_act._cache_size() == before


def test_evaluate_uses_the_training_env_by_default(cartpole):
    found = evaluate(cartpole, episodes=3, seed=4)
    np.testing.assert_array_equal(found.returns, cartpole.evaluate(3, seed=4).returns)


def test_evaluate_accepts_another_environment(cartpole):
    shorter = evaluate(cartpole, {"max_steps_in_episode": 5, "gravity": 1e-3}, episodes=4)
    np.testing.assert_array_equal(shorter.lengths, [[5] * 4])
    same = evaluate(cartpole, {"gravity": 12.0}, episodes=4)
    np.testing.assert_array_equal(same.returns, evaluate(cartpole, episodes=4).returns)
    plain = evaluate(cartpole, "CartPole-v1", episodes=4)
    np.testing.assert_array_equal(plain.returns, same.returns)


@pytest.mark.parametrize(
    ("env", "match"),
    [
        ("Pendulum-v1", "whose actions .* differ from those of Pendulum-v1"),
        ("Acrobot-v1", "whose actions .* differ from those of Acrobot-v1"),
        ("Cartpole-v1", "did you mean 'CartPole-v1'"),
        ({"gravty": 1.0}, "did you mean 'gravity'"),
        ({"gravity": "low"}, "gravity of CartPole-v1 is 'low'; allowed: a number"),
    ],
)
def test_evaluate_refuses_an_incompatible_environment(cartpole, env, match):
    with pytest.raises(HpoError, match=match):
        evaluate(cartpole, env)


SMALL = {"topology": "nsfnet_deeprmsa", "k": 2, "slots": 8}


@pytest.mark.parametrize(
    ("knobs", "trained_in", "moved_to"),
    [
        ({"history": 4}, {"id": "CartPole-v1"}, {"max_steps_in_episode": 5}),
        ({"network": "transformer"}, {"id": "rmsa", **SMALL}, {"continuous": False}),
        ({"network": "transformer"}, {"id": "rmsa", **SMALL}, {"id": "rsa", **SMALL}),
        ({"network": "gnn"}, {"id": "rmsa", **SMALL}, {"id": "rsa", **SMALL}),
        ({"network": "path_mlp"}, {"id": "rmsa", **SMALL}, {"id": "rsa", **SMALL}),
        ({}, {"id": "rmsa", "observation": "packed", **SMALL}, {"continuous": False}),
    ],
)
def test_evaluation_env_keeps_the_training_observations(knobs, trained_in, moved_to):
    """Stacked, and links for networks of links; observations that are trees are compared."""
    keys = dict(trained_in)
    plan = make_plan(knobs, EnvPlan(keys.pop("id"), tuple(sorted(keys.items()))))
    policy = SavedPolicy(plan, complete(knobs), {}, {}, {}, RunningStatistics.empty(()))
    moved = saved_policy._with_eval_env(policy, moved_to).plan.eval_env
    assert same_observations(registry.make(moved), registry.make(plan.env))
    assert moved.id == moved_to.get("id", plan.env.id) and moved != plan.eval_env


def test_core_package_exports_only_the_policy_api():
    assert sorted(hpo.core.__all__) == ["SavedPolicy", "evaluate", "load_policy", "predict"]
    assert callable(hpo.core.evaluate) and callable(load_policy)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hpo.core.nothing


def script():
    """Return the first Python block below the heading about the five lines."""
    text = DOCS.read_text()
    return text[text.index("## Use it") :].split("```python\n")[1].split("```")[0]


def test_the_five_lines_of_the_documentation_run(folder):
    code = script()
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 5
    assert [line for line in lines if "import" in line] == [
        "from hpo.core import evaluate, load_policy, predict"
    ]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder.parent, capture_output=True, text=True, check=True
    )
    action, mean = done.stdout.split()
    assert action in ("0", "1") and float(mean) > 1.0
