"""Objectives, constraints, racing, warm start and stopping rules in the study file."""

from dataclasses import replace

import pytest

from hpo.errors import StudyError
from hpo.studies.check import check
from hpo.studies.execution_spec import Budget
from hpo.studies.load import loads
from hpo.studies.resolved import resolved, resolved_yaml
from hpo.studies.search_spec import Constraint, Metric, Racing, WarmStart

BASE = """env: CartPole-v1
env_steps: 100k
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
"""
SEVERAL = "objectives: [{name: eval/return_mean}, {name: env_steps, goal: minimize}]\n"


def test_objectives_and_constraints_round_trip():
    text = (
        BASE + SEVERAL + "constraints: [{metric: eval/length_mean, max: 200}, "
        "{metric: seconds, min: 1, max: 2.5}]\nsearch: {warm_start: {study: old}, ahead: never}\n"
        "early_terminate: {type: plateau, min: 10k, patience: 3}\n"
    )
    study = loads(text)
    assert study.objectives == (Metric(), Metric("env_steps", "minimize"))
    assert study.metric == study.objectives[0]
    assert study.constraints == (
        Constraint("eval/length_mean", max=200.0),
        Constraint("seconds", 1.0, 2.5),
    )
    assert study.search.warm_start == WarmStart("old") and study.search.ahead == "never"
    assert study.early_terminate is not None and study.early_terminate.patience == 3
    assert resolved(loads(resolved_yaml(study), "study.yaml")) == resolved(study)
    raced = loads(BASE + "seeds: {per_config: 9, racing: {start: 4}}\n")
    assert raced.seeds.racing == Racing(4) and raced.seeds.first == 4
    assert resolved(loads(resolved_yaml(raced), "study.yaml")) == resolved(raced)
    said = check(replace(raced, budget=Budget(trials=8))).text()
    assert "expected with 4 seeds per trial (44% of 7,520,256 for 8 full trials)" in said


def test_one_objective_is_the_metric():
    study = loads(BASE + "objectives: [{name: eval/length_mean, goal: minimize}]\n")
    assert study.objectives == () and study.metric == Metric("eval/length_mean", "minimize")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SEVERAL + "metric: {goal: minimize}\n", "a `metric` and `objectives`"),
        ("objectives: [{name: env_steps}, {}]\n", "is a cost, which cannot come first"),
        ("objectives: [{}, {}]\n", "given twice"),
        ("objectives: [{}, {name: eval/retrun_mean}]\n", "did you mean 'eval/return_mean'"),
        ("metric: {name: env_steps}\n", "unknown metric 'env_steps'"),
        ("constraints: [{metric: eval/length_mean}]\n", "has no bound; give min or max"),
        ("constraints: [{max: 3}]\n", "constraints needs `metric`"),
        ("constraints: [{metric: eval/length_mean, min: 3, max: 2}]\n", "min 3 is above max 2"),
        (SEVERAL + "search: {method: cmaes}\n", "cmaes supports only one objective"),
        (SEVERAL + "seeds: {per_config: 5, racing: {}}\n", "racing supports only one objective"),
        (
            SEVERAL + "early_terminate: {type: pbt}\n",
            "objectives are not supported by pbt; give one",
        ),
        (
            "constraints: [{metric: eval/length_mean, max: 3}]\nearly_terminate: {type: pb2}\n",
            "constraints are not supported by pb2; remove them",
        ),
        ("seeds: {per_config: 3, racing: {}}\n", "starts with 3 seeds; allowed: below"),
        ("seeds: {per_config: 2, racing: {start: 5}}\n", "starts with 5 seeds; allowed: below"),
        ("seeds: {per_config: 9, tolerate: 3, racing: {}}\n", "allowed: below racing.start"),
        (
            "metric: {aggregate: median}\nseeds: {per_config: 9, racing: {}}\n",
            "racing compares means",
        ),
        (
            "early_terminate: {type: plateau}\nseeds: {per_config: 9, racing: {}}\n",
            "does not work with early_terminate.type: plateau",
        ),
        ("early_terminate: {type: plateau, min: 10}\n", "more than 1000 rungs"),
        ("early_terminate: {type: asha, patience: 3}\n", "patience is not a key of asha"),
        ("search: {warm_start: {folder: old}}\n", "unknown key 'folder'"),
        ("search: {ahead: sometimes}\n", "unknown ahead 'sometimes'"),
    ],
)
def test_objective_mistakes_are_reported_with_line(text, words):
    with pytest.raises(StudyError) as caught:
        loads(BASE + text)
    told = str(caught.value).splitlines()
    assert any(words in line and line.startswith("study.yaml:") for line in told), told
