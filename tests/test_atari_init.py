"""`hpo init` of environments that a library steps in C++."""

import pytest

from hpo.environments.registry import entry, full_id
from hpo.studies.check import check
from hpo.studies.init_file import init_text
from hpo.studies.load import loads


def test_an_atari_game_is_an_image_and_its_id_is_kept():
    """It was looked up as `gym:gym:ALE/Pong-v5`, and got a network for vectors."""
    pytest.importorskip("ale_py")
    assert full_id("gym:ALE/Pong-v5") == full_id("ALE/Pong-v5") == "gym:ALE/Pong-v5"
    text = init_text("gym:ALE/Pong-v5")
    study = loads(text)
    assert study.env.id == entry("gym:ALE/Pong-v5").id == "gym:ALE/Pong-v5"
    assert study.fixed["network"] == "cnn" and "normalise_observations" not in study.space.names
    assert not check(study).mistakes


def test_another_prefix_is_kept():
    assert full_id("envpool:CartPole-v1") == "envpool:CartPole-v1"
    assert full_id("gym-vec:CartPole-v1") == "gym-vec:CartPole-v1"
