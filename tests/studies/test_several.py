"""Study files that list several environments."""

from __future__ import annotations

import pytest

from hpo.environments.registry import reference_of
from hpo.errors import ConfigError, StudyError
from hpo.studies.chunk_sizes import chunk_sizes_of
from hpo.studies.env_spec import EnvSpec, labels_of
from hpo.studies.expected_cost import expected_steps
from hpo.studies.load import load, loads
from hpo.studies.resolved import resolved, resolved_yaml, study_hash
from hpo.studies.study_environments import (
    alone,
    env_words,
    labels,
    metric_words,
    only_one_environment,
    scales,
)
from hpo.studies.train_study import single

SEVERAL = """\
env: [CartPole-v1, {id: rmsa, load: 200, scores: {random: 0.1, reference: 0.05}}, MountainCar-v0]
env_steps: 100k
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  env.force: {min: 0.001, max: 0.002}
over_environments: worst
evaluation: {steps: 500}
"""


def test_environment_list_is_loaded_with_scores():
    study = loads(SEVERAL)
    assert labels(study) == ("CartPole-v1", "rmsa", "MountainCar-v0")
    assert study.spread == 3
    assert study.over_environments == "worst"
    pole, car = reference_of("CartPole-v1"), reference_of("MountainCar-v0")
    found = [(one.random, one.reference) for one in scales(study)]
    measured = [(one.random, one.reference) for one in (pole, car)]
    assert found == [measured[0], (0.1, 0.05), measured[1]]
    assert study.baselines == ()
    assert metric_words(study) == "score"
    assert env_words(study) == "CartPole-v1, rmsa and MountainCar-v0"


def test_resolved_multi_environment_study_round_trip():
    study = loads(SEVERAL)
    again = loads(resolved_yaml(study), "study.resolved.yaml")
    assert resolved(again) == resolved(study)
    assert study_hash(again) == study_hash(study)
    assert "over_environments" not in resolved_yaml(loads("env: CartPole-v1\nenv_steps: 1k\n"))


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([{}], ["rmsa"]),
        ([{"k": 5, "load": 90.0}, {"k": 5}], ["rmsa_load=90", "rmsa"]),
        ([{"k": 5, "load": 0.25}, {"load": 1e6, "k": 5}], ["rmsa_load=0.25", "rmsa_load=1000000"]),
        ([{"k": 5, "no_op": True}, {"k": 10, "no_op": True}], ["rmsa_k=5", "rmsa_k=10"]),
        (
            [{"fits": ["first"]}, {"fits": ["first", "best"]}],
            ["rmsa_fits=_first_", "rmsa_fits=_first_best_"],
        ),
        (
            [{"topology": "a/b.json"}, {"topology": "a b.json"}],
            ["rmsa_topology=a_b.json", "rmsa_topology=a_b.json_2"],
        ),
    ],
)
def test_environments_with_same_id_are_labelled_by_differences(values, labels):
    asked = [EnvSpec("rmsa", one) for one in values]
    assert labels_of([EnvSpec("CartPole-v1", {"k": 1}), *asked]) == ("CartPole-v1", *labels)


def test_each_environment_has_only_its_parameters():
    study = loads(SEVERAL)
    assert [alone(study, at).space.names for at in range(3)] == [
        ("learning_rate",),
        ("learning_rate",),
        ("learning_rate", "env.force"),
    ]
    trained = single(study)
    assert [dict(one.values) for one in (trained.env, *trained.more_envs)] == [
        {},
        {"load": 200.0},
        {"force": study.space.default()["env.force"]},
    ]
    assert scales(trained) == scales(study)


def test_env_steps_include_all_environments():
    study = loads(SEVERAL + "budget: {trials: 4}\n")
    one = alone(study, 0)
    chunk_sizes = chunk_sizes_of(study, 1024)
    assert expected_steps(study, chunk_sizes).full == 3 * expected_steps(one, chunk_sizes).full
    with pytest.raises(StudyError, match="at least 313344"):
        loads(SEVERAL + "budget: {trials: 4, env_steps: 299k}\n")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("env: [CartPole-v1]", "env lists 1 environments; allowed: 2 to 64"),
        ("env: [CartPole-v1, CartPole-v1]", "env lists CartPole-v1 twice"),
        ("env: [CartPole-v1, Cartpol]", "did you mean 'CartPole-v1'"),
        ("env: [CartPole-v1, [Acrobot-v1]]", "allowed: {id: CartPole-v1}, or an id alone"),
        (
            "env: [CartPole-v1, Seaquest-MinAtar]",
            "Seaquest-MinAtar with metric eval/return_mean has no",
        ),
        ("env: [CartPole-v1, {id: Acrobot-v1, dt: 0.1}]", "Acrobot-v1 with a different dt has no"),
        ("env: [CartPole-v1, {id: rmsa, scores: {random: 1}}]", "allowed: {random: 0.1"),
        ("env: [CartPole-v1, {id: rmsa, scores: {random: 1, reference: 1}}]", "both 1; give two"),
        (
            "env: {id: CartPole-v1, scores: {random: 1, reference: 2}}",
            "several environments (here: one); remove",
        ),
        ("env: CartPole-v1\nover_environments: iqm", "over_environments applies only to several"),
        ("metric: {goal: minimize}", "remove goal"),
        ("objectives: [{name: eval/return_mean}, {name: eval/length_mean}]", "only env_steps and"),
        (
            "constraints: [{metric: eval/length_mean, max: 3}]",
            "constraints over several environments can use only env_steps and seconds",
        ),
        ("eval_env: {gravity: 9}", "eval_env works only with a single environment; remove it"),
        ("baselines: [ksp_ff]", "baselines need an optical network"),
        ("executor: {type: ray, workers: 2}", "several environments run in one process"),
        ("loggers: [tensorboard]", "loggers has tensorboard, which supports only a single"),
        ("space: {env.lenth: {min: 1, max: 2}}", "did you mean 'env.length'"),
        ("fixed: {distribution: gaussian}", "does not fit CartPole-v1"),
        ("over_environments: median", "Known: mean, iqm, worst"),
        (
            "env: [CartPole-v1, {id: rmsa, load: 150, scores: {random: 0.5, reference: 0.1}}]\n"
            "space: {env.load: {min: 100, max: 400}}",
            "env.load is searched and given under env:; remove one",
        ),
        (
            "env: [CartPole-v1, {id: rmsa, k: 7, scores: {random: 0.5, reference: 0.1}}]\n"
            "space: {env.k: {values: [5, 7]}}",
            "env.k is searched and given under env:; remove one",
        ),
    ],
)
def test_invalid_environment_list_is_refused_in_one_line(change, text):
    base = {"env": "env: [CartPole-v1, MountainCar-v0]", "env_steps": "env_steps: 10k"}
    base[change.partition(":")[0]] = change
    with pytest.raises(StudyError) as caught:
        loads("\n".join(base.values()))
    assert text in str(caught.value)
    assert "study.yaml:" in str(caught.value)


def test_metric_must_exist_in_every_known_environment(tmp_path):
    (tmp_path / "mine.py").touch()
    (tmp_path / "s.yaml").write_text(
        "env: [CartPole-v1, {id: mine, scores: {random: 0.9, reference: 0.1}}]\n"
        "env_steps: 10k\nimports: [mine.py]\nmetric: {name: eval/slip_share}\n"
    )
    with pytest.raises(StudyError, match="metric of CartPole-v1: unknown metric 'eval/slip_"):
        load(tmp_path / "s.yaml")


def test_single_environment_commands_refuse_several():
    with pytest.raises(
        ConfigError, match="a replay supports only a single environment, but study has"
    ):
        only_one_environment(loads(SEVERAL), "a replay")
