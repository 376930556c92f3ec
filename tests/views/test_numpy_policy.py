"""What NumPy plays is what the policy does; what it does not play is said."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.lane_state import RunningStatistics
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.policy import init_params
from hpo.core.saved_policy import SavedPolicy, save_policy
from hpo.knobs import complete
from hpo.views.bundle import forward
from hpo.views.bundle.policy_forms import FILE, difference, export

pytestmark = pytest.mark.usefixtures("quickly_compiled")

KINDS = {
    "categorical": ("CartPole-v1", {"activation": "relu"}),
    "normalised": ("CartPole-v1", {"normalise_observations": True, "observation_clip": 0.5}),
    "shared, elu": ("CartPole-v1", {"shared_encoder": True, "activation": "elu"}),
    "layer norm, gelu": ("Acrobot-v1", {"layer_norm": True, "activation": "gelu"}),
    "silu": ("CartPole-v1", {"activation": "silu"}),
    "leaky relu": ("CartPole-v1", {"activation": "leaky_relu"}),
    "no hidden layer": ("CartPole-v1", {"hidden_sizes": []}),
    "gaussian": ("Pendulum-v1", {}),
    "gaussian, own range": ("Pendulum-v1", {"action_low": -0.1, "action_high": 0.05}),
    "tanh_gaussian": ("Pendulum-v1", {"distribution": "tanh_gaussian"}),
    "beta": ("Pendulum-v1", {"distribution": "beta"}),
    "history": ("CartPole-v1", {"history": 3}),
    "pixels": ("Breakout-MinAtar", {}),
}


def made(folder, env_id, given):
    plain = {"hidden_sizes": [8, 5], "policy_gain": 1.0, "normalise_rewards": False}
    config = complete({**plain, **given})
    where = EnvPlan(env_id, history=config["history"])
    features = ("normalise_observations",) if config["normalise_observations"] else ()
    plan = make_plan(config, where, where, features)
    env = registry.make(where)
    hypers = make_hypers(config, env.default_params, env.default_params)
    params = init_params(
        plan, jax.tree.map(jnp.asarray, hypers), jax.random.key(2, impl="threefry2x32")
    )
    statistics = RunningStatistics.empty(())
    if features:
        shape = env.observation_struct.shape
        seen = np.random.default_rng(0).normal(0.2, 0.3, size=(50, *shape)).astype(np.float32)
        statistics = RunningStatistics.empty(shape).merge(jnp.asarray(seen))
    save_policy(folder, SavedPolicy(plan, config, {}, {}, params, statistics))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_gives_the_actions_of_the_policy(tmp_path, kind):
    assert export(made(tmp_path / "policy", *KINDS[kind]), tmp_path / "numpy") == ""
    about = json.loads((tmp_path / "numpy" / FILE).read_text())
    assert len({json.dumps(action) for action in about["actions"]}) > 1  # they say something
    about["arrays"]["actor_head/bias"][0] += 5.0
    (tmp_path / "numpy" / FILE).write_text(json.dumps(about))
    assert "NumPy's actions differ" in difference(tmp_path / "numpy" / FILE)


def test_numpy_export_requires_only_numpy(tmp_path):
    export(made(tmp_path / "policy", *KINDS["categorical"]), tmp_path / "numpy")
    lines = ["import sys", "from forward import Policy", f"policy = Policy({FILE!r})"]
    lines += ["print(policy.act([0.1, 0.2, 0.3, 0.4]))", "assert 'jax' not in sys.modules"]
    lines += ["assert not [name for name in sys.modules if name.startswith('hpo')]"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=tmp_path / "numpy",
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() in ("0", "1"), done.stderr


def test_numpy_policy_handles_multi_discrete_masks():
    policy = forward.Policy.__new__(forward.Policy)
    policy.about = {"distribution": "multi_discrete", "sizes": [2, 3]}
    x, mask = np.array([1.0, 2.0, 5.0, 4.0, 3.0]), np.array([1, 0, 0, 0, 1], bool)
    assert policy._mode(x, None).tolist() == [1, 0]
    assert policy._mode(x, mask).tolist() == [0, 2]
    assert policy._mode(x, np.zeros(5, bool)).tolist() == [1, 0]  # nothing valid: as without


@pytest.mark.parametrize(
    ("env", "given", "why"),
    [
        (
            "Breakout-MinAtar",
            {"network": "cnn", "cnn_channels": [2], "cnn_kernels": [3], "cnn_strides": [3]},
            "it is a cnn in float32",
        ),
        ("CartPole-v1", {"network": "gru"}, "it is a gru in float32"),
        ("CartPole-v1", {"dtype": "bfloat16"}, "it is a mlp in bfloat16"),
    ],
)
def test_unsupported_numpy_export_gives_a_reason(tmp_path, env, given, why):
    assert export(made(tmp_path / "policy", env, given), tmp_path / "numpy").startswith(why)
    assert not (tmp_path / "numpy").exists()


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"arrays": 3}', "[" * 100_000])
def test_malformed_numpy_policy_files_are_refused(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert "was not written by hpo" in difference(tmp_path / FILE)
