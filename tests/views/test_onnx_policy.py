"""ONNX models act as the policies that they were written from; others are refused."""

import json
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from helpers import countdown
from helpers.loading import run_file
from hpo.core.envs import registry
from hpo.core.envs.contract import MultiDiscrete
from hpo.core.saved_policy import load_policy
from hpo.errors import ConfigError, HpoError, MissingExtraError
from hpo.views.bundle.policy_forms import model_of
from hpo.views.commands.read_study import export_policy

pytestmark = pytest.mark.usefixtures("quickly_compiled")

numpys = run_file("tests/views/test_numpy_policy.py")
made = numpys.made
SMALL = {"network": "cnn", "cnn_channels": [4], "cnn_kernels": [3], "cnn_strides": [1],
         "cnn_dense": [12]}  # fmt: skip
KINDS = {
    **numpys.KINDS,
    "several choices": ("test-choices", {}),
    "cnn": ("Breakout-MinAtar", SMALL),
    "cnn, normalised, layer norm, shared": (
        "Breakout-MinAtar",
        {**SMALL, "normalise_observations": True, "layer_norm": True, "shared_encoder": True},
    ),
    "cnn, two layers, strides, history": (
        "Breakout-MinAtar",
        {
            **SMALL,
            "history": 3,
            "cnn_channels": [4, 6],
            "cnn_kernels": [3, 2],
            "cnn_strides": [2, 1],
        },
    ),
}


class Choices(countdown.Countdown):
    """Never stepped: two choices, no mask."""

    id, action_space, has_mask = "test-choices", MultiDiscrete((4, 3)), False


@pytest.fixture
def onnxruntime():
    countdown.known_as("test-choices", Choices)
    pytest.importorskip("onnx")
    return pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_acts_as_the_policy_on_10_000_observations(tmp_path, kind, onnxruntime):
    saved = load_policy(made(tmp_path / "policy", *KINDS[kind]))
    env = registry.make(saved.plan.env)
    seen, draws = env.observation_struct, np.random.default_rng(1)
    given = draws.standard_normal((10_000, *seen.shape))
    if saved.config["normalise_observations"]:
        given = np.asarray(saved.statistics.mean) + np.asarray(saved.statistics.std()) * given
    given = np.asarray(given > 0.8 if seen.dtype == bool else given).astype(seen.dtype)
    session = onnxruntime.InferenceSession(model_of(tmp_path / "policy"))
    (actions,) = session.run(None, {"observation": given})
    expected = np.asarray(jax.vmap(lambda seen: saved.act(seen, None, None, None)[0])(given))
    assert actions.shape == expected.shape
    assert len(np.unique(expected)) > 1
    if actions.dtype == np.int64:  # near a tie the last digits choose
        assert np.mean(actions == expected) >= 0.9998
    else:
        np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)


def test_a_batch_may_have_any_size(tmp_path, onnxruntime):
    session = onnxruntime.InferenceSession(
        model_of(made(tmp_path / "policy", *KINDS["categorical"]))
    )
    assert session.get_inputs()[0].shape == ["batch", 4]
    for size in (1, 7):
        (actions,) = session.run(None, {"observation": np.zeros((size, 4), np.float32)})
        assert actions.shape == (size,)


@pytest.mark.parametrize(
    ("env", "given", "why"),
    [
        ("CartPole-v1", {"network": "gru"}, "it is a gru in float32; ONNX needs an mlp or"),
        ("CartPole-v1", {"dtype": "bfloat16"}, "it is a mlp in bfloat16"),
        ("rmsa", {"network": "mlp"}, "its environment masks actions"),
    ],
)
def test_unsupported_onnx_export_is_refused(tmp_path, env, given, why, monkeypatch):
    for name in ("onnx", "onnx.reference"):  # not reached
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    with pytest.raises(ConfigError, match=f"--onnx cannot convert this policy: {why}"):
        model_of(made(tmp_path / "policy", env, given))


def test_missing_onnx_package_is_named_without_writing_files(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx.reference", None)
    policies = tmp_path / "policies"
    made(policies / "trial_3", *KINDS["categorical"])
    with pytest.raises(MissingExtraError, match=r"pip install .*\[onnx\]"):
        export_policy(SimpleNamespace(policies=policies), 3, tmp_path / "to", onnx=True)
    assert not (tmp_path / "to").exists()


def test_a_wrong_model_is_not_written(tmp_path, onnxruntime, monkeypatch):
    from hpo.views.bundle import policy_forms

    describe = policy_forms.describe

    def wrong(*given):
        about = json.loads(json.dumps(describe(*given)))
        about["arrays"]["actor_head/bias"][0] += 5.0
        return about

    monkeypatch.setattr(policy_forms, "describe", wrong)
    with pytest.raises(HpoError, match="differ"):
        model_of(made(tmp_path / "policy", *KINDS["gaussian"]))
