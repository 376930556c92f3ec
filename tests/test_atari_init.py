"""`hpo init` of environments that a library steps in C++."""

import pytest

from hpo.environments.registry import entry, full_id
from hpo.studies.check import check
from hpo.studies.init_file import init_text
from hpo.studies.load import loads


def test_init_of_atari_uses_cnn_and_keeps_the_id():
    """It was looked up as `gym:gym:ALE/Pong-v5`, and got a network for vectors."""
    pytest.importorskip("ale_py")
    assert full_id("gym:ALE/Pong-v5") == full_id("ALE/Pong-v5") == "gym:ALE/Pong-v5"
    text = init_text("gym:ALE/Pong-v5")
    study = loads(text)
    assert study.env.id == entry("gym:ALE/Pong-v5").id == "gym:ALE/Pong-v5"
    assert study.fixed["network"] == "cnn" and "normalise_observations" not in study.space.names
    assert not check(study).mistakes


def test_full_id_keeps_other_prefixes():
    assert full_id("envpool:CartPole-v1") == "envpool:CartPole-v1"
    assert full_id("gym-vec:CartPole-v1") == "gym-vec:CartPole-v1"
