import dataclasses

import numpy as np
import pytest

from hpo.core.hypers import Hypers, make_hypers


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"value_clip_eps": "same", "target_kl": 0.01, "lr_schedule": "cosine"},
        {"value_clip_eps": 0.2, "max_grad_norm": None, "update_epochs": 7},
        {"separate_vf_optimiser": True, "normalise_rewards": True},
    ],
)
def test_every_leaf_is_strongly_typed_float32_or_int32(config):
    hypers = make_hypers(config, {"gravity": 9.8}, {"gravity": 9.8})
    for field in dataclasses.fields(Hypers):
        leaf = getattr(hypers, field.name)
        if field.name in ("env_params", "eval_params"):
            leaf = leaf["gravity"]
        assert isinstance(leaf, np.ndarray)
        assert leaf.dtype in (np.float32, np.int32)
        reference = getattr(make_hypers({}, {"gravity": 9.8}, {"gravity": 9.8}), field.name)
        if field.name not in ("env_params", "eval_params"):
            assert leaf.dtype == reference.dtype


def test_disabled_hypers_are_infinite_and_same_is_minus_one():
    hypers = make_hypers({"value_clip_eps": "same"}, (), ())
    assert np.isinf(hypers.target_kl) and hypers.value_clip_eps == -1.0
    assert hypers.gae_lambda_initial == hypers.gae_lambda_final == np.float32(0.95)
