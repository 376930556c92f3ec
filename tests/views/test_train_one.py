import dataclasses

import pytest

from hpo.studies.load import loads
from hpo.studies.spec import Seeds
from hpo.views.commands.train import _text

DATA = {
    "name": "small", "env": "CartPole-v1", "metric": "eval/return_mean", "state": "finished",
    "value": 2.0, "ci_low": 1.0, "ci_high": 3.0, "curve": [], "picture": None, "policy": None,
    "training_weight": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "told"),
    [([1.0, 3.0, 2.0], None), ([1.0, 3.0], "1 seed diverged"), ([2.0], "2 seeds diverged")],
)
def test_train_reports_diverged_seeds(values, told):
    study = dataclasses.replace(
        loads("env: CartPole-v1\nenv_steps: 4k\nbudget: {trials: 1}\n"), seeds=Seeds(3, tolerate=2)
    )
    text = _text(study, {**DATA, "seeds": len(values), "seed_values": values})
    lines = [line for line in text.splitlines() if line.startswith("lost")]
    assert lines == ([] if told is None else [f"lost     {told}: no value, no policy"])


def test_train_notes_values_with_training_returns():
    head = "env: CartPole-v1\nenv_steps: 4k\nbudget: {trials: 1}\n"
    plain, mixed = loads(head), loads(f"{head}metric: {{training_weight: 0.5}}\n")
    data = {**DATA, "seeds": 1, "seed_values": [2.0]}
    said = "eval/return_mean, mean of 1 seed, from evaluation episodes"
    assert said in _text(plain, data).splitlines()[2]
    told = _text(mixed, {**data, "training_weight": 0.5}).splitlines()[2].strip()
    assert told == "eval/return_mean with training returns, mean of 1 seed"
    assert said in _text(mixed, data).splitlines()[2]  # no training episode had ended
