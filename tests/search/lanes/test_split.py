"""Which costly switches the program of a configuration has."""

import pytest

from hpo.search.lanes.configuration import Split, knobs_of
from hpo.studies.load import loads

BASE = "env: {id: rmsa, k: 2, slots: 8, continuous: false}\nenv_steps: 40k\n"
GUARDED = """budget: {trials: 4}
fixed: {reward_centering: true}
space:
  network: {values: [mlp, gnn]}
  layer_norm: {values: [false, true]}
  normalise_observations: {values: [true, false], when: {network: mlp}}
  normalise_rewards: {values: [true, false], when: {normalise_observations: true}}
  priority_alpha: {min: 0.1, max: 1.0, when: {layer_norm: true, network: mlp}}
"""


@pytest.fixture(scope="module")
def study():
    return loads(BASE + GUARDED)


@pytest.mark.parametrize(
    ("params", "features"),
    [
        ({"network": "gnn"}, ("normalise_rewards", "reward_centering")),
        ({"network": "gnn", "layer_norm": True}, ("normalise_rewards", "reward_centering")),
        ({"network": "mlp"}, ("normalise_observations", "normalise_rewards", "reward_centering")),
        (
            {"network": "mlp", "normalise_observations": True},
            ("normalise_observations", "normalise_rewards", "reward_centering"),
        ),
        (
            {"network": "mlp", "layer_norm": True},
            ("normalise_observations", "normalise_rewards", "priority", "reward_centering"),
        ),
    ],
)
def test_unused_features_are_not_compiled(study, params, features):
    """By the static knobs of its conditions; where a traced one decides it is in the program."""
    split = Split(study)
    plan = split.parts(study.complete(params)).plan
    assert plan.features == features
    assert split.parts(study.complete({**params, "gamma": 0.9})).plan == plan


@pytest.mark.parametrize(
    ("text", "separate"),
    [
        ("fixed: {separate_vf_optimiser: true}\n", True),
        ("space: {separate_vf_optimiser: {values: [false, true]}}\nbudget: {trials: 2}\n", True),
        ("fixed: {separate_vf_optimiser: false}\n", False),
        ("", False),
    ],
)
def test_critic_rate_is_a_separate_metric_if_optimiser_can_be_separate(text, separate):
    assert Split(loads(BASE + text)).separate_critic is separate


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("", {False}),
        ("fixed: {normalise_rewards: true, raw_reward_deviation: true}\n", {True}),
        (
            "space: {raw_reward_deviation: {values: [false, true]}}\nbudget: {trials: 2}\n",
            {False, True},
        ),
    ],
)
def test_reward_units_list_possible_raw_reward_deviation_values(text, units):
    assert Split(loads(BASE + text)).reward_units == units


def test_plan_features_are_within_features_of_the_space(study):
    """Nothing is on that its program was made without."""
    split = Split(study)
    for params in study.space.grid(2):
        plan = split.parts(study.complete(params)).plan
        assert set(plan.features) <= set(split.features)
    assert knobs_of({"env.k": 3, "gamma": 0.9}) == {"gamma": 0.9}
