import dataclasses

import pytest

from hpo.studies.load import loads
from hpo.studies.spec import Seeds
from hpo.views.commands.train import _text

DATA = {
    "name": "small", "env": "CartPole-v1", "metric": "eval/return_mean", "state": "finished",
    "value": 2.0, "ci_low": 1.0, "ci_high": 3.0, "curve": [], "picture": None, "policy": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "told"),
    [([1.0, 3.0, 2.0], None), ([1.0, 3.0], "1 seed diverged"), ([2.0], "2 seeds diverged")],
)
def test_seeds_that_diverged_are_counted(values, told):
    study = dataclasses.replace(
        loads("env: CartPole-v1\nenv_steps: 4k\nbudget: {trials: 1}\n"), seeds=Seeds(3, tolerate=2)
    )
    text = _text(study, {**DATA, "seeds": len(values), "seed_values": values})
    lines = [line for line in text.splitlines() if line.startswith("lost")]
    assert lines == ([] if told is None else [f"lost     {told}: no value, no policy"])
