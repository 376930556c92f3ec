from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpo
from hpo.studies.load import load, loads
from hpo.studies.resolved import diff, resolved, resolved_yaml, study_hash

ROOT = Path(hpo.__file__).parent
SHIPPED = sorted((ROOT / "studies").glob("*.yaml"))
BASE = SHIPPED[0].read_text()
FULL = """\
name: full
env: {id: CartPole-v1, gravity: 9.9}
env_steps: 800k
fixed: {num_envs: 8, optimiser: adamw}
space:
  hidden_sizes: {values: [[64, 64], [32]]}
  learning_rate:
    - {min: 1e-5, max: 1e-3, distribution: log_uniform, when: {hidden_sizes: [[64, 64]]}}
    - {min: 1e-3, max: 1e-2, q: 1e-3, when: {hidden_sizes: [32]}}
  weight_decay: {min: 1e-4, max: 0.1, distribution: log_uniform, zero: 0.3}
  value_clip_eps: {values: [off, same, 0.2]}
  log_std_init: {mu: -0.5, sigma: 0.3}
  update_epochs: {min: 1, max: 20, distribution: log_int_uniform}
  env.length: {min: 0.4, max: 0.6}
forbid:
  - {hidden_sizes: [32], update_epochs: [1, 2]}
  - env.length > 0.55 and value_clip_eps == "same"
enqueue: [{hidden_sizes: [32], learning_rate: 0.002}, {value_clip_eps: off}]
evaluation: {every: 50k, steps: 1000}
eval_env: {length: 0.5}
early_terminate: {type: median, min: 50k}
confirm: {top_k: 2}
budget: {trials: 9, wall: 2h30m}
loggers: [csv]
log_every: 10k
"""


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_studies_round_trip(path):
    if path.stem.startswith("rejax"):
        pytest.importorskip("rejax")
    study = load(path)
    again = loads(resolved_yaml(study), "study.resolved.yaml")
    assert again.default() == study.default() and again.space == study.space
    assert resolved(again) == resolved(study)
    assert study_hash(again) == study_hash(study)


def test_a_study_with_everything_round_trips():
    study = loads(FULL)
    text = resolved_yaml(study)
    assert loads(text).default() == study.default()
    assert resolved_yaml(loads(text)) == text


numbers = st.floats(1e-6, 1.0).map(lambda x: max(x, 1e-6))


@settings(deadline=None, max_examples=60)
@given(
    bounds=st.tuples(numbers, numbers).filter(lambda pair: pair[0] != pair[1]).map(sorted),
    zero=st.sampled_from([0.0, 0.1, 1 / 3]),
    seed=st.integers(0, 2**31 - 1),
    eta=st.floats(1.5, 9.0),
    steps=st.integers(1000, 10**9),
)
def test_any_number_round_trips(bounds, zero, seed, eta, steps):
    low, high = bounds
    study = loads(
        f"env: Pendulum-v1\nenv_steps: {steps}\nseed: {seed}\nspace:\n"
        f"  ent_coef: {{min: {low!r}, max: {high!r}, zero: {zero!r}, distribution: log_uniform}}\n"
        f"early_terminate: {{type: asha, min: 10, eta: {eta!r}}}\n"
    )
    again = loads(resolved_yaml(study))
    assert again.space == study.space and resolved(again) == resolved(study)


def test_the_hash_is_of_the_meaning_not_of_the_text():
    one = loads("env: CartPole-v1\nenv_steps: 200k\nfixed: {num_envs: 4, gamma: 0.9}\n")
    other = loads("fixed: {gamma: 0.90, num_envs: 4}\nenv_steps: 2e5\nenv: {id: CartPole-v1}\n")
    assert study_hash(one) == study_hash(other)
    changed = loads("fixed: {gamma: 0.91, num_envs: 4}\nenv_steps: 2e5\nenv: CartPole-v1\n")
    assert study_hash(changed) != study_hash(one)


def changes(*overrides):
    return diff(resolved(loads(FULL)), resolved(loads(FULL, overrides=overrides)))


def test_equal_studies_do_not_differ():
    assert changes() == []


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("budget.trials=10", True),
        ("budget.trials=null", True),
        ("budget.trials=8", False),
        ("budget.wall=1h", False),
        ("budget.env_steps=900M", False),
        ("loggers=[]", True),
        ("name=renamed", True),
        ("confirm.top_k=3", True),
        ("confirm=null", True),
        ("checkpoint.keep_best=0", True),
        ("seed=1", False),
        ("space.update_epochs.max=10", False),
        ("forbid=[]", False),
        ("evaluation.episodes=5", False),
        ("fixed.num_envs=16", False),
        ("population.lanes=8", False),
    ],
)
def test_only_allowed_changes_are_accepted_on_resume(override, allowed):
    found = changes(override)
    assert found
    assert all(change.allowed for change in found) is allowed
    assert all(bool(change.why) is not change.allowed for change in found)


def test_a_changed_key_is_shown_with_both_values():
    assert str(changes("budget.trials=8")[0]) == (
        "budget.trials: 9 -> 8 (a budget can only be raised)"
    )


def test_old_study_with_integer_bounds_suggests_int_uniform():
    """Whole bounds of a real knob were whole numbers once."""
    text = "env: CartPole-v1\nenv_steps: 8k\nspace: {ent_coef: {min: 0, max: 1}}\n"
    whole = text.replace("max: 1", "max: 1, distribution: int_uniform")
    (change,) = diff(resolved(loads(whole)), resolved(loads(text)))
    assert not change.allowed and "to resume, use int_uniform" in str(change)
    assert diff(resolved(loads(whole)), resolved(loads(whole))) == []


def test_resolved_auto_values_are_not_changes():
    ran = resolved(loads(FULL, overrides=["population.lanes=64", "population.device=cpu"]))
    assert diff(ran, resolved(loads(FULL))) == []


def test_the_order_of_parameters_counts():
    base = "env: CartPole-v1\nenv_steps: 200k\nspace:\n"
    one, other = "  gamma: {min: 0.9, max: 0.99}\n", "  vf_coef: {min: 0.1, max: 0.9}\n"
    found = diff(resolved(loads(base + one + other)), resolved(loads(base + other + one)))
    assert [change.key for change in found] == ["space (order)"]
    assert not found[0].allowed
