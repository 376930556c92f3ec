"""The study of `hpo train`, and the section `init`."""

from dataclasses import replace
from pathlib import Path

import pytest

from hpo.errors import StudyError
from hpo.studies.execution_spec import Init
from hpo.studies.load import load, loads
from hpo.studies.resolved import resolved, resolved_yaml
from hpo.studies.search_spec import Seeds
from hpo.studies.train_study import single

TEXT = """\
name: one
env: {id: CartPole-v1, gravity: 9.0}
env_steps: 100k
fixed: {gamma: 0.98}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform, default: 2e-3}
  env.length: {min: 0.4, max: 0.6, default: 0.45}
forbid: ["gamma < 0.5"]
enqueue: [{learning_rate: 1e-3}]
early_terminate: {type: asha, min: 10k}
seeds: {per_config: 3}
confirm: {top_k: 2}
budget: {trials: 50, env_steps: 90M, wall: 2h}
checkpoint: {keep_best: 0, parts: [optimiser]}
"""


def test_train_study_has_only_the_default_configuration():
    given = loads(TEXT)
    one = single(given)
    assert one.fixed == {"gamma": 0.98, "learning_rate": 2e-3}
    assert one.env.values == {"gravity": 9.0, "length": 0.45}
    assert one.space.parameters == () and one.enqueue == ()
    assert one.early_terminate is None and one.confirm is None
    assert (one.budget.trials, one.budget.env_steps) == (1, None)
    assert one.budget.wall_seconds == 7200.0
    assert one.evaluation.every == 10_000
    assert one.checkpoint.keep_best == 1 and one.checkpoint.parts == ("optimiser",)
    assert (
        one.checkpoint.each_seed and not single(replace(given, seeds=Seeds())).checkpoint.each_seed
    )
    for kept in ("name", "env_steps", "seeds", "metric", "seed", "loggers", "population"):
        assert getattr(one, kept) == getattr(given, kept)


def test_train_study_round_trip():
    one = single(loads(TEXT))
    assert resolved(loads(resolved_yaml(one))) == resolved(one)
    assert single(one) == one


def test_given_evaluation_interval_is_kept():
    assert single(loads(TEXT + "evaluation: {every: 25k}\n")).evaluation.every == 25_000


# ---------------------------------------------------------------------- init


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "policy" / "parts").mkdir(parents=True)
    (tmp_path / "policy" / "policy.json").write_text("{}")
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text("env: CartPole-v1\nenv_steps: 10k\n" + text)
    return path


def test_init_section_round_trip(policy):
    study = load(written(policy, "init: {from: policy, keep: critic}\n"))
    assert study.init == Init("policy", "critic", "fresh")
    data = resolved(study)["init"]
    assert data == {"from": "policy", "keep": "critic", "optimiser": "fresh"}
    for text in ("", "init: null\n", "init: off\n"):
        study = load(written(policy, text))
        assert study.init is None and resolved(study)["init"] is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("init: {from: nowhere}", "nowhere is not a policy folder, such as .../policies/trial_N"),
        ("init: {keep: all}", "init needs `from`: folder of a saved policy"),
        ("init: policy", "init is 'policy'; allowed: a mapping"),
        ("init: {from: policy, keep: actor}", "init: unknown keep 'actor'; "),
        (
            "init: {from: policy, keep: critic, optimiser: restored}",
            "`restored`, which needs keep: all, but keep is critic",
        ),
        (
            "init: {from: policy, optimiser: restored}",
            "has no optimiser state; save the policy with checkpoint",
        ),
        ("checkpoint: {parts: [weights]}", "allowed: a list of some of parameters, optimiser"),
        ("checkpoint: {parts: [optimiser, optimiser]}", "allowed: a list of some of"),
        ("checkpoint: {parts: optimiser}", "allowed: a list of some of"),
    ],
)
def test_init_mistakes_are_reported_with_line(policy, text, told):
    with pytest.raises(StudyError) as error:
        load(written(policy, f"{text}\n"))
    assert "x.yaml:3: " in str(error.value) and told in str(error.value)


def test_restored_optimiser_is_found_in_policy_folder(policy):
    (policy / "policy" / "parts" / "optimiser.npz").write_bytes(b"")
    study = load(written(policy, "init: {from: policy, optimiser: restored}\n"))
    assert study.init == Init("policy", "all", "restored")
