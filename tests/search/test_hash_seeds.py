"""SMAC walks over a set of configurations, whose order depends on the process: not in ours."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.slow

CHILD = """
import json
from hpo.search.samplers import via_smac
from hpo.search.samplers.registry import PriorTrial, SamplerSpec
from hpo.spaces import Parameter, Space, make_distribution
from hpo.store.rows import TrialState

def parameter(name, default, **fields):
    return Parameter(name, make_distribution(fields), default)

space = Space((
    parameter("learning_rate", 3e-4, min=1e-5, max=1.0, distribution="log_uniform"),
    parameter("gamma", 0.99, min=0.8, max=0.9999, distribution="one_minus_log"),
    parameter("activation", "tanh", values=["tanh", "relu", "elu"]),
))
via_smac._CHALLENGERS = 500  # what is drawn at random takes most of the time
sampler = via_smac.Smac(SamplerSpec(space, 3, {"n_startup_trials": 3, "n_trees": 4}))
history = []
for trial in range(16):
    params = sampler.random(trial, 0)
    loss = abs(params["learning_rate"] - 0.01) + params["gamma"]
    history.append(PriorTrial(trial, params, state=TrialState.FINISHED, loss=loss))
batch = sampler.begin(1, history)
print(json.dumps([batch.draw(trial, 0).params for trial in (16, 17, 18)]))
"""


@pytest.mark.skipif(find_spec("smac") is None, reason="smac is not installed")
def test_smac_proposals_do_not_depend_on_hash_seed():
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (0, 1)
    ]
    told = [json.loads(child.communicate()[0]) for child in children]
    assert told[0] == told[1]
    assert len({json.dumps(params) for params in told[0]}) == 3
