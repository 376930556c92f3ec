import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpo.store.rows import TrialState
from hpo.studies.load import loads
from hpo.studies.search_spec import Seeds
from hpo.views.commands.train import Trained


def text_of(study, values, training_weight=0.0):
    """Return the screen of a training with these values of seeds."""
    entry = SimpleNamespace(
        value=2.0, ci_low=1.0, ci_high=3.0, seeds=len(values), state=TrialState.FINISHED
    )
    row = SimpleNamespace(error="", seed_values=values)
    page = SimpleNamespace(
        entry=entry, row=row, curve=[], scores=None, training_weight=training_weight
    )
    return Trained(study, Path("small"), page, policy=None, seed_policies=[]).text()


@pytest.mark.parametrize(
    ("values", "told"),
    [([1.0, 3.0, 2.0], None), ([1.0, 3.0], "1 seed diverged"), ([2.0], "2 seeds diverged")],
)
def test_train_reports_diverged_seeds(values, told):
    study = dataclasses.replace(
        loads("env: CartPole-v1\nenv_steps: 4k\nbudget: {trials: 1}\n"), seeds=Seeds(3, tolerate=2)
    )
    text = text_of(study, values)
    lines = [line for line in text.splitlines() if line.startswith("lost")]
    assert lines == ([] if told is None else [f"lost     {told} and left no value or policy"])


def test_train_notes_values_with_training_returns():
    head = "env: CartPole-v1\nenv_steps: 4k\nbudget: {trials: 1}\n"
    plain, mixed = loads(head), loads(f"{head}metric: {{training_weight: 0.5}}\n")
    said = "eval/return_mean, mean of 1 seed, from evaluation episodes"
    assert said in text_of(plain, [2.0]).splitlines()[2]
    told = text_of(mixed, [2.0], 0.5).splitlines()[2].strip()
    assert told == "eval/return_mean with training returns, mean of 1 seed"
    assert said in text_of(mixed, [2.0]).splitlines()[2]  # no training episode had ended
