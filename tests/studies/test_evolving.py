"""`early_terminate: {type: pbt | pb2}` in a study file: what it means and what is refused."""

import pytest

from hpo.errors import StudyError
from hpo.studies.check import check
from hpo.studies.chunk_sizes import chunk_sizes_of, rung_steps
from hpo.studies.load import loads
from hpo.studies.resolved import resolved, resolved_yaml

BASE = """\
env: CartPole-v1
env_steps: 160k
space:
  learning_rate: {min: 1e-5, max: 1e-2}
budget: {trials: 8}
"""


def test_pbt_defaults_are_resolved():
    study = loads(BASE + "early_terminate: {type: pbt}\n")
    early = study.early_terminate
    assert early.evolves and early.every == 10_000
    assert (early.quantile, early.resample, early.perturb) == (0.25, 0.25, (0.8, 1.25))
    written = resolved(study)["early_terminate"]
    assert written == {
        "type": "pbt",
        "every": 10_000,
        "quantile": 0.25,
        "resample": 0.25,
        "perturb": [0.8, 1.25],
    }
    assert resolved(loads(resolved_yaml(study))) == resolved(study)
    asha = loads(BASE + "early_terminate: {type: asha, min: 10k}\n")
    assert set(resolved(asha)["early_terminate"]) == {"type", "min", "eta", "audit"}
    assert not asha.early_terminate.evolves


def test_rungs_are_the_multiples_of_every():
    study = loads(BASE + "early_terminate: {type: pb2, every: 50k, perturb: [0.5, 2, 4]}\n")
    assert rung_steps(study) == (50_000, 100_000, 150_000)
    assert study.early_terminate.perturb == (0.5, 2.0, 4.0)
    chunk_sizes = chunk_sizes_of(study, 1_024)
    assert len(chunk_sizes.rung_chunks) == 3
    assert "pb2 every 50,000 env steps" in check(study).text()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("early_terminate: {type: pbt, eta: 3}", 6, "early_terminate.eta is not a key of pbt"),
        ("early_terminate: {type: asha, every: 3k}", 6, "every is not a key of asha"),
        ("early_terminate: {type: pbt, every: 160k}", 6, "allowed: below the run length"),
        ("early_terminate: {type: pbt, every: 3}", 6, "at most 1000 copies per run"),
        ("early_terminate: {type: pbt, quantile: 0.6}", 6, "above 0 and at most 0.5"),
        ("early_terminate: {type: pbt, quantile: 0}", 6, "above 0"),
        ("early_terminate: {type: pbt, perturb: []}", 6, "a list of numbers"),
        ("early_terminate: {type: pbt, perturb: [0.8, up]}", 6, "a list of numbers"),
        ("early_terminate: {type: pbt, perturb: 0.8}", 6, "a list of numbers"),
        ("early_terminate: {type: pbt, perturb: [-1]}", 6, "a list of numbers"),
        (
            "early_terminate: {type: pbt}\npopulation: {lanes: 12}\nseeds: {per_config: 2}",
            7,
            "set lanes: 16, or auto",
        ),
    ],
)
def test_invalid_pbt_settings_are_refused_with_line(text, line, words):
    with pytest.raises(StudyError) as caught:
        loads(BASE + text + "\n")
    assert any(m.line == line and words in m.text for m in caught.value.mistakes), caught.value


def test_pbt_with_static_hyperparameters_is_refused():
    text = BASE.replace("space:\n", "space:\n  hidden_sizes: {values: [[8], [16]]}\n")
    with pytest.raises(StudyError) as caught:
        loads(text + "early_terminate: {type: pbt}\n")
    (mistake,) = caught.value.mistakes
    assert mistake.line == 4 and "compiled into the program" in mistake.text


def test_pbt_with_static_environment_keys_is_refused():
    text = "env: {id: rmsa, topology: ring4}\nenv_steps: 100k\nbudget: {trials: 8}\n"
    text += "early_terminate: {type: pbt}\nspace:\n  env.k: {values: [2, 3]}\n"
    with pytest.raises(StudyError, match=r"env\.k is compiled into the program"):
        loads(text)


def test_pbt_needs_at_least_two_trials():
    text = BASE.replace("trials: 8", "trials: null, env_steps: 10M")
    with pytest.raises(StudyError, match=r"budget\.trials must be at least 2"):
        loads(text + "early_terminate: {type: pbt}\n")
