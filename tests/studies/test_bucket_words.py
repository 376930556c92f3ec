"""What a compile line says of a bucket: what tells it from the others, in few letters."""

import pytest

from hpo.studies.load import loads
from hpo.studies.programs import buckets_of, words_of_bucket

HEAD = "env: CartPole-v1\nenv_steps: 320k\nbudget: {trials: 4}\n"
STUDY = loads(
    HEAD + "space:\n"
    "  gamma: {min: 0.9, max: 0.99}\n"
    "  layer_norm: {values: [false, true]}\n"
    "  activation: {values: [tanh, relu], when: {layer_norm: true}}\n"
    "  hidden_sizes: {values: [[64, 64], [32]]}\n"
)
BUCKETS = [bucket.config for bucket in buckets_of(STUDY).found]


def test_program_labels_are_distinct_and_omit_inactive_keys():
    words = {words_of_bucket(STUDY, config, 200) for config in BUCKETS}
    assert len(words) == len(BUCKETS) == 6
    assert "layer_norm=False, hidden_sizes=[64,64]" in words
    assert not any("gamma" in text for text in words)


def test_program_label_lists_non_default_values_first():
    config = {**STUDY.default(), "hidden_sizes": [32]}
    assert words_of_bucket(STUDY, config, 200) == "hidden_sizes=[32], layer_norm=False"
    assert words_of_bucket(STUDY, config, 30) == "hidden_sizes=[32], ..."


def test_program_label_is_environment_without_searched_shape():
    study = loads(HEAD + "space: {gamma: {min: 0.9, max: 0.99}}\n")
    assert words_of_bucket(study, study.default()) == "CartPole-v1"


@pytest.mark.parametrize("most", [16, 22, 36])
def test_program_label_respects_maximum_length(most):
    for config in BUCKETS:
        assert len(words_of_bucket(STUDY, config, most)) <= most
